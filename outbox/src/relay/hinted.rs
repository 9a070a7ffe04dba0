//! Hinted runs: what a stream event leads to.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::budget::Budget;
use super::engine::{Relay, WakeUps};
use super::held::{Held, times};
use super::report::RunReport;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::{Claimed, OutboxStore};
use crate::{Bucket, RelayId, StoreError, StoreErrorKind};

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A hinted run: claims the hinted buckets that are free, drains them, releases them. No membership, no share; a
    /// bucket that another relay holds is left to it, and with none free the run ends at once. Buckets out of range must
    /// not be passed in. The store must be able to [claim by name](OutboxStore::named_claims).
    ///
    /// `id` must be new for every run. Nothing is in flight when it returns.
    pub async fn hinted(&self, id: &RelayId, hints: &BTreeSet<Bucket>, budget: &Budget) -> RunReport {
        let mut report = match self.begin() {
            ControlFlow::Continue(report) => report,
            ControlFlow::Break(faulted) => return faulted,
        };
        let Some(claims) = self.store.named_claims() else {
            let message = "the store cannot claim buckets by name: hinted runs are not for it";
            report.note(StoreError::new(StoreErrorKind::Misconfigured, message).into());
            return report;
        };
        let mut wanted = hints.clone();
        let mut strays = false;
        let mut wake_ups = WakeUps::default();
        while !wanted.is_empty() && budget.may_start_batch() {
            let asked = Moment::now(self.clock.as_ref());
            let limit = budget.for_fetch();
            let claim = claims.claim(id, &wanted, times(asked, &self.options), limit);
            let claimed = match self.call(limit, "claim", claim).await {
                Ok(claimed) => claimed,
                Err(error) => Claimed { error: Some(error), ..Claimed::default() },
            };
            // A claim that failed may have been granted: freed at the end, or nobody could have the bucket until it lapses.
            let failed = claimed.error.is_some();
            strays |= failed;
            self.note_lease_error(&mut report, "claim", claimed.error);
            let mine: BTreeSet<Bucket> = claimed.leases.iter().map(|lease| lease.bucket).collect();
            report.held_elsewhere.retain(|bucket| !mine.contains(bucket));
            if !failed {
                report.held_elsewhere.extend(wanted.difference(&mine));
            }

            // What the broker refused before is a sweep's to try again: once is often enough.
            let memory = |bucket| self.memory(false, claimed.parked.contains(&bucket));
            let work =
                claimed.leases.iter().map(|lease| (Held { lease: *lease, asked }, memory(lease.bucket)));
            let ended = self.drain_and_release(id, work.collect(), budget, None, &mut report).await;
            // A release that was not answered has its reply lost, or was never heard of: the lease would hold up everybody
            // else until it lapses.
            strays |= ended.values().any(|ended| ended.unreleased);
            // Taken again also if nothing was found this time: it has arrived since, and its hint has been refused.
            wanted = ended.iter().filter(|(b, ended)| wake_ups.allow(**b, ended)).map(|(b, _)| *b).collect();
        }
        let limit = budget.for_close();
        if let Some(ownership) = self.store.ownership().filter(|_| strays && !limit.is_zero()) {
            let released = self.call(limit, "release", ownership.release_strays(id, limit)).await;
            self.note(&mut report, "release", released);
        }
        report
    }
}
