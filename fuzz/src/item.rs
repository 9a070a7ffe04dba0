//! Items of the table: attributes of every name and type, as any writer can have put them there.

mod confidential;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use outbox::store::{Malformed, MalformedKey, Stored};
use outbox::{Bucket, BucketCount, Chain, Message, StoreError, Ticks, headers};
use outbox_store_dynamodb::fuzzing::{Read, from_item, heartbeat_record, lease_record, to_item};
use outbox_store_dynamodb::{Sequence, StoreOptions};

use crate::Input;
use crate::bounded::within;
use confidential::{assert_not_shown, planted};

type Item = HashMap<String, AttributeValue>;

/// The bucket that the item is found in.
const BUCKET: Bucket = Bucket::new(3);
/// More than any error about an item needs: what it shows of the item is bounded, however large the item is.
const LONGEST_ERROR: usize = 400;

/// Takes the bytes as an item in DynamoDB's JSON; reads it as each kind of item that there is.
pub(crate) fn check(bytes: &[u8]) -> Input {
    let Ok(item) = serde_json::from_slice::<serde_dynamo::Item>(bytes) else {
        return Input::Rejected;
    };
    let item: Item = item.into();
    let options = StoreOptions::new("orders");
    // Headers take seven times their bytes at most, and everything else is copied once or not at all.
    let limit = 8 * bytes.len() + 1024;
    let read = |item: &Item| {
        let item = item.clone();
        within(limit, || from_item(&options, BUCKET, item, bytes.len()))
    };
    check_message(&item, bytes.len(), read(&item), &options);
    assert_message_shows_nothing(&read(&planted(&item)));

    check_lease(&item, &options, limit);
    check_heartbeat(&item, &options, limit);
    Input::Checked
}

fn check_message(item: &Item, size: usize, read: Read, options: &StoreOptions) {
    match (read, sequence(item)) {
        (Read::Unknown, None) => {}
        (Read::WrongBucketCount(error), Some(row)) => check_wrong_count(item, row, &error),
        (Read::Message(stored), Some(row)) => {
            assert!(!has_wrong_count(item), "a stamp of another bucket count was passed over: {item:?}");
            assert_eq!((stored.row, stored.size), (row, size));
            match &stored.message {
                Ok(message) => check_well_formed(item, row, message, options),
                Err(malformed) => check_malformed(item, row, malformed),
            }
        }
        (_, row) => panic!("not what its sort key says, {row:?}: {item:?}"),
    }
}

/// A sort key of 19 digits, from 1 on, is a message's; any other is a later version's.
fn sequence(item: &Item) -> Option<Sequence> {
    let sort = item.get("SK")?.as_s().ok()?;
    let is_plain = sort.len() == 19 && sort.chars().all(|digit| digit.is_ascii_digit());
    Sequence::new(sort.parse().ok()?).filter(|_| is_plain)
}

fn has_wrong_count(item: &Item) -> bool {
    let count = |stamp: &AttributeValue| BucketCount::new(stamp.as_n().ok()?.parse().ok()?);
    item.get("BucketCount").is_some_and(|stamp| count(stamp) != Some(BucketCount::DEFAULT))
}

fn check_wrong_count(item: &Item, row: Sequence, error: &StoreError) {
    assert!(has_wrong_count(item), "{error} {item:?}");
    assert!(error.is_misconfiguration());
    let text = Chain(error).to_string();
    for named in ["OUTBOX_BUCKET_COUNT=8", &row.to_string(), "bucket 3"] {
        assert!(text.contains(named), "{text} does not name {named}");
    }
    assert!(text.len() <= LONGEST_ERROR, "{text}");
}

/// What is read as a message is one, and is read back from an item of its own.
fn check_well_formed(item: &Item, row: Sequence, message: &Message, options: &StoreOptions) {
    assert_eq!(faults(item), <[&str; 0]>::default(), "{item:?} was read as {message:?}");
    assert_eq!(message.key, binary(item, "Key"));
    assert_eq!(message.value, binary(item, "Value"));
    assert_eq!(item["Topic"].as_s(), Ok(&message.topic));
    assert_eq!(item["MessageId"].as_s().map(|id| id.to_lowercase()), Ok(message.id.to_string()));
    assert_eq!(item.get("Partition").is_some(), message.partition.is_some());

    let created_at = Ticks::from_raw(number(item, "CreatedAtUtc").expect("it was read"));
    let again = to_item(options, message, BUCKET, row, created_at).expect("headers that were decoded");
    let Read::Message(Stored { row: again_row, message: Ok(again), .. }) =
        from_item(options, BUCKET, again, 1)
    else {
        panic!("the item of {message:?} is not read as one");
    };
    assert!((again_row, &again) == (row, message), "{message:?} came back as {again:?}");
}

/// What is not a message says which item it is, names an attribute that is at fault, and keeps the key if there is one.
fn check_malformed(item: &Item, row: Sequence, malformed: &Malformed) {
    let Malformed { reason, key, about } = malformed;
    assert!(reason.contains(&format!("item {row} of bucket 3")), "{reason}");
    let text = reason.to_lowercase();
    let is_named = |name: &&str| text.contains(name.to_lowercase().trim_end_matches('s'));
    assert!(faults(item).iter().any(is_named), "{reason}: at fault are {:?}", faults(item));
    assert!(reason.len() <= LONGEST_ERROR && !reason.contains(char::is_control), "{reason:?}");
    let text_of = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    let (id, topic) = (text_of("MessageId").map(|id| id.to_lowercase()), text_of("Topic"));
    assert!(about.id.is_none_or(|shown| id == Some(shown.to_string())), "{about:?}");
    assert!(about.topic.is_none() || about.topic.as_deref() == topic.map(String::as_str), "{about:?}");
    match (key, item.get("Key")) {
        (MalformedKey::Readable(None), None) => {}
        (MalformedKey::Readable(Some(key)), Some(AttributeValue::B(stored))) => {
            assert_eq!(key, stored.as_ref())
        }
        (MalformedKey::Unreadable, Some(stored)) => assert!(!stored.is_b()),
        (key, stored) => panic!("a key {stored:?} is {key:?}"),
    }
}

