//! Stream events to hints. Events are untrusted input (design.md, section 9): records of any kind, shape and number.

use std::collections::BTreeSet;

use outbox::{Bucket, BucketCount};
use outbox_store_dynamodb::{StoreOptions, bucket_of_message_partition};
use serde_json::{Map, Value};

use crate::FunctionError;

/// What an event says: which buckets may have work, and what was passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Buckets in which a message was inserted.
    pub buckets: BTreeSet<Bucket>,
    /// Buckets that this relay does not have: its writers have another bucket count.
    pub out_of_range: BTreeSet<Bucket>,
    /// Records of other items, and of changes that are no inserts: a filter that lets them through costs invocations,
    /// nothing else.
    pub other_items: usize,
    /// Records of another table, or of no table's stream at all: a mapping that points at the wrong stream.
    pub other_tables: usize,
    /// Records that could not be read.
    pub unreadable: usize,
}

/// What tells this outbox's records from others.
#[derive(Clone, Debug)]
pub struct TableIdentity {
    table_name: String,
    key_prefix: String,
    partition_key_attribute: String,
    bucket_count: BucketCount,
}

impl From<&StoreOptions> for TableIdentity {
    fn from(options: &StoreOptions) -> Self {
        // The setting may be an ARN; a stream's ARN holds the bare name.
        let name = options.table_name();
        let table_name = table_of_arn(name).unwrap_or(name).to_owned();
        Self {
            table_name,
            key_prefix: options.key_prefix().to_owned(),
            partition_key_attribute: options.partition_key_attribute().to_owned(),
            bucket_count: options.bucket_count(),
        }
    }
}

/// One record, as far as a hint needs it. Nothing of it is copied: what else it holds can be large.
struct Record<'a> {
    event_name: Option<&'a str>,
    event_source: Option<&'a str>,
    event_source_arn: Option<&'a str>,
    keys: Option<&'a Value>,
}

impl<'a> Record<'a> {
    /// `None` if it is no object, or one of these parts is not of its type.
    fn read(record: &'a Value) -> Option<Self> {
        let fields = record.as_object()?;
        let change = optional(fields, "dynamodb", Value::as_object)?;
        Some(Self {
            event_name: optional(fields, "eventName", Value::as_str)?,
            event_source: optional(fields, "eventSource", Value::as_str)?,
            event_source_arn: optional(fields, "eventSourceARN", Value::as_str)?,
            keys: change.and_then(|change| optional(change, "Keys", Some)?),
        })
    }
}

/// A field that may be absent, or null; `None` if it is something that `read` does not take.
fn optional<'a, T>(
    fields: &'a Map<String, Value>,
    name: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Option<Option<T>> {
    match fields.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => read(value).map(Some),
    }
}

/// Reads an event of the table's stream.
///
/// # Errors
/// Only if it has no list of records: then it is no stream event at all, and whoever sent it should know.
pub fn read_event(event: &Value, table: &TableIdentity) -> Result<Hints, FunctionError> {
    let records = event.get("Records").and_then(Value::as_array).ok_or_else(|| {
        let message = "the payload is no event of a DynamoDB stream: it has no list of Records";
        FunctionError::UnknownEvent(message.to_owned())
    })?;
    let mut hints = Hints::default();
    for record in records {
        match Record::read(record) {
            Some(record) => hints.add(&record, table),
            None => hints.unreadable += 1,
        }
    }
    Ok(hints)
}

impl Hints {
    fn add(&mut self, record: &Record, table: &TableIdentity) {
        if record.event_source.is_some_and(|source| source != "aws:dynamodb") {
            self.other_tables += 1;
            return;
        }
        // A record that does not say where it is from is taken at its word: a hint costs a read.
        if record.event_source_arn.is_some_and(|arn| table_of_arn(arn) != Some(&table.table_name)) {
            self.other_tables += 1;
            return;
        }
        let (Some(event), Some(keys)) = (record.event_name, record.keys) else {
            self.unreadable += 1;
            return;
        };
        let partition =
            keys.get(&table.partition_key_attribute).and_then(|key| key.get("S")).and_then(Value::as_str);
        let bucket =
            partition.and_then(|partition| bucket_of_message_partition(&table.key_prefix, partition));
        match bucket.filter(|_| event == "INSERT") {
            Some(bucket) if table.bucket_count.contains(bucket) => {
                self.buckets.insert(bucket);
            }
            Some(bucket) => {
                self.out_of_range.insert(bucket);
            }
            None => self.other_items += 1,
        }
    }
}

