//! Stream events put together from parts, so that it is known of each record what it is.

mod parts;

use arbitrary::{Arbitrary, Unstructured};
use outbox::{Bucket, BucketCount};
use outbox_functions::Hints;
use outbox_store_dynamodb::StoreOptions;
use serde_json::{Map, Value};

use crate::Input;
use crate::event::{add, check_event, event_of};
use parts::{Change, Extras, Junk, Keys, Name, Source, Stream};

/// Takes the bytes as choices.
pub(crate) fn check(bytes: &[u8]) -> Input {
    let mut choices = Unstructured::new(bytes);
    let Ok(outbox) = Outbox::arbitrary(&mut choices).map(Outbox::options) else {
        return Input::Rejected;
    };
    let mut records = Vec::new();
    let mut expected = Hints::default();
    while let (false, Ok(record)) = (choices.is_empty(), Record::arbitrary(&mut choices)) {
        let (record, hints) = record.write(&outbox);
        records.push(record);
        add(&mut expected, hints);
    }
    let found = check_event(event_of(records), &outbox);
    assert_eq!(found, Some(expected), "{outbox:?}, from the choices {bytes:?}");
    Input::Checked
}

/// Which outbox the relay is for.
#[derive(Arbitrary, Clone, Copy)]
enum Outbox {
    Default,
    /// Its table is given by its ARN.
    Arn,
    /// A prefix with the separator in it, and other names of the keys.
    Renamed,
    OneBucket,
    ManyBuckets,
}

impl Outbox {
    fn options(self) -> StoreOptions {
        let options = StoreOptions::new("orders");
        let count = |count| BucketCount::new(count).unwrap_or_default();
        match self {
            Self::Default => options,
            Self::Arn => StoreOptions::new("arn:aws:dynamodb:eu-west-1:123456789012:table/orders"),
            Self::Renamed => options.with_key_prefix("a#MESSAGES#é").with_key_attributes("pk", "sk"),
            Self::OneBucket => options.with_bucket_count(count(1)),
            Self::ManyBuckets => options.with_bucket_count(count(BucketCount::MAX)),
        }
    }
}

/// A record, part by part.
#[derive(Arbitrary)]
enum Record<'a> {
    Written {
        name: Name<'a>,
        source: Source<'a>,
        stream: Stream<'a>,
        change: Change<'a>,
        extras: Extras<'a>,
    },
    /// No record at all.
    Junk(Junk<'a>),
}

impl Record<'_> {
    /// The record, and what it says.
    fn write(self, outbox: &StoreOptions) -> (Value, Hints) {
        let one = |kind: Kind| kind.hints(outbox);
        let (name, source, stream, change, extras) = match self {
            Self::Written { name, source, stream, change, extras } => (name, source, stream, change, extras),
            Self::Junk(junk) => return (junk.write(), one(Kind::Unreadable)),
        };
        let kind = kind(&name, &source, &stream, &change, outbox);
        let mut record = Map::new();
        extras.write(&mut record);
        let mut put = |name: &str, value: Option<Value>| value.map(|value| record.insert(name.into(), value));
        put("eventName", name.write());
        put("eventSource", source.write());
        put("eventSourceARN", stream.write());
        put("dynamodb", change.write(outbox));
        (Value::Object(record), one(kind))
    }
}

/// What a record says.
enum Kind {
    Message(Bucket),
    OtherItem,
    OtherTable,
    Unreadable,
}

impl Kind {
    fn hints(self, outbox: &StoreOptions) -> Hints {
        let mut hints = Hints::default();
        match self {
            Self::Message(bucket) if outbox.bucket_count().contains(bucket) => {
                hints.buckets.insert(bucket);
            }
            Self::Message(bucket) => {
                hints.out_of_range.insert(bucket);
            }
            Self::OtherItem => hints.other_items = 1,
            Self::OtherTable => hints.other_tables = 1,
            Self::Unreadable => hints.unreadable = 1,
        }
        hints
    }
}

/// A part of the wrong type makes a record unreadable, whatever the others say; where it is from comes next.
fn kind(name: &Name, source: &Source, stream: &Stream, change: &Change, outbox: &StoreOptions) -> Kind {
    let is_mistyped = matches!(name, Name::Mistyped(_))
        || matches!(source, Source::Mistyped(_))
        || matches!(stream, Stream::Mistyped(_))
        || matches!(change, Change::Mistyped(_));
    if is_mistyped {
        return Kind::Unreadable;
    }
    let is_ours = matches!(source, Source::DynamoDb | Source::Absent | Source::Null)
        && matches!(stream, Stream::Ours | Stream::Elsewhere | Stream::Absent | Stream::Null);
    if !is_ours {
        return Kind::OtherTable;
    }
    let keys = match change {
        Change::Of(Keys::Absent, _) | Change::Absent | Change::Null => None,
        Change::Of(keys, _) => Some(keys),
        Change::Mistyped(_) => None,
    };
    match (name, keys) {
        (Name::Absent | Name::Null, _) | (_, None) => Kind::Unreadable,
        (Name::Insert, Some(Keys::Message(number))) => Kind::Message(number.bucket(outbox)),
        _ => Kind::OtherItem,
    }
}
