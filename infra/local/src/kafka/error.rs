//! What can go wrong with the local broker.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use thiserror::Error;

use super::security::Security;

/// Why no real broker could be started here. Not an error by itself: the mock takes over, and says why.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// There is no directory to keep the jars in.
    #[error("there is no cache directory: neither XDG_CACHE_HOME nor HOME is set")]
    NoCacheDirectory,
    /// No Java at all, or none that is new enough.
    #[error("Java {needed} or newer is needed, found {found}")]
    Java {
        /// The oldest release that Kafka runs on.
        needed: u32,
        /// What was looked at, and what it was.
        found: String,
    },
    /// The jars are not cached yet, and there is no Maven to fetch them.
    #[error("Kafka's jars are not cached yet, and Maven (mvn) could not be started: {tail}")]
    Maven {
        /// What the shell said about it.
        tail: String,
    },
    /// Maven ran and failed.
    #[error("Maven could not fetch Kafka's jars; the end of its output:\n{tail}")]
    Download {
        /// The last lines that Maven printed.
        tail: String,
    },
    /// Maven did not finish in time.
    #[error("Maven did not fetch Kafka's jars within {} s", bound.as_secs())]
    DownloadTooSlow {
        /// How long it was given.
        bound: Duration,
    },
    /// The cache directory could not be read or written.
    #[error("could not {what} {}", path.display())]
    Cache {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// `LOCAL_KAFKA_REQUIRE` has a value that means nothing.
#[derive(Debug, Error)]
#[error("LOCAL_KAFKA_REQUIRE is {value:?}; allowed are \"any\" and \"real\"")]
pub struct RequireError {
    /// The value.
    pub value: String,
}

/// Why there is no broker.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// A real broker is required, and none can be had.
    #[error("LOCAL_KAFKA_REQUIRE asks for a real broker, and none can be started here")]
    NotReal(#[source] Unavailable),
    /// Nothing answered at the external address.
    #[error("no Kafka broker answered at {servers} within {} s (KAFKA_BOOTSTRAP_SERVERS)", bound.as_secs())]
    NoAnswer {
        /// The address.
        servers: String,
        /// How long it was given.
        bound: Duration,
        /// The client's last error.
        #[source]
        source: KafkaError,
    },
    /// The broker's process ended by itself while it was awaited.
    #[error("the Kafka broker ended during its start; the end of its log:\n{tail}")]
    Ended {
        /// The last lines of its log.
        tail: String,
    },
    /// The broker runs and does not answer.
    #[error("the Kafka broker did not answer within {} s; the end of its log:\n{tail}", bound.as_secs())]
    NotReady {
        /// How long it was given.
        bound: Duration,
        /// The last lines of its log.
        tail: String,
    },
    /// A file, directory, port or process of the broker.
    #[error("could not {what} for the Kafka broker")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// librdkafka's mock cluster.
    #[error("librdkafka's mock cluster could not be started")]
    Mock(#[source] KafkaError),
    /// Stopping or restarting a broker that was not started here.
    #[error("this broker cannot be stopped or restarted from here: {kind}")]
    NotOurs {
        /// Which broker it is.
        kind: String,
    },
    /// A link was asked for in front of a broker that advertises its own address.
    #[error("this broker cannot be put behind a link, only a real one that is started here: {kind}")]
    NoLink {
        /// Which broker it is.
        kind: String,
    },
    /// Security was asked of a broker whose settings are not ours.
    #[error("this broker cannot be made to speak {security}, only a real one that is started here: {kind}")]
    NoSecurity {
        /// What was asked for.
        security: Security,
        /// Which broker it is.
        kind: String,
    },
    /// Users were asked of a broker that has none.
    #[error("a broker that speaks {security} has no users; only one that speaks {} has", Security::Scram)]
    NoUsers {
        /// What it was to speak.
        security: Security,
    },
    /// A user's name has a character that Kafka's tool takes for its own.
    #[error(
        "a user of the Kafka broker cannot be called {user:?}; allowed are ASCII letters, digits, - and _"
    )]
    UserName {
        /// The name.
        user: String,
    },
    /// The broker's certificates.
    #[error("certificates for the Kafka broker could not be made")]
    Certificates(#[source] rcgen::Error),
    /// A client of the broker.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl BrokerError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// What the helpers that talk to the broker can fail with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A client could not be made from its settings.
    #[error("a Kafka client for {servers} could not be made")]
    Client {
        /// The broker's address.
        servers: String,
        /// Why.
        #[source]
        source: KafkaError,
    },
    /// The topic could not be created.
    #[error("topic {topic} could not be created")]
    CreateTopic {
        /// The topic.
        topic: String,
        /// Why.
        #[source]
        source: KafkaError,
    },
    /// The topic does not show up in the broker's metadata.
    #[error("topic {topic} did not appear within {} s", bound.as_secs())]
    NoTopic {
        /// The topic.
        topic: String,
        /// How long it was given.
        bound: Duration,
        /// The broker's or the client's last word.
        #[source]
        source: KafkaError,
    },
    /// Reading the topic failed for good.
    #[error("topic {topic} could not be read")]
    Read {
        /// The topic.
        topic: String,
        /// Why.
        #[source]
        source: KafkaError,
    },
    /// The number of partitions is out of range.
    #[error("topic {topic} cannot have {partitions} partitions")]
    Partitions {
        /// The topic.
        topic: String,
        /// What was asked for.
        partitions: u32,
    },
    /// Settings of a topic were asked of a broker that has none.
    #[error("topic {topic} cannot have settings: librdkafka's mock cluster knows none")]
    NoTopicSettings {
        /// The topic.
        topic: String,
    },
    /// Access control lists were asked of a broker that does not know its clients, or is not ours.
    #[error("there is nobody to allow or deny anything: this broker speaks {security} ({kind})")]
    NoPrincipals {
        /// What it speaks.
        security: Security,
        /// Which broker it is.
        kind: String,
    },
    /// A request of the administrator got no answer. It may have been carried out.
    #[error("could not {what}: no answer from the Kafka broker at {servers}")]
    Admin {
        /// What was tried.
        what: &'static str,
        /// The broker's address.
        servers: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A request of the administrator was refused.
    #[error("could not {what}: the Kafka broker answered {code}, {message}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Kafka's error code.
        code: i16,
        /// What the broker says of it, or what the code is called.
        message: String,
    },
    /// A change of the access control lists was accepted, and the broker does not go by it.
    #[error("the Kafka broker did not apply its new access control lists within {} s", bound.as_secs())]
    NotApplied {
        /// How long it was given.
        bound: Duration,
    },
    /// A helper thread or task is gone.
    #[error("the Kafka helper task ended early")]
    TaskGone,
}

/// The error of a metadata answer that names no usable topic or broker.
pub(super) fn no_metadata() -> KafkaError {
    KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)
}
