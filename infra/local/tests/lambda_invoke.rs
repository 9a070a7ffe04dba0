//! Lambda's Invoke API, asked by the real SDK.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions marked as tests, not the helpers beside them"
)]

#[path = "lambda_support/invoking.rs"]
mod invoking;
mod lambda_support;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambda::operation::RequestId;
use aws_sdk_lambda::operation::invoke::InvokeError;
use aws_sdk_lambda::operation::invoke::builders::InvokeFluentBuilder;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use invoking::{Bench, json_of, sent};
use lambda_support::{BOUND, echo, start, until};
use outbox_local::lambda::{AWS_ENDPOINT_URL_LAMBDA, InvokeRequests, ProcessState};
use serde_json::json;
use tokio::time::timeout;

/// A refusal: its status, its code, its message, and whether the SDK knows it by type.
#[derive(Debug)]
struct Refused {
    status: u16,
    code: String,
    message: String,
    error: InvokeError,
}

async fn refused(request: InvokeFluentBuilder) -> Refused {
    match timeout(2 * BOUND, request.send()).await.expect("answered within the bound") {
        Err(SdkError::ServiceError(error)) => {
            let status = error.raw().status().as_u16();
            assert_eq!(error.raw().headers().get("x-amzn-errortype"), error.err().code());
            let error = error.into_err();
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            Refused { status, code: text(error.code()), message: text(error.message()), error }
        }
        other => panic!("no refusal: {other:?}"),
    }
}

#[tokio::test]
async fn an_answer_comes_back_with_the_request_id() {
    let bench = Bench::new(echo()).await;
    let event = json!({"do": "echo", "value": {"a": [1, null, "\u{e4}"]}});
    let answer = sent(bench.invoke(InvocationType::RequestResponse, &event)).await;
    assert_eq!((answer.status_code(), answer.function_error()), (200, None));
    assert_eq!(answer.executed_version(), Some("$LATEST"));
    let response = json_of(&answer);
    assert_eq!(response["value"], event["value"]);
    let environment = &response["environment"];
    assert_eq!(environment[AWS_ENDPOINT_URL_LAMBDA], bench.api.endpoint());
    let trace = environment["_X_AMZN_TRACE_ID"].as_str().unwrap();
    assert!(trace.starts_with("Root=1-") && trace.contains(";Sampled=0;Lineage="), "{trace}");
    let records = bench.host.records();
    let request_id = answer.request_id();
    assert_eq!(request_id, Some(records[0].request_id.as_str()));
    assert_eq!(response["request_id"], records[0].request_id.as_str());
    assert_eq!(bench.asked(), [0, 1, 0]);
}

#[tokio::test]
async fn without_a_type_and_a_payload_it_waits_for_an_empty_event() {
    let bench = Bench::new(echo()).await;
    let answer = sent(bench.client.invoke().function_name("echo")).await;
    assert_eq!(answer.status_code(), 200);
    assert_eq!(json_of(&answer)["errorMessage"], "unknown order None");
    assert_eq!(bench.asked(), [0, 1, 0]);
}

#[tokio::test]
async fn an_event_is_queued_and_a_dry_run_runs_nothing() {
    let bench = Bench::new(echo()).await;
    let answer = sent(bench.invoke(InvocationType::DryRun, &json!({"do": "exit"}))).await;
    assert_eq!(answer.status_code(), 204);
    bench.idle().await;
    assert_eq!(bench.host.counters().invocations, 0);

    let answer = sent(bench.invoke(InvocationType::Event, &json!({"do": "sleep", "value": 10}))).await;
    assert_eq!((answer.status_code(), answer.function_error()), (202, None));
    assert_eq!(answer.payload().map(|payload| payload.as_ref().len()).unwrap_or_default(), 0);
    bench.idle().await;
    let records = bench.host.records();
    assert!(records.len() == 1 && records[0].outcome.is_response());
    let request_id = answer.request_id();
    assert_eq!(request_id, Some(records[0].request_id.as_str()));
    assert_eq!(bench.asked(), [1, 0, 1]);
}

