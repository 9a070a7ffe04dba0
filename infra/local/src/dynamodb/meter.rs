//! Counting requests and the capacity they report.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::proxy::Tap;

/// The operations that report what they consumed, when asked.
const READS: [&str; 5] = ["BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"];
const WRITES: [&str; 5] = ["BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"];

/// What one operation was used for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OperationUsage {
    /// Requests, retries and refusals included.
    pub requests: u64,
    /// Those of them that were answered with an error, a failed condition among them.
    pub refused: u64,
    /// Those of them that were refused because a condition did not hold: none, in a healthy fleet.
    pub failed_conditions: u64,
    /// Capacity units, as the answers reported them.
    pub units: f64,
}

/// What was used, by operation. Capacity is that of successful requests: a refused one consumes some too, and
/// does not say how much.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// By operation name, such as `PutItem`.
    pub operations: BTreeMap<String, OperationUsage>,
}

impl Usage {
    /// Read capacity units.
    pub fn read_units(&self) -> f64 {
        self.units_of(&READS)
    }

    /// Write capacity units.
    pub fn write_units(&self) -> f64 {
        self.units_of(&WRITES)
    }

    /// Requests of all operations.
    pub fn requests(&self) -> u64 {
        self.operations.values().map(|usage| usage.requests).sum()
    }

    /// Requests of all operations that were refused because a condition did not hold.
    pub fn failed_conditions(&self) -> u64 {
        self.operations.values().map(|usage| usage.failed_conditions).sum()
    }

    fn units_of(&self, names: &[&str]) -> f64 {
        names.iter().filter_map(|name| self.operations.get(*name)).map(|usage| usage.units).sum()
    }

    /// This and what was used elsewhere.
    #[must_use]
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (name, used) in &other.operations {
            let sum = self.operations.entry(name.clone()).or_default();
            sum.requests += used.requests;
            sum.refused += used.refused;
            sum.failed_conditions += used.failed_conditions;
            sum.units += used.units;
        }
        self
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let operations = self.operations.iter().map(|(name, now)| {
            let then = earlier.operations.get(name).copied().unwrap_or_default();
            let used = OperationUsage {
                requests: now.requests.saturating_sub(then.requests),
                refused: now.refused.saturating_sub(then.refused),
                failed_conditions: now.failed_conditions.saturating_sub(then.failed_conditions),
                units: now.units - then.units,
            };
            (name.clone(), used)
        });
        Self { operations: operations.filter(|(_, used)| used.requests > 0).collect() }
    }
}

/// Adds the question to each request and sums the answers.
#[derive(Debug, Default)]
pub(super) struct Meter {
    usage: Mutex<Usage>,
}

impl Meter {
    pub(super) fn usage(&self) -> Usage {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        // Counters are never left half changed.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tap for Meter {
    fn request(&self, operation: &str, body: Bytes) -> Bytes {
        self.lock().operations.entry(operation.to_owned()).or_default().requests += 1;
        if READS.contains(&operation) || WRITES.contains(&operation) { asking(body) } else { body }
    }

    fn response(&self, operation: &str, status: StatusCode, body: &[u8]) {
        let units = if status.is_success() { units(body) } else { 0.0 };
        let condition = !status.is_success() && failed_condition(body);
        let mut usage = self.lock();
        let entry = usage.operations.entry(operation.to_owned()).or_default();
        entry.refused += u64::from(!status.is_success());
        entry.failed_conditions += u64::from(condition);
        entry.units += units;
    }
}

/// The request with the question added, unless it asks already or is nothing that could be added to.
fn asking(body: Bytes) -> Bytes {
    #[derive(Deserialize)]
    struct Request {
        #[serde(rename = "ReturnConsumedCapacity")]
        asked: Option<IgnoredAny>,
    }
    let rest = body.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    match (serde_json::from_slice::<Request>(&body), rest) {
        (Ok(Request { asked: None }), Some(rest)) => {
            let comma: &[u8] = if rest.starts_with(b"}") { b"" } else { b"," };
            [br#"{"ReturnConsumedCapacity":"TOTAL""#.as_slice(), comma, rest].concat().into()
        }
        _ => body,
    }
}

/// The capacity units that an answer reports: one figure, or one for each table.
fn units(body: &[u8]) -> f64 {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "ConsumedCapacity")]
        consumed: Option<Consumed>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Consumed {
        One(Capacity),
        Many(Vec<Capacity>),
    }
    #[derive(Deserialize)]
    struct Capacity {
        #[serde(rename = "CapacityUnits", default)]
        units: f64,
    }
    match serde_json::from_slice::<Answer>(body).ok().and_then(|answer| answer.consumed) {
        None => 0.0,
        Some(Consumed::One(capacity)) => capacity.units,
        Some(Consumed::Many(capacities)) => capacities.iter().map(|capacity| capacity.units).sum(),
    }
}