/// The attributes that keep the item from being a message.
fn faults(item: &Item) -> Vec<&'static str> {
    let mut faults = Vec::new();
    let mut note = |name: &'static str, is_fine: bool| {
        if !is_fine {
            faults.push(name);
        }
    };
    let absent_or =
        |name: &str, is_fine: &dyn Fn(&AttributeValue) -> bool| item.get(name).is_none_or(is_fine);
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    note("MessageId", text("MessageId").is_some_and(|id| is_uuid(id)));
    note("Topic", text("Topic").is_some());
    note("CreatedAtUtc", number(item, "CreatedAtUtc").is_some());
    note("Key", absent_or("Key", &AttributeValue::is_b));
    note("Value", absent_or("Value", &AttributeValue::is_b));
    let is_partition = |_: &_| number(item, "Partition").is_some_and(|n| (0..1 << 31).contains(&n));
    note("Partition", absent_or("Partition", &is_partition));
    let is_blob = |_: &_| binary(item, "Headers").is_some_and(|blob| headers::decode(&blob).is_ok());
    note("Headers", absent_or("Headers", &is_blob));
    faults
}

fn is_uuid(text: &str) -> bool {
    let is_fine = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_fine)
}

fn number(item: &Item, name: &str) -> Option<i64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

fn binary(item: &Item, name: &str) -> Option<Bytes> {
    let blob = item.get(name)?.as_b().ok()?;
    Some(Bytes::copy_from_slice(blob.as_ref()))
}

/// A lease has an owner and a time, or lacks them; anything else is an error that names the attribute.
fn check_lease(item: &Item, options: &StoreOptions, limit: usize) {
    let owner = item.get("Owner").map(|owner| owner.as_s().ok().filter(|id| (1..=128).contains(&id.len())));
    let expiry = item.get("ExpiresAtUtc").map(|_| number(item, "ExpiresAtUtc"));
    match within(limit, || lease_record(options, item)) {
        Ok(lease) => {
            assert_eq!(
                Some(lease.owner.as_ref().map(|id| id.as_str())),
                transposed(owner.map(|id| id.map(String::as_str)))
            );
            assert_eq!(Some(lease.expires_at.map(Ticks::as_raw)), transposed(expiry));
        }
        Err(error) => {
            let at_fault = [("Owner", owner == Some(None)), ("ExpiresAtUtc", expiry == Some(None))];
            check_unreadable(item, &error, &at_fault);
            if let Err(error) = lease_record(options, &planted(item)) {
                assert_not_shown(&format!("{} {error:?}", Chain(&error)));
            }
        }
    }
}

/// A heartbeat without a time says nothing; any other has times, or is an error that names the attribute.
fn check_heartbeat(item: &Item, options: &StoreOptions, limit: usize) {
    let seen = item.get("LastSeenUtc").map(|_| number(item, "LastSeenUtc"));
    let stopped = item.get("StoppedAtUtc").map(|_| number(item, "StoppedAtUtc"));
    match within(limit, || heartbeat_record(options, item)) {
        Ok(Some(heartbeat)) => {
            assert_eq!(Some(Some(heartbeat.last_seen.as_raw())), seen);
            assert_eq!(Some(heartbeat.stopped_at.map(Ticks::as_raw)), transposed(stopped));
        }
        Ok(None) => assert!(seen.is_none() && stopped != Some(None)),
        Err(error) => {
            let at_fault = [("LastSeenUtc", seen == Some(None)), ("StoppedAtUtc", stopped == Some(None))];
            check_unreadable(item, &error, &at_fault);
        }
    }
}

/// Absent is fine, and there but not as it should be is not.
fn transposed<T>(attribute: Option<Option<T>>) -> Option<Option<T>> {
    match attribute {
        None => Some(None),
        Some(None) => None,
        Some(Some(value)) => Some(Some(value)),
    }
}

fn check_unreadable(item: &Item, error: &StoreError, at_fault: &[(&str, bool)]) {
    let text = Chain(error).to_string();
    let is_named = |(name, is_at_fault): &(&str, bool)| *is_at_fault && text.contains(name);
    assert!(at_fault.iter().any(is_named), "{text}: at fault are {at_fault:?}");
    assert!(text.len() <= LONGEST_ERROR && !text.contains(char::is_control), "{text:?}");
    assert!(error.is_misconfiguration(), "{text} {item:?}");
}

/// Nothing that is said of an item shows its key, its value, its headers, or what nobody knows.
fn assert_message_shows_nothing(read: &Read) {
    match read {
        Read::Unknown => {}
        Read::WrongBucketCount(error) => assert_not_shown(&format!("{} {error:?}", Chain(error))),
        Read::Message(Stored { message: Ok(message), .. }) => assert_not_shown(&format!("{message:?}")),
        Read::Message(Stored { message: Err(malformed), .. }) => {
            assert_not_shown(&format!("{} {malformed:?}", malformed.reason));
        }
    }
}
