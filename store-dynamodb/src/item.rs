//! Message items to values and back.

use std::fmt;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use outbox::headers::{self, HeaderError};
use outbox::store::{Malformed, MalformedKey, Stored};
use outbox::{About, Bucket, Message, MessageId, StoreError, StoreErrorKind, Ticks, TraceId};

use crate::StoreOptions;
use crate::schema::{Item, attribute};

/// The digits of a sequence in a sort key.
const SEQUENCE_DIGITS: usize = 19;

/// A message's number within its bucket. Numbering starts at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(i64);

impl Sequence {
    /// The first number of every bucket.
    pub const FIRST: Self = Self(1);
    /// The last number there can be.
    pub(crate) const LAST: Self = Self(i64::MAX);

    /// `None` unless `number` is at least 1.
    pub const fn new(number: i64) -> Option<Self> {
        if number >= 1 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Reads a sort key: 19 digits.
    pub(crate) fn parse(sort: &str) -> Option<Self> {
        let digits = sort.len() == SEQUENCE_DIGITS && sort.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| sort.parse().ok()).flatten().and_then(Self::new)
    }
}

/// As a sort key has it.
impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0SEQUENCE_DIGITS$}", self.0)
    }
}

/// The item of a message.
///
/// # Errors
/// If the headers are too many or too large to encode.
pub fn to_item(
    options: &StoreOptions,
    message: &Message,
    bucket: Bucket,
    sequence: Sequence,
    created_at: Ticks,
) -> Result<Item, HeaderError> {
    let mut item = options.message_key(bucket, sequence);
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(attribute::MESSAGE_ID, AttributeValue::S(message.id.to_string()));
    put(attribute::TOPIC, AttributeValue::S(message.topic.clone()));
    if let Some(key) = &message.key {
        put(attribute::KEY, binary(key));
    }
    if let Some(value) = &message.value {
        put(attribute::VALUE, binary(value));
    }
    if !message.headers.is_empty() {
        put(attribute::HEADERS, AttributeValue::B(Blob::new(headers::encode(&message.headers)?)));
    }
    if let Some(partition) = message.partition {
        put(attribute::PARTITION, number(partition));
    }
    put(attribute::CREATED_AT_UTC, number(created_at));
    put(attribute::BUCKET_COUNT, number(options.bucket_count));
    Ok(item)
}

/// What a message item turned out to be.
pub enum Read {
    /// A message, well formed or not.
    Message(Stored<Sequence>),
    /// Something that a later version put into the partition: passed over.
    Unknown,
    /// A message of a writer with another bucket count: its bucket must not be worked on.
    WrongBucketCount(StoreError),
}

/// Reads a message item of `size` bytes.
pub fn from_item(options: &StoreOptions, bucket: Bucket, mut item: Item, size: usize) -> Read {
    let sort = item.get(&options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
    let Some(row) = sort.and_then(|sort| Sequence::parse(sort)) else {
        return Read::Unknown;
    };
    if let Err(error) = check_bucket_count(options, bucket, row, &item) {
        return Read::WrongBucketCount(error);
    }
    // What is no count is none: it decides how a message is sent, not whether.
    let attempts = read_number(&item, attribute::ATTEMPTS).ok().flatten();
    let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0);
    let key = match item.remove(attribute::KEY) {
        None => Ok(None),
        Some(AttributeValue::B(key)) => Ok(Some(Bytes::from(key.into_inner()))),
        Some(_) => Err(Fault::WrongType(attribute::KEY)),
    };
    let malformed_key =
        key.as_ref().map_or(MalformedKey::Unreadable, |key| MalformedKey::Readable(key.clone()));
    let message = key.and_then(|key| read(&mut item, key)).map_err(|fault| {
        let about = about(&item);
        let id = about.id.map_or_else(String::new, |id| format!(" (message {id})"));
        Malformed { reason: format!("item {row} of bucket {bucket}{id}: {fault}"), key: malformed_key, about }
    });
    Read::Message(Stored { row, size, attempts, message })
}

