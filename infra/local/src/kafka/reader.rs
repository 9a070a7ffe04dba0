//! Reading a topic from its beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Probe, config};
use super::error::ClientError;

/// How long nothing may come before what is left is not waited for.
const QUIET: Duration = Duration::from_secs(2);
const QUERY_BOUND: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

/// One record as a consumer sees it.
#[derive(Debug, Clone)]
pub struct Record {
    /// The partition.
    pub partition: i32,
    /// The offset within the partition.
    pub offset: i64,
    /// The key; `None` is no key, empty is an empty key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The record's own time, in milliseconds since 1970, where it has one.
    pub timestamp_ms: Option<i64>,
    /// When the client handed it over.
    pub received: Instant,
}

impl Record {
    /// The last header of that name, as text.
    pub fn header_text(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(header, _)| header == name)?;
        std::str::from_utf8(value.as_deref()?).ok()
    }
}

/// Reads all partitions of one topic, from the beginning, without a consumer group.
///
/// Partitions that are added later are not seen. Only committed records are (`read_committed`). It outlives
/// restarts of the broker.
pub struct Reader {
    topic: String,
    /// Shared with the threads of blocking calls.
    consumer: Arc<StreamConsumer>,
}

impl Reader {
    /// Waits for the topic to exist (bounded), then starts at the beginning of every partition.
    pub async fn open(servers: &str, topic: &str) -> Result<Self, ClientError> {
        let probe = Probe::new(servers)?;
        let partitions = probe.partitions(topic).await?;
        let consumer: StreamConsumer = config(probe.servers())
            .set("group.id", "outbox-local-reader")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            // A latency is measured through this: do not wait for more to fetch.
            .set("fetch.wait.max.ms", "50")
            .set("fetch.error.backoff.ms", "50")
            .create()
            .map_err(|source| ClientError::Client { servers: servers.to_owned(), source })?;
        let mut assignment = TopicPartitionList::new();
        let failed = |source| ClientError::Read { topic: topic.to_owned(), source };
        for partition in partitions {
            assignment.add_partition_offset(topic, partition, Offset::Beginning).map_err(failed)?;
        }
        consumer.assign(&assignment).map_err(failed)?;
        Ok(Self { topic: topic.to_owned(), consumer: Arc::new(consumer) })
    }

    /// The next record; waits for one as long as it takes.
    ///
    /// Dropping the future loses nothing. A broker that is away is waited for; only what cannot get better by
    /// itself is an error.
    pub async fn next(&self) -> Result<Record, ClientError> {
        loop {
            match self.consumer.recv().await {
                Ok(message) => return Ok(record(&message)),
                Err(KafkaError::PartitionEOF(_)) => {}
                Err(error) if passes(&error) => {
                    tracing::debug!(%error, topic = self.topic, "reading goes on")
                }
                Err(source) => {
                    return Err(ClientError::Read { topic: self.topic.clone(), source });
                }
            }
        }
    }
}

impl Reader {
    /// The records that are in the topic now and have not been read yet.
    ///
    /// Bounded: a partition whose broker is silent for two seconds is taken for read.
    pub async fn rest(&self) -> Result<Vec<Record>, ClientError> {
        let mut ends = self.ends().await?;
        let mut rest = Vec::new();
        loop {
            let position = self.consumer.position().map_err(|source| self.failed(source))?;
            ends.retain(|partition, end| {
                let at = position.find_partition(&self.topic, *partition).map(|element| element.offset());
                // Before the first record there is no position.
                !matches!(at, Some(Offset::Offset(next)) if next >= *end)
            });
            if ends.is_empty() {
                return Ok(rest);
            }
            match tokio::time::timeout(QUIET, self.consumer.recv()).await {
                Err(_quiet) => return Ok(rest),
                Ok(Ok(message)) => rest.push(record(&message)),
                // It may have been there since before the records that are missing: the end that counts is the broker's.
                // Where that has the marks of transactions behind the last record, the silence after it tells.
                Ok(Err(KafkaError::PartitionEOF(_))) => {}
                Ok(Err(error)) if passes(&error) => {}
                Ok(Err(source)) => return Err(self.failed(source)),
            }
        }
    }

    /// The end offset of every partition that has records. A broker that has just come back is waited for.
    async fn ends(&self) -> Result<BTreeMap<i32, i64>, ClientError> {
        let deadline = Instant::now() + QUERY_BOUND;
        loop {
            match self.ends_now().await {
                Err(ClientError::Read { source, .. }) if passes(&source) && Instant::now() < deadline => {
                    tracing::debug!(error = %source, topic = self.topic, "asking again for the ends");
                    tokio::time::sleep(AGAIN).await;
                }
                ends => return ends,
            }
        }
    }

    async fn ends_now(&self) -> Result<BTreeMap<i32, i64>, ClientError> {
        let (consumer, topic) = (Arc::clone(&self.consumer), self.topic.clone());
        let ends = tokio::task::spawn_blocking(move || {
            let assignment = consumer.assignment()?;
            let elements = assignment.elements();
            let ends = elements.iter().map(|element| {
                let (low, high) = consumer.fetch_watermarks(&topic, element.partition(), QUERY_BOUND)?;
                Ok((element.partition(), low, high))
            });
            ends.filter(|end| !matches!(end, Ok((_, low, high)) if low == high))
                .map(|end| end.map(|(partition, _, high)| (partition, high)))
                .collect::<Result<_, KafkaError>>()
        });
        ends.await.map_err(|_| ClientError::TaskGone)?.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: KafkaError) -> ClientError {
        ClientError::Read { topic: self.topic.clone(), source }
    }
}

fn passes(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::AllBrokersDown
                | Code::BrokerTransportFailure
                | Code::Resolve
                | Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::BrokerNotAvailable
                | Code::NetworkException
        )
    )
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
        timestamp_ms: message.timestamp().to_millis(),
        received: Instant::now(),
    }
}
