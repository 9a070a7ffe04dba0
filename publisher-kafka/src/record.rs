//! A message as a Kafka record.

use outbox::Message;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use rdkafka::util::IntoOpaque;

/// What the largest encoding of a record adds to key, value and headers: its length, attributes, and the largest
/// forms of two deltas and three lengths. librdkafka counts the same.
const RECORD_OVERHEAD: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
/// The two lengths of a header, in their largest forms.
const HEADER_OVERHEAD: usize = 5 + 5;
const ID_LENGTH: usize = 36;
/// What a record batch begins with (KIP-98): offset, length, epoch, magic, checksum, attributes, two timestamps, producer
/// id and epoch, sequence, and the number of records.
const BATCH_HEADER: usize = 8 + 4 + 4 + 1 + 4 + 2 + 4 + 8 + 8 + 8 + 2 + 4 + 4;

/// The record of a message, with `opaque` for the delivery report to bring back.
///
/// No timestamp: the client sets the time at which it is given the record. The time of enqueueing could already be
/// past the topic's retention.
pub(crate) fn record<'a, O: IntoOpaque>(
    message: &'a Message,
    id_header: &str,
    opaque: O,
) -> BaseRecord<'a, [u8], [u8], O> {
    let mut record = BaseRecord::with_opaque_to(&message.topic, opaque).headers(headers(message, id_header));
    record.partition = message.partition;
    record.key = message.key.as_deref();
    record.payload = message.value.as_deref();
    record
}

/// The message's headers in order, but for those that have the id header's name, and the id behind them.
fn headers(message: &Message, id_header: &str) -> OwnedHeaders {
    let kept = message.headers.iter().filter(|header| header.key != id_header);
    let headers = kept.fold(OwnedHeaders::new_with_capacity(message.headers.len() + 1), |headers, header| {
        headers.insert(Header { key: &header.key, value: header.value.as_deref() })
    });
    headers.insert(Header { key: id_header, value: Some(message.id.to_string().as_str()) })
}

/// The most bytes that the record takes in a batch.
pub(crate) fn largest_size(message: &Message, id_header: &str) -> usize {
    let bytes = |bytes: &Option<_>| bytes.as_ref().map_or(0, outbox_bytes_len);
    let kept = message.headers.iter().filter(|header| header.key != id_header);
    let headers: usize = kept.map(|header| HEADER_OVERHEAD + header.key.len() + bytes(&header.value)).sum();
    let id = HEADER_OVERHEAD + id_header.len() + ID_LENGTH;
    RECORD_OVERHEAD + bytes(&message.key) + bytes(&message.value) + headers + id
}

/// The bytes of a batch that holds this record alone: what a broker compares with its topic's `max.message.bytes`.
pub(crate) fn batch_of_one(message: &Message, id_header: &str) -> usize {
    let field = |bytes: &Option<_>| {
        let length = bytes.as_ref().map(outbox_bytes_len);
        // The length of nothing is -1, in one byte.
        length.map_or(1, |length| length_bytes(length) + length)
    };
    let name = |name: &str| length_bytes(name.len()) + name.len();
    let kept = || message.headers.iter().filter(|header| header.key != id_header);
    let headers: usize = kept().map(|header| name(&header.key) + field(&header.value)).sum();
    let id = name(id_header) + length_bytes(ID_LENGTH) + ID_LENGTH;
    // Attributes; how far it is from the batch's first timestamp and offset, which are its own.
    let record =
        3 + field(&message.key) + field(&message.value) + length_bytes(kept().count() + 1) + headers + id;
    BATCH_HEADER + length_bytes(record) + record
}