/// Why an item is not a message that can be published.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the attribute {0} is missing")]
    Missing(&'static str),
    #[error("the attribute {0} has the wrong type")]
    WrongType(&'static str),
    #[error("the attribute {0} has a value that is not allowed")]
    Invalid(&'static str),
    #[error("{0}")]
    Headers(HeaderError),
}

fn read(item: &mut Item, key: Option<Bytes>) -> Result<Message, Fault> {
    let id = text(item, attribute::MESSAGE_ID)?;
    let id = MessageId::parse(id).ok_or(Fault::Invalid(attribute::MESSAGE_ID))?;
    let topic = text(item, attribute::TOPIC)?.to_owned();
    let _: Ticks = read_number(item, attribute::CREATED_AT_UTC)?
        .map(Ticks::from_raw)
        .ok_or(Fault::Missing(attribute::CREATED_AT_UTC))?;
    let partition = read_number(item, attribute::PARTITION)?
        .map(|partition| i32::try_from(partition).ok().filter(|partition| *partition >= 0))
        .map(|partition| partition.ok_or(Fault::Invalid(attribute::PARTITION)))
        .transpose()?;
    let value = read_binary(item, attribute::VALUE)?;
    // Last: whatever else is wrong, they are there to tell the message's trace.
    let headers = match read_binary(item, attribute::HEADERS)? {
        Some(blob) => headers::decode(&blob).map_err(Fault::Headers)?,
        None => Vec::new(),
    };
    Ok(Message { id, topic, key, value, headers, partition })
}

/// What can be said of an item's message. Anything can stand in it: no more is shown than what is what it should be.
pub(crate) fn about(item: &Item) -> About {
    let id = text(item, attribute::MESSAGE_ID).ok().and_then(MessageId::parse);
    let blob = item.get(attribute::HEADERS).and_then(|blob| blob.as_b().ok());
    let headers = blob.and_then(|blob| headers::decode(&Bytes::copy_from_slice(blob.as_ref())).ok());
    let trace = headers.and_then(|headers| TraceId::of(&headers));
    let about = About { id, trace, topic: None };
    match text(item, attribute::TOPIC) {
        Ok(topic) => about.with_topic(topic),
        Err(_) => about,
    }
}

/// A wrong stamp means that writer and relay look for messages in different buckets: loud, and never skipped.
fn check_bucket_count(
    options: &StoreOptions,
    bucket: Bucket,
    row: Sequence,
    item: &Item,
) -> Result<(), StoreError> {
    let Some(stamp) = item.get(attribute::BUCKET_COUNT) else {
        return Ok(());
    };
    let stamp = stamp.as_n().ok().and_then(|stamp| stamp.parse::<u64>().ok());
    let expected = options.bucket_count;
    if stamp == Some(expected.get().into()) {
        return Ok(());
    }
    let stamp = stamp.map_or_else(|| "what is no whole number".to_owned(), |stamp| stamp.to_string());
    let message = format!(
        "item {row} of bucket {bucket} was written with a bucket count of {stamp}, and this relay has \
         OUTBOX_BUCKET_COUNT={expected}: give every writer and relay of the table the same"
    );
    Err(StoreError::new(StoreErrorKind::Misconfigured, message))
}

fn text<'a>(item: &'a Item, name: &'static str) -> Result<&'a str, Fault> {
    let value = item.get(name).ok_or(Fault::Missing(name))?;
    value.as_s().map(String::as_str).map_err(|_| Fault::WrongType(name))
}

fn read_number(item: &Item, name: &'static str) -> Result<Option<i64>, Fault> {
    let Some(value) = item.get(name) else {
        return Ok(None);
    };
    let digits = value.as_n().map_err(|_| Fault::WrongType(name))?;
    digits.parse().map(Some).map_err(|_| Fault::Invalid(name))
}

fn read_binary(item: &mut Item, name: &'static str) -> Result<Option<Bytes>, Fault> {
    match item.remove(name) {
        None => Ok(None),
        Some(AttributeValue::B(blob)) => Ok(Some(Bytes::from(blob.into_inner()))),
        Some(_) => Err(Fault::WrongType(name)),
    }
}

pub(crate) fn binary(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes.to_vec()))
}

