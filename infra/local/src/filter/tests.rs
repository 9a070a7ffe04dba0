//! Patterns against the records that the outbox table's stream carries.

use serde_json::{Value, json};

use super::Filter;

/// The pattern of the project's template, for the default prefix.
const MESSAGE_INSERTS: &str =
    r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"PK":{"S":[{"prefix":"OUTBOX#MESSAGES#"}]}}}}"#;

fn record(event_name: &str, partition_key: &str, sort_key: &str) -> Value {
    json!({
        "eventID": "7de3041dd709b024af6f29e4fa13d34c",
        "eventName": event_name,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_479_499_740,
            "Keys": {"PK": {"S": partition_key}, "SK": {"S": sort_key}},
            "SequenceNumber": "13021600000000001596893679",
            "SizeBytes": 112,
            "StreamViewType": "KEYS_ONLY"
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/outbox/stream/1"
    })
}

fn passes(pattern: &str, record: &Value) -> bool {
    Filter::parse(&[pattern]).unwrap().matches(record)
}

fn refusal(pattern: &str) -> String {
    let error = Filter::parse(&[pattern]).unwrap_err();
    assert!(error.to_string().ends_with(&format!("at {}", error.path)));
    format!("filter {}, at {}: {}", error.number, error.path, error.problem)
}

#[test]
fn message_inserts_pass_and_nothing_else_does() {
    let message = ("OUTBOX#MESSAGES#3", "0000000000000000017");
    assert!(passes(MESSAGE_INSERTS, &record("INSERT", message.0, message.1)));
    for event_name in ["REMOVE", "MODIFY", "insert"] {
        assert!(!passes(MESSAGE_INSERTS, &record(event_name, message.0, message.1)), "{event_name}");
    }
    for (partition_key, sort_key) in [
        ("OUTBOX#COORDINATION", "LEASE#0000000003"),
        ("OUTBOX#COORDINATION", "RELAY#relay-1"),
        ("OUTBOX#SEQUENCE#3", "SEQUENCE"),
        ("OUTBOX#QUARANTINE#3", "0000000000000000017"),
        ("BILLING#MESSAGES#3", "0000000000000000017"),
        ("XOUTBOX#MESSAGES#3", "0000000000000000017"),
        ("CUSTOMER#17", "ORDER#4"),
    ] {
        let item = record("INSERT", partition_key, sort_key);
        assert!(!passes(MESSAGE_INSERTS, &item), "{partition_key}");
    }
    let mut other_table = record("INSERT", message.0, message.1);
    other_table["dynamodb"]["Keys"] = json!({"id": {"N": "7"}});
    assert!(!passes(MESSAGE_INSERTS, &other_table));
    assert!(!passes(MESSAGE_INSERTS, &json!({})));
    assert!(!passes(MESSAGE_INSERTS, &Value::Null));
}

