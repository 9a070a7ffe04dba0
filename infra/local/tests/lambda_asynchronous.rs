//! Functions that invoke themselves through the real SDK, and what becomes of asynchronous events.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions marked as tests, not the helpers beside them"
)]

#[path = "lambda_support/invoking.rs"]
mod invoking;
mod lambda_support;

use std::time::Duration;

use aws_sdk_lambda::error::ProvideErrorMetadata;
use aws_sdk_lambda::types::InvocationType;
use invoking::{Bench, json_of, sent};
use lambda_support::{BOUND, echo, start, until};
use outbox_local::lambda::{InvokeError, ProcessState, RecursiveLoop};
use serde_json::json;

const LARGEST_EVENT: usize = 1024 * 1024;

/// What the function printed of a chain, in its order: what was left, and the tracing header.
async fn chain(bench: &Bench, length: usize) -> Vec<(u64, String)> {
    let mut chain = until("the chain is in the log", || {
        let logs = bench.host.logs();
        let links = logs.iter().filter_map(|line| line.text.strip_prefix("chain: ")?.split_once(' '));
        let links: Vec<_> =
            links.map(|(left, trace)| (left.parse::<u64>().unwrap(), trace.to_owned())).collect();
        (links.len() >= length).then_some(links)
    })
    .await;
    // Processes print at the same time.
    chain.sort_by_key(|(left, _)| std::cmp::Reverse(*left));
    chain
}
fn part<'a>(trace: &'a str, name: &str) -> &'a str {
    trace.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

/// A header of a chain that has come to the function `times` times, as the function would send it on.
async fn header_after(bench: &Bench, times: u64) -> String {
    bench.host.invoke(&json!({"do": "invoke", "value": 0})).await.unwrap();
    let (_, trace) = chain(bench, 1).await.remove(0);
    let first = part(&trace, "Lineage");
    trace.replace(first, &first.replace(":0", &format!(":{}", times - 1)))
}

#[tokio::test]
async fn a_failed_event_is_run_again_and_a_failed_request_is_not() {
    let bench = Bench::new(echo().with_async_retries(2, Duration::from_millis(10))).await;
    sent(bench.invoke(InvocationType::RequestResponse, &json!({"do": "error", "value": 5}))).await;
    assert_eq!(bench.host.counters().errors, 1);
    sent(bench.invoke(InvocationType::Event, &json!({"do": "error", "value": 5}))).await;
    bench.idle().await;
    assert_eq!(bench.host.counters().errors, 4);
}

#[tokio::test]
async fn a_function_goes_on_in_further_invocations_of_itself() {
    let bench = Bench::new(echo().with_freeze_when_idle(true).with_reserved_concurrency(3)).await;
    bench.host.invoke_async(&json!({"do": "invoke", "value": 10})).unwrap();
    let links = chain(&bench, 11).await;
    bench.idle().await;
    let left: Vec<_> = links.iter().map(|(left, _)| *left).collect();
    assert_eq!(left, (0..=10).rev().collect::<Vec<_>>());
    let records = bench.host.records();
    assert!(records.len() == 11 && records.iter().all(|record| record.outcome.is_response()));
    assert_eq!(bench.asked(), [10, 0, 0]);

    // One chain of requests, which Lambda would recognise.
    let root = part(&links[0].1, "Root");
    let (function, _) = part(&links[0].1, "Lineage").split_once(':').unwrap();
    for (returns, (_, trace)) in links.iter().enumerate() {
        assert_eq!(part(trace, "Root"), root);
        assert_eq!(part(trace, "Lineage"), format!("{function}:{returns}"));
    }
    // And another one.
    bench.host.invoke_async(&json!({"do": "invoke", "value": 0})).unwrap();
    bench.idle().await;
    let links = chain(&bench, 12).await;
    assert!(links.iter().any(|(_, trace)| part(trace, "Root") != root));
}

#[tokio::test]
async fn a_function_that_waits_for_itself_gets_its_answer() {
    let bench = Bench::new(echo()).await;
    let event = json!({"do": "invoke", "value": 3, "type": "RequestResponse"});
    let answer = sent(bench.invoke(InvocationType::RequestResponse, &event)).await;
    assert!(json_of(&answer)["last"].is_u64());
    assert_eq!(bench.asked(), [0, 4, 0]);
    assert_eq!(bench.host.counters().cold_starts, 4, "each waits for the next");
}

