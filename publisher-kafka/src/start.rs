//! Why there is no publisher.

use crate::auth::AUTH;
use crate::ca::CaError;
use crate::error::ClientError;

/// A publisher cannot be made from its settings. Another try has the same end, until somebody changes them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The client cannot be made, or lacks a feature that the settings need.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There are no certificates to check the brokers' with.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// It was given no source of credentials.
    #[error("{AUTH}={auth} needs credentials, and the publisher was made without any")]
    NoCredentials {
        /// What `KAFKA_AUTH` says.
        auth: &'static str,
    },
}
