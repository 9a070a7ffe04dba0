//! Stream events: JSON that anybody who may invoke the function can have written.

use outbox::Bucket;
use outbox_functions::{Hints, TableIdentity, read_event};
use outbox_store_dynamodb::{StoreOptions, message_partition};
use serde_json::{Map, Value, json};

use crate::Input;
use crate::bounded::within;

/// Takes the bytes as the payload of an invocation.
pub(crate) fn check(bytes: &[u8]) -> Input {
    let Ok(event) = serde_json::from_slice::<Value>(bytes) else {
        return Input::Rejected;
    };
    check_event(event, &StoreOptions::new("orders"));
    Input::Checked
}

/// What the event says to the relay of this outbox; `None` if it is no stream event. Panics unless all of this holds:
///
/// - a payload without a list of records, and nothing else, is refused;
/// - a record is a hint exactly if it claims to be the insert of a message into this table;
/// - hints are of buckets that there are;
/// - every record counts, once, whatever its neighbours are and wherever it stands.
pub(crate) fn check_event(mut event: Value, outbox: &StoreOptions) -> Option<Hints> {
    let table = TableIdentity::from(outbox);
    let number = event.get("Records").and_then(Value::as_array).map_or(0, Vec::len);
    // Nothing is copied; buckets are kept in two sets, in nodes of eleven.
    let read = within(1024 + 64 * number, || read_event(&event, &table));
    let Some(Value::Array(mut records)) = event.get_mut("Records").map(Value::take) else {
        let error = read.expect_err("an event without records").to_string();
        assert!(error.contains("Records") && error.len() < 100, "{error}");
        return None;
    };
    let hints = read.expect("an event with records");

    let mut sum = Hints::default();
    for record in &mut records {
        let mut one = vec![record.take()];
        let alone = read_records(&mut one, &table);
        *record = one.remove(0);
        assert_eq!(number_of_records(&alone), 1, "{record} does not count once: {alone:?}");
        assert_eq!(hinted(&alone), claimed(record, outbox), "{record}");
        add(&mut sum, alone);
    }
    assert_eq!(hints, sum, "the records say something else together than each of them alone");
    assert!(hints.buckets.iter().all(|bucket| outbox.bucket_count().contains(*bucket)), "{hints:?}");
    assert!(!hints.out_of_range.iter().any(|bucket| outbox.bucket_count().contains(*bucket)), "{hints:?}");

    records.reverse();
    assert_eq!(read_records(&mut records, &table), hints, "the order of the records matters");

    let mut junk = vec![junk(records.len())];
    add(&mut sum, read_records(&mut junk, &table));
    let place = records.len() / 2;
    records.splice(place..place, junk);
    let mixed = read_records(&mut records, &table);
    assert_eq!(mixed, sum, "junk between the records changed what they say");
    assert_eq!((&mixed.buckets, &mixed.out_of_range), (&hints.buckets, &hints.out_of_range));
    Some(hints)
}

/// Reads an event of these records, and leaves them where they were: a copy would take longer than all else.
fn read_records(records: &mut Vec<Value>, table: &TableIdentity) -> Hints {
    let mut event = event_of(std::mem::take(records));
    let hints = read_event(&event, table).expect("an event with records");
    if let Value::Array(read) = event["Records"].take() {
        *records = read;
    }
    hints
}

/// The event of these records. (`json!` would copy them.)
pub(crate) fn event_of(records: Vec<Value>) -> Value {
    Value::Object(Map::from_iter([("Records".to_owned(), Value::Array(records))]))
}

/// How many records there were, if no two of them name the same bucket.
fn number_of_records(hints: &Hints) -> usize {
    hints.buckets.len() + hints.out_of_range.len() + hints.other_items + hints.other_tables + hints.unreadable
}

fn hinted(hints: &Hints) -> Option<Bucket> {
    hints.buckets.union(&hints.out_of_range).next().copied()
}

/// The sum of what two events say.
pub(crate) fn add(sum: &mut Hints, more: Hints) {
    sum.buckets.extend(more.buckets);
    sum.out_of_range.extend(more.out_of_range);
    sum.other_items += more.other_items;
    sum.other_tables += more.other_tables;
    sum.unreadable += more.unreadable;
}

/// The bucket into which this record claims that a message was inserted, of this table and prefix. Written from what
/// DynamoDB's documentation says of a record, and not from the code under test.
fn claimed(record: &Value, outbox: &StoreOptions) -> Option<Bucket> {
    let record = record.as_object()?;
    let absent_or = |name: &str, is_ours: &dyn Fn(&str) -> bool| match record.get(name) {
        None | Some(Value::Null) => true,
        Some(value) => value.as_str().is_some_and(is_ours),
    };
    let is_claimed = record.get("eventName")? == "INSERT"
        && absent_or("eventSource", &|source| source == "aws:dynamodb")
        && absent_or("eventSourceARN", &|arn| is_of_table(arn, outbox.table_name()));
    let keys = record.get("dynamodb")?.as_object()?.get("Keys")?.as_object()?;
    let partition = keys.get(outbox.partition_key_attribute())?.as_object()?.get("S")?.as_str()?;
    let bucket = Bucket::new(partition.rsplit('#').next()?.parse().ok()?);
    // Our own way of writing it is the only one: no sign, no leading zeros.
    (is_claimed && message_partition(outbox.key_prefix(), bucket) == partition).then_some(bucket)
}

/// Whether a stream's ARN, `arn:partition:service:region:account:table/NAME/stream/LABEL`, is one of this table, which
/// may be given by its own ARN.
fn is_of_table(arn: &str, table: &str) -> bool {
    let name = table.rsplit('/').next().unwrap_or(table);
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let resource: Vec<&str> = parts.get(5).unwrap_or(&"").split('/').collect();
    parts[0] == "arn" && resource.len() >= 2 && resource[..2] == ["table", name]
}

/// A record that says nothing to this relay.
fn junk(choice: usize) -> Value {
    let insert = |partition: &str| json!({"eventName": "INSERT", "dynamodb": {"Keys": {"PK": {"S": partition}, "SK": {"S": "1"}}}});
    let message = || insert("OUTBOX#MESSAGES#5");
    let with = |name: &str, value: &str| {
        let mut record = message();
        record[name] = value.into();
        record
    };
    match choice % 10 {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!("INSERT"),
        4 => json!({"eventName": 7}),
        5 => json!({"Records": [message()]}),
        6 => json!(["INSERT", null, null, message()["dynamodb"]]),
        7 => insert("OUTBOX#COORDINATION"),
        8 => with("eventSourceARN", "arn:aws:dynamodb:eu-west-1:1:table/no-such-table/stream/1"),
        _ => with("eventName", "REMOVE"),
    }
}
