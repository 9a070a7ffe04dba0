//! Which records of the table's stream reach the function. Nothing in the deployment tools catches a pattern that is
//! nested wrongly and so matches everything or nothing.

use outbox_local::filter::Filter;
use serde_json::{Value, json};

use crate::template;

fn filter(parameters: &[(&str, &str)]) -> Filter {
    let streams = template(parameters).function("StreamRelayFunction").unwrap().streams;
    assert_eq!(streams.len(), 1);
    streams.values().next().unwrap().filter.clone()
}

/// A record as it stands in the function's event, from a table whose stream has whole items.
fn record(event: &str, attributes: [&str; 2], partition: &str, sort: &str) -> Value {
    let keys = json!({attributes[0]: {"S": partition}, attributes[1]: {"S": sort}});
    let mut record = json!({
        "eventID": "c81e728d9d4c2f636f067f89cc14862c",
        "eventName": event,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_764_552_892,
            "Keys": keys,
            "SequenceNumber": "100000000000000000001",
            "SizeBytes": 59,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/outbox/stream/2026-01-01T00:00:00.000",
    });
    for (image, absent_in) in [("NewImage", "REMOVE"), ("OldImage", "INSERT")] {
        if event != absent_in {
            record["dynamodb"][image] = keys.clone();
        }
    }
    record
}

const OWN: [&str; 2] = ["PK", "SK"];
const SEQUENCE: &str = "0000000000000000042";

#[test]
fn new_messages_pass() {
    for partition in ["OUTBOX#MESSAGES#0", "OUTBOX#MESSAGES#7", "OUTBOX#MESSAGES#1023"] {
        assert!(filter(&[]).matches(&record("INSERT", OWN, partition, SEQUENCE)), "{partition}");
    }
}

#[test]
fn nothing_else_passes() {
    let filter = filter(&[]);
    for (event, partition, sort) in [
        // What a publish, a counted attempt and a move to the quarantine leave.
        ("REMOVE", "OUTBOX#MESSAGES#3", SEQUENCE),
        ("MODIFY", "OUTBOX#MESSAGES#3", SEQUENCE),
        // What the relay writes for itself: it would wake itself for ever.
        ("INSERT", "OUTBOX#COORDINATION", "LEASE#0000000003"),
        ("MODIFY", "OUTBOX#COORDINATION", "LEASE#0000000003"),
        ("INSERT", "OUTBOX#COORDINATION", "RELAY#a"),
        ("REMOVE", "OUTBOX#COORDINATION", "RELAY#a"),
        ("INSERT", "OUTBOX#COORDINATION", "PARKED#0000000003"),
        ("INSERT", "OUTBOX#QUARANTINE#3", SEQUENCE),
        ("INSERT", "OUTBOX#QUARANTINE#3", "KEY#00"),
        // What writers count.
        ("INSERT", "OUTBOX#SEQUENCE#3", "SEQUENCE"),
        ("MODIFY", "OUTBOX#SEQUENCE#3", "SEQUENCE"),
        // Other outboxes, and the application's own items.
        ("INSERT", "OTHER#MESSAGES#3", SEQUENCE),
        ("INSERT", "OUTBOXES#MESSAGES#3", SEQUENCE),
        ("INSERT", "OUTBOX-2#MESSAGES#3", SEQUENCE),
        ("INSERT", "XOUTBOX#MESSAGES#3", SEQUENCE),
        ("INSERT", "outbox#MESSAGES#3", SEQUENCE),
        ("INSERT", "OUTBOX#MESSAGESX#3", SEQUENCE),
        ("INSERT", "OUTBOX", SEQUENCE),
        ("INSERT", "CUSTOMER#3", "OUTBOX#MESSAGES#3"),
    ] {
        assert!(!filter.matches(&record(event, OWN, partition, sort)), "{event} {partition} {sort}");
    }
    // A key of another type, and a record that has none.
    let mut number = record("INSERT", OWN, "", SEQUENCE);
    number["dynamodb"]["Keys"]["PK"] = json!({"N": "3"});
    assert!(!filter.matches(&number));
    assert!(!filter.matches(&json!({"eventName": "INSERT"})));
}

#[test]
fn prefix_and_key_attributes_are_the_parameters() {
    let attributes = ["pk", "sk"];
    let filter = filter(&[
        ("KeyPrefix", "mail.v2"),
        ("PartitionKeyAttribute", attributes[0]),
        ("SortKeyAttribute", attributes[1]),
    ]);
    assert!(filter.matches(&record("INSERT", attributes, "mail.v2#MESSAGES#3", SEQUENCE)));
    assert!(!filter.matches(&record("INSERT", attributes, "OUTBOX#MESSAGES#3", SEQUENCE)));
    assert!(!filter.matches(&record("INSERT", OWN, "mail.v2#MESSAGES#3", SEQUENCE)));
}
