//! What a client needs to pass a secured listener.

use std::fmt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::certificates;
use super::error::BrokerError;
use super::options::BrokerOptions;
use super::security::{SUPER_USER, Security};

/// Made once for a broker: it stays valid over its stops and kills.
#[derive(Debug, Clone)]
pub(super) struct Secured {
    pub(super) security: Security,
    pub(super) ca_file: PathBuf,
    /// All users have one password, with [`Security::Scram`].
    pub(super) password: Option<Password>,
    users: Vec<String>,
}

/// Not to be seen in a log.
#[derive(Clone)]
pub(super) struct Password(String);

impl Password {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Secured {
    /// Writes into the broker's directory what its settings refer to; `None` for a broker without security.
    pub(super) fn new(options: &BrokerOptions, directory: &Path) -> Result<Option<Self>, BrokerError> {
        let security = options.security;
        if !security.is_secured() {
            return Ok(None);
        }
        let ca_file = certificates::write(directory)?;
        let password = (security == Security::Scram).then(|| Password(Uuid::new_v4().simple().to_string()));
        let users = [SUPER_USER.to_owned()].into_iter().chain(options.users.iter().cloned()).collect();
        Ok(Some(Self { security, ca_file, password, users }))
    }

    /// The users, as Kafka's tool takes them at the formatting.
    pub(super) fn scram(&self) -> Vec<String> {
        let Some(password) = &self.password else {
            return Vec::new();
        };
        let password = password.reveal();
        self.users.iter().map(|user| format!("SCRAM-SHA-512=[name={user},password={password}]")).collect()
    }
}

/// Users are no use without SCRAM, and their names go into a list of Kafka's own form.
pub(super) fn check_users(options: &BrokerOptions) -> Result<(), BrokerError> {
    if options.security != Security::Scram && !options.users.is_empty() {
        return Err(BrokerError::NoUsers { security: options.security });
    }
    let is_name = |user: &str| {
        !user.is_empty()
            && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    match options.users.iter().find(|user| !is_name(user)) {
        Some(user) => Err(BrokerError::UserName { user: user.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(security: Security, users: &[&str]) -> BrokerOptions {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        BrokerOptions { security, users, ..BrokerOptions::default() }
    }

    #[test]
    fn users_need_scram_and_a_plain_name() {
        check_users(&options(Security::OauthBearer, &[])).unwrap();
        check_users(&options(Security::Scram, &["alice", "b_2-c"])).unwrap();
        let error = check_users(&options(Security::OauthBearer, &["alice"])).unwrap_err().to_string();
        assert!(error.contains("OAUTHBEARER"), "{error}");
        for bad in ["", "a,b", "a]", "a b", "ä"] {
            let error = check_users(&options(Security::Scram, &["alice", bad])).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn the_password_is_in_no_debug_text() {
        let directory = tempfile::tempdir().unwrap();
        let secured = Secured::new(&options(Security::Scram, &["alice"]), directory.path()).unwrap().unwrap();
        let password = secured.password.as_ref().unwrap().reveal();
        assert!(!format!("{secured:?}").contains(password));
        let expected = format!("SCRAM-SHA-512=[name=alice,password={password}]");
        assert_eq!(secured.scram()[1], expected);
    }
}