/// The table's name in the ARN of a table or of its stream.
fn table_of_arn(arn: &str) -> Option<&str> {
    let resource = arn.strip_prefix("arn:")?.splitn(5, ':').nth(4)?;
    resource.strip_prefix("table/")?.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const STREAM: &str =
        "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-11-30T00:00:00.000";

    fn table() -> TableIdentity {
        TableIdentity::from(&StoreOptions::new("orders"))
    }

    fn record(event: &str, partition: &str, sort: &str) -> Value {
        json!({
            "eventID": "1", "eventName": event, "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1", "eventSourceARN": STREAM,
            "dynamodb": {
                "Keys": {"PK": {"S": partition}, "SK": {"S": sort}},
                "SequenceNumber": "100", "SizeBytes": 40, "StreamViewType": "KEYS_ONLY"
            }
        })
    }

    fn insert(bucket: u32) -> Value {
        record("INSERT", &format!("OUTBOX#MESSAGES#{bucket}"), "0000000000000000001")
    }

    fn read(records: &[Value]) -> Hints {
        read_event(&json!({ "Records": records }), &table()).unwrap()
    }

    fn buckets(numbers: &[u32]) -> BTreeSet<Bucket> {
        numbers.iter().map(|number| Bucket::new(*number)).collect()
    }

    #[test]
    fn inserts_of_messages_are_hints_each_bucket_once() {
        let hints = read(&[insert(3), insert(0), insert(3)]);
        assert_eq!(hints, Hints { buckets: buckets(&[0, 3]), ..Hints::default() });
    }

    #[test]
    fn removed_and_modified_items_are_no_hints() {
        let message = |event| record(event, "OUTBOX#MESSAGES#3", "0000000000000000001");
        assert_eq!(
            read(&[message("REMOVE"), message("MODIFY")]),
            Hints { other_items: 2, ..Hints::default() }
        );
    }

    #[test]
    fn leases_counters_heartbeats_and_business_items_are_no_hints() {
        let hints = read(&[
            record("INSERT", "OUTBOX#COORDINATION", "LEASE#0000000003"),
            record("INSERT", "OUTBOX#COORDINATION", "RELAY#a"),
            record("INSERT", "OUTBOX#SEQUENCE#3", "SEQUENCE"),
            record("INSERT", "OUTBOX#LATER#3", "x"),
            record("INSERT", "ORDER#17", "ORDER"),
            record("INSERT", "OTHER#MESSAGES#3", "0000000000000000001"),
        ]);
        assert_eq!(hints, Hints { other_items: 6, ..Hints::default() });
    }

    #[test]
    fn records_of_another_table_are_counted_and_give_no_hint() {
        let mut other = insert(3);
        other["eventSourceARN"] = STREAM.replace("orders", "payments").into();
        let mut queue = insert(3);
        queue["eventSource"] = "aws:sqs".into();
        let mut prefix = insert(3);
        prefix["eventSourceARN"] = STREAM.replace("orders", "orders-2").into();
        assert_eq!(read(&[other, queue, prefix]), Hints { other_tables: 3, ..Hints::default() });
    }

    #[test]
    fn a_table_given_by_its_arn_knows_its_stream() {
        let arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders";
        let table = TableIdentity::from(&StoreOptions::new(arn));
        let hints = read_event(&json!({ "Records": [insert(1)] }), &table).unwrap();
        assert_eq!(hints.buckets, buckets(&[1]));
    }

    #[test]
    fn a_bucket_out_of_range_is_told_apart() {
        let hints = read(&[insert(8), insert(7)]);
        assert_eq!(hints.buckets, buckets(&[7]));
        assert_eq!(hints.out_of_range, buckets(&[8]));
    }

    #[test]
    fn a_record_that_cannot_be_read_does_not_hide_its_neighbours() {
        let hints = read(&[json!(null), json!([]), json!({"eventName": 7}), json!({}), insert(2)]);
        assert_eq!(hints.buckets, buckets(&[2]));
        assert_eq!(hints.unreadable, 4);
    }

    #[test]
    fn a_list_is_no_record_and_no_change_whatever_stands_in_it() {
        let keys = || json!({"Keys": {"PK": {"S": "OUTBOX#MESSAGES#3"}}});
        let by_position = json!(["INSERT", "aws:dynamodb", STREAM, keys()]);
        let change_by_position = json!({"eventName": "INSERT", "dynamodb": [keys()["Keys"]]});
        let hints = read(&[by_position, change_by_position]);
        assert_eq!(hints, Hints { unreadable: 2, ..Hints::default() });
    }

    #[test]
    fn an_empty_event_gives_no_hint() {
        assert_eq!(read(&[]), Hints::default());
    }

    #[test]
    fn what_is_no_stream_event_is_refused() {
        for payload in
            [json!(null), json!({}), json!("x"), json!([]), json!({"Records": {}}), json!({"records": []})]
        {
            let error = read_event(&payload, &table()).unwrap_err();
            assert!(error.to_string().contains("Records"), "{error}");
        }
    }

    #[test]
    fn other_key_attributes_are_looked_up_by_their_names() {
        let mut named = insert(3);
        named["dynamodb"]["Keys"] = json!({"pk": {"S": "OUTBOX#MESSAGES#3"}, "sk": {"S": "1"}});
        let table = TableIdentity::from(&StoreOptions::new("orders").with_key_attributes("pk", "sk"));
        let hints = read_event(&json!({ "Records": [named] }), &table).unwrap();
        assert_eq!(hints.buckets, buckets(&[3]));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let name = prop_oneof![
            Just("Records"),
            Just("eventName"),
            Just("dynamodb"),
            Just("Keys"),
            Just("PK"),
            Just("S"),
            Just("eventSourceARN"),
            Just("eventSource"),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
            Just(Value::from("INSERT")),
            Just(Value::from("OUTBOX#MESSAGES#1")),
            Just(Value::from(STREAM)),
        ];
        leaf.prop_recursive(6, 60, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::vec((name.clone(), inner), 0..6)
                    .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_event_panics_and_every_hint_is_in_range(records in proptest::collection::vec(any_json(), 0..8)) {
            let hints = read(&records);
            prop_assert!(hints.buckets.iter().all(|bucket| bucket.number() < 8));
        }
    }
}
