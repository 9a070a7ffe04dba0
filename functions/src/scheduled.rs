//! `scheduled-relay`: a sweep for each tick of the schedule, the safety net under the hints.

use std::time::Duration;

use lambda_runtime::LambdaEvent;
use outbox::relay::RunError;
use outbox::{BucketEnd, Chain, Chance, OutboxStore, Publisher, RunReport, StoreErrorKind};
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::workers::asked_together;
use crate::{App, FunctionError};

/// How far apart the sweeps that were asked for together begin in new processes, on average, so that their first
/// connections to the brokers do not come at once: a broker of MSK takes 20 a second, the smallest 4.
const APART: Duration = Duration::from_millis(150);
/// The most that one waits for it.
const LONGEST_SPREAD: Duration = Duration::from_secs(3);

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
    let together = asked_together(&event.payload);
    if app.is_first_invocation()
        && let Some(together) = together
    {
        app.clock.sleep(spread(together, &app.chance)).await;
    }
    let run = app.begin("sweep", budget, &event.context);
    // One of all that are under way samples the backlog: the schedule's own, of which there is one at a time.
    let samples = together.is_none() && app.metrics == Metrics::Emf;
    let report = if samples {
        app.relay.sampling_sweep(&run.id, &run.budget).await
    } else {
        app.relay.sweep(&run.id, &run.budget).await
    };
    app.end("sweep ended", &run, &report);
    if let Some(error) = report.misconfiguration() {
        return Err(FunctionError::misconfigured(error));
    }
    let failure = got_nothing_through(&report);
    if let Some(error) = failure {
        tracing::error!(error = %Chain(error), "a sweep got nothing through: the next one tries again");
        if is_table_unreachable(&report) {
            return Err(FunctionError::Unavailable(Chain(error).to_string()));
        }
    }
    Ok(json!({
        "acknowledged": report.acknowledged(),
        "deleted": report.deleted(),
        "quarantined": report.quarantined(),
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

/// Whether the table could not so much as be asked where there is work: not if it throttles, nor if it answered that and
/// was too slow for what followed.
fn is_table_unreachable(report: &RunReport) -> bool {
    let is_away = |error: &RunError| matches!(error, RunError::Store(error) if error.kind() == StoreErrorKind::Unavailable);
    !report.probed && report.errors.iter().any(is_away)
}

/// How long one of `together` sweeps waits before it begins.
fn spread(together: u64, chance: &Chance) -> Duration {
    let apart = u64::try_from(APART.as_millis()).unwrap_or(0);
    let longest = u64::try_from(LONGEST_SPREAD.as_millis()).unwrap_or(0);
    // One by itself need not wait for anybody.
    Duration::from_millis(chance.below(together.saturating_sub(1).saturating_mul(apart).min(longest)))
}

#[cfg(test)]
mod tests {
    use outbox::StoreError;

    use super::*;

    #[test]
    fn a_table_that_answered_once_is_not_away() {
        let report = |kind, probed| {
            let error = RunError::Store(StoreError::new(kind, "the reply did not come"));
            RunReport { errors: vec![error], probed, ..RunReport::default() }
        };
        assert!(is_table_unreachable(&report(StoreErrorKind::Unavailable, false)));
        // Such as a read of the leases that timed out.
        assert!(!is_table_unreachable(&report(StoreErrorKind::Unavailable, true)));
        assert!(!is_table_unreachable(&report(StoreErrorKind::Throttled, false)));
    }

    #[test]
    fn sweeps_are_spread_by_their_number_within_a_bound() {
        let chance = Chance::seeded(1);
        let longest = |together| (0..1_000).map(|_| spread(together, &chance)).max().unwrap();
        assert_eq!((longest(0), longest(1)), (Duration::ZERO, Duration::ZERO));
        assert!(longest(4) > Duration::from_millis(400) && longest(4) < Duration::from_millis(450));
        assert!(longest(u64::MAX) > Duration::from_secs(2) && longest(u64::MAX) < LONGEST_SPREAD);
    }
}