#[tokio::test]
async fn every_way_to_fail_is_an_answer_that_says_so() {
    let bench = Bench::new(echo().with_timeout(Duration::from_secs(2))).await;
    for (order, error_type, message) in [
        ("error", None, "told to fail: null"),
        ("panic", None, "told to panic"),
        ("exit", Some("Runtime.ExitError"), "Runtime exited with error: exit status 7"),
        ("hang", Some("Sandbox.Timedout"), "Task timed out after 2.00 seconds"),
    ] {
        let answer = sent(bench.invoke(InvocationType::RequestResponse, &json!({"do": order}))).await;
        assert_eq!((answer.status_code(), answer.function_error()), (200, Some("Unhandled")), "{order}");
        let error = json_of(&answer);
        assert!(error["errorMessage"].as_str().unwrap().contains(message), "{error}");
        assert!(error_type.is_none_or(|it| error["errorType"] == it), "{error}");
        assert!(error["errorType"].is_string(), "{error}");
    }
    let broken = Bench::new(echo().with_variable("INIT", "error")).await;
    let answer = sent(broken.invoke(InvocationType::RequestResponse, &json!({}))).await;
    assert_eq!(answer.function_error(), Some("Unhandled"));
    let error = json!({"errorMessage": "INIT says error", "errorType": "Echo.Configuration"});
    assert_eq!(json_of(&answer), error);
}

