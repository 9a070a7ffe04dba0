//! The broker that was taken, whichever it is.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use tokio::sync::Mutex;

use super::acl::{self, Entry, Operation, Permission, Resource};
use super::client::{self, Probe};
use super::error::{BrokerError, ClientError};
use super::jars::kafka_version;
use super::mock::Mock;
use super::options::{BrokerOptions, Require};
use super::secured::{Secured, check_users};
use super::security::{SUPER_USER, Security};
use super::server::{Server, find_parts};
use crate::link::Link;

/// Which broker it is. `Display` is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The one that the caller or `KAFKA_BOOTSTRAP_SERVERS` named.
    External {
        /// Its address.
        servers: String,
    },
    /// A real Apache Kafka, started here.
    Started {
        /// Its release.
        version: String,
    },
    /// librdkafka's mock cluster.
    Mock {
        /// Why there is nothing better.
        why: String,
    },
}

impl Kind {
    /// Whether it is a real broker.
    pub fn is_real(&self) -> bool {
        !matches!(self, Self::Mock { .. })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::External { servers } => write!(f, "external, at {servers}"),
            Self::Started { version } => write!(f, "Apache Kafka {version}, started here"),
            Self::Mock { why } => write!(f, "librdkafka's mock cluster, because {why}"),
        }
    }
}

/// A broker to produce to and consume from. Dropping it ends what was started here.
///
/// All methods take `&self`: one broker can serve many tests.
#[derive(Debug)]
pub struct Broker {
    kind: Kind,
    address: String,
    secured: Option<(String, Secured)>,
    link: Option<(String, Arc<Link>)>,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    External,
    Started(Box<Mutex<Server>>),
    Mock(Mock),
}

impl Broker {
    /// Takes the best broker that `options` and this machine allow, and waits until it answers.
    ///
    /// The jars of a real one are downloaded at its first start. A broker that could be started and then fails
    /// is an error, not a reason to take the mock.
    ///
    /// Dropping the future ends what was started so far.
    pub async fn start(options: BrokerOptions) -> Result<Self, BrokerError> {
        check_users(&options)?;
        if let Some(servers) = &options.bootstrap_servers {
            let kind = Kind::External { servers: servers.clone() };
            refuse_what_is_ours_alone(&options, &kind)?;
            await_external(servers, options.external_bound).await?;
            let address = servers.clone();
            return Ok(Self { kind, address, secured: None, link: None, inner: Inner::External });
        }
        match (find_parts(&options).await, options.require) {
            (Ok((java, jars)), _) => {
                let server = Server::start(java, jars, &options).await?;
                let kind = Kind::Started { version: kafka_version().to_owned() };
                Ok(Self {
                    kind,
                    address: server.address().to_owned(),
                    secured: server.secure_address().map(str::to_owned).zip(server.secured().cloned()),
                    link: server.link().map(|link| (link.address().to_string(), Arc::clone(link))),
                    inner: Inner::Started(Box::new(Mutex::new(server))),
                })
            }
            (Err(why), Require::Real) => Err(BrokerError::NotReal(why)),
            (Err(why), Require::Any) => {
                let kind = Kind::Mock { why: why.to_string() };
                refuse_what_is_ours_alone(&options, &kind)?;
                let mock = Mock::start().await?;
                let address = mock.address().to_owned();
                Ok(Self { kind, address, secured: None, link: None, inner: Inner::Mock(mock) })
            }
        }
    }

    /// What clients put into `bootstrap.servers`. The same before and after a restart, and never through the link.
    ///
    /// Plaintext, whatever [`BrokerOptions::security`] says: the administrator's way in, who may do everything.
    pub fn bootstrap_servers(&self) -> &str {
        &self.address
    }

    /// What clients that speak [`BrokerOptions::security`] put into `bootstrap.servers`; `None` where that is plaintext.
    /// The same before and after a restart, and never through the link.
    pub fn secure_servers(&self) -> Option<&str> {
        self.secured.as_ref().map(|(address, _)| address.as_str())
    }

    /// The CA that vouches for the broker, in PEM, for `ssl.ca.location`; `None` where it speaks plaintext. It is made
    /// for this broker, which removes the file when it is dropped.
    pub fn ca_file(&self) -> Option<&Path> {
        self.secured.as_ref().map(|(_, secured)| secured.ca_file.as_path())
    }

