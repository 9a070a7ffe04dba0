//! `scheduled-relay`: a sweep for each tick of the schedule, the safety net under the hints.

use std::time::Duration;

use lambda_runtime::LambdaEvent;
use outbox::relay::RunError;
use outbox::{BucketEnd, Chain, OutboxStore, Publisher, RunReport, StoreErrorKind};
use serde_json::{Value, json};

use crate::workers::was_asked_for;
use crate::{App, FunctionError};

/// How far the sweeps that were asked for together are spread, so that their first connections to the brokers are. A
/// broker of MSK takes 20 new ones a second, the smallest 4.
const SPREAD: Duration = Duration::from_millis(500);

/// Handles one tick: sweeps. What the event holds does not matter, but for whether another sweep asked for this one.
///
/// What the next sweep will see to is a success: a broker that is away, a table that throttles. The answer and the log
/// say so.
///
/// # Errors
/// A misconfiguration, after the buckets that are right have been served; and a table that cannot be reached, without
/// which a sweep sees nothing, so that whoever watches the function's errors learns of it. Nothing is lost by either.
pub async fn scheduled<S: OutboxStore, P: Publisher>(
    app: &App<S, P>,
    event: LambdaEvent<Value>,
) -> Result<Value, FunctionError> {
    let budget = app.budget(&event.context);
    if was_asked_for(&event.payload) {
        let most = u64::try_from(SPREAD.as_millis()).unwrap_or(0);
        app.clock.sleep(Duration::from_millis(app.chance.below(most))).await;
    }
    let id = app.relay_id("sweep");
    let report = app.relay.sweep(&id, &budget).await;
    app.log_run("sweep ended", &id, &report, &budget);
    app.assert_nothing_in_flight();
    if let Some(error) = report.misconfiguration() {
        return Err(FunctionError::misconfigured(error));
    }
    let failure = got_nothing_through(&report);
    if let Some(error) = failure {
        tracing::error!(error = %Chain(error), "a sweep found work and got nothing through: the next one tries again");
        if is_table_unreachable(error) {
            return Err(FunctionError::Unavailable(Chain(error).to_string()));
        }
    }
    Ok(json!({
        "acknowledged": report.acknowledged(),
        "deleted": report.deleted(),
        "buckets": report.buckets.len(),
        "heldElsewhere": report.held_elsewhere.len(),
        "unfinished": report.unfinished.len(),
        "workers": report.workers,
        "unavailable": failure.map(|error| Chain(error).to_string()),
    }))
}

fn got_nothing_through(report: &RunReport) -> Option<&RunError> {
    if report.acknowledged() > 0 {
        return None;
    }
    let of_buckets = report.buckets.values().filter(|bucket| bucket.end == BucketEnd::RetryLater);
    of_buckets.filter_map(|bucket| bucket.error.as_ref()).chain(&report.errors).next()
}

fn is_table_unreachable(error: &RunError) -> bool {
    matches!(error, RunError::Store(error) if error.kind() != StoreErrorKind::Throttled)
}
