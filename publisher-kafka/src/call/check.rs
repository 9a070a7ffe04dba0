//! What is known of a message before it is sent.

use outbox::{Message, PublishError, PublishErrorKind};

use crate::config::MAX_RECORD_BYTES;
use crate::record::{batch_of_one, largest_size};

/// Why no broker would take the message, or this client send it. (A header blob that cannot be read is no message: the
/// store finds it.)
pub(super) fn fault(message: &Message, id_header: &str) -> Option<PublishError> {
    if let Err(error) = message.validate() {
        return Some(rejected(error.to_string()).because(error.fault));
    }
    let size = largest_size(message, id_header);
    (size > MAX_RECORD_BYTES).then(|| {
        rejected(format!(
            "message {}: its record for topic {:?} takes up to {size} bytes, more than the {MAX_RECORD_BYTES} that are \
             sent",
            message.id, message.topic
        ))
    })
}

/// Why its topic would not take the message. `limit`: the topic's `max.message.bytes`; `None`: not known.
pub(super) fn too_large(message: &Message, id_header: &str, limit: Option<usize>) -> Option<PublishError> {
    let limit = limit?;
    let size = batch_of_one(message, id_header);
    (size > limit).then(|| {
        rejected(format!(
            "message {}: its record takes {size} bytes, more than the {limit} that topic {:?} takes (its \
             max.message.bytes)",
            message.id, message.topic
        ))
    })
}

fn rejected(text: String) -> PublishError {
    PublishError::new(PublishErrorKind::Rejected, text)
}

#[cfg(test)]
mod tests {
    use outbox::MessageId;

    use super::*;

    fn message() -> Message {
        let id = MessageId::parse("0192f0c1-7d2e-7b3a-9c4d-5e6f708192a3").unwrap();
        Message::new(id, "orders").with_key("a key").with_value("a value")
    }

    #[test]
    fn a_record_that_is_exactly_at_the_limit_passes() {
        let size = batch_of_one(&message(), "id");
        assert!(too_large(&message(), "id", None).is_none());
        assert!(too_large(&message(), "id", Some(size)).is_none());
        let error = too_large(&message(), "id", Some(size - 1)).unwrap();
        assert_eq!(error.kind(), PublishErrorKind::Rejected);
        let text = error.to_string();
        assert!(text.contains("max.message.bytes") && text.contains("\"orders\""), "{text}");
        assert!(!text.contains("a key") && !text.contains("a value"), "{text}");
    }

    #[test]
    fn what_no_broker_takes_is_named() {
        assert!(fault(&message(), "id").is_none());
        let mut bad = message();
        bad.topic = "no topic".to_owned();
        assert!(fault(&bad, "id").unwrap().to_string().contains("no topic"));
        let large = message().with_value(vec![0; MAX_RECORD_BYTES]);
        assert!(fault(&large, "id").unwrap().to_string().contains("1048576"));
    }
}
