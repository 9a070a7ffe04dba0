//! What events and items are made of.

use outbox::Chance;
use serde_json::{Value, json};

/// Names that mean something, of events and of items.
const NAMES: &[&str] = &[
    "Records",
    "eventName",
    "eventSource",
    "eventSourceARN",
    "eventVersion",
    "userIdentity",
    "dynamodb",
    "Keys",
    "NewImage",
    "OldImage",
    "PK",
    "SK",
    "MessageId",
    "Topic",
    "Key",
    "Value",
    "Headers",
    "Partition",
    "CreatedAtUtc",
    "BucketCount",
    "Sequence",
    "Owner",
    "ExpiresAtUtc",
    "LastSeenUtc",
    "StoppedAtUtc",
    "S",
    "N",
    "B",
    "BOOL",
    "NULL",
    "M",
    "L",
    "SS",
    "NS",
    "BS",
];

/// Texts that mean something, or nearly.
const TEXTS: &[&str] = &[
    "",
    "INSERT",
    "MODIFY",
    "REMOVE",
    "insert",
    "aws:dynamodb",
    "aws:sqs",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-11-30T00:00:00.000",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders-2/stream/1",
    "OUTBOX#MESSAGES#0",
    "OUTBOX#MESSAGES#7",
    "OUTBOX#MESSAGES#8",
    "OUTBOX#MESSAGES#07",
    "OUTBOX#MESSAGES#4294967295",
    "OUTBOX#MESSAGES#4294967296",
    "OUTBOX#SEQUENCE#3",
    "OUTBOX#COORDINATION",
    "LEASE#0000000003",
    "RELAY#a",
    "0000000000000000001",
    "0000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "2147483647",
    "2147483648",
    "-1",
    "+1",
    "8",
    "1.5",
    "1E+125",
    "0191f2a4-7c3e-7d1a-9b2c-3d4e5f607182",
    "AQAAAAA=",
    "AQEAAAABAAAAaAEAAAAx",
    "AQEAAAABAAAAaP////8=",
    "é\u{1F980}\u{0}\u{FEFF}",
];

/// A name that means something.
pub(super) fn name(chance: &Chance) -> String {
    one_of(NAMES, chance).to_owned()
}

/// A small value that means something, or nearly.
pub(super) fn leaf(chance: &Chance) -> Value {
    let text = one_of(TEXTS, chance);
    match chance.below(12) {
        0 => Value::Null,
        1 => (chance.below(2) == 0).into(),
        2 => number(chance),
        3 => json!([]),
        4 => json!({}),
        5 => json!({ "S": text }),
        6 => json!({ "N": text }),
        7 => json!({ "B": text }),
        8 => json!({ "BOOL": true }),
        9 => json!({ "NULL": true }),
        _ => text.into(),
    }
}

/// A number at an end of what is taken, or any.
pub(super) fn number(chance: &Chance) -> Value {
    match chance.below(6) {
        0 => 0.into(),
        1 => (-1).into(),
        2 => u64::MAX.into(),
        3 => i64::MIN.into(),
        4 => json!(1e300),
        _ => chance.below(1 << 40).into(),
    }
}

fn one_of<'a>(all: &[&'a str], chance: &Chance) -> &'a str {
    let at = usize::try_from(chance.below(all.len() as u64)).unwrap_or(0);
    all.get(at).copied().unwrap_or_default()
}
