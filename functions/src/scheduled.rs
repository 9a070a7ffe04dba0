//! `scheduled-relay`: a sweep for each tick of the schedule, the safety net under the hints.

use lambda_runtime::LambdaEvent;
use outbox::{BucketEnd, Chain, OutboxStore, Publisher, RunReport};
use serde_json::{Value, json};

use crate::{App, FunctionError};

/// Handles one tick: sweeps. What the event holds does not matter.
///
/// # Errors
/// A misconfiguration, after the buckets that are right have been served; and a sweep that found work and got nothing
/// through, so that whoever watches the function's errors learns of it. Nothing is lost by either.
pub async fn scheduled<S: OutboxStore, P: Publisher>(
    app: &App<S, P>,
    event: LambdaEvent<Value>,
) -> Result<Value, FunctionError> {
    let budget = app.budget(&event.context);
    let id = app.relay_id("sweep");
    let report = app.relay.sweep(&id, &budget).await;
    app.log_run("sweep ended", &id, &report, &budget);
    if let Some(error) = report.misconfiguration() {
        return Err(FunctionError::misconfigured(error));
    }
    if let Some(failure) = got_nothing_through(&report) {
        return Err(failure);
    }
    Ok(json!({
        "acknowledged": report.acknowledged(),
        "deleted": report.deleted(),
        "buckets": report.buckets.len(),
        "heldElsewhere": report.held_elsewhere.len(),
    }))
}

fn got_nothing_through(report: &RunReport) -> Option<FunctionError> {
    if report.acknowledged() > 0 {
        return None;
    }
    let of_buckets = report.buckets.values().filter(|bucket| bucket.end == BucketEnd::RetryLater);
    let error = of_buckets.filter_map(|bucket| bucket.error.as_ref()).chain(&report.errors).next()?;
    Some(FunctionError::Unavailable(Chain(error).to_string()))
}
