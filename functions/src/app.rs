//! What lives as long as the process: the relay with its clients, and what an invocation is measured by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lambda_runtime::Context;
use outbox::relay::BucketReport;
use outbox::{Budget, Chance, Clock, Monotonic, OutboxStore, Publisher, Relay, RelayId, RunReport};

use crate::TableIdentity;
use crate::metrics::{Metrics, Told, emf_lines, write_lines};

/// Lambda's own limit.
const LONGEST_INVOCATION: Duration = Duration::from_mins(15);

/// The function's parts, over any store and any publisher.
///
/// Lives outside the handler: a client that were dropped with a delivery outstanding would take it back.
#[derive(Debug)]
pub struct App<S, P> {
    /// The engine.
    pub relay: Relay<S, P>,
    /// The outbox's logical name.
    pub name: String,
    /// What tells this outbox's records from others.
    pub table: TableIdentity,
    /// Where metrics go.
    pub metrics: Metrics,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The source of relay ids.
    pub chance: Chance,
    invoked: AtomicBool,
    /// How many of the publisher's clients had been replaced when the last run ended.
    replaced_clients: AtomicU64,
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) id: RelayId,
    pub(crate) budget: Budget,
    request_id: String,
    began: Monotonic,
}

impl<S: OutboxStore, P: Publisher> App<S, P> {
    /// The parts of a process that has not been invoked yet.
    pub fn new(
        relay: Relay<S, P>,
        name: String,
        table: TableIdentity,
        metrics: Metrics,
        clock: Arc<dyn Clock>,
        chance: Chance,
    ) -> Self {
        let (invoked, replaced_clients) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { relay, name, table, metrics, clock, chance, invoked, replaced_clients }
    }

    /// Whether this process has not been invoked before: it has no connection to a broker yet.
    pub(crate) fn is_first_invocation(&self) -> bool {
        !self.invoked.swap(true, Ordering::Relaxed)
    }

    /// The time this invocation has: its deadline is read here, once, and counted on the monotonic clock from then on.
    pub(crate) fn budget(&self, context: &Context) -> Budget {
        let left = context.deadline.saturating_sub(self.clock.now_utc().unix_millis());
        // No invocation lasts longer: a clock that is far behind must not make an endless one of it.
        let left = Duration::from_millis(left).min(LONGEST_INVOCATION);
        Budget::new(Arc::clone(&self.clock), left)
    }

    /// Begins a run, under a relay id for this invocation only: a thawed process must not be taken for the owner it was.
    pub(crate) fn begin(&self, role: &str, budget: Budget, context: &Context) -> Run {
        Run {
            id: self.chance.relay_id(role, self.clock.now_utc()),
            budget,
            request_id: context.request_id.clone(),
            began: self.clock.monotonic(),
        }
    }

    /// Ends a run: says what it did, to logs and metrics.
    pub(crate) fn end(&self, what: &str, run: &Run, report: &RunReport) {
        self.log_run(what, run, report);
        self.assert_nothing_in_flight();
        let replaced = self.relay.publisher().replaced_clients();
        let before = self.replaced_clients.swap(replaced, Ordering::Relaxed);
        if self.metrics == Metrics::Emf {
            write_lines(&emf_lines(&Told {
                name: &self.name,
                request_id: &run.request_id,
                at_unix_millis: self.clock.now_utc().unix_millis(),
                took: self.clock.monotonic().since(run.began),
                client_rebuilds: replaced.saturating_sub(before),
                report,
            }));
        }
    }

    /// Checks what every handler owes to a process that is about to be frozen (invariant 8): nothing is in flight. The
    /// engine has waited for each of its calls, and the publisher for each of its records; there is no timer and no task
    /// that a run leaves behind.
    fn assert_nothing_in_flight(&self) {
        let records = self.relay.publisher().in_flight();
        if records > 0 {
            tracing::error!(
                records,
                "a run has ended with records in flight: they may be sent after a freeze"
            );
        }
        debug_assert_eq!(records, 0, "a handler returns with records in flight");
    }

    /// One line that says what a run did.
    fn log_run(&self, what: &str, run: &Run, report: &RunReport) {
        let total = |of: fn(&BucketReport) -> u64| report.buckets.values().map(of).sum::<u64>();
        let left = run.budget.remaining().unwrap_or_default();
        tracing::info!(
            outbox = self.name,
            relay = %run.id,
            buckets = report.buckets.len(),
            held_elsewhere = report.held_elsewhere.len(),
            acknowledged = report.acknowledged(),
            deleted = report.deleted(),
            failed = total(|bucket| bucket.failed),
            malformed = total(|bucket| bucket.malformed),
            buckets_with_waiting_keys = report.waiting_buckets(),
            quarantined = report.quarantined(),
            lease_losses = report.lease_losses(),
            refused_writes = report.refused_writes,
            clock_behind = report.clock_behind,
            unfinished = report.unfinished.len(),
            workers = report.workers,
            remaining_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            "{what}"
        );
    }
}