#[tokio::test]
async fn a_loop_is_terminated_after_sixteen_invocations() {
    let bench = Bench::new(echo()).await;
    bench.host.invoke_async(&json!({"do": "invoke", "value": 1_000})).unwrap();
    until("it is stopped", || (bench.host.counters().recursive_invocations_dropped > 0).then_some(())).await;
    bench.idle().await;
    let counters = bench.host.counters();
    assert_eq!((counters.invocations, counters.recursive_invocations_dropped), (16, 1));
    assert_eq!((counters.errors, counters.throttles), (0, 0), "the caller does not hear of it");
    assert_eq!(bench.asked(), [16, 0, 0]);
    // A chain of its own is not affected.
    sent(bench.invoke(InvocationType::RequestResponse, &json!({"do": "echo"}))).await;
    assert_eq!(bench.host.counters().invocations, 17);
}

#[tokio::test]
async fn a_loop_that_is_allowed_goes_on() {
    let bench = Bench::new(echo().with_recursive_loop(RecursiveLoop::Allow)).await;
    bench.host.invoke_async(&json!({"do": "invoke", "value": 24})).unwrap();
    chain(&bench, 25).await;
    bench.idle().await;
    let counters = bench.host.counters();
    assert_eq!((counters.invocations, counters.recursive_invocations_dropped), (25, 0));
}

#[tokio::test]
async fn who_waits_in_a_loop_is_told_of_it() {
    let bench = Bench::new(echo()).await;
    let in_chain = |header: String| {
        bench
            .invoke(InvocationType::RequestResponse, &json!({"do": "echo"}))
            .customize()
            .mutate_request(move |request| {
                request.headers_mut().insert("x-amzn-trace-id", header.clone());
            })
            .send()
    };
    let fifteen = header_after(&bench, 15).await;
    let answer = in_chain(fifteen).await.unwrap();
    assert_eq!(answer.function_error(), None);
    let sixteen = header_after(&bench, 16).await;
    let error = in_chain(sixteen).await.unwrap_err().into_service_error();
    assert!(error.is_recursive_invocation_exception(), "{error:?}");
    assert!(error.message().unwrap().contains("recursive loop"), "{error:?}");
    assert_eq!(bench.host.counters().recursive_invocations_dropped, 1);
}

#[tokio::test]
async fn an_event_that_waits_too_long_for_an_environment_is_dropped() {
    let spec = echo().with_reserved_concurrency(1).with_async_retries(0, Duration::ZERO);
    let bench = Bench::new(spec.with_max_event_age(Duration::from_millis(300))).await;
    let hanging = bench.host.invoke_async(&json!({"do": "hang"})).unwrap();
    bench.host.invoke_async(&json!({"do": "echo"})).unwrap();
    until("the second one is dropped", || (bench.host.counters().expired_events == 1).then_some(())).await;
    // The first has begun in time, and may take longer.
    assert_eq!(bench.host.counters().invocations, 0);
    // Who waits for an answer is not dropped.
    let waiting = tokio::spawn({
        let host = bench.host.clone();
        async move { host.invoke(&json!({"do": "echo"})).await }
    });
    until("it runs", || {
        let mut processes = bench.host.processes().into_iter();
        processes.find(|it| it.state == ProcessState::Invoking(hanging.clone()))
    })
    .await;
    assert_eq!(bench.host.kill_all().await, 1);
    assert!(waiting.await.unwrap().unwrap().is_response());
    bench.idle().await;
    let counters = bench.host.counters();
    assert_eq!((counters.invocations, counters.crashes, counters.expired_events), (2, 1, 1));
}

#[tokio::test]
async fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let spec = echo().with_async_retries(2, Duration::from_millis(100));
    let bench = Bench::new(spec.with_max_event_age(BOUND)).await;
    bench.host.invoke_async(&json!({"do": "error"})).unwrap();
    bench.idle().await;
    assert_eq!((bench.host.counters().errors, bench.host.counters().expired_events), (3, 0));

    let spec = echo().with_async_retries(2, Duration::from_secs(3_600));
    let bench = Bench::new(spec.with_max_event_age(Duration::from_secs(60))).await;
    bench.host.invoke_async(&json!({"do": "error"})).unwrap();
    bench.idle().await;
    assert_eq!((bench.host.counters().errors, bench.host.counters().expired_events), (1, 1));
}

#[tokio::test]
async fn an_event_may_be_smaller_than_a_request() {
    let host = start(echo());
    // A string in its quotes: two bytes more.
    let sized = |bytes: usize| json!("x".repeat(bytes - 2));
    host.invoke_async(&sized(LARGEST_EVENT)).unwrap();
    let refused = host.invoke_async(&sized(LARGEST_EVENT + 1));
    assert!(matches!(refused, Err(InvokeError::TooLarge { limit: LARGEST_EVENT, .. })), "{refused:?}");
    host.invoke(&sized(LARGEST_EVENT + 1)).await.unwrap();
}
