//! The parts of a record: what can stand where, and how it is written.

use arbitrary::Arbitrary;
use outbox::Bucket;
use outbox_store_dynamodb::StoreOptions;
use serde_json::{Map, Value, json};

/// How deep a value is at most. The parser of an invocation's payload takes fewer than 128 levels, and a record's parts
/// are some levels down.
const DEEPEST: usize = 100;

#[derive(Arbitrary)]
pub(super) enum Name<'a> {
    Insert,
    Remove,
    Modify,
    Other(&'a str),
    Absent,
    Null,
    Mistyped(Junk<'a>),
}

#[derive(Arbitrary)]
pub(super) enum Source<'a> {
    DynamoDb,
    Absent,
    Null,
    Queue,
    Kinesis,
    Other(&'a str),
    Mistyped(Junk<'a>),
}

#[derive(Arbitrary)]
pub(super) enum Stream<'a> {
    Ours,
    /// In another part of the world: partitions have ARNs of their own.
    Elsewhere,
    Absent,
    Null,
    OtherTable,
    LongerName,
    /// The table's own name, but as an index's of another.
    Index,
    Other(&'a str),
    Mistyped(Junk<'a>),
}

#[derive(Arbitrary)]
pub(super) enum Change<'a> {
    Of(Keys<'a>, ChangeExtras),
    Absent,
    Null,
    Mistyped(Junk<'a>),
}

#[derive(Arbitrary)]
pub(super) enum Keys<'a> {
    Message(Number),
    Partition(Partition<'a>),
    /// A partition key that is no string.
    OtherType(Junk<'a>),
    /// As other parts of AWS write values: without their type.
    Untyped(Number),
    Other(Junk<'a>),
    Absent,
}

#[derive(Arbitrary)]
pub(super) enum Number {
    First,
    Last,
    /// The first that this relay does not have.
    Beyond,
    Largest,
    Any(u16),
}

/// Partition keys that are no messages'.
#[derive(Arbitrary)]
pub(super) enum Partition<'a> {
    Coordination,
    Sequence(u8),
    OtherPrefix(u8),
    PrefixOfPrefix(u8),
    Padded(u8),
    Signed(u8),
    Negative(u8),
    Exponent,
    TooLarge,
    FullWidthDigit,
    Nothing,
    Behind(u8),
    Other(&'a str),
}

/// What no hint depends on.
#[derive(Arbitrary)]
pub(super) struct Extras<'a> {
    time_to_live: bool,
    version: bool,
    more: Option<(&'a str, Junk<'a>)>,
}

#[derive(Arbitrary)]
pub(super) struct ChangeExtras {
    sort_key: bool,
    images: bool,
    sequence_number: bool,
}

/// A value that is neither a string nor an object.
#[derive(Arbitrary)]
pub(super) enum Junk<'a> {
    True,
    Integer(i64),
    Float(f64),
    List(Vec<u8>),
    Texts(Vec<&'a str>),
    Deep(u8),
    /// An object, but in a list: the fields of a record in their order.
    ByPosition,
}

/// Text that is none of those that mean something.
fn other(text: &str) -> Option<Value> {
    Some(format!("{text}?").into())
}

impl Name<'_> {
    pub(super) fn write(self) -> Option<Value> {
        match self {
            Self::Insert => Some("INSERT".into()),
            Self::Remove => Some("REMOVE".into()),
            Self::Modify => Some("MODIFY".into()),
            Self::Other(text) => other(text),
            Self::Absent => None,
            Self::Null => Some(Value::Null),
            Self::Mistyped(junk) => Some(junk.write()),
        }
    }
}

impl Source<'_> {
    pub(super) fn write(self) -> Option<Value> {
        match self {
            Self::DynamoDb => Some("aws:dynamodb".into()),
            Self::Absent => None,
            Self::Null => Some(Value::Null),
            Self::Queue => Some("aws:sqs".into()),
            Self::Kinesis => Some("aws:kinesis".into()),
            Self::Other(text) => other(text),
            Self::Mistyped(junk) => Some(junk.write()),
        }
    }
}

impl Stream<'_> {
    pub(super) fn write(self) -> Option<Value> {
        let arn = |partition: &str, resource: &str| {
            let label = "2026-11-30T00:00:00.000";
            Some(format!("arn:{partition}:dynamodb:eu-west-1:123456789012:{resource}/stream/{label}").into())
        };
        match self {
            Self::Ours => arn("aws", "table/orders"),
            Self::Elsewhere => arn("aws-cn", "table/orders"),
            Self::Absent => None,
            Self::Null => Some(Value::Null),
            Self::OtherTable => arn("aws", "table/payments"),
            Self::LongerName => arn("aws", "table/orders-2"),
            Self::Index => arn("aws", "table/payments/index/orders"),
            Self::Other(text) => other(text),
            Self::Mistyped(junk) => Some(junk.write()),
        }
    }
}

impl Change<'_> {
    pub(super) fn write(self, outbox: &StoreOptions) -> Option<Value> {
        let (keys, extras) = match self {
            Self::Of(keys, extras) => (keys, extras),
            Self::Absent => return None,
            Self::Null => return Some(Value::Null),
            Self::Mistyped(junk) => return Some(junk.write()),
        };
        let mut keys = keys.write(outbox);
        if let (true, Some(Value::Object(keys))) = (extras.sort_key, &mut keys) {
            keys.insert("SK".to_owned(), json!({"S": "0000000000000000001"}));
        }
        let mut change = Map::new();
        if extras.images {
            let image =
                json!({"PK": {"S": "OUTBOX#MESSAGES#1"}, "Value": {"B": "AAE="}, "Topic": {"S": "t"}});
            change.insert("NewImage".to_owned(), image.clone());
            change.insert("OldImage".to_owned(), image);
        }
        if extras.sequence_number {
            change.insert("SequenceNumber".to_owned(), "4421584500000000017450439091".into());
            change.insert("SizeBytes".to_owned(), u64::MAX.into());
            change.insert("ApproximateCreationDateTime".to_owned(), json!(1_796_037_753.0));
        }
        keys.map(|keys| change.insert("Keys".to_owned(), keys));
        Some(Value::Object(change))
    }
}

impl Keys<'_> {
    pub(super) fn write(self, outbox: &StoreOptions) -> Option<Value> {
        let name = outbox.partition_key_attribute();
        let partition = |text: String| Some(json!({ name: {"S": text} }));
        let message = |number: &Number| format!("{}#MESSAGES#{}", outbox.key_prefix(), number.bucket(outbox));
        match self {
            Self::Message(number) => partition(message(&number)),
            Self::Partition(other) => partition(other.text(outbox.key_prefix())),
            Self::OtherType(junk) => Some(json!({ name: {"N": "1", "S": junk.write()} })),
            Self::Untyped(number) => Some(json!({ name: message(&number) })),
            Self::Other(junk) => Some(junk.write()),
            Self::Absent => None,
        }
    }
}

