//! Lambda's Invoke API for the functions that are hosted here, so that a function can invoke another one or
//! itself, and a developer either: `POST /2015-03-31/functions/{FunctionName}/invocations`, and nothing else.
//!
//! Not served are the tail of the log, the client context and tenants; signatures are not looked at.

mod answer;
mod name;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use self::answer::Refusal;
use self::name::FunctionName;
use super::events::{LARGEST_ASYNCHRONOUS_PAYLOAD, Mode};
use super::host::{LambdaHost, WeakHost};
use super::lock;
use super::outcome::InvokeError;
use super::runtime_api::LARGEST_PAYLOAD;

/// The AWS SDK's own variable for the endpoint of Lambda.
pub const AWS_ENDPOINT_URL_LAMBDA: &str = "AWS_ENDPOINT_URL_LAMBDA";

/// Past the limits, so that a payload that is a little too large can still be told its size.
const LARGEST_BODY: usize = 2 * LARGEST_PAYLOAD;

/// A server of Lambda's Invoke API on a port of 127.0.0.1. When it is dropped it accepts nothing more, and what
/// is still waiting there for a function's answer is told that it is gone; the invocations go on.
///
/// It is started before the functions, whose environment must name it, and learns of them afterwards. It does
/// not keep a function up: one whose host is gone is not found.
#[derive(Debug)]
pub struct InvokeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

/// How often a function was asked for, by type of invocation, whatever came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InvokeRequests {
    /// `Event`: queued.
    pub event: u64,
    /// `RequestResponse`: waited for.
    pub request_response: u64,
    /// `DryRun`: looked up.
    pub dry_run: u64,
}

#[derive(Debug)]
struct Shared {
    functions: Mutex<BTreeMap<String, Function>>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Function {
    /// Weak, or a function that names the API in its environment, and the API, would keep each other up.
    host: WeakHost,
    requests: InvokeRequests,
}

impl InvokeApi {
    /// Opens a free port. No function is known yet.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared { functions: Mutex::default(), stop: stop.clone() });
        let router = Router::new()
            .route("/2015-03-31/functions/{name}/invocations", post(invoke))
            .fallback(async || Refusal::unknown_operation())
            .method_not_allowed_fallback(async || Refusal::unknown_operation())
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|stream| {
            // Without it small answers wait for the peer's delayed acknowledgement; an error costs that wait only.
            let _ = stream.set_nodelay(true);
        });
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
                tracing::warn!(%error, %address, "the Invoke API stopped");
            }
        });
        Ok(Self { address, shared, _stop: stop.drop_guard() })
    }

    /// Where it is: what a function's [`AWS_ENDPOINT_URL_LAMBDA`] must say.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a function known by its name. One of the same name is forgotten.
    pub fn register(&self, function: &LambdaHost) {
        let entry = Function { host: function.downgrade(), requests: InvokeRequests::default() };
        lock(&self.shared.functions).insert(function.spec().name().to_owned(), entry);
    }

    /// How often the function of this name was asked for since it was registered.
    pub fn requests(&self, function: &str) -> InvokeRequests {
        lock(&self.shared.functions).get(function).map(|function| function.requests).unwrap_or_default()
    }
}

/// How a function is asked to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InvocationType {
    Event,
    RequestResponse,
    DryRun,
}

impl InvocationType {
    fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let Some(value) = headers.get("x-amz-invocation-type") else {
            return Ok(Self::RequestResponse);
        };
        match value.as_bytes() {
            b"Event" => Ok(Self::Event),
            b"RequestResponse" => Ok(Self::RequestResponse),
            b"DryRun" => Ok(Self::DryRun),
            other => Err(Refusal::validation(
                "invocationType",
                &String::from_utf8_lossy(other),
                "one of Event, RequestResponse, DryRun",
            )),
        }
    }

    /// As AWS's messages call it.
    fn name(self) -> &'static str {
        match self {
            Self::Event => "Event",
            Self::RequestResponse => "RequestResponse",
            Self::DryRun => "DryRun",
        }
    }

    fn largest_payload(self) -> usize {
        match self {
            Self::Event => LARGEST_ASYNCHRONOUS_PAYLOAD,
            Self::RequestResponse | Self::DryRun => LARGEST_PAYLOAD,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Parameters {
    #[serde(rename = "Qualifier")]
    qualifier: Option<String>,
}

async fn invoke(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let request = async {
        match shared.invoke(&name, parameters.qualifier, &headers, body).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        }
    };
    tokio::select! {
        response = request => response,
        () = shared.stop.cancelled() => Refusal::gone().into_response(),
    }
}

impl Shared {
    async fn invoke(
        &self,
        name: &str,
        qualifier: Option<String>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        let name = FunctionName::read(name, qualifier)?;
        let invocation_type = InvocationType::read(headers)?;
        let function = self.find(&name, invocation_type)?;
        let payload = payload(body, invocation_type).await?;
        let trace = headers.get("x-amzn-trace-id").and_then(|trace| trace.to_str().ok());
        let mode = match invocation_type {
            InvocationType::DryRun => return Ok(answer::dry_run()),
            InvocationType::Event => Mode::Queued,
            InvocationType::RequestResponse => Mode::AtOnce,
        };
        let submitted = function.events().submit(payload, mode, trace);
        let timeout = function.spec().timeout();
        // Or whoever waits for the answer would keep the function up.
        drop(function);
        match (invocation_type, submitted) {
            (InvocationType::RequestResponse, Ok((request_id, outcome))) => match outcome.await {
                Ok(Ok(outcome)) => Ok(answer::outcome(&request_id, outcome, timeout)),
                Ok(Err(error)) => Err(Refusal::of(error, invocation_type, &name)),
                Err(_) => Err(Refusal::gone()),
            },
            (_, Ok((request_id, _))) => Ok(answer::accepted(&request_id)),
            // Lambda finds the loop when it takes the event from its queue: the caller does not hear of it.
            (InvocationType::Event, Err(InvokeError::Recursion { .. })) => {
                Ok(answer::accepted(&Uuid::new_v4().to_string()))
            }
            (_, Err(error)) => Err(Refusal::of(error, invocation_type, &name)),
        }
    }

    fn find(&self, name: &FunctionName, invocation_type: InvocationType) -> Result<LambdaHost, Refusal> {
        let mut functions = lock(&self.functions);
        let known = functions.get_mut(name.name()).and_then(|function| {
            let host = function.host.upgrade().filter(|host| name.is(host.spec()))?;
            Some((function, host))
        });
        let Some((function, host)) = known else {
            return Err(Refusal::not_found(name));
        };
        let requests = &mut function.requests;
        match invocation_type {
            InvocationType::Event => requests.event += 1,
            InvocationType::RequestResponse => requests.request_response += 1,
            InvocationType::DryRun => requests.dry_run += 1,
        }
        Ok(host)
    }
}

/// The event: JSON, and not too large. No payload at all is an empty object.
async fn payload(body: Body, invocation_type: InvocationType) -> Result<Bytes, Refusal> {
    let Ok(payload) = to_bytes(body, LARGEST_BODY).await else {
        return Err(Refusal::too_large(invocation_type, None));
    };
    if payload.len() > invocation_type.largest_payload() {
        return Err(Refusal::too_large(invocation_type, Some(payload.len())));
    }
    if payload.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    match serde_json::from_slice::<IgnoredAny>(&payload) {
        Ok(_) => Ok(payload),
        Err(error) => Err(Refusal::not_json(&error)),
    }
}