/// The bytes of a length, as Kafka writes it: doubled, for there are negative ones, and seven bits a byte.
const fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - ((length * 2) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn outbox_bytes_len(bytes: &impl AsRef<[u8]>) -> usize {
    bytes.as_ref().len()
}

#[cfg(test)]
mod tests {
    use outbox::{Header as OutboxHeader, MessageId};
    use rdkafka::message::Headers;

    use super::*;

    const ID: &str = "0192f0c1-7d2e-7b3a-9c4d-5e6f708192a3";

    fn message() -> Message {
        Message::new(MessageId::parse(ID).unwrap(), "orders")
    }

    fn as_record(message: &Message) -> BaseRecord<'_, [u8], [u8], ()> {
        record(message, "x-outbox-message-id", ())
    }

    fn shown(message: &Message) -> Vec<(String, Option<Vec<u8>>)> {
        let record = as_record(message);
        let headers = record.headers.unwrap();
        let headers = headers.iter();
        headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn no_key_is_not_an_empty_key_and_no_value_is_not_an_empty_value() {
        let nothing = message();
        assert_eq!(as_record(&nothing).key, None);
        assert_eq!(as_record(&nothing).payload, None);
        let empty = message().with_key("").with_value("");
        assert_eq!(as_record(&empty).key, Some(b"".as_slice()));
        assert_eq!(as_record(&empty).payload, Some(b"".as_slice()));
    }

    #[test]
    fn topic_partition_key_and_value_are_passed_through() {
        let message = message().with_key(vec![0, 255, 1]).with_value(vec![255, 0]).with_partition(7);
        let record = as_record(&message);
        assert_eq!(record.topic, "orders");
        assert_eq!(record.partition, Some(7));
        assert_eq!(record.key, Some([0, 255, 1].as_slice()));
        assert_eq!(record.payload, Some([255, 0].as_slice()));
        assert_eq!(record.timestamp, None, "the client sets the time of publishing");
    }

    #[test]
    fn headers_keep_order_duplicates_nulls_and_bytes() {
        let message = message()
            .with_header(OutboxHeader::new("b", vec![0, 255]))
            .with_header(OutboxHeader::null("a"))
            .with_header(OutboxHeader::new("b", ""))
            .with_header(OutboxHeader::new("ü", "x"));
        let id = ("x-outbox-message-id".to_owned(), Some(ID.as_bytes().to_vec()));
        assert_eq!(
            shown(&message),
            [
                ("b".to_owned(), Some(vec![0, 255])),
                ("a".to_owned(), None),
                ("b".to_owned(), Some(vec![])),
                ("ü".to_owned(), Some(b"x".to_vec())),
                id
            ]
        );
    }

    #[test]
    fn the_id_replaces_every_header_of_its_name() {
        let message = message()
            .with_header(OutboxHeader::new("x-outbox-message-id", "forged"))
            .with_header(OutboxHeader::new("a", "1"))
            .with_header(OutboxHeader::null("x-outbox-message-id"));
        assert_eq!(
            shown(&message),
            [
                ("a".to_owned(), Some(b"1".to_vec())),
                ("x-outbox-message-id".to_owned(), Some(ID.as_bytes().to_vec()))
            ]
        );
    }

    #[test]
    fn the_size_counts_everything_that_is_sent() {
        let bare = largest_size(&message(), "id");
        let full = message()
            .with_key("12")
            .with_value("345")
            .with_header(OutboxHeader::new("a", "6789"))
            .with_header(OutboxHeader::new("id", "not sent"));
        assert_eq!(largest_size(&full, "id"), bare + 2 + 3 + HEADER_OVERHEAD + 5);
    }

    #[test]
    fn lengths_take_as_many_bytes_as_kafka_gives_them() {
        for (length, bytes) in
            [(0, 1), (63, 1), (64, 2), (8_191, 2), (8_192, 3), (1_048_575, 3), (1_048_576, 4)]
        {
            assert_eq!(length_bytes(length), bytes, "{length}");
        }
    }

    #[test]
    fn a_batch_of_one_is_counted_to_the_byte() {
        // The record: length, attributes, two deltas, -1, -1, the number of headers; the id: 1 + 2 + 1 + 36.
        assert_eq!(batch_of_one(&message(), "id"), 61 + 1 + 3 + 1 + 1 + 1 + 40);
        let full = message()
            .with_key("12")
            .with_value(vec![0; 64])
            .with_header(OutboxHeader::new("a", "6789"))
            .with_header(OutboxHeader::null("b"))
            .with_header(OutboxHeader::new("id", "not sent"));
        let record = 3 + (1 + 2) + (2 + 64) + 1 + (1 + 1 + 1 + 4) + (1 + 1 + 1) + 40;
        assert_eq!(batch_of_one(&full, "id"), 61 + 2 + record);
        assert!(batch_of_one(&full, "id") < 61 + largest_size(&full, "id"));
    }
}
