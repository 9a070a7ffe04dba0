//! How much waits, as one run of all that there are sees it: the schedule's own sweep.
//!
//! Every relay could tell, and what they told would add up to a multiple of the truth. And a backlog that nobody could
//! look at is not an empty one.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future;

use super::budget::Budget;
use super::engine::Relay;
use super::report::RunReport;
use crate::publisher::Publisher;
use crate::store::OutboxStore;
use crate::{Bucket, Chain, PoisonPolicy, RelayId};

/// What a run knows of the backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BacklogSample {
    /// It was not this run's to sample.
    #[default]
    NotSampled,
    /// Nobody knows: anything may wait.
    Unknown {
        /// Why.
        reason: String,
    },
    /// So much waited.
    Known {
        /// Messages; at least so many unless `is_exact`.
        pending: u64,
        /// Whether all of them were counted.
        is_exact: bool,
        /// How long ago the oldest was written, by this process's clock; zero if nothing waits. `None`: no date can be read.
        oldest_age: Option<Duration>,
    },
}

impl BacklogSample {
    const NOTHING: Self = Self::Known { pending: 0, is_exact: true, oldest_age: Some(Duration::ZERO) };

    fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }

    /// What a run begins with that is to sample.
    pub(super) fn not_yet() -> Self {
        Self::unknown("no bucket could be looked at")
    }
}

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A [sweep](Self::sweep) that also tells the [backlog](RunReport::backlog) and the
    /// [parked keys](RunReport::parked_keys), as they were right after it first looked at the buckets. For one run of all
    /// that there are at a time: what several tell does not add up.
    ///
    /// With nothing pending the backlog is known without another request. Otherwise the buckets that have work are sampled,
    /// once, which delays the sweep by no more than 1.1 s and never takes the time that it needs for a batch; a sample
    /// that fails changes nothing else. Parked keys are looked at where the policy is to set messages aside.
    pub async fn sampling_sweep(&self, id: &RelayId, budget: &Budget) -> RunReport {
        self.sweep_and(id, budget, true).await
    }

    /// Samples, right after the first probe found work in `pending`.
    pub(super) async fn sample(&self, pending: &BTreeSet<Bucket>, budget: &Budget, report: &mut RunReport) {
        let limit = budget.for_sample();
        let samples = future::join(self.sample_backlog(pending, limit), self.count_parked(limit));
        (report.backlog, report.parked_keys) = samples.await;
        if let BacklogSample::Unknown { reason } = &report.backlog {
            tracing::warn!(reason, "the backlog is unknown");
        }
    }

    async fn sample_backlog(&self, pending: &BTreeSet<Bucket>, limit: Duration) -> BacklogSample {
        if pending.is_empty() {
            return BacklogSample::NOTHING;
        }
        let Some(metrics) = self.store.backlog() else {
            return BacklogSample::unknown("the store cannot tell");
        };
        if limit.is_zero() {
            return BacklogSample::unknown("there was no time to look");
        }
        match self.call(limit, "sample of the backlog", metrics.sample(pending, limit)).await {
            Ok(sample) => {
                let age = sample.oldest.map(|oldest| self.clock.now_utc().since(oldest));
                let oldest_age = age.or((sample.pending == 0).then_some(Duration::ZERO));
                BacklogSample::Known { pending: sample.pending, is_exact: sample.is_exact, oldest_age }
            }
            Err(error) => BacklogSample::unknown(Chain(&error).to_string()),
        }
    }

    async fn count_parked(&self, limit: Duration) -> Option<u64> {
        let quarantines = self.options.poison_policy == PoisonPolicy::Quarantine;
        let quarantine = self.store.quarantine().filter(|_| quarantines && !limit.is_zero())?;
        match self.call(limit, "count of the parked keys", quarantine.count_parked(limit)).await {
            Ok(count) => Some(count),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the number of parked keys is unknown");
                None
            }
        }
    }
}