#[tokio::test]
async fn a_function_is_found_by_every_form_of_its_name() {
    let bench = Bench::new(echo()).await;
    let arn = "arn:aws:lambda:us-east-1:000000000000:function:echo";
    for name in ["echo", "000000000000:function:echo", arn, &format!("{arn}:$LATEST")] {
        let request = bench.invoke(InvocationType::DryRun, &json!({})).function_name(name);
        assert_eq!(sent(request.clone()).await.status_code(), 204, "{name}");
        assert_eq!(sent(request.qualifier("$LATEST")).await.status_code(), 204, "{name}");
    }
    assert_eq!(bench.asked(), [0, 0, 8]);
    for name in ["other", "echo:live", "arn:aws:lambda:eu-west-1:000000000000:function:echo"] {
        let refused = refused(bench.invoke(InvocationType::Event, &json!({})).function_name(name)).await;
        assert_eq!((refused.status, refused.code.as_str()), (404, "ResourceNotFoundException"));
        assert!(refused.error.is_resource_not_found_exception());
        assert_eq!(refused.message, format!("Function not found: {name}"));
    }
    let version = bench.invoke(InvocationType::Event, &json!({})).qualifier("7");
    assert_eq!(refused(version).await.status, 404);
    let refused = refused(bench.invoke(InvocationType::Event, &json!({})).function_name("no name")).await;
    assert_eq!((refused.status, refused.code.as_str()), (400, "ValidationException"));
    assert_eq!(bench.asked(), [0, 0, 8]);
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_a_reason() {
    let bench = Bench::new(echo()).await;
    let request = bench.invoke(InvocationType::Event, &json!({})).payload(Blob::new("{\"secret\": no}"));
    let not_json = refused(request).await;
    assert_eq!(not_json.status, 400);
    assert!(not_json.error.is_invalid_request_content_exception());
    assert!(not_json.message.starts_with("Could not parse request body into json"), "{not_json:?}");
    assert!(!not_json.message.contains("secret"), "{not_json:?}");

    let other = refused(bench.invoke(InvocationType::from("Later"), &json!({}))).await;
    assert_eq!((other.status, other.code.as_str()), (400, "ValidationException"));
    assert!(other.message.contains("Later"), "{other:?}");

    // A string in its quotes: two bytes more.
    let sized = |bytes: usize| json!("x".repeat(bytes - 2));
    const MEGABYTE: usize = 1024 * 1024;
    for (invocation_type, limit) in
        [(InvocationType::Event, MEGABYTE), (InvocationType::RequestResponse, 6 * MEGABYTE)]
    {
        sent(bench.invoke(invocation_type.clone(), &sized(limit))).await;
        for size in [limit + 1, 13 * MEGABYTE] {
            let refused = refused(bench.invoke(invocation_type.clone(), &sized(size))).await;
            assert_eq!((refused.status, refused.code.as_str()), (413, "RequestEntityTooLargeException"));
            assert!(refused.message.contains(&format!("limit {limit} bytes")), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_throttled_request_is_refused_and_an_event_waits() {
    let spec = echo().with_reserved_concurrency(1).with_queue_limit(1);
    let bench = Bench::new(spec.with_async_retries(0, Duration::ZERO)).await;
    sent(bench.invoke(InvocationType::Event, &json!({"do": "hang"}))).await;
    until("it runs", || {
        let mut processes = bench.host.processes().into_iter();
        processes.find(|it| matches!(it.state, ProcessState::Invoking(_)))
    })
    .await;
    let busy = refused(bench.invoke(InvocationType::RequestResponse, &json!({"do": "echo"}))).await;
    assert_eq!((busy.status, busy.code.as_str()), (429, "TooManyRequestsException"));
    let reason = match &busy.error {
        InvokeError::TooManyRequestsException(error) => error.reason().map(|it| it.as_str().to_owned()),
        other => panic!("{other}"),
    };
    assert_eq!(reason.as_deref(), Some("ReservedFunctionConcurrentInvocationLimitExceeded"));

    sent(bench.invoke(InvocationType::Event, &json!({"do": "echo"}))).await;
    let full = refused(bench.invoke(InvocationType::Event, &json!({"do": "echo"}))).await;
    assert_eq!((full.status, full.code.as_str()), (429, "TooManyRequestsException"));
    assert_eq!(bench.host.counters().throttles, 2);
    assert_eq!(bench.host.kill_all().await, 1);
    bench.idle().await;
    assert_eq!(bench.host.counters().invocations, 2);
}

#[tokio::test]
async fn the_api_keeps_no_function_up() {
    let Bench { api, host, client } = Bench::new(echo()).await;
    let request = client.invoke().function_name("echo").payload(Blob::new(r#"{"do": "hang"}"#));
    let waiting = tokio::spawn(request.send());
    let pid = until("it runs", || {
        let mut processes = host.processes().into_iter();
        processes.find(|it| matches!(it.state, ProcessState::Invoking(_))).map(|it| it.pid)
    })
    .await;
    drop(host);
    // Whoever waited is told, though the API is still there.
    let error = timeout(BOUND, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(error.into_service_error().is_resource_not_found_exception());
    until("the process is gone", || (!is_alive(pid)).then_some(())).await;
    let gone = refused(client.invoke().function_name("echo")).await;
    assert_eq!(gone.status, 404);

    // Another one may take its place.
    let host = start(echo());
    api.register(&host);
    assert_eq!(api.requests("echo"), InvokeRequests::default());
    sent(client.invoke().function_name("echo").payload(Blob::new(r#"{"do": "echo"}"#))).await;
    assert_eq!(api.requests("echo").request_response, 1);
}

#[tokio::test]
async fn a_dropped_api_ends_what_waits_there_and_closes_its_port() {
    let Bench { api, host, client } = Bench::new(echo()).await;
    let address: SocketAddr = api.endpoint().strip_prefix("http://").unwrap().parse().unwrap();
    let request = client.invoke().function_name("echo").payload(Blob::new(r#"{"do": "hang"}"#));
    let waiting = tokio::spawn(request.send());
    let invoking = || {
        let mut processes = host.processes().into_iter();
        processes.find(|it| matches!(it.state, ProcessState::Invoking(_))).map(|it| it.pid)
    };
    let pid = until("it runs", invoking).await;
    drop(api);
    let error = timeout(BOUND, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(error.into_service_error().is_service_exception());
    until("the port is closed", || TcpStream::connect(address).is_err().then_some(())).await;
    assert_eq!(invoking(), Some(pid), "the function goes on");
    drop(host);
    until("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn other_operations_are_refused_by_name() {
    let bench = Bench::new(echo()).await;
    let error = bench.client.list_functions().send().await.unwrap_err();
    let error = error.into_service_error();
    assert_eq!(error.meta().code(), Some("UnknownOperationException"));
    assert!(error.meta().message().unwrap().contains("only Invoke"), "{error:?}");
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