impl Number {
    pub(super) fn bucket(&self, outbox: &StoreOptions) -> Bucket {
        let count = outbox.bucket_count().get();
        Bucket::new(match self {
            Self::First => 0,
            Self::Last => count - 1,
            Self::Beyond => count,
            Self::Largest => u32::MAX,
            Self::Any(number) => u32::from(*number),
        })
    }
}

impl Partition<'_> {
    fn text(&self, prefix: &str) -> String {
        match self {
            Self::Coordination => format!("{prefix}#COORDINATION"),
            Self::Sequence(bucket) => format!("{prefix}#SEQUENCE#{bucket}"),
            Self::OtherPrefix(bucket) => format!("x{prefix}#MESSAGES#{bucket}"),
            Self::PrefixOfPrefix(bucket) => format!("#MESSAGES#{bucket}"),
            Self::Padded(bucket) => format!("{prefix}#MESSAGES#0{bucket}"),
            Self::Signed(bucket) => format!("{prefix}#MESSAGES#+{bucket}"),
            Self::Negative(bucket) => format!("{prefix}#MESSAGES#-{bucket}"),
            Self::Exponent => format!("{prefix}#MESSAGES#1e0"),
            Self::TooLarge => format!("{prefix}#MESSAGES#4294967296"),
            Self::FullWidthDigit => format!("{prefix}#MESSAGES#１"),
            Self::Nothing => format!("{prefix}#MESSAGES#"),
            Self::Behind(bucket) => format!("{prefix}#MESSAGES#{bucket} "),
            Self::Other(text) => format!("{text}?"),
        }
    }
}

impl Extras<'_> {
    pub(super) fn write(self, record: &mut Map<String, Value>) {
        // A name that means something is written over: this comes first.
        self.more.map(|(name, junk)| record.insert(format!("{name}?"), junk.write()));
        if self.time_to_live {
            let who = json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"});
            record.insert("userIdentity".to_owned(), who);
        }
        if self.version {
            record.insert("eventVersion".to_owned(), "9.9".into());
            record.insert("awsRegion".to_owned(), "eu-west-1".into());
        }
    }
}

impl Junk<'_> {
    pub(super) fn write(self) -> Value {
        match self {
            Self::True => true.into(),
            Self::Integer(number) => number.into(),
            // What is no number in JSON would be written as null, which means something.
            Self::Float(number) => if number.is_finite() { number } else { 0.5 }.into(),
            Self::List(bytes) => bytes.into(),
            Self::Texts(texts) => texts.into(),
            Self::Deep(levels) => {
                let levels = usize::from(levels) % DEEPEST;
                (0..levels).fold(Value::Array(Vec::new()), |inner, _| Value::Array(vec![inner]))
            }
            Self::ByPosition => {
                json!(["INSERT", null, null, {"Keys": {"PK": {"S": "OUTBOX#MESSAGES#5"}}}])
            }
        }
    }
}