/// A number attribute.
pub(crate) fn number(number: impl fmt::Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outbox::{Chance, Header};
    use proptest::prelude::*;

    const NOW: Ticks = Ticks::from_raw(639_316_345_534_567_890);

    fn options() -> StoreOptions {
        StoreOptions::new("t")
    }

    fn message() -> impl Strategy<Value = Message> {
        let bytes =
            || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from));
        let header = (any::<String>(), bytes()).prop_map(|(key, value)| Header { key, value });
        let headers = proptest::collection::vec(header, 0..4);
        (any::<u64>(), "[a-z]{1,9}", bytes(), bytes(), headers, proptest::option::of(0..i32::MAX)).prop_map(
            |(seed, topic, key, value, headers, partition)| Message {
                id: Chance::seeded(seed).message_id(NOW),
                topic,
                key,
                value,
                headers,
                partition,
            },
        )
    }

    fn item() -> Item {
        let message = Message::new(Chance::seeded(1).message_id(NOW), "orders")
            .with_key("k")
            .with_value("v")
            .with_header(Header::new("h", "1"))
            .with_partition(3);
        to_item(&options(), &message, Bucket::new(3), Sequence(7), NOW).unwrap()
    }

    fn malformed(item: Item) -> Malformed {
        match from_item(&options(), Bucket::new(3), item, 1) {
            Read::Message(stored) => stored.message.unwrap_err(),
            _ => panic!("not read as a message"),
        }
    }

    proptest! {
        #[test]
        fn an_item_reads_back_as_its_message(message in message(), sequence in 1..i64::MAX) {
            let row = Sequence::new(sequence).unwrap();
            let bucket = message.bucket(options().bucket_count).unwrap();
            let item = to_item(&options(), &message, bucket, row, NOW).unwrap();
            let Read::Message(stored) = from_item(&options(), bucket, item, 1) else { panic!("not a message") };
            prop_assert_eq!(stored.row, row);
            prop_assert_eq!(stored.message.unwrap(), message);
        }

        #[test]
        fn sequences_sort_as_their_keys(a in 1..i64::MAX, b in 1..i64::MAX) {
            let (a, b) = (Sequence(a), Sequence(b));
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
            prop_assert_eq!(Sequence::parse(&a.to_string()), Some(a));
        }
    }

    #[test]
    fn an_item_is_as_the_format_has_it() {
        let item = item();
        let n = |name: &str| item[name].as_n().unwrap().as_str();
        let b = |name: &str| item[name].as_b().unwrap().as_ref();
        assert_eq!(item["PK"].as_s().unwrap(), "OUTBOX#MESSAGES#3");
        assert_eq!(item["SK"].as_s().unwrap(), "0000000000000000007");
        assert_eq!(item["Topic"].as_s().unwrap(), "orders");
        assert_eq!((b("Key"), b("Value")), (&b"k"[..], &b"v"[..]));
        assert_eq!((n("Partition"), n("BucketCount"), n("CreatedAtUtc")), ("3", "8", "639316345534567890"));
        assert_eq!(b("Headers"), b"\x01\x01\0\0\0\x01\0\0\0h\x01\0\0\x001");
        assert_eq!(item["MessageId"].as_s().unwrap().len(), 36);
    }

    #[test]
    fn what_can_be_said_of_a_malformed_item_is_said_and_no_more() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        let message = Message::new(Chance::seeded(1).message_id(NOW), "orders");
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let traced = message.clone().with_header(Header::new("traceparent", parent));
        let mut item = to_item(&options(), &traced, Bucket::new(3), Sequence(7), NOW).unwrap();
        item.insert(attribute::VALUE.to_owned(), AttributeValue::Bool(true));
        let about = malformed(item.clone()).about;
        assert_eq!((about.id, about.topic.as_deref()), (Some(message.id), Some("orders")));
        assert_eq!(about.trace.map(|trace| trace.to_string()).as_deref(), Some(TRACE));

        item.insert(attribute::TOPIC.to_owned(), AttributeValue::S("a card's number".to_owned()));
        item.insert(attribute::MESSAGE_ID.to_owned(), AttributeValue::S("a name".to_owned()));
        item.insert(attribute::HEADERS.to_owned(), AttributeValue::B(Blob::new([1, 2])));
        assert_eq!(malformed(item).about, About::default());
    }

    #[test]
    fn what_is_absent_stays_absent() {
        let message = Message::new(Chance::seeded(1).message_id(NOW), "orders");
        let item = to_item(&options(), &message, Bucket::new(3), Sequence(7), NOW).unwrap();
        let mut names: Vec<&str> = item.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["BucketCount", "CreatedAtUtc", "MessageId", "PK", "SK", "Topic"]);
    }

    #[test]
    fn a_missing_or_mistyped_attribute_is_named() {
        for name in ["MessageId", "Topic", "CreatedAtUtc"] {
            let mut item = item();
            item.remove(name);
            assert!(malformed(item).reason.contains(name), "{name}");
        }
        for name in ["MessageId", "Topic", "Key", "Value", "Headers", "Partition", "CreatedAtUtc"] {
            let mut item = item();
            item.insert(name.to_owned(), AttributeValue::Bool(true));
            let malformed = malformed(item);
            assert!(
                malformed.reason.contains(name) && malformed.reason.contains("bucket 3"),
                "{malformed:?}"
            );
            assert_eq!(malformed.key == MalformedKey::Unreadable, name == "Key");
        }
    }

    /// Found by fuzzing: an error quoted whatever stood where the id should be, line ends and all.
    #[test]
    fn an_error_shows_an_id_and_nothing_else_that_stands_in_its_place() {
        let mut other_fault = item();
        other_fault.remove("Topic");
        let id = other_fault["MessageId"].as_s().unwrap().clone();
        assert!(malformed(other_fault.clone()).reason.contains(&id));
        for no_id in ["7\nERROR all is lost", &"7".repeat(1000)] {
            other_fault.insert("MessageId".to_owned(), AttributeValue::S(no_id.to_owned()));
            let reason = malformed(other_fault.clone()).reason;
            assert!(reason.contains("MessageId") && !reason.contains(no_id), "{reason}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        for (name, value) in [
            ("Partition", number(-1)),
            ("Partition", number(i64::from(i32::MAX) + 1)),
            ("CreatedAtUtc", number("1.5")),
            ("MessageId", AttributeValue::S("7".to_owned())),
            ("Headers", AttributeValue::B(Blob::new([1, 9]))),
        ] {
            let mut item = item();
            item.insert(name.to_owned(), value);
            let reason = malformed(item).reason.to_lowercase();
            assert!(reason.contains(name.to_lowercase().trim_end_matches('s')), "{name}: {reason}");
        }
    }

    #[test]
    fn another_bucket_count_is_a_misconfiguration() {
        for stamp in [number(9), number(0), number("zzz"), AttributeValue::S("8".to_owned())] {
            let mut item = item();
            item.insert("BucketCount".to_owned(), stamp);
            let Read::WrongBucketCount(error) = from_item(&options(), Bucket::new(3), item, 1) else {
                panic!("the stamp was not looked at")
            };
            assert!(error.is_misconfiguration());
            assert!(error.to_string().contains("OUTBOX_BUCKET_COUNT"), "{error}");
            // Found by fuzzing: whatever stood there was quoted.
            assert!(!error.to_string().contains("zzz"), "{error}");
        }
        let mut unstamped = item();
        unstamped.remove("BucketCount");
        assert!(matches!(
            from_item(&options(), Bucket::new(3), unstamped, 1),
            Read::Message(Stored { message: Ok(_), .. })
        ));
    }

    #[test]
    fn items_and_attributes_of_later_versions_are_passed_over() {
        let mut later = item();
        later.insert("SK".to_owned(), AttributeValue::S("MARKER".to_owned()));
        assert!(matches!(from_item(&options(), Bucket::new(3), later, 1), Read::Unknown));
        let mut more = item();
        more.insert("TraceParent".to_owned(), AttributeValue::S("x".to_owned()));
        assert!(matches!(
            from_item(&options(), Bucket::new(3), more, 1),
            Read::Message(Stored { message: Ok(_), .. })
        ));
    }
}
