//! What functions write for CloudWatch to make metrics of.

use std::time::Duration;

use outbox_local::dynamodb::{Fault, Rule};
use outbox_local::lambda::{LambdaHost, LogStream};
use serde_json::{Value, json};

use crate::bench::{Bench, Function, assert_no_failure, keys, logged};

/// A line that a function has written to standard output: all of them are JSON, and none is inside another.
fn lines(host: &LambdaHost) -> Vec<Value> {
    let lines = host.logs().into_iter().filter(|line| line.stream == LogStream::Stdout);
    lines.map(|line| serde_json::from_str(&line.text).unwrap_or_else(|_| panic!("{line:?}"))).collect()
}

/// The line with all metrics of the last invocation.
async fn told(host: &LambdaHost) -> Value {
    let invocations = host.records();
    let is_told = |line: &Value| line.get("outbox.run.duration").is_some();
    // Whoever reads the log is a little behind.
    for _ in 0..500 {
        let told: Vec<Value> = lines(host).into_iter().filter(is_told).collect();
        if told.len() == invocations.len() {
            let ids = told.iter().map(|line| line["requestId"].as_str().unwrap());
            assert!(ids.eq(invocations.iter().map(|invocation| invocation.request_id.as_str())), "{told:?}");
            return told.last().unwrap().clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no metrics: {:#?}", host.logs());
}

/// The metrics of a line by their names without `outbox.`, as the line declares them.
fn metric(line: &Value, name: &str) -> Option<Value> {
    let name = format!("outbox.{name}");
    let declared = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    let is_declared = declared.iter().any(|metric| metric["Name"] == name.as_str());
    assert_eq!(is_declared, line.get(&name).is_some(), "{line}");
    line.get(&name).cloned()
}

/// The backlog of a line: whether it is known, how many messages, how old.
fn backlog(line: &Value) -> [Option<Value>; 3] {
    ["available", "messages", "oldest_age"].map(|name| metric(line, &format!("pending.{name}")))
}

/// A backlog that nobody could look at: no number stands for it.
fn unknown() -> [Option<Value>; 3] {
    [Some(json!(0)), None, None]
}

/// One new process of the scheduled function, invoked with this.
async fn sweep(bench: &Bench, event: &Value) -> LambdaHost {
    let host = bench.host(Function::Scheduled);
    host.invoke(event).await.unwrap();
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hinted_run_tells_what_it_did_and_nothing_of_the_backlog() {
    let mut bench = Bench::new().await;
    bench.set("OUTBOX_NAME", "orders");
    bench.enqueue("21").await;
    let host = bench.host(Function::Stream);
    assert_no_failure(&host.invoke(&bench.event(Function::Stream, &[bench.insert(4)])).await.unwrap());
    let line = told(&host).await;
    assert_eq!(line["outbox.name"], "orders");
    for (name, count) in [
        ("owned_buckets", 1),
        ("publish.acknowledged", 1),
        ("publish.failures", 0),
        ("lease.losses", 0),
        ("quarantined.messages", 0),
        ("waiting.buckets", 0),
        ("client.rebuilds", 0),
    ] {
        assert_eq!(metric(&line, name), Some(json!(count)), "{name}: {line}");
    }
    let [publish, run] =
        ["publish.duration", "run.duration"].map(|name| metric(&line, name).unwrap().as_f64().unwrap());
    assert!(0.0 < publish && publish < run && run < 20.0, "{line}");
    assert_eq!((backlog(&line), metric(&line, "quarantine.keys")), ([None, None, None], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sweep_tells_that_nothing_waits() {
    let bench = Bench::new().await;
    let line = told(&sweep(&bench, &json!({})).await).await;
    assert_eq!(backlog(&line), [json!(1), json!(0), json!(0.0)].map(Some), "{line}");
    assert_eq!(metric(&line, "owned_buckets"), Some(json!(0)));
    assert_eq!((metric(&line, "publish.duration"), metric(&line, "quarantine.keys")), (None, None));
    assert!(bench.items("OUTBOX#COORDINATION").await.is_empty(), "it has written something");
}

/// What one tells, all tell together: sums are right.
#[tokio::test(flavor = "multi_thread")]
async fn the_schedules_sweep_tells_the_backlog_and_those_that_it_asks_for_do_not() {
    let bench = Bench::new().await;
    let enqueue = async || {
        for key in &keys()[..3] {
            bench.enqueue(key).await;
            bench.enqueue(key).await;
        }
    };
    enqueue().await;
    let line = told(&sweep(&bench, &json!({})).await).await;
    let [available, messages, age] = backlog(&line);
    assert_eq!((available, messages), (Some(json!(1)), Some(json!(6))), "{line}");
    assert!((0.0..60.0).contains(&age.unwrap().as_f64().unwrap()), "{line}");
    assert_eq!(metric(&line, "publish.acknowledged"), Some(json!(6)));

    enqueue().await;
    let asked = json!({ "source": "outbox.scheduled-relay", "count": 1 });
    let line = told(&sweep(&bench, &asked).await).await;
    assert_eq!(metric(&line, "publish.acknowledged"), Some(json!(6)));
    assert_eq!(backlog(&line), [None, None, None], "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_asked_leaves_the_backlog_unknown() {
    let mut bench = Bench::new().await;
    bench.enqueue("21").await;
    bench.set("RUST_LOG", "warn");
    bench.set("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9");
    let host = sweep(&bench, &json!({})).await;
    let line = told(&host).await;
    assert_eq!(backlog(&line), unknown(), "{line}");
    // However little is logged, a line says of which invocation it is.
    let warning = lines(&host).into_iter().find(|line| line["level"] == "WARN").expect("a warning");
    assert_eq!(warning["span"]["requestId"], line["requestId"], "{warning}");

    let endpoint = bench.database.faulty_endpoint().to_owned();
    let Some(faults) = bench.database.faults() else {
        println!("skipped: no fault can be put before {}", bench.database.kind());
        return;
    };
    faults.set(Rule::new(Fault::Throttle).with_operations(["Query"]));
    bench.set("AWS_ENDPOINT_URL_DYNAMODB", &endpoint);
    let line = told(&sweep(&bench, &json!({})).await).await;
    assert_eq!(backlog(&line), unknown(), "{line}");
}

/// A broker that is away fails the message and costs the client, once in each invocation. What its threads log is told of
/// the invocation as well.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_by_kind_and_clients_that_were_replaced_once() {
    let mut bench = Bench::new().await;
    bench.set("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9");
    bench.enqueue("21").await;
    let host = bench.host(Function::Scheduled);
    for _ in 0..2 {
        host.invoke(&json!({})).await.unwrap();
        let line = told(&host).await;
        for (name, count) in [("publish.failures", 1), ("client.rebuilds", 1), ("publish.acknowledged", 0)] {
            assert_eq!(metric(&line, name), Some(json!(count)), "{name}: {line}");
        }
        // A sweep that could do nothing about the backlog knows it all the same.
        assert_eq!(metric(&line, "pending.messages"), Some(json!(1)));
    }
    // The first one's, at least, have come before the second one's totals.
    let by_kind: Vec<Value> = lines(&host).into_iter().filter(|line| line.get("kind").is_some()).collect();
    assert!(!by_kind.is_empty() && by_kind.iter().all(|line| line["kind"] == "unavailable"), "{by_kind:?}");
    assert!(by_kind.iter().all(|line| metric(line, "publish.failures") == Some(json!(1))), "{by_kind:?}");
    let of_threads: Vec<_> = lines(&host).into_iter().filter(|line| line["target"] == "librdkafka").collect();
    let has_id = |line: &&Value| line["span"]["requestId"].is_string();
    assert!(!of_threads.is_empty() && of_threads.iter().all(|line| has_id(&line)), "{of_threads:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_keys_are_told_where_messages_are_set_aside() {
    let mut bench = Bench::new().await;
    bench.set("OUTBOX_POISON_POLICY", "quarantine");
    let line = told(&sweep(&bench, &json!({})).await).await;
    assert_eq!(metric(&line, "quarantine.keys"), Some(json!(0)), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_metrics_are_written_where_they_are_turned_off() {
    let mut bench = Bench::new().await;
    bench.set("OUTBOX_METRICS", "off");
    bench.set("OUTBOX_POISON_POLICY", "quarantine");
    bench.enqueue("21").await;
    let host = sweep(&bench, &json!({})).await;
    assert_eq!(bench.records().await.len(), 1);
    // A second one, whose lines come after those of the first. It reads nothing for metrics either.
    let before = bench.database.usage();
    host.invoke(&json!({})).await.unwrap();
    if let (Some(before), Some(after)) = (before, bench.database.usage()) {
        assert_eq!(after.since(&before).requests(), 8, "one probe a bucket");
    }
    assert!(logged(&host, &["sweep ended"]), "{:#?}", host.logs());
    assert!(lines(&host).iter().all(|line| line.get("_aws").is_none()), "{:#?}", host.logs());
}
