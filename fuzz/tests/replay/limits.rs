//! Inputs as large and as deep as they can be: larger than the fuzzer makes them. The checks bound the memory that is
//! taken, by the size of the input.

use outbox_fuzz::{EVENT, HEADERS, ITEM, Input};
use serde_json::{Value, json};

/// The most records that a stream's event source mapping puts into one batch.
const LARGEST_BATCH: usize = 10_000;
/// The largest item, in bytes.
const LARGEST_ITEM: usize = 400 * 1024;

#[test]
fn the_largest_batch_is_read_in_memory_that_its_records_justify() {
    let record = |bucket: usize| {
        json!({
            "eventName": "INSERT",
            "dynamodb": {"Keys": {"PK": {"S": format!("OUTBOX#MESSAGES#{bucket}")}, "SK": {"S": "x".repeat(300)}}},
        })
    };
    let records: Vec<Value> = (0..LARGEST_BATCH).map(record).collect();
    let event = serde_json::to_vec(&json!({ "Records": records })).unwrap();
    assert_eq!((EVENT.check)(&event), Input::Checked);
}

/// The runtime parses a payload before a handler sees it, with the parser's own limit of 128 levels. A dependency that
/// turned that limit off would make a payload of a few kilobytes a stack overflow, which no handler survives.
#[test]
fn a_payload_that_is_nested_too_deep_is_refused_by_the_parser() {
    let nested = |levels: usize| format!(r#"{{"Records":[{}{}]}}"#, "[".repeat(levels), "]".repeat(levels));
    assert_eq!((EVENT.check)(nested(120).as_bytes()), Input::Checked);
    for levels in [130, 1_000_000] {
        let error = serde_json::from_str::<Value>(&nested(levels)).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
    }
}

#[test]
fn a_blob_that_fills_an_item_is_read_in_memory_that_its_bytes_justify() {
    // As many headers as fit: eight bytes each, without name or value.
    let count = LARGEST_ITEM / 8;
    let header = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let mut blob = vec![1];
    blob.extend(u32::try_from(count).unwrap().to_le_bytes());
    blob.extend(header.repeat(count));
    assert_eq!((HEADERS.check)(&blob), Input::Checked);
    // A count that is far too high is found out before anything is allocated for it.
    blob[1..5].copy_from_slice(&i32::MAX.to_le_bytes());
    assert_eq!((HEADERS.check)(&blob), Input::Checked);
}

#[test]
fn an_item_as_large_as_there_can_be_is_read_and_named_in_few_words() {
    let long = "x".repeat(LARGEST_ITEM);
    for name in ["MessageId", "Topic", "Value", "BucketCount", "Owner", "ExpiresAtUtc", "Note"] {
        for kind in ["S", "N"] {
            let item = json!({"SK": {"S": "0000000000000000001"}, name: {kind: long}});
            assert_eq!((ITEM.check)(&serde_json::to_vec(&item).unwrap()), Input::Checked, "{name} {kind}");
        }
    }
}
