//! What the publisher shows to the brokers, and where it has it from.
//!
//! This crate knows no cloud: whoever puts the parts together brings a [`CredentialSource`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::auth::Auth;

/// Obtains credentials for the brokers.
///
/// Asked by async code, outside the client's threads and within a time limit, one request at a time. What it gives is
/// kept; it is asked again when that has become old, or the brokers have refused it.
pub trait CredentialSource: fmt::Debug + Send + Sync + 'static {
    /// What is obtained and from where, for the error of a request that takes too long: names the setting.
    fn what(&self) -> String;

    /// Obtains a credential that is as new as can be had.
    ///
    /// # Errors
    /// Says which step failed, and names the setting at fault. Never quotes a secret.
    ///
    /// # Cancellation
    /// Dropped when its time is up.
    fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>>;
}

/// What proves to a broker who the client is. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// For SCRAM.
    #[non_exhaustive]
    Login {
        /// The user name.
        username: String,
        /// The password.
        password: String,
    },
    /// For OAUTHBEARER.
    #[non_exhaustive]
    Token {
        /// The token itself.
        value: String,
        /// Whom it stands for: what the client's log calls it, and no broker looks at.
        principal: String,
        /// How long after it was asked for a broker takes it.
        life: Duration,
    },
}

impl Credential {
    /// A user name and a password; `None`: one of them is empty, or is text that no client can send.
    pub fn login(username: impl Into<String>, password: impl Into<String>) -> Option<Self> {
        let (username, password) = (username.into(), password.into());
        let can_be_sent = |text: &str| !text.is_empty() && !text.contains('\0');
        (can_be_sent(&username) && can_be_sent(&password)).then_some(Self::Login { username, password })
    }

    /// A token; `None`: it is empty, or no client can send it (RFC 7628 has printable ASCII).
    pub fn token(value: impl Into<String>, principal: impl Into<String>, life: Duration) -> Option<Self> {
        let (value, principal) = (value.into(), principal.into());
        let can_be_sent = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        (can_be_sent(&value) && can_be_sent(&principal)).then_some(Self::Token { value, principal, life })
    }

    /// Whether it is of the kind that `auth` takes.
    pub(crate) const fn suits(&self, auth: &Auth) -> bool {
        matches!(
            (self, auth),
            (Self::Login { .. }, Auth::Scram { .. }) | (Self::Token { .. }, Auth::Iam { .. })
        )
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login { .. } => f.debug_struct("Login").finish_non_exhaustive(),
            Self::Token { life, .. } => f.debug_struct("Token").field("life", life).finish_non_exhaustive(),
        }
    }
}

/// Why there is no credential.
#[derive(Clone, Debug)]
pub struct CredentialError {
    misconfigured: bool,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl CredentialError {
    /// It may be there later: a service that was not reached, or throttles. `message` says which step failed, and names
    /// the setting.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { misconfigured: false, message: message.into(), source: None }
    }

    /// There is none until somebody changes a setting, a secret or a permission.
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self { misconfigured: true, message: message.into(), source: None }
    }

    /// The failure, with its cause, which quotes no secret.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Whether only a change of settings, secrets or permissions helps.
    pub const fn is_misconfiguration(&self) -> bool {
        self.misconfigured
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CredentialError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_client_can_send_is_no_credential() {
        assert!(Credential::login("relay", "hunter2 und schöner").is_some());
        for (username, password) in [("", "p"), ("u", ""), ("u", "p\0q")] {
            assert_eq!(Credential::login(username, password), None);
        }
        assert!(Credential::token("aGk_-", "relay", Duration::from_secs(1)).is_some());
        for value in ["", "a b", "a\nb", "ä"] {
            assert_eq!(Credential::token(value, "relay", Duration::from_secs(1)), None);
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let login = Credential::login("relay", "hunter2");
        let token = Credential::token("hunter2", "relay", Duration::from_secs(1));
        assert!(!format!("{login:?}{token:?}").contains("hunter2"));
    }
}
