//! Why there is no database.

use std::io;

use thiserror::Error;

/// Why the local DynamoDB could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The endpoint is not a URL of the form `http(s)://host[:port]`.
    #[error("AWS_ENDPOINT_URL_DYNAMODB is {value:?}; it must be http(s)://host[:port]")]
    Endpoint {
        /// The value.
        value: String,
    },
    /// A port or thread could not be had.
    #[error("could not {what} for the local DynamoDB")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The embedded database did not open.
    #[error("the embedded DynamoDB did not open")]
    Embedded(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DatabaseError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
