//! What the tests share.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outbox::{
    Chance, Clock, Message, Outcome, PublishError, PublishErrorKind, Publisher, Settings, SystemClock, Ticks,
};
use outbox_local::kafka::{Broker, BrokerOptions, Reader, Record};
use outbox_publisher_kafka::{Connect, KafkaConfig, KafkaPublisher};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

/// More than any test needs.
pub(crate) const PLENTY: Duration = Duration::from_secs(30);

pub(crate) fn publisher(servers: &str) -> KafkaPublisher {
    publisher_that(Connect::AtOnce, servers)
}

pub(crate) fn publisher_that(connect: Connect, servers: &str) -> KafkaPublisher {
    make(connect, Arc::new(SystemClock::new()), servers)
}

/// A publisher that goes by a clock of the test's.
pub(crate) fn publisher_by(clock: Arc<dyn Clock>, servers: &str) -> KafkaPublisher {
    make(Connect::AtOnce, clock, servers)
}

/// A publisher that has one record of a key under way at a time.
pub(crate) fn strict_publisher(servers: &str) -> KafkaPublisher {
    let settings = [("KAFKA_BOOTSTRAP_SERVERS", servers), ("OUTBOX_STRICT_KEY_ORDER", "true")];
    make_from(Settings::new(settings), Connect::AtOnce, Arc::new(SystemClock::new()))
}

fn make(connect: Connect, clock: Arc<dyn Clock>, servers: &str) -> KafkaPublisher {
    make_from(Settings::new([("KAFKA_BOOTSTRAP_SERVERS", servers)]), connect, clock)
}

fn make_from(mut settings: Settings, connect: Connect, clock: Arc<dyn Clock>) -> KafkaPublisher {
    KafkaPublisher::new(KafkaConfig::from_settings(&mut settings).unwrap(), connect, clock).unwrap()
}

/// The broker that is there. What the mock cannot do is not tried on it: `None`, and `what` is reported as skipped.
pub(crate) async fn real_broker(what: &str) -> Option<Broker> {
    let broker = broker().await;
    if broker.kind().is_real() {
        return Some(broker);
    }
    println!("skipped: the mock cluster has no {what}");
    None
}

pub(crate) async fn broker() -> Broker {
    let broker = Broker::start(BrokerOptions::from_env().unwrap()).await.unwrap();
    println!("broker: {}", broker.kind());
    broker
}

/// A topic of this run's own: an external broker keeps those of earlier runs.
pub(crate) fn topic(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{name}-{}", now.as_nanos())
}

pub(crate) fn admin(servers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", servers).create().unwrap()
}

/// A topic of one partition that takes record batches of this size at most.
pub(crate) async fn create_topic_that_takes(broker: &Broker, topic: &str, bytes: usize) {
    let bytes = bytes.to_string();
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1)).set("max.message.bytes", &bytes);
    let created = admin(broker.bootstrap_servers()).create_topics([&new], &AdminOptions::new()).await;
    created.unwrap().remove(0).unwrap();
}

/// How large a value makes a record of [`messages`], with a key of one digit, a batch of `bytes` bytes by itself: what
/// the value's length takes, three bytes from 8 KiB on, is in it.
pub(crate) fn value_for(bytes: usize) -> Vec<u8> {
    const HEADER_OF_THE_BATCH: usize = 61;
    const KEY: usize = 1 + "key-0".len();
    const ID: usize = 1 + "x-outbox-message-id".len() + 1 + 36;
    // Two lengths of three bytes, attributes and two deltas, the number of headers.
    vec![b'0'; bytes - HEADER_OF_THE_BATCH - 3 - 3 - KEY - 3 - 1 - ID]
}

/// Messages over `keys` keys, whose values count from 0 within their key.
pub(crate) fn messages(topic: &str, count: usize, keys: usize) -> Vec<Message> {
    let chance = Chance::seeded(7);
    (0..count)
        .map(|n| {
            let id = chance.message_id(Ticks::from_raw(639_316_345_534_567_890));
            Message::new(id, topic).with_key(format!("key-{}", n % keys)).with_value(format!("{}", n / keys))
        })
        .collect()
}

pub(crate) async fn publish(publisher: &KafkaPublisher, batch: &[Message], limit: Duration) -> Vec<Outcome> {
    let batch: Vec<&Message> = batch.iter().collect();
    let outcomes = publisher.publish(&batch, limit).await;
    assert_eq!(outcomes.len(), batch.len());
    outcomes
}

pub(crate) fn assert_all_acknowledged(outcomes: &[Outcome]) {
    for (index, outcome) in outcomes.iter().enumerate() {
        if let Outcome::Failed(error) = outcome {
            panic!("message {index}: {}", chain(error));
        }
    }
}

pub(crate) fn failure(outcome: &Outcome) -> &PublishError {
    match outcome {
        Outcome::Failed(error) => error,
        Outcome::Acknowledged => panic!("it was acknowledged"),
    }
}

/// `None`: acknowledged.
pub(crate) fn kinds(outcomes: &[Outcome]) -> Vec<Option<PublishErrorKind>> {
    let kind = |outcome: &Outcome| match outcome {
        Outcome::Acknowledged => None,
        Outcome::Failed(error) => Some(error.kind()),
    };
    outcomes.iter().map(kind).collect()
}

/// An error with its causes.
pub(crate) fn chain(error: &PublishError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Reads until `count` different message ids have come, in time.
pub(crate) async fn read(reader: &Reader, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    let mut ids = HashSet::new();
    while ids.len() < count {
        let record = tokio::time::timeout(PLENTY, reader.next()).await;
        let record = record.unwrap_or_else(|_| panic!("{} of {count} messages came", ids.len())).unwrap();
        ids.insert(record.header_text("x-outbox-message-id").expect("an id").to_owned());
        records.push(record);
    }
    records
}

/// First deliveries of each key come in the order of [`messages`].
pub(crate) fn assert_first_deliveries_in_order(records: &[Record]) {
    let mut next: BTreeMap<&[u8], usize> = BTreeMap::new();
    for record in records {
        let value: usize = std::str::from_utf8(record.value.as_deref().unwrap()).unwrap().parse().unwrap();
        let next = next.entry(record.key.as_deref().unwrap()).or_default();
        assert!(value <= *next, "value {value} came before value {next} of its key");
        *next = (*next).max(value + 1);
    }
}
