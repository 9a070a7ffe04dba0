//! What may be said of a message where its key, its payload and its headers may not.

use crate::message::is_topic;
use crate::{MessageId, TraceId};

/// What a log line says of a stored message, as far as that can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its identity.
    pub id: Option<MessageId>,
    /// Its topic, if it is one that Kafka could have: anything can stand where one should.
    pub topic: Option<Box<str>>,
    /// The trace it belongs to.
    pub trace: Option<TraceId>,
}

impl About {
    /// The same, with what stands where the topic should.
    #[must_use]
    pub fn with_topic(mut self, topic: &str) -> Self {
        self.topic = is_topic(topic).then(|| topic.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_topic_is_not_shown() {
        let about = |topic| About::default().with_topic(topic).topic;
        assert_eq!(about("orders.v1").as_deref(), Some("orders.v1"));
        for secret in ["", "4111 1111 1111 1111", "a\nb", &"x".repeat(250)] {
            assert_eq!(about(secret), None, "{secret:?}");
        }
    }
}
