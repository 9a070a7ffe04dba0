//! What a request to DynamoDB is for, told from what is in it.

use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use serde_json::Value;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A relay says that it is alive.
    Heartbeat,
    /// A relay says that it has stopped.
    StoppedStamp,
    /// A record of a relay that is gone is removed.
    Prune,
    /// A free lease is taken.
    Claim,
    /// A lease of this round's relay is extended.
    Keep,
    /// A lease in use is extended.
    Renew,
    /// A lease is freed.
    Release,
    /// Messages are set aside, or sent back from where they were.
    Move,
    /// Acknowledged messages are deleted.
    Delete,
    /// All leases and heartbeats are read.
    Coordination,
    /// A bucket's head is looked at, eventually consistent.
    Probe,
    /// A bucket's head is looked at after its release, strongly consistent.
    LookAfterRelease,
    /// A batch is read.
    Fetch,
    /// A gap in a batch is looked into.
    GapProbe,
    /// How much waits is asked.
    Backlog,
    /// Anything else.
    Other,
}

impl Kind {
    /// The kind of a request on its way.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let body: Value =
            request.body().bytes().and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
        match operation {
            "PutItem" => Self::of_put(&body["Item"]),
            "UpdateItem" => Self::of_update(&body),
            "DeleteItem" => Self::Prune,
            "TransactWriteItems" => Self::Move,
            "BatchWriteItem" => Self::Delete,
            "Query" => Self::of_query(&body),
            _ => Self::Other,
        }
    }

    /// Whether it changes something.
    pub(crate) fn writes(self) -> bool {
        self <= Self::Delete
    }

    fn of_put(item: &Value) -> Self {
        let sort = item["SK"]["S"].as_str().unwrap_or_default();
        if sort.starts_with("LEASE#") {
            Self::Claim
        } else if !sort.starts_with("RELAY#") {
            Self::Other
        } else if item["StoppedAtUtc"].is_null() {
            Self::Heartbeat
        } else {
            Self::StoppedStamp
        }
    }

    fn of_update(body: &Value) -> Self {
        let sort = body["Key"]["SK"]["S"].as_str().unwrap_or_default();
        let update = body["UpdateExpression"].as_str().unwrap_or_default();
        if !sort.starts_with("LEASE#") {
            Self::Other
        } else if update.starts_with("REMOVE") {
            Self::Release
        } else if body["ExpressionAttributeValues"][":now"].is_null() {
            Self::Keep
        } else {
            Self::Renew
        }
    }

    fn of_query(body: &Value) -> Self {
        let values = &body["ExpressionAttributeValues"];
        let text = |name: &str| values[name]["S"].as_str().unwrap_or_default();
        let whole = text(":first").ends_with("0001") && text(":last").ends_with("807");
        match (body["ProjectionExpression"].as_str(), body["ConsistentRead"].as_bool()) {
            _ if text(":partition").ends_with("#COORDINATION") => Self::Coordination,
            (Some("#created"), _) => Self::Backlog,
            (Some(_), Some(true)) if whole => Self::LookAfterRelease,
            (Some(_), Some(true)) => Self::GapProbe,
            (Some(_), _) => Self::Probe,
            (None, _) => Self::Fetch,
        }
    }
}
