//! What must never be shown: marked, so that it can be looked for.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use outbox::{Header, headers};

use super::Item;

const MARKER: &str = "qZmarkerZq";

/// What may be shown: where an item is, and what is no part of its message's content.
const SHOWN: [&str; 10] = [
    "PK",
    "SK",
    "MessageId",
    "Topic",
    "CreatedAtUtc",
    "Partition",
    "BucketCount",
    "Owner",
    "LastSeenUtc",
    "StoppedAtUtc",
];

/// The item, with a marker in everything else. Its headers stay as well formed as they are.
pub(crate) fn planted(item: &Item) -> Item {
    let mut planted = item.clone();
    for (name, value) in &mut planted {
        if !SHOWN.contains(&name.as_str()) {
            mark(value, name == "Headers");
        }
    }
    planted
}

/// Panics if a marker is found, as text or as its bytes.
pub(crate) fn assert_not_shown(text: &str) {
    let decimal: Vec<String> = MARKER.bytes().map(|byte| byte.to_string()).collect();
    let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
    for shown in [MARKER, &decimal.join(", "), &hex] {
        assert!(!text.to_lowercase().contains(&shown.to_lowercase()), "it shows what it must not: {text}");
    }
}

fn mark(value: &mut AttributeValue, is_headers: bool) {
    let mark_text = |text: &mut String| text.push_str(MARKER);
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => mark_text(text),
        AttributeValue::B(blob) if is_headers => *blob = marked_headers(blob),
        AttributeValue::B(blob) => *blob = marked(blob),
        AttributeValue::Ss(texts) | AttributeValue::Ns(texts) => texts.iter_mut().for_each(mark_text),
        AttributeValue::Bs(blobs) => blobs.iter_mut().for_each(|blob| *blob = marked(blob)),
        AttributeValue::L(values) => values.iter_mut().for_each(|value| mark(value, false)),
        AttributeValue::M(values) => values.values_mut().for_each(|value| mark(value, false)),
        _ => {}
    }
}

fn marked(blob: &Blob) -> Blob {
    Blob::new([blob.as_ref(), MARKER.as_bytes()].concat())
}

fn marked_headers(blob: &Blob) -> Blob {
    let mark = |header: Header| Header {
        key: header.key + MARKER,
        value: header.value.map(|value| [&value[..], MARKER.as_bytes()].concat().into()),
    };
    let decoded = headers::decode(&Bytes::copy_from_slice(blob.as_ref()));
    let encoded =
        decoded.and_then(|headers| headers::encode(&headers.into_iter().map(mark).collect::<Vec<_>>()));
    encoded.map_or_else(|_| marked(blob), Blob::new)
}
