//! The answers that DynamoDB gives when it refuses for reasons of its own.

use axum::http::StatusCode;
use serde_json::json;

use super::Fault;

/// The status and body of a fault that is an answer; `None`: it is something else.
pub(in super::super) fn refusal(fault: Fault) -> Option<(StatusCode, String)> {
    let (status, kind, message) = match fault {
        Fault::Throttle => (
            StatusCode::BAD_REQUEST,
            "ThrottlingException",
            "Throughput exceeds the current capacity of your table or index. (injected)",
        ),
        Fault::ThrottleProvisioned => (
            StatusCode::BAD_REQUEST,
            "ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded. (injected)",
        ),
        Fault::InternalError => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            "The request processing has failed because of an unknown error. (injected)",
        ),
        Fault::Unprocessed(_) | Fault::LoseRequest | Fault::LoseReply | Fault::Hang | Fault::Late(_) => {
            return None;
        }
    };
    let kind = format!("com.amazonaws.dynamodb.v20120810#{kind}");
    Some((status, json!({"__type": kind, "message": message}).to_string()))
}