/// Whether an error says that a condition did not hold: a single write's, or one of a transaction's.
fn failed_condition(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Failure {
        #[serde(rename = "__type", default)]
        kind: String,
        #[serde(rename = "CancellationReasons", default)]
        reasons: Vec<Reason>,
    }
    #[derive(Deserialize)]
    struct Reason {
        #[serde(rename = "Code", default)]
        code: Option<String>,
    }
    serde_json::from_slice::<Failure>(body).is_ok_and(|failure| {
        failure.kind.ends_with("ConditionalCheckFailedException")
            || failure.reasons.iter().any(|reason| reason.code.as_deref() == Some("ConditionalCheckFailed"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &'static str) -> String {
        String::from_utf8(asking(Bytes::from_static(body.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn the_question_is_added_once() {
        assert_eq!(asked(r#"{"TableName":"t"}"#), r#"{"ReturnConsumedCapacity":"TOTAL","TableName":"t"}"#);
        assert_eq!(asked(" { } "), r#"{"ReturnConsumedCapacity":"TOTAL"} "#);
        let own = r#"{"TableName":"t","ReturnConsumedCapacity":"INDEXES"}"#;
        assert_eq!(asked(own), own);
        // An item may well contain the words.
        assert!(asked(r#"{"Item":{"ReturnConsumedCapacity":{"S":"x"}}}"#).starts_with(r#"{"ReturnConsumed"#));
        assert_eq!(asked("not json"), "not json");
    }

    #[test]
    fn one_figure_and_several_are_summed() {
        assert_eq!(units(br#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":0.5}}"#), 0.5);
        assert_eq!(units(br#"{"ConsumedCapacity":[{"CapacityUnits":2.0},{"CapacityUnits":4.0}]}"#), 6.0);
        assert_eq!(units(b"{}"), 0.0);
        assert_eq!(units(b"nonsense"), 0.0);
    }

    #[test]
    fn refusals_count_as_requests_without_units() {
        let meter = Meter::default();
        for status in [StatusCode::OK, StatusCode::BAD_REQUEST] {
            meter.request("PutItem", Bytes::from_static(b"{}"));
            meter.response("PutItem", status, br#"{"ConsumedCapacity":{"CapacityUnits":1.0}}"#);
        }
        let usage = meter.usage();
        let one = OperationUsage { requests: 2, refused: 1, failed_conditions: 0, units: 1.0 };
        assert_eq!(usage.operations["PutItem"], one);
        assert_eq!((usage.read_units(), usage.write_units(), usage.requests()), (0.0, 1.0, 2));
        assert_eq!(usage.since(&usage), Usage::default());
    }

    #[test]
    fn a_failed_condition_is_told_from_other_refusals() {
        for (body, failed) in [
            (r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#, true),
            (
                r#"{"__type":"x#TransactionCanceledException","CancellationReasons":[{"Code":"None"},{"Code":"ConditionalCheckFailed"}]}"#,
                true,
            ),
            (
                r#"{"__type":"x#TransactionCanceledException","CancellationReasons":[{"Code":"TransactionConflict"}]}"#,
                false,
            ),
            (r#"{"__type":"x#ProvisionedThroughputExceededException"}"#, false),
            ("nonsense", false),
        ] {
            let meter = Meter::default();
            meter.response("PutItem", StatusCode::BAD_REQUEST, body.as_bytes());
            assert_eq!(meter.usage().failed_conditions(), u64::from(failed), "{body}");
        }
    }
}
