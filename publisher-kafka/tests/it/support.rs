//! What the tests share.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outbox::{
    Chance, Clock, Message, Outcome, PublishError, PublishErrorKind, Publisher, Settings, SystemClock, Ticks,
};
use outbox_local::kafka::{Reader, Record};
use outbox_publisher_kafka::{Connect, KafkaConfig, KafkaPublisher};

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

fn make(connect: Connect, clock: Arc<dyn Clock>, servers: &str) -> KafkaPublisher {
    let mut settings = Settings::new([("KAFKA_BOOTSTRAP_SERVERS", servers)]);
    KafkaPublisher::new(KafkaConfig::from_settings(&mut settings).unwrap(), connect, clock).unwrap()
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
