//! The two questions asked of any broker: are you there, and make me a topic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::error::{ClientError, no_metadata};

/// One metadata request; also how often a process that is starting is looked after.
pub(super) const PROBE_BOUND: Duration = Duration::from_millis(250);
const ADMIN_BOUND: Duration = Duration::from_secs(20);
const TOPIC_BOUND: Duration = Duration::from_secs(20);

/// Settings for a client that expects its broker to come and go.
pub(super) fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "250")
        // Connection errors while a broker starts are no news.
        .set_log_level(RDKafkaLogLevel::Emerg);
    config
}

/// A client that only asks for metadata.
pub(super) struct Probe {
    servers: String,
    client: Arc<BaseConsumer>,
}

impl Probe {
    pub(super) fn new(servers: &str) -> Result<Self, ClientError> {
        let client = config(servers)
            .create::<BaseConsumer>()
            .map_err(|source| ClientError::Client { servers: servers.to_owned(), source })?;
        Ok(Self { servers: servers.to_owned(), client: Arc::new(client) })
    }

    /// Whether a broker answers now. The outer error is ours, the inner one the broker's absence.
    pub(super) async fn answers(&self, bound: Duration) -> Result<Result<(), KafkaError>, ClientError> {
        let client = Arc::clone(&self.client);
        // The call blocks its thread.
        let metadata = tokio::task::spawn_blocking(move || client.fetch_metadata(None, bound))
            .await
            .map_err(|_| ClientError::TaskGone)?;
        Ok(metadata.and_then(
            |metadata| {
                if metadata.brokers().is_empty() { Err(no_metadata()) } else { Ok(()) }
            },
        ))
    }

    /// The partitions of a topic, all of them with a leader, once the broker knows it.
    pub(super) async fn partitions(&self, topic: &str) -> Result<Vec<i32>, ClientError> {
        let deadline = Instant::now() + TOPIC_BOUND;
        loop {
            let (client, name) = (Arc::clone(&self.client), topic.to_owned());
            let found = tokio::task::spawn_blocking(move || partitions_now(&client, &name))
                .await
                .map_err(|_| ClientError::TaskGone)?;
            match found {
                Ok(partitions) => return Ok(partitions),
                Err(source) if Instant::now() >= deadline => {
                    return Err(ClientError::NoTopic { topic: topic.to_owned(), bound: TOPIC_BOUND, source });
                }
                Err(_not_yet) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(super) fn servers(&self) -> &str {
        &self.servers
    }
}

fn partitions_now(client: &BaseConsumer, topic: &str) -> Result<Vec<i32>, KafkaError> {
    let metadata = client.fetch_metadata(Some(topic), Duration::from_secs(2))?;
    let topic = metadata.topics().first().ok_or_else(no_metadata)?;
    if let Some(error) = topic.error() {
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::from(error)));
    }
    if topic.partitions().is_empty() || topic.partitions().iter().any(|partition| partition.leader() < 0) {
        return Err(no_metadata());
    }
    Ok(topic.partitions().iter().map(|partition| partition.id()).collect())
}

/// Creates a topic and waits until every partition has a leader. A topic that exists already is left as it is.
///
/// The mock cluster has no admin requests: use [`Broker::create_topic`](super::Broker::create_topic), which
/// knows what it talks to.
pub async fn create_topic(servers: &str, topic: &str, partitions: u32) -> Result<(), ClientError> {
    create_topic_with(servers, topic, partitions, &[]).await
}

/// As [`create_topic`], with settings of the topic, such as `max.message.bytes`.
pub(super) async fn create_topic_with(
    servers: &str,
    topic: &str,
    partitions: u32,
    settings: &[(&str, &str)],
) -> Result<(), ClientError> {
    let count = i32::try_from(partitions)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| ClientError::Partitions { topic: topic.to_owned(), partitions })?;
    let failed = |source| ClientError::CreateTopic { topic: topic.to_owned(), source };
    let admin: AdminClient<DefaultClientContext> = config(servers)
        .create()
        .map_err(|source| ClientError::Client { servers: servers.to_owned(), source })?;
    let options = AdminOptions::new().request_timeout(Some(ADMIN_BOUND)).operation_timeout(Some(ADMIN_BOUND));
    let wanted = NewTopic::new(topic, count, TopicReplication::Fixed(1));
    let wanted = settings.iter().fold(wanted, |wanted, (name, value)| wanted.set(name, value));
    for result in admin.create_topics([&wanted], &options).await.map_err(failed)? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(failed(KafkaError::AdminOp(code))),
        }
    }
    Probe::new(servers)?.partitions(topic).await.map(drop)
}