    /// A user who may do everything, and the password of all users; `None` without [`Security::Scram`].
    ///
    /// With [`Security::OauthBearer`], [`unsecured_token`](super::unsecured_token) makes what a client shows instead.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        let (_, secured) = self.secured.as_ref()?;
        Some((SUPER_USER, secured.password.as_ref()?.reveal()))
    }

    /// What clients behind the link put into `bootstrap.servers`; `None` without [`BrokerOptions::behind_link`]. They
    /// speak [`BrokerOptions::security`].
    ///
    /// All their traffic goes through [`link`](Self::link), since that is the address the broker gives them. The same
    /// before and after a restart. While the broker is stopped, the link accepts connections and resets them.
    pub fn linked_servers(&self) -> Option<&str> {
        self.link.as_ref().map(|(address, _)| address.as_str())
    }

    /// The network between the broker and the clients of [`linked_servers`](Self::linked_servers).
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref().map(|(_, link)| &**link)
    }

    /// Which broker was taken, and why no better one.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Creates a topic and waits until it can be used. One that exists already is left as it is.
    pub async fn create_topic(&self, topic: &str, partitions: u32) -> Result<(), ClientError> {
        match &self.inner {
            Inner::Mock(mock) => mock.create_topic(topic, partitions).await,
            Inner::External | Inner::Started(_) => {
                client::create_topic(&self.address, topic, partitions).await
            }
        }
    }

    /// As [`create_topic`](Self::create_topic), with settings of the topic, such as `max.message.bytes`. The mock
    /// has none: it is refused.
    pub async fn create_topic_with(
        &self,
        topic: &str,
        partitions: u32,
        settings: &[(&str, &str)],
    ) -> Result<(), ClientError> {
        match &self.inner {
            Inner::Mock(_) => Err(ClientError::NoTopicSettings { topic: topic.to_owned() }),
            Inner::External | Inner::Started(_) => {
                client::create_topic_with(&self.address, topic, partitions, settings).await
            }
        }
    }

    /// Lets a principal do something from now on: a user, or the subject of a token. Without an entry it may do nothing.
    ///
    /// [`SUPER_USER`], and everybody who comes by [`bootstrap_servers`](Self::bootstrap_servers), may do everything,
    /// whatever the entries say. Where a broker does not know its clients this is an error.
    pub async fn allow(
        &self,
        principal: &str,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Result<(), ClientError> {
        let permission = Permission::Allow;
        acl::add(self.lists()?, Entry { principal, permission, operation, resource }).await
    }

    /// Keeps a principal from doing something from now on, whatever else it is [allowed](Self::allow).
    pub async fn deny(
        &self,
        principal: &str,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Result<(), ClientError> {
        let permission = Permission::Deny;
        acl::add(self.lists()?, Entry { principal, permission, operation, resource }).await
    }

    /// Takes back everything that a principal was allowed or denied.
    pub async fn forget(&self, principal: &str) -> Result<(), ClientError> {
        acl::remove_all(self.lists()?, principal).await
    }

    /// Where to change who may do what.
    fn lists(&self) -> Result<&str, ClientError> {
        let security = self.secured.as_ref().map_or(Security::Plaintext, |(_, secured)| secured.security);
        match security.knows_principals() {
            true => Ok(&self.address),
            false => Err(ClientError::NoPrincipals { security, kind: self.kind.to_string() }),
        }
    }

    /// Stops the broker in good order; its port and data are kept for [`restart`](Self::restart).
    pub async fn stop(&self) -> Result<(), BrokerError> {
        self.server()?.lock().await.stop().await
    }

    /// Kills the broker as a power cut would; its port and data are kept for [`restart`](Self::restart).
    pub async fn kill(&self) -> Result<(), BrokerError> {
        self.server()?.lock().await.kill()
    }

    /// Starts the stopped or killed broker again and waits until it answers. A running one is left alone.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        self.server()?.lock().await.restart().await
    }

    /// Makes the broker half reachable (`true`: it accepts connections and never answers) and whole again.
    pub async fn freeze(&self, frozen: bool) -> Result<(), BrokerError> {
        self.server()?.lock().await.freeze(frozen)
    }

    fn server(&self) -> Result<&Mutex<Server>, BrokerError> {
        match &self.inner {
            Inner::Started(server) => Ok(server),
            Inner::External | Inner::Mock(_) => Err(BrokerError::NotOurs { kind: self.kind.to_string() }),
        }
    }
}

fn refuse_what_is_ours_alone(options: &BrokerOptions, kind: &Kind) -> Result<(), BrokerError> {
    let kind = kind.to_string();
    if options.security != Security::Plaintext {
        return Err(BrokerError::NoSecurity { security: options.security, kind });
    }
    if options.behind_link {
        return Err(BrokerError::NoLink { kind });
    }
    Ok(())
}

async fn await_external(servers: &str, bound: Duration) -> Result<(), BrokerError> {
    let probe = Probe::new(servers)?;
    let deadline = Instant::now() + bound;
    let mut last: Option<KafkaError> = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let (true, Some(source)) = (left.is_zero(), last.take()) {
            return Err(BrokerError::NoAnswer { servers: servers.to_owned(), bound, source });
        }
        match probe.answers(left.min(Duration::from_secs(2))).await? {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broker_of_our_own_can_be_behind_a_link() {
        let kind = Kind::Mock { why: "there is no Java".to_owned() };
        refuse_what_is_ours_alone(&BrokerOptions::default(), &kind).unwrap();
        let options = BrokerOptions { behind_link: true, ..BrokerOptions::default() };
        let error = refuse_what_is_ours_alone(&options, &kind).unwrap_err();
        assert!(matches!(error, BrokerError::NoLink { .. }), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("mock") && error.contains("there is no Java"), "{error}");
    }

    #[test]
    fn only_a_broker_of_our_own_can_be_secured() {
        let kind = Kind::Mock { why: "there is no Java".to_owned() };
        for security in [Security::Tls, Security::Scram, Security::OauthBearer] {
            let options = BrokerOptions { security, ..BrokerOptions::default() };
            let error = refuse_what_is_ours_alone(&options, &kind).unwrap_err();
            assert!(matches!(error, BrokerError::NoSecurity { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(&security.to_string()) && error.contains("there is no Java"), "{error}");
        }
    }
}
