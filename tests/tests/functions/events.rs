//! Events: hints are taken, everything else is passed over or refused by name.

use outbox_local::lambda::Outcome;
use serde_json::{Value, json};

use crate::bench::{Bench, Function, assert_no_failure, function_error, ids, logged};

/// The bucket of the key "21".
const BUCKET: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_is_followed_and_the_next_one_too_after_a_freeze() {
    let bench = Bench::new().await;
    let host = bench.host(Function::Stream);
    let mut sent = Vec::new();
    for _ in 0..2 {
        sent.push(bench.enqueue("21").await.id.to_string());
        let outcome = host.invoke(&json!({ "Records": [bench.insert(BUCKET)] })).await.unwrap();
        assert_no_failure(&outcome);
    }
    assert_eq!(host.counters().cold_starts, 1, "the process was frozen and thawed, not replaced");
    assert_eq!(ids(&bench.records().await), sent);
    assert_eq!(bench.waiting(BUCKET).await, 0);
    bench.assert_released().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_needs_no_hint() {
    let bench = Bench::new().await;
    let sent = bench.enqueue("21").await.id.to_string();
    let outcome = bench.invoke(Function::Scheduled, &[]).await;
    assert_eq!(outcome.response().unwrap()["acknowledged"], 1, "{outcome}");
    assert_eq!(ids(&bench.records().await), [sent]);
    bench.assert_released().await;
}

/// Invariant 7, on the wire.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sweep_writes_nothing() {
    let bench = Bench::new().await;
    let before = bench.database.usage().unwrap();
    assert!(bench.invoke(Function::Scheduled, &[]).await.is_response());
    let used = bench.database.usage().unwrap().since(&before);
    assert!(used.write_units() == 0.0, "{used:?}");
    assert_eq!(used.requests(), 8, "one probe a bucket");
    assert!(bench.items("OUTBOX#COORDINATION").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_no_hints_are_passed_over() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let mut other_table = bench.insert(BUCKET);
    other_table["eventSourceARN"] = "arn:aws:dynamodb:us-east-1:0:table/payments/stream/x".into();
    let records = [
        other_table,
        bench.record("REMOVE", "OUTBOX#MESSAGES#4", "0000000000000000001"),
        bench.record("MODIFY", "OUTBOX#MESSAGES#4", "0000000000000000001"),
        bench.record("INSERT", "OUTBOX#COORDINATION", "LEASE#0000000004"),
        bench.record("INSERT", "OUTBOX#COORDINATION", "RELAY#a"),
        bench.record("INSERT", "OUTBOX#SEQUENCE#4", "SEQUENCE"),
        bench.record("INSERT", "ORDER#1", "ORDER"),
        json!({ "eventName": 7 }),
        Value::Null,
    ];
    let host = bench.host(Function::Stream);
    assert_no_failure(&host.invoke(&json!({ "Records": records })).await.unwrap());
    assert_no_failure(&host.invoke(&json!({ "Records": [] })).await.unwrap());
    assert_eq!(bench.waiting(BUCKET).await, 1);
    assert!(logged(&host, &["records of another table were ignored"]));
    assert!(logged(&host, &["records that could not be read were ignored"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_is_refused_and_the_process_lives_on() {
    let bench = Bench::new().await;
    let host = bench.host(Function::Stream);
    for payload in [json!({}), json!("x"), json!({ "Records": 7 })] {
        let outcome = host.invoke(&payload).await.unwrap();
        let (error_type, message) = function_error(&outcome);
        assert_eq!(error_type, "Outbox.UnknownEvent");
        assert!(message.contains("Records"), "{message}");
    }
    let outcome = host.invoke_bytes(b"{ not json".to_vec()).await.unwrap();
    assert!(matches!(outcome, Outcome::FunctionError { .. }), "{outcome}");
    bench.enqueue("21").await;
    assert_no_failure(&host.invoke(&json!({ "Records": [bench.insert(BUCKET)] })).await.unwrap());
    assert_eq!(bench.waiting(BUCKET).await, 0);
    assert_eq!(host.counters().cold_starts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_batch_is_one_run() {
    let bench = Bench::new().await;
    let sent = bench.enqueue("21").await.id.to_string();
    let records: Vec<Value> = (0..10_000).map(|n| bench.insert(n % 8)).collect();
    assert_no_failure(&bench.invoke(Function::Stream, &records).await);
    assert_eq!(ids(&bench.records().await), [sent]);
    bench.assert_released().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_out_of_range_is_loud_after_the_others_were_served() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let outcome = bench.invoke(Function::Stream, &[bench.insert(12), bench.insert(BUCKET)]).await;
    let (error_type, message) = function_error(&outcome);
    assert_eq!(error_type, "Outbox.Misconfigured");
    assert!(message.contains("bucket 12") && message.contains("OUTBOX_BUCKET_COUNT=8"), "{message}");
    assert_eq!(bench.waiting(BUCKET).await, 0);
}
