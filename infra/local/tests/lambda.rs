//! The Lambda host against a real function process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions marked as tests, not the helpers beside them"
)]

mod lambda_support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use lambda_support::{BOUND, echo, example, start, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outbox_local::lambda::{
    Exit, FunctionSpec, HostError, InvokeError, LambdaHost, Outcome, Phase, ProcessState,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const SIGKILL: Exit = Exit { code: None, signal: Some(9) };

async fn invoke(host: &LambdaHost, event: Value) -> Outcome {
    timeout(2 * BOUND, host.invoke(&event))
        .await
        .expect("the invocation is over within the bound")
        .expect("the event reaches the function")
}

async fn response(host: &LambdaHost, event: Value) -> Value {
    match invoke(host, event).await {
        Outcome::Response(value) => value,
        other => panic!("no response: {other}"),
    }
}

fn pid_of(response: &Value) -> u32 {
    response["pid"].as_u64().unwrap().try_into().unwrap()
}

/// The process id of the only process, once it runs an event.
async fn invoking_pid(host: &LambdaHost) -> u32 {
    until("a process runs an event", || {
        let mut processes = host.processes().into_iter();
        processes.find(|it| matches!(it.state, ProcessState::Invoking(_))).map(|it| it.pid)
    })
    .await
}

/// The state letter of a process: `T` is stopped, `Z` has ended, none is gone.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn is_alive(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z')
}

#[tokio::test]
async fn a_response_comes_back_and_the_process_is_reused() {
    let host = start(echo().with_variable("GREETING", "hello"));
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = response(&host, json!({"do": "echo", "value": {"a": [1, null]}})).await;
    assert_eq!(first["value"], json!({"a": [1, null]}));
    assert_eq!(first["arn"], "arn:aws:lambda:us-east-1:000000000000:function:echo");
    let deadline = u128::from(first["deadline_ms"].as_u64().unwrap());
    let earliest = (before + BOUND).as_millis();
    assert!((earliest..earliest + BOUND.as_millis()).contains(&deadline), "{deadline}");

    let environment = &first["environment"];
    assert_eq!(environment["GREETING"], "hello");
    assert_eq!(environment["AWS_LAMBDA_FUNCTION_NAME"], "echo");
    assert_eq!(environment["TZ"], ":UTC");
    assert_eq!(environment.get("CARGO_MANIFEST_DIR"), None, "nothing of ours is inherited");

    let second = response(&host, json!({"do": "echo"})).await;
    assert_eq!(pid_of(&second), pid_of(&first));
    assert_ne!(second["request_id"], first["request_id"]);

    let records = host.records();
    assert_eq!(records.len(), 2);
    assert_eq!(first["request_id"], records[0].request_id.as_str());
    assert_eq!(records[0].pid, Some(pid_of(&first)));
    assert!(records[0].cold_start && !records[1].cold_start);
    assert!(records[0].started <= records[0].ended);
    let counters = host.counters();
    assert_eq!((counters.invocations, counters.cold_starts), (2, 1));
    until("its output is in the log", || host.logs().into_iter().find(|line| line.text == "starting")).await;
}

#[tokio::test]
async fn errors_and_panics_are_reported_and_the_process_goes_on() {
    let host = start(echo());
    let pid = pid_of(&response(&host, json!({"do": "echo"})).await);
    match invoke(&host, json!({"do": "error", "value": 5})).await {
        Outcome::FunctionError { message, .. } => assert_eq!(message, "told to fail: 5"),
        other => panic!("{other}"),
    }
    match invoke(&host, json!({"do": "panic"})).await {
        Outcome::FunctionError { message, .. } => assert!(message.contains("told to panic")),
        other => panic!("{other}"),
    }
    let unparseable = host.invoke_bytes(b"{no json".to_vec()).await.unwrap();
    assert!(matches!(unparseable, Outcome::FunctionError { .. }), "{unparseable}");
    assert_eq!(pid_of(&response(&host, json!({"do": "echo"})).await), pid);
    assert_eq!(host.counters().errors, 3);
}

#[tokio::test]
async fn an_init_phase_that_fails_ends_in_its_reason() {
    let reported = start(echo().with_variable("INIT", "error"));
    assert_eq!(
        invoke(&reported, json!({})).await,
        Outcome::InitError {
            error_type: "Echo.Configuration".to_owned(),
            message: "INIT says error".to_owned()
        }
    );
    let exited = start(echo().with_variable("INIT", "exit"));
    let exit = Exit { code: Some(3), signal: None };
    assert_eq!(invoke(&exited, json!({})).await, Outcome::Crashed { exit, phase: Phase::Init });
    let slow = start(echo().with_variable("INIT", "hang").with_init_timeout(Duration::from_millis(300)));
    match invoke(&slow, json!({})).await {
        Outcome::InitError { error_type, .. } => assert_eq!(error_type, "Sandbox.Timedout"),
        other => panic!("{other}"),
    }
    until("its process is gone", || slow.processes().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_missing_binary_is_refused_by_name() {
    let error = LambdaHost::start(FunctionSpec::new("relay", "/no/such/binary")).unwrap_err();
    assert!(matches!(error, HostError::Binary { .. }));
    assert_eq!(error.to_string(), "function relay: /no/such/binary cannot be run");
}

#[tokio::test]
async fn the_deadline_kills_and_the_next_event_starts_anew() {
    let host = start(echo().with_timeout(Duration::from_millis(500)));
    let pid = pid_of(&response(&host, json!({"do": "echo"})).await);
    let begun = Instant::now();
    assert_eq!(invoke(&host, json!({"do": "hang"})).await, Outcome::TimedOut);
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert!(!is_alive(pid));
    assert_ne!(pid_of(&response(&host, json!({"do": "echo"})).await), pid);
    assert_eq!(host.counters().timeouts, 1);
}

#[tokio::test]
async fn a_process_that_exits_is_a_crash() {
    let host = start(echo());
    let exit = Exit { code: Some(7), signal: None };
    let crashed = Outcome::Crashed { exit, phase: Phase::Invoke };
    assert_eq!(invoke(&host, json!({"do": "exit"})).await, crashed);
    response(&host, json!({"do": "echo"})).await;
    assert_eq!(host.counters().crashes, 1);
    assert_eq!(host.counters().cold_starts, 2);
}

#[tokio::test]
async fn an_idle_process_is_frozen_and_thawed_by_the_next_event() {
    let host = start(echo().with_freeze_when_idle(true));
    let first = pid_of(&response(&host, json!({"do": "echo"})).await);
    assert_eq!(state_of(first), Some('T'));
    assert!(host.processes()[0].frozen);
    let second = pid_of(&response(&host, json!({"do": "echo"})).await);
    assert_eq!(second, first);
    assert_eq!(state_of(first), Some('T'));
    assert_eq!(host.kill_all().await, 1);
    assert!(!is_alive(first));
}

#[tokio::test]
async fn a_process_frozen_past_its_deadline_is_killed() {
    let host = start(echo().with_timeout(Duration::from_millis(1_500)));
    let running = tokio::spawn({
        let host = host.clone();
        async move { invoke(&host, json!({"do": "hang"})).await }
    });
    let pid = invoking_pid(&host).await;
    assert!(host.freeze(pid).await);
    assert_eq!(state_of(pid), Some('T'));
    assert_eq!(running.await.unwrap(), Outcome::TimedOut);
    assert!(!is_alive(pid));
    assert!(!host.freeze(pid).await, "it is no process any more");
}

#[tokio::test]
async fn a_process_frozen_and_thawed_in_time_answers() {
    let host = start(echo());
    let running = tokio::spawn({
        let host = host.clone();
        async move { response(&host, json!({"do": "sleep", "value": 500})).await }
    });
    let pid = invoking_pid(&host).await;
    assert!(host.freeze(pid).await);
    assert_eq!(state_of(pid), Some('T'));
    assert!(!running.is_finished(), "it was to be frozen before its answer");
    assert!(host.thaw(pid).await);
    assert_eq!(pid_of(&running.await.unwrap()), pid);
}

#[tokio::test]
async fn concurrency_is_bounded_and_processes_are_reused() {
    let host = start(echo().with_reserved_concurrency(2));
    let events = (0..6).map(|_| response(&host, json!({"do": "sleep", "value": 100})));
    let mut pids: Vec<_> = join_all(events).await.iter().map(pid_of).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2, "{pids:?}");
    assert_eq!(host.counters().cold_starts, 2);
    assert_eq!(host.processes().len(), 2);
}

#[tokio::test]
async fn more_than_the_queue_holds_is_throttled() {
    let host =
        start(echo().with_reserved_concurrency(1).with_queue_limit(1).with_async_retries(0, Duration::ZERO));
    host.invoke_async(&json!({"do": "sleep", "value": 300})).unwrap();
    host.invoke_async(&json!({"do": "sleep", "value": 0})).unwrap();
    let refused = host.invoke_async(&json!({"do": "echo"}));
    assert!(matches!(refused, Err(InvokeError::Throttled { limit: 1, .. })), "{refused:?}");
    timeout(BOUND, host.wait_until_idle()).await.unwrap();
    assert_eq!(host.counters().invocations, 2);
    assert_eq!(host.counters().throttles, 1);
}

#[tokio::test]
async fn a_failed_asynchronous_event_is_run_again() {
    let host = start(echo().with_async_retries(2, Duration::from_millis(10)));
    let request_id = host.invoke_async(&json!({"do": "exit"})).unwrap();
    timeout(BOUND, host.wait_until_idle()).await.unwrap();
    let records = host.records();
    let attempts: Vec<_> = records.iter().map(|record| record.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(records.iter().all(|record| record.request_id == request_id));
    assert_eq!(host.counters().crashes, 3);
}

#[tokio::test]
async fn a_kill_in_flight_is_a_crash_and_idle_kills_go_unnoticed() {
    let host = start(echo());
    let running = tokio::spawn({
        let host = host.clone();
        async move { invoke(&host, json!({"do": "hang"})).await }
    });
    let pid = invoking_pid(&host).await;
    assert_eq!(host.kill_all().await, 1);
    let crashed = Outcome::Crashed { exit: SIGKILL, phase: Phase::Invoke };
    assert_eq!(running.await.unwrap(), crashed);

    let idle = pid_of(&response(&host, json!({"do": "echo"})).await);
    assert_ne!(idle, pid);
    assert!(host.kill(idle).await);
    assert_ne!(pid_of(&response(&host, json!({"do": "echo"})).await), idle);
    assert_eq!(host.counters().crashes, 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_process_usable() {
    let host = start(echo().with_reserved_concurrency(1));
    let pid = pid_of(&response(&host, json!({"do": "echo"})).await);
    let event = json!({"do": "sleep", "value": 200});
    let gone = timeout(Duration::from_millis(20), host.invoke(&event)).await;
    assert!(gone.is_err(), "the caller went before the answer");
    assert_eq!(pid_of(&response(&host, json!({"do": "echo"})).await), pid);
    assert_eq!(host.counters().invocations, 3);
    assert_eq!(host.counters().crashes, 0);
}

#[tokio::test]
async fn dropping_the_host_ends_running_and_frozen_processes() {
    let host = start(echo().with_freeze_when_idle(true));
    let idle = pid_of(&response(&host, json!({"do": "echo"})).await);
    let busy = start(echo());
    busy.invoke_async(&json!({"do": "hang"})).unwrap();
    let running = invoking_pid(&busy).await;
    drop((host, busy));
    until("both are gone", || (!is_alive(idle) && !is_alive(running)).then_some(())).await;
}

#[tokio::test]
async fn shutdown_gives_up_what_waits_and_waits_for_the_ends() {
    let host = start(echo().with_reserved_concurrency(1));
    let other = host.clone();
    let waiting = tokio::spawn(async move { other.invoke(&json!({"do": "hang"})).await });
    let pid = invoking_pid(&host).await;
    let clone = host.clone();
    timeout(BOUND, host.shutdown()).await.unwrap();
    assert!(!is_alive(pid));
    assert!(matches!(waiting.await.unwrap(), Err(InvokeError::Stopped { .. })));
    let refused = clone.invoke(&json!({"do": "echo"})).await;
    assert!(matches!(refused, Err(InvokeError::Stopped { .. })));
}

#[tokio::test]
async fn a_killed_host_takes_its_processes_along() {
    let mut host = Command::new(example("dying-host"))
        .arg(example("echo-function"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = host.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    assert!(is_alive(pid));
    let host_pid = Pid::from_raw(host.id().try_into().unwrap());
    kill(host_pid, Signal::SIGKILL).unwrap();
    host.wait().unwrap();
    until("the function is gone", || (!is_alive(pid)).then_some(())).await;
}
