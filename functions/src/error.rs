//! How an invocation fails.

use std::error::Error;

use lambda_runtime::Diagnostic;
use outbox::Chain;

/// Why an invocation failed. Its text is what an operator reads first: the whole chain of causes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// It fails until somebody changes a setting, a table or a permission.
    #[error("{0}")]
    Misconfigured(String),
    /// The payload is not an event that this function is for.
    #[error("{0}")]
    UnknownEvent(String),
    /// Nothing could be published: the broker or the table cannot be reached. The messages are kept.
    #[error("{0}")]
    Unavailable(String),
}

impl FunctionError {
    /// The failure for a cause that only a change of settings, table or permissions mends.
    pub fn misconfigured(cause: &(dyn Error + 'static)) -> Self {
        Self::Misconfigured(Chain(cause).to_string())
    }
}

/// As the Runtime API reports it: the type is ours, and does not follow from a Rust type's name.
impl From<FunctionError> for Diagnostic {
    fn from(error: FunctionError) -> Self {
        let error_type = match error {
            FunctionError::Misconfigured(_) => "Outbox.Misconfigured",
            FunctionError::UnknownEvent(_) => "Outbox.UnknownEvent",
            FunctionError::Unavailable(_) => "Outbox.Unavailable",
        };
        Self { error_type: error_type.to_owned(), error_message: error.to_string() }
    }
}
