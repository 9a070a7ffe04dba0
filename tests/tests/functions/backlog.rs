//! Backlogs that are too large for one invocation: the scheduled relay invokes itself through Lambda's API.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use outbox::Message;
use outbox_local::lambda::{FunctionSpec, InvokeApi, LambdaHost, RecursiveLoop};
use serde_json::json;
use tokio::net::TcpListener;

use crate::bench::{Bench, Function, ids, keys, logged};

/// The shortest that is supported: 4 s for batches, and the rest for good order.
const SHORT: Duration = Duration::from_secs(10);
const DRAIN_BOUND: Duration = Duration::from_secs(180);

/// As the template deploys it.
fn deployed(spec: FunctionSpec) -> FunctionSpec {
    spec.with_timeout(SHORT)
        .with_async_retries(0, Duration::from_secs(1))
        .with_recursive_loop(RecursiveLoop::Allow)
}

/// As many messages of each key.
async fn enqueue(bench: &Bench, keys: &[String], each: usize) -> Vec<String> {
    let mut sent = Vec::new();
    for key in keys {
        let messages: Vec<Message> = (0..each).map(|_| bench.message(key)).collect();
        for messages in messages.chunks(100) {
            bench.writer.enqueue(messages).await.unwrap();
        }
        sent.extend(messages.iter().map(|message| message.id.to_string()));
    }
    sent
}

async fn drained(host: &LambdaHost) {
    let waited = tokio::time::timeout(DRAIN_BOUND, host.wait_until_idle()).await;
    waited.unwrap_or_else(|_| panic!("not idle within {DRAIN_BOUND:?}: {:#?}", host.logs()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tick_is_enough_for_any_backlog() {
    let mut bench = Bench::new().await;
    let lambda = InvokeApi::start().await.unwrap();
    bench.set("AWS_ENDPOINT_URL_LAMBDA", &lambda.endpoint());
    bench.set("OUTBOX_MAX_WORKERS", "2");
    bench.set("OUTBOX_BATCH_SIZE", "1");
    let host = bench.host_with(Function::Scheduled, deployed);
    lambda.register(&host);
    let keys = &keys()[..3];
    // At one message a batch, of which a bucket has fewer than a hundred a second.
    let sent = enqueue(&bench, keys, 500).await;

    let first = host.invoke(&json!({})).await.unwrap();
    let answer = first.response().unwrap_or_else(|| panic!("{first}"));
    assert!(
        answer["workers"].as_u64().unwrap() > 0 && answer["unfinished"].as_u64().unwrap() > 0,
        "{answer}"
    );
    drained(&host).await;

    let records = bench.records().await;
    let got = ids(&records);
    assert_eq!(got.iter().collect::<BTreeSet<_>>(), sent.iter().collect::<BTreeSet<_>>());
    assert_eq!(got.len(), sent.len(), "without faults each message is sent once");
    for key in keys {
        let of_key = |record: &&outbox_local::kafka::Record| record.key.as_deref() == Some(key.as_bytes());
        let got: Vec<_> = records.iter().filter(of_key).cloned().collect();
        let place = |id: &String| sent.iter().position(|sent| sent == id);
        assert!(ids(&got).is_sorted_by_key(place), "the messages of {key} are out of order");
    }
    assert!(lambda.requests("scheduled-relay").event > 0);
    // Nobody was killed, nobody failed, and the chain has ended.
    assert!(host.records().iter().all(|record| record.outcome.is_response()), "{:#?}", host.records());
    bench.assert_released().await;
}

/// What a VPC without a way to Lambda is like.
#[tokio::test(flavor = "multi_thread")]
async fn a_lambda_that_cannot_be_reached_costs_a_second_and_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let mut bench = Bench::new().await;
    bench.set("AWS_ENDPOINT_URL_LAMBDA", &format!("http://{address}"));
    bench.set("OUTBOX_BATCH_SIZE", "1");
    let host = bench.host_with(Function::Scheduled, deployed);
    enqueue(&bench, &keys()[..1], 800).await;
    let started = Instant::now();
    let outcome = host.invoke(&json!({})).await.unwrap();
    assert!(started.elapsed() < SHORT, "{:?}", started.elapsed());
    let answer = outcome.response().unwrap_or_else(|| panic!("{outcome}"));
    assert!(answer["deleted"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!((&answer["unfinished"], &answer["workers"]), (&json!(1), &json!(0)), "{answer}");
    let said = ["further sweeps were not started", "a way to Lambda", "OUTBOX_MAX_WORKERS=0"];
    assert!(logged(&host, &said), "{:#?}", host.logs());
    bench.assert_released().await;
}
