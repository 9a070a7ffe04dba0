//! A Lambda function that behaves as its event says: what the tests of the Lambda host invoke.
//!
//! `{"do": "echo" | "error" | "panic" | "hang" | "exit" | "sleep" | "print", "value": ...}`.
//!
//! `{"do": "invoke", "value": n, "type": "Event" | "RequestResponse"}` invokes itself through the AWS SDK, with
//! n - 1 for n, until n is 0. It prints n and the tracing header that it was given.
//!
//! An event with `Records` is a batch of a stream: it prints the sort keys, and reports the record with the sort
//! key `FAIL` as failed, `FAIL_TIMES` times. A batch with the sort key `HANG` it never answers.
//!
//! With `INIT=error`, `exit` or `hang` in its environment it does not even come to ask for an event.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

#[tokio::main]
async fn main() -> Result<(), Error> {
    println!("starting");
    match std::env::var("INIT").as_deref() {
        Ok("error") => report_init_error()?,
        Ok("exit") => std::process::exit(3),
        Ok("hang") => std::future::pending().await,
        _ => {}
    }
    lambda_runtime::run(service_fn(handle)).await
}

async fn handle(event: LambdaEvent<Value>) -> Result<Value, Error> {
    if let Some(records) = event.payload["Records"].as_array() {
        return Ok(handle_batch(records).await);
    }
    let value = event.payload["value"].clone();
    match event.payload["do"].as_str() {
        Some("echo") => Ok(json!({
            "value": value,
            "request_id": event.context.request_id,
            "deadline_ms": event.context.deadline,
            "arn": event.context.invoked_function_arn,
            "pid": std::process::id(),
            "environment": std::env::vars().collect::<std::collections::BTreeMap<_, _>>(),
        })),
        Some("error") => Err(format!("told to fail: {value}").into()),
        #[expect(clippy::panic, reason = "it is what this function is for")]
        Some("panic") => panic!("told to panic"),
        Some("hang") => {
            println!("hanging");
            std::future::pending().await
        }
        Some("sleep") => {
            tokio::time::sleep(Duration::from_millis(value.as_u64().unwrap_or(0))).await;
            Ok(json!({"pid": std::process::id()}))
        }
        Some("exit") => std::process::exit(7),
        Some("print") => {
            println!("{}", value.as_str().unwrap_or_default());
            Ok(Value::Null)
        }
        Some("invoke") => invoke_itself(&event.payload).await,
        other => Err(format!("unknown order {other:?}").into()),
    }
}

/// One for the life of the process, as in any function.
static CLIENT: OnceCell<Client> = OnceCell::const_new();

async fn invoke_itself(payload: &Value) -> Result<Value, Error> {
    let left = payload["value"].as_u64().unwrap_or(0);
    println!("chain: {left} {}", std::env::var("_X_AMZN_TRACE_ID").unwrap_or_default());
    let Some(left) = left.checked_sub(1) else {
        return Ok(json!({"last": std::process::id()}));
    };
    let mut payload = payload.clone();
    payload["value"] = left.into();
    let make = async || Client::new(&aws_config::load_defaults(BehaviorVersion::latest()).await);
    let answer = CLIENT
        .get_or_init(make)
        .await
        .invoke()
        .function_name(std::env::var("AWS_LAMBDA_FUNCTION_NAME")?)
        .invocation_type(InvocationType::from(payload["type"].as_str().unwrap_or("Event")))
        .payload(Blob::new(payload.to_string()))
        .send()
        .await
        .map_err(|error| DisplayErrorContext(error).to_string())?;
    match answer.payload.as_ref().map(Blob::as_ref) {
        Some(body) if !body.is_empty() => Ok(serde_json::from_slice(body)?),
        _ => Ok(json!({"status": answer.status_code})),
    }
}

static FAILED_TIMES: AtomicU64 = AtomicU64::new(0);

async fn handle_batch(records: &[Value]) -> Value {
    let sort_key = |record: &Value| record["dynamodb"]["Keys"]["SK"]["S"].as_str().unwrap_or("?").to_owned();
    let sort_keys: Vec<_> = records.iter().map(sort_key).collect();
    println!("batch: {}", sort_keys.join(" "));
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if sort_keys.contains(&variable("HANG")) {
        std::future::pending::<()>().await;
    }
    let failing = records.iter().find(|record| sort_key(record) == variable("FAIL"));
    let times: u64 = variable("FAIL_TIMES").parse().unwrap_or(0);
    match failing {
        Some(record) if FAILED_TIMES.fetch_add(1, Ordering::Relaxed) < times => {
            json!({"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]})
        }
        _ => json!({"batchItemFailures": []}),
    }
}

/// `lambda_runtime` has no call for this, so it is said by hand.
fn report_init_error() -> Result<(), Error> {
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API")?;
    let body = json!({"errorType": "Echo.Configuration", "errorMessage": "INIT says error"});
    let body = body.to_string();
    let mut stream = TcpStream::connect(&api)?;
    write!(
        stream,
        "POST /2018-06-01/runtime/init/error HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    std::process::exit(1)
}
