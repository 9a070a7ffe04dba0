//! What can go wrong with a store, shaped by what the caller does next.

use std::error::Error;
use std::fmt;

/// What the caller does about a failed store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It did not happen (not reached, refused before it was carried out). The same call may be made again.
    Unavailable,
    /// It did not happen: the store asks for less. Made again after a pause.
    Throttled,
    /// It may have happened: the time ran out, or the reply was lost. The caller must not assume either.
    MayHaveHappened,
    /// It will fail again until somebody changes a setting, a table or a permission: the run ends in the error.
    Misconfigured,
}

/// A store call that failed. Says what was done, to what, and keeps its cause.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// A failure with no deeper cause. `message` names the call, and the item or setting at fault.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The failure, with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller does next.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether only a change of settings, table or permissions helps.
    pub fn is_misconfiguration(&self) -> bool {
        self.kind == StoreErrorKind::Misconfigured
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Shows an error with all its causes, for the place that logs it: each layer prints itself alone.
///
/// ```
/// use outbox::{Chain, StoreError, StoreErrorKind};
///
/// let error = StoreError::new(StoreErrorKind::Unavailable, "query of bucket 3 failed").because("connection reset");
/// assert_eq!(Chain(&error).to_string(), "query of bucket 3 failed: connection reset");
/// ```
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A cycle of causes, or a library that nests without end, must not fill the log.
        const DEEPEST: usize = 12;
        let mut shown = self.0.to_string();
        f.write_str(&shown)?;
        let mut cause = self.0.source();
        for _ in 0..DEEPEST {
            let Some(error) = cause else { break };
            let text = error.to_string();
            // Some libraries print their source too: once is enough.
            if !text.is_empty() && !shown.ends_with(&text) {
                write!(f, ": {text}")?;
                shown = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}
