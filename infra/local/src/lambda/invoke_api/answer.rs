//! What the Invoke API answers, as AWS does: statuses, headers, bodies.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::InvocationType;
use super::name::FunctionName;
use crate::lambda::{Exit, InvokeError, Outcome};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
const FUNCTION_ERROR: HeaderName = HeaderName::from_static("x-amz-function-error");
const EXECUTED_VERSION: HeaderName = HeaderName::from_static("x-amz-executed-version");

/// The event is queued.
pub(super) fn accepted(request_id: &str) -> Response {
    with_request_id(StatusCode::ACCEPTED.into_response(), request_id)
}

/// The function is there.
pub(super) fn dry_run() -> Response {
    with_request_id(StatusCode::NO_CONTENT.into_response(), &new_request_id())
}

/// The function was run. That it failed is said by a header; the status is of the request.
pub(super) fn outcome(request_id: &str, outcome: Outcome, timeout: Duration) -> Response {
    let (error_type, message) = match outcome {
        Outcome::Response(value) => return answered(request_id, value),
        Outcome::FunctionError { error_type, message } | Outcome::InitError { error_type, message } => {
            (error_type, message)
        }
        Outcome::TimedOut => (
            "Sandbox.Timedout".to_owned(),
            format!(
                "RequestId: {request_id} Error: Task timed out after {:.2} seconds",
                timeout.as_secs_f64()
            ),
        ),
        Outcome::Crashed { exit, .. } => {
            ("Runtime.ExitError".to_owned(), format!("RequestId: {request_id} Error: {}", ended(exit)))
        }
    };
    let mut response = answered(request_id, json!({"errorMessage": message, "errorType": error_type}));
    response.headers_mut().insert(FUNCTION_ERROR, HeaderValue::from_static("Unhandled"));
    response
}

fn answered(request_id: &str, value: Value) -> Response {
    let mut response = with_request_id(Json(value).into_response(), request_id);
    response.headers_mut().insert(EXECUTED_VERSION, HeaderValue::from_static("$LATEST"));
    response
}

fn ended(exit: Exit) -> String {
    format!("Runtime exited with error: {exit}")
}

fn with_request_id(mut response: Response, request_id: &str) -> Response {
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    response
}

fn new_request_id() -> String {
    Uuid::new_v4().to_string()
}

/// A request that no function was run for.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error_type: &'static str,
    message: String,
    /// Why a request was throttled.
    reason: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, error_type: &'static str, message: String) -> Self {
        Self { status, error_type, message, reason: None }
    }

    pub(super) fn unknown_operation() -> Self {
        let message = "only Invoke is served here".to_owned();
        Self::new(StatusCode::NOT_FOUND, "UnknownOperationException", message)
    }

    /// A parameter that is not as it should be.
    pub(super) fn validation(parameter: &str, found: &str, expected: &str) -> Self {
        let message =
            format!("Value '{found}' at '{parameter}' failed to satisfy constraint: it must be {expected}");
        Self::new(StatusCode::BAD_REQUEST, "ValidationException", message)
    }

    pub(super) fn not_found(name: &FunctionName) -> Self {
        let message = format!("Function not found: {name}");
        Self::new(StatusCode::NOT_FOUND, "ResourceNotFoundException", message)
    }

    pub(super) fn not_json(error: &serde_json::Error) -> Self {
        // The place and not the text: payloads are nobody's business.
        let message = format!(
            "Could not parse request body into json: {:?} error at line {} column {}",
            error.classify(),
            error.line(),
            error.column()
        );
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequestContentException", message)
    }

    /// A payload of `size` bytes, or one whose end was not waited for.
    pub(super) fn too_large(invocation_type: InvocationType, size: Option<usize>) -> Self {
        let size = size.map(|size| format!("{size} byte ")).unwrap_or_default();
        let (name, limit) = (invocation_type.name(), invocation_type.largest_payload());
        let message =
            format!("{size}payload is too large for the {name} invocation type (limit {limit} bytes)");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException", message)
    }

    /// The API is being ended.
    pub(super) fn gone() -> Self {
        let message = "the local Invoke API was stopped".to_owned();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", message)
    }

    pub(super) fn of(error: InvokeError, invocation_type: InvocationType, name: &FunctionName) -> Self {
        let throttled = |reason| Self {
            reason: Some(reason),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequestsException",
                format!("Rate Exceeded: {error}"),
            )
        };
        match error {
            InvokeError::Throttled { .. } => throttled("CallerRateLimitExceeded"),
            InvokeError::Busy { .. } => throttled("ReservedFunctionConcurrentInvocationLimitExceeded"),
            InvokeError::TooLarge { size, .. } => Self::too_large(invocation_type, Some(size)),
            InvokeError::Recursion { .. } => {
                let message =
                    format!("Lambda has detected {name} being invoked in a recursive loop: {error}");
                Self::new(StatusCode::BAD_REQUEST, "RecursiveInvocationException", message)
            }
            // Not an error of the service, which the SDK would try again.
            InvokeError::Stopped { .. } => Self::not_found(name),
            InvokeError::Start { .. } | InvokeError::Expired { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", error.to_string())
            }
        }
    }

    /// The member that holds the message. AWS writes it either way.
    fn message_member(&self) -> &'static str {
        match self.error_type {
            "ResourceNotFoundException" | "RecursiveInvocationException" | "ServiceException" => "Message",
            _ => "message",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let blame = if self.status.is_server_error() { "Service" } else { "User" };
        let mut body = Map::new();
        body.insert("Type".to_owned(), blame.into());
        if let Some(reason) = self.reason {
            body.insert("Reason".to_owned(), reason.into());
        }
        body.insert(self.message_member().to_owned(), self.message.into());
        let response =
            (self.status, [(ERROR_TYPE, self.error_type)], Json(Value::Object(body))).into_response();
        with_request_id(response, &new_request_id())
    }
}
