//! What decides which broker is taken.

use std::time::Duration;

use super::error::RequireError;
use super::security::Security;

/// Names an external broker (or several, with commas), as for the functions.
pub const KAFKA_BOOTSTRAP_SERVERS: &str = "KAFKA_BOOTSTRAP_SERVERS";
/// `real` makes anything less than a real broker an error; `any`, the default, accepts the mock.
pub const LOCAL_KAFKA_REQUIRE: &str = "LOCAL_KAFKA_REQUIRE";

/// How real the broker must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Require {
    /// The best that can be had here.
    #[default]
    Any,
    /// An external broker or one started here; never the mock.
    Real,
}

/// What [`Broker::start`](super::Broker::start) goes by.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// An external broker; `None` or nothing but blanks: start one here.
    pub bootstrap_servers: Option<String>,
    /// How real the broker must be.
    pub require: Require,
    /// What its clients speak with it. Only one started here can speak anything but plaintext.
    pub security: Security,
    /// The users of [`Security::Scram`] besides [`SUPER_USER`](super::SUPER_USER). They may do nothing that they are not
    /// [allowed](super::Broker::allow), and all have the same [password](super::Broker::credentials).
    pub users: Vec<String>,
    /// Whether the broker also listens behind a [`Link`](crate::link::Link), for clients whose network is to be
    /// broken: [`Broker::linked_servers`](super::Broker::linked_servers). Only one started here can.
    pub behind_link: bool,
    /// The longest a broker may take from its start to its first answer.
    pub start_bound: Duration,
    /// The longest that an external broker may take to answer.
    pub external_bound: Duration,
    /// The longest that downloading the jars may take.
    pub download_bound: Duration,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            bootstrap_servers: None,
            require: Require::Any,
            security: Security::Plaintext,
            users: Vec::new(),
            behind_link: false,
            start_bound: Duration::from_secs(60),
            external_bound: Duration::from_secs(15),
            download_bound: Duration::from_secs(600),
        }
    }
}

impl BrokerOptions {
    /// Reads [`KAFKA_BOOTSTRAP_SERVERS`] and [`LOCAL_KAFKA_REQUIRE`].
    pub fn from_env() -> Result<Self, RequireError> {
        Self::from_values(
            std::env::var(KAFKA_BOOTSTRAP_SERVERS).ok(),
            std::env::var(LOCAL_KAFKA_REQUIRE).ok(),
        )
    }

    fn from_values(bootstrap_servers: Option<String>, require: Option<String>) -> Result<Self, RequireError> {
        let require = match require.as_deref().map(str::trim) {
            None | Some("" | "any") => Require::Any,
            Some("real") => Require::Real,
            Some(other) => {
                return Err(RequireError { value: other.to_owned() });
            }
        };
        Ok(Self {
            bootstrap_servers: bootstrap_servers.filter(|servers| !servers.trim().is_empty()),
            require,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(servers: Option<&str>, require: Option<&str>) -> Result<BrokerOptions, RequireError> {
        BrokerOptions::from_values(servers.map(str::to_owned), require.map(str::to_owned))
    }

    #[test]
    fn nothing_set_accepts_anything() {
        let options = values(None, None).unwrap();
        assert_eq!(options.bootstrap_servers, None);
        assert_eq!(options.require, Require::Any);
    }

    #[test]
    fn blank_values_count_as_unset() {
        let options = values(Some(" "), Some("")).unwrap();
        assert_eq!(options.bootstrap_servers, None);
        assert_eq!(options.require, Require::Any);
    }

    #[test]
    fn a_misspelt_requirement_is_refused_by_name() {
        let error = values(None, Some("reel")).unwrap_err().to_string();
        assert!(error.contains("LOCAL_KAFKA_REQUIRE") && error.contains("reel"), "{error}");
    }
}
