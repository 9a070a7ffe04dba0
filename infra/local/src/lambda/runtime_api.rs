//! The HTTP side of an execution environment: what a function process asks for and reports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// The largest answer that Lambda takes, in bytes.
pub(super) const LARGEST_PAYLOAD: usize = 6 * 1024 * 1024;

/// An event on its way to the process.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) request_id: String,
    /// Milliseconds since 1970.
    pub(super) deadline_ms: u128,
    pub(super) function_arn: String,
    pub(super) trace_id: String,
    pub(super) payload: Bytes,
}

/// An error that the process reports.
#[derive(Debug, Clone)]
pub(super) struct ErrorReport {
    pub(super) error_type: String,
    pub(super) message: String,
}

/// What a request of the process deserves.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    Accepted,
    /// No such request id is running here.
    UnknownRequest,
    /// Not now: the environment is in another phase.
    WrongState,
}

/// A request of the process, waiting for its answer. Dropping the sender answers that the state is wrong.
#[derive(Debug)]
pub(super) enum Call {
    Next(oneshot::Sender<Delivery>),
    Response(String, Bytes, oneshot::Sender<Verdict>),
    Error(String, ErrorReport, oneshot::Sender<Verdict>),
    InitError(ErrorReport, oneshot::Sender<Verdict>),
}

/// A Runtime API on a port of its own. Dropping it closes the port.
#[derive(Debug)]
pub(super) struct RuntimeApi {
    address: SocketAddr,
    server: AbortHandle,
}

impl RuntimeApi {
    /// Opens the port; the process's requests arrive at the receiver.
    pub(super) async fn start() -> io::Result<(Self, mpsc::Receiver<Call>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (calls, receiver) = mpsc::channel(8);
        let invocation = "/2018-06-01/runtime/invocation";
        let router = Router::new()
            .route(&format!("{invocation}/next"), get(next))
            .route(&format!("{invocation}/{{request_id}}/response"), post(response))
            .route(&format!("{invocation}/{{request_id}}/error"), post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .layer(DefaultBodyLimit::max(LARGEST_PAYLOAD))
            .with_state(calls);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, %address, "a Runtime API stopped");
            }
        });
        let api = Self { address, server: server.abort_handle() };
        Ok((api, receiver))
    }

    /// Host and port, as `AWS_LAMBDA_RUNTIME_API` names them.
    pub(super) fn authority(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Calls = State<mpsc::Sender<Call>>;

async fn next(State(calls): Calls) -> Response {
    let (reply, delivery) = oneshot::channel();
    if calls.send(Call::Next(reply)).await.is_err() {
        return wrong_state();
    }
    // Waits for as long as there is no event: a process may be idle for ever.
    match delivery.await {
        Ok(delivery) => {
            let headers = [
                ("lambda-runtime-aws-request-id", delivery.request_id),
                ("lambda-runtime-deadline-ms", delivery.deadline_ms.to_string()),
                ("lambda-runtime-invoked-function-arn", delivery.function_arn),
                ("lambda-runtime-trace-id", delivery.trace_id),
                ("content-type", "application/json".to_owned()),
            ]
            .map(|(name, value)| (HeaderName::from_static(name), value));
            (headers, delivery.payload).into_response()
        }
        Err(_) => wrong_state(),
    }
}

async fn response(State(calls): Calls, Path(request_id): Path<String>, body: Bytes) -> Response {
    judge(&calls, |verdict| Call::Response(request_id, body, verdict)).await
}

async fn error(
    State(calls): Calls,
    Path(request_id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let report = ErrorReport::read(&headers, &body);
    judge(&calls, |verdict| Call::Error(request_id, report, verdict)).await
}

async fn init_error(State(calls): Calls, headers: HeaderMap, body: Bytes) -> Response {
    let report = ErrorReport::read(&headers, &body);
    judge(&calls, |verdict| Call::InitError(report, verdict)).await
}

async fn judge(calls: &mpsc::Sender<Call>, call: impl FnOnce(oneshot::Sender<Verdict>) -> Call) -> Response {
    let (reply, verdict) = oneshot::channel();
    if calls.send(call(reply)).await.is_err() {
        return wrong_state();
    }
    match verdict.await {
        Ok(Verdict::Accepted) => (StatusCode::ACCEPTED, Json(json!({"status": "OK"}))).into_response(),
        Ok(Verdict::UnknownRequest) => {
            refusal(StatusCode::BAD_REQUEST, "InvalidRequestID", "Invalid request ID")
        }
        Ok(Verdict::WrongState) | Err(_) => wrong_state(),
    }
}

fn wrong_state() -> Response {
    refusal(StatusCode::FORBIDDEN, "InvalidStateTransition", "Transition is not allowed")
}

fn refusal(status: StatusCode, error_type: &str, message: &str) -> Response {
    let body = json!({"errorType": error_type, "errorMessage": message});
    (status, Json(body)).into_response()
}

impl ErrorReport {
    /// Takes what can be understood: a process in trouble may report badly.
    fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |field: &str| body.get(field)?.as_str().map(str::to_owned);
        let header = || {
            let value = headers.get("lambda-runtime-function-error-type")?;
            value.to_str().ok().map(str::to_owned)
        };
        Self {
            error_type: text("errorType").or_else(header).unwrap_or_else(|| "Unknown".to_owned()),
            message: text("errorMessage").unwrap_or_default(),
        }
    }
}
