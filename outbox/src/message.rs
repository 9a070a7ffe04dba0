//! The message: one Kafka record waiting in the table.

use bytes::Bytes;

use crate::{Bucket, BucketCount, Header, MessageId};

/// The longest topic name that Kafka takes.
pub const MAX_TOPIC_LENGTH: usize = 249;

/// One Kafka record waiting in the outbox. Key, value and headers are passed through byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Its identity; every copy of its record carries it.
    pub id: MessageId,
    /// The topic it goes to.
    pub topic: String,
    /// Its key. `None`: no key. Empty: a real, empty key.
    pub key: Option<Bytes>,
    /// Its value. `None`: a tombstone.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// The partition it must go to; `None` leaves that to the partitioner.
    pub partition: Option<i32>,
}

impl Message {
    /// A message without key, value or headers.
    pub fn new(id: MessageId, topic: impl Into<String>) -> Self {
        Self { id, topic: topic.into(), key: None, value: None, headers: Vec::new(), partition: None }
    }

    /// The message with this key: messages of one key stay in order.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The message with this value.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The message with one more header.
    #[must_use]
    pub fn with_header(mut self, header: Header) -> Self {
        self.headers.push(header);
        self
    }

    /// The message with an explicit partition.
    #[must_use]
    pub const fn with_partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The bucket it is kept in: that of its partition if it has one, else of its key, else of its id.
    /// A negative partition has none.
    pub fn bucket(&self, count: BucketCount) -> Option<Bucket> {
        match (self.partition, &self.key) {
            (Some(partition), _) => count.of_partition(partition),
            (None, Some(key)) => Some(count.of_key(key)),
            (None, None) => Some(count.of_id(self.id)),
        }
    }

    /// How much of it there is: topic, key, value and headers, in bytes.
    pub fn size(&self) -> usize {
        let header = |header: &Header| header.key.len() + header.value.as_ref().map_or(0, Bytes::len);
        let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize = self.headers.iter().map(header).sum();
        self.topic.len() + bytes(&self.key) + bytes(&self.value) + headers
    }

    /// Checks what no broker would ever take.
    ///
    /// # Errors
    /// Names the message and what is wrong with it.
    pub fn validate(&self) -> Result<(), MessageError> {
        let fault = if let Err(fault) = check_topic(&self.topic) {
            fault
        } else if let Some(partition) = self.partition.filter(|partition| *partition < 0) {
            MessageFault::NegativePartition(partition)
        } else {
            return Ok(());
        };
        Err(MessageError { id: self.id, fault })
    }
}

/// Payloads and keys are never shown.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}

/// A message that no broker would ever take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {id}: {fault}")]
pub struct MessageError {
    /// The message at fault.
    pub id: MessageId,
    /// What is wrong with it.
    pub fault: MessageFault,
}

/// What makes a message one that no broker would ever take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageFault {
    /// Kafka has no topic without a name.
    #[error("the topic name is empty")]
    EmptyTopic,
    /// Kafka's limit is [`MAX_TOPIC_LENGTH`] characters.
    #[error("the topic name has {0} bytes, more than the {MAX_TOPIC_LENGTH} that Kafka allows")]
    TopicTooLong(usize),
    /// Kafka allows ASCII letters, digits, `.`, `_` and `-`, and neither `.` nor `..` alone.
    #[error("the topic name {0:?} is not one Kafka allows: use ASCII letters, digits, '.', '_' and '-'")]
    InvalidTopic(String),
    /// Partitions are numbered from 0.
    #[error("the partition {0} is negative")]
    NegativePartition(i32),
}

/// Whether Kafka could have a topic of this name.
pub(crate) fn is_topic(name: &str) -> bool {
    check_topic(name).is_ok()
}

/// Kafka's own rule for topic names (`org.apache.kafka.common.internals.Topic`).
fn check_topic(topic: &str) -> Result<(), MessageFault> {
    if topic.is_empty() {
        return Err(MessageFault::EmptyTopic);
    }
    if topic.len() > MAX_TOPIC_LENGTH {
        return Err(MessageFault::TopicTooLong(topic.len()));
    }
    let allowed =
        topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if !allowed || topic == "." || topic == ".." {
        return Err(MessageFault::InvalidTopic(topic.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chance, Ticks};

    fn message(topic: &str) -> Message {
        Message::new(Chance::seeded(1).message_id(Ticks::from_raw(639_316_345_534_567_890)), topic)
    }

    #[test]
    fn topic_names_follow_kafkas_rule() {
        for good in ["orders", "a.b_c-D9", "...", &"x".repeat(249)] {
            assert_eq!(message(good).validate(), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a b", "ü", "a/b", &"x".repeat(250)] {
            assert!(message(bad).validate().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_negative_partition_is_refused_and_has_no_bucket() {
        let message = message("orders").with_key("k").with_partition(-1);
        assert!(matches!(message.validate().unwrap_err().fault, MessageFault::NegativePartition(-1)));
        assert_eq!(message.bucket(BucketCount::DEFAULT), None);
    }

    #[test]
    fn an_explicit_partition_wins_over_the_key() {
        let count = BucketCount::DEFAULT;
        assert_eq!(message("orders").with_key("21").with_partition(13).bucket(count), Some(Bucket::new(5)));
    }

    #[test]
    fn debug_shows_no_payload() {
        let shown = format!("{:?}", message("orders").with_key("secret-key").with_value("secret-value"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