#[test]
fn any_of_several_filters_is_enough_and_none_lets_all_pass() {
    let filter = Filter::parse(&[r#"{"a": ["x"]}"#, r#"{"a": ["y"]}"#]).unwrap();
    assert!(filter.matches(&json!({"a": "x"})) && filter.matches(&json!({"a": "y"})));
    assert!(!filter.matches(&json!({"a": "z"})));
    assert!(Filter::default().matches(&json!({})));
}

#[test]
fn operators() {
    let table = [
        (r#"["a", "b"]"#, json!("b"), true),
        (r#"["a", "b"]"#, json!("c"), false),
        (r#"[""]"#, json!(""), true),
        (r"[null]", json!(null), true),
        (r"[null]", json!("null"), false),
        (r"[true]", json!(true), true),
        (r"[5]", json!(5.0), true),
        (r"[5]", json!("5"), false),
        (r#"["5"]"#, json!(5), false),
        (r#"[{"prefix": "ab"}]"#, json!("abc"), true),
        (r#"[{"prefix": "ab"}]"#, json!("cab"), false),
        (r#"[{"suffix": "bc"}]"#, json!("abc"), true),
        (r#"[{"suffix": "bc"}]"#, json!("bcd"), false),
        (r#"[{"equals-ignore-case": "aBc"}]"#, json!("AbC"), true),
        (r#"[{"equals-ignore-case": "aBc"}]"#, json!("AbCd"), false),
        (r#"[{"anything-but": "a"}]"#, json!("b"), true),
        (r#"[{"anything-but": "a"}]"#, json!("a"), false),
        (r#"[{"anything-but": ["a", 5]}]"#, json!(5), false),
        (r#"[{"anything-but": ["a", 5]}]"#, json!(6), true),
        (r#"[{"anything-but": {"prefix": "a"}}]"#, json!("ab"), false),
        (r#"[{"anything-but": {"prefix": "a"}}]"#, json!("ba"), true),
        (r#"[{"numeric": ["=", 5]}]"#, json!(5), true),
        (r#"[{"numeric": [">", 0, "<=", 5]}]"#, json!(5), true),
        (r#"[{"numeric": [">", 0, "<=", 5]}]"#, json!(0), false),
        (r#"[{"numeric": [">", 0]}]"#, json!("5"), false),
        (r#"[{"exists": true}]"#, json!(null), true),
        (r#"[{"exists": true}]"#, json!({"inner": 1}), false),
        (r#"[{"exists": false}]"#, json!(1), false),
        (r#"["a"]"#, json!(["b", "a"]), true),
        (r#"["a"]"#, json!(["b", ["c"]]), false),
        (r#"["x", {"prefix": "a"}]"#, json!("ab"), true),
        (r#"["a"]"#, json!({"a": "a"}), false),
    ];
    for (alternatives, value, expected) in table {
        let pattern = format!(r#"{{"field": {alternatives}}}"#);
        let record = json!({"field": value});
        assert_eq!(passes(&pattern, &record), expected, "{pattern} on {record}");
    }
    assert!(passes(r#"{"field": [{"exists": false}]}"#, &json!({})));
    assert!(passes(r#"{"a": {"b": [{"exists": false}]}}"#, &json!({"c": 1})));
    assert!(!passes(r#"{"field": [{"anything-but": "a"}]}"#, &json!({})));
}

#[test]
fn objects_nest_and_or_branches_join_their_neighbours() {
    let pattern = r#"{"kind": ["order"], "$or": [{"a": {"b": [1]}}, {"c": [{"exists": true}]}]}"#;
    assert!(passes(pattern, &json!({"kind": "order", "a": {"b": 1}})));
    assert!(passes(pattern, &json!({"kind": "order", "c": 0})));
    assert!(!passes(pattern, &json!({"kind": "order", "a": {"b": 2}})));
    assert!(!passes(pattern, &json!({"kind": "other", "a": {"b": 1}})));
    assert!(passes(r#"{"list": {"a": [1]}}"#, &json!({"list": [{"a": 0}, {"a": 1}]})));
}

#[test]
fn malformed_patterns_are_refused_by_place() {
    for (pattern, expected) in [
        ("{", "filter 1, at $: it is not JSON"),
        ("[]", "filter 1, at $: a pattern is an object"),
        ("{}", "filter 1, at $: an empty object matches nothing in particular"),
        (
            r#"{"eventName": "INSERT"}"#,
            r#"filter 1, at eventName: a value must be in a list, as in ["INSERT"]"#,
        ),
        (r#"{"a": {"b": []}}"#, "filter 1, at a.b: an empty list has no alternative"),
        (r#"{"a": {"b": {}}}"#, "filter 1, at a.b: an empty object matches nothing in particular"),
        (r#"{"a": [{"wildcard": "x*"}]}"#, "filter 1, at a: no operator wildcard"),
        (r#"{"dynamodb": {"Keys": [{"PK": {"S": ["x"]}}]}}"#, "filter 1, at dynamodb.Keys: no operator PK"),
        (
            r#"{"a": [{"prefix": "x", "suffix": "y"}]}"#,
            "filter 1, at a: an alternative has exactly one operator, this one has 2",
        ),
        (r#"{"a": [{"prefix": ["x"]}]}"#, "filter 1, at a: prefix takes a string"),
        (r#"{"a": [{"exists": "true"}]}"#, "filter 1, at a: exists takes true or false"),
        (r#"{"a": {"$or": [{"b": [1]}]}}"#, "filter 1, at a.$or: $or takes a list of at least two objects"),
    ] {
        assert_eq!(refusal(pattern), expected);
    }
    for numeric in [r#"["!", 5]"#, "[]", "5", r#"["="]"#, r#"["=", 5, "<", 6]"#, r#"["=", "5"]"#] {
        let refused = refusal(&format!(r#"{{"a": [{{"numeric": {numeric}}}]}}"#));
        assert!(refused.starts_with("filter 1, at a: numeric takes"), "{refused}");
    }
    for operand in ["[]", "null", r#"{"exists": true}"#, r#"[["a"]]"#] {
        let refused = refusal(&format!(r#"{{"a": [{{"anything-but": {operand}}}]}}"#));
        assert!(refused.starts_with("filter 1, at a: anything-but takes"), "{refused}");
    }
    let second = Filter::parse(&[MESSAGE_INSERTS, r#"{"a": [[1]]}"#]).unwrap_err();
    assert_eq!((second.number, second.path.as_str()), (2, "a"));
    let long = format!(r#"{{"a": ["{}"]}}"#, "x".repeat(4096));
    assert!(refusal(&long).contains("more than the 4096"));
}
