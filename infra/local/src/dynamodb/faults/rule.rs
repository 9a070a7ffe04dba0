//! Which requests meet which fault.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

/// What a request meets.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Refused with a `ThrottlingException`, as by an on-demand table.
    Throttle,
    /// Refused with a `ProvisionedThroughputExceededException`, as by a table with provisioned capacity.
    ThrottleProvisioned,
    /// Throttled in part: each item of a `BatchWriteItem` is left with this probability, and reported in
    /// `UnprocessedItems`; 1: all of them. Applies to no other operation.
    Unprocessed(f64),
    /// Refused with an `InternalServerError`.
    InternalError,
    /// The connection is closed before the request has reached the database.
    LoseRequest,
    /// The database carries the request out, also when the client does not wait for it; the connection is closed
    /// without an answer.
    LoseReply,
    /// No answer for as long as the rule is in force. Then, if the client is still there, the request is carried out
    /// and answered; if it is not, the request is lost.
    Hang,
    /// The request reaches the database that much later, also when the client has gone by then, and when the rule is
    /// no longer in force.
    Late(Duration),
}

impl Fault {
    /// The kind of fault, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttled",
            Self::ThrottleProvisioned => "throttled (provisioned)",
            Self::Unprocessed(_) => "unprocessed",
            Self::InternalError => "internal error",
            Self::LoseRequest => "request lost",
            Self::LoseReply => "reply lost",
            Self::Hang => "hung",
            Self::Late(_) => "late",
        }
    }
}

/// A share of some requests, and the fault that they meet.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The operations, such as `PutItem`; `None`: all of them.
    pub operations: Option<BTreeSet<String>>,
    /// Only requests that name this table, among others perhaps; `None`: all of them.
    pub table: Option<String>,
    /// The probability with which a request meets the fault: 1 is all of them.
    pub share: f64,
    /// The fault.
    pub fault: Fault,
    /// Decides which requests are drawn. The same requests in the same order meet the same faults.
    pub seed: u64,
}

impl Rule {
    /// Every request meets the fault.
    pub fn new(fault: Fault) -> Self {
        Self { operations: None, table: None, share: 1.0, fault, seed: 0 }
    }

    /// Only requests of these operations.
    #[must_use]
    pub fn with_operations<S: Into<String>>(self, operations: impl IntoIterator<Item = S>) -> Self {
        Self { operations: Some(operations.into_iter().map(Into::into).collect()), ..self }
    }

    /// Only requests that name this table.
    #[must_use]
    pub fn with_table(self, table: impl Into<String>) -> Self {
        Self { table: Some(table.into()), ..self }
    }

    /// Only this share of them.
    #[must_use]
    pub fn with_share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Other draws.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    pub(super) fn applies_to(&self, operation: &str, body: &[u8]) -> bool {
        self.operations.as_ref().is_none_or(|operations| operations.contains(operation))
            && (!matches!(self.fault, Fault::Unprocessed(_)) || operation == "BatchWriteItem")
            && self.table.as_ref().is_none_or(|table| names(body, table))
    }
}

/// Whether a request names a table: as its own, as one of a batch, or as one of a transaction.
fn names(body: &[u8], table: &str) -> bool {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let is_named = |action: &Value| action["TableName"] == table;
    is_named(&request)
        || request["RequestItems"].get(table).is_some()
        || request["TransactItems"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .any(|item| item.values().any(is_named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_wherever_a_request_names_it() {
        for (body, found) in [
            (r#"{"TableName":"outbox"}"#, true),
            (r#"{"TableName":"orders","Item":{"outbox":{"S":"outbox"}}}"#, false),
            (r#"{"RequestItems":{"orders":[],"outbox":[]}}"#, true),
            (r#"{"RequestItems":{"orders":[{"PutRequest":{"Item":{"outbox":{"S":"x"}}}}]}}"#, false),
            (r#"{"TransactItems":[{"Put":{"TableName":"orders"}},{"Put":{"TableName":"outbox"}}]}"#, true),
            (r#"{"TransactItems":[{"Put":{"TableName":"orders"}}]}"#, false),
            ("nonsense", false),
        ] {
            let rule = Rule::new(Fault::Throttle).with_table("outbox");
            assert_eq!(rule.applies_to("PutItem", body.as_bytes()), found, "{body}");
            assert!(Rule::new(Fault::Throttle).applies_to("PutItem", body.as_bytes()));
        }
    }

    #[test]
    fn operations_are_those_named_and_only_a_batch_can_be_left_in_part() {
        let rule = Rule::new(Fault::Throttle).with_operations(["Query", "GetItem"]);
        assert_eq!(["Query", "GetItem", "PutItem"].map(|it| rule.applies_to(it, b"")), [true, true, false]);
        let rule = Rule::new(Fault::Unprocessed(1.0));
        assert_eq!(["BatchWriteItem", "PutItem"].map(|it| rule.applies_to(it, b"")), [true, false]);
    }
}
