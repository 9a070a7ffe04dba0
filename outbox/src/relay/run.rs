//! The runs (design.md, section 7): hinted, and sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::budget::Budget;
use super::drain::{drain, within};
use super::held::{Held, times};
use super::report::{BucketEnd, RunError, RunReport};
use crate::concurrently::concurrently;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::{AcquireRequest, LeaseOwnership, OutboxStore};
use crate::{Bucket, Chain, Clock, Lease, RelayId, RelayOptions, StoreError, StoreErrorKind, Ticks};

/// How many buckets are worked on at once: what bounds the memory of a run, with the size of a batch.
const CONCURRENT_BUCKETS: usize = 8;
/// How often a hinted run takes up again what arrived while it released. Each time costs a claim and a release; what
/// arrives after the last is found by its own hint or by a sweep.
const MAX_WAKE_UPS: usize = 8;
/// The least pause between two acquisitions of one sweep, unless leases are due for renewal.
const ACQUIRE_PAUSE: Duration = Duration::from_secs(1);

/// The relay engine over a store and a publisher. Holds no state between runs: each has its own relay id and budget.
#[derive(Debug)]
pub struct Relay<S, P> {
    pub(super) store: S,
    pub(super) publisher: P,
    pub(super) options: RelayOptions,
    pub(super) clock: Arc<dyn Clock>,
}

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A relay over this store and this publisher.
    ///
    /// # Errors
    /// Refuses a store that cannot renew a lease or give one up.
    pub fn new(
        store: S,
        publisher: P,
        options: RelayOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        if store.renewal().is_none() || store.ownership().is_none() {
            let message = "the store cannot renew leases or give them up: a relay cannot run on it safely";
            return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
        }
        Ok(Self { store, publisher, options, clock })
    }

    /// The relay's options.
    pub fn options(&self) -> &RelayOptions {
        &self.options
    }

    /// The store it reads from.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The publisher it sends with.
    pub fn publisher(&self) -> &P {
        &self.publisher
    }

    /// A hinted run: claims the hinted buckets that are free, drains them, releases them. No membership, no share; a
    /// bucket that another relay holds is left to it. Buckets out of range must not be passed in.
    ///
    /// `id` must be new for every run. Nothing is in flight when it returns.
    pub async fn hinted(&self, id: &RelayId, hints: &BTreeSet<Bucket>, budget: &Budget) -> RunReport {
        let mut report = RunReport::default();
        let mut wanted = hints.clone();
        for _ in 0..MAX_WAKE_UPS {
            if wanted.is_empty() || !budget.may_start_batch() {
                break;
            }
            wanted = self.claim_and_drain(id, &wanted, budget, &mut report).await;
        }
        report
    }

    /// A sweep: probes every bucket, and where there is work takes part in fair share, drains what it is given, and
    /// stops. With nothing pending it writes nothing (invariant 7).
    ///
    /// `id` must be new for every run. Nothing is in flight when it returns.
    pub async fn sweep(&self, id: &RelayId, budget: &Budget) -> RunReport {
        let mut report = RunReport::default();
        let mut sweep = Sweep { held: BTreeMap::new(), given_up: BTreeSet::new(), last_acquired: None };
        let ended = self.sweep_rounds(id, &mut sweep, budget, &mut report).await;
        if let Err(error) = ended {
            tracing::warn!(error = %Chain(&error), "a sweep ended early");
            report.errors.push(error.into());
        }
        let drained: BTreeSet<Bucket> = sweep.held.keys().copied().collect();
        if sweep.last_acquired.is_some() {
            self.stop(id, &sweep, budget, &mut report).await;
        }
        // What arrived between the last probe and the stop: nobody else may have been told of it.
        let mut wanted = self.woken(&drained, &report, budget).await;
        for _ in 0..MAX_WAKE_UPS {
            if wanted.is_empty() || !budget.may_start_batch() {
                break;
            }
            wanted = self.claim_and_drain(id, &wanted, budget, &mut report).await;
        }
        report
    }

    async fn sweep_rounds(
        &self,
        id: &RelayId,
        sweep: &mut Sweep,
        budget: &Budget,
        report: &mut RunReport,
    ) -> Result<(), StoreError> {
        while budget.may_start_batch() {
            let candidates: BTreeSet<Bucket> = self
                .options
                .bucket_count
                .buckets()
                .filter(|bucket| !sweep.given_up.contains(bucket))
                .collect();
            let limit = budget.for_fetch();
            let pending = self.call(limit, "probe", self.store.pending(&candidates, limit)).await?;
            if pending.is_empty() {
                break;
            }
            if sweep.should_acquire(&pending, self.clock.as_ref(), &self.options) {
                self.acquire(id, sweep, &pending, budget, report).await?;
            }
            let work: Vec<Held> =
                pending.iter().filter_map(|bucket| sweep.held.get(bucket).copied()).collect();
            report.held_elsewhere = pending.iter().filter(|b| !sweep.held.contains_key(b)).copied().collect();
            if work.is_empty() {
                break;
            }
            // Turns are bounded so that one full bucket does not keep the others, or other relays, waiting.
            let turn_ends = Some(self.clock.monotonic().plus(self.options.lease_renew_interval));
            for (bucket, held, end) in self.drain_all(id, work, budget, turn_ends, report).await {
                match held {
                    Some(held) => sweep.held.insert(bucket, held),
                    None => sweep.held.remove(&bucket),
                };
                if !matches!(end, BucketEnd::Empty | BucketEnd::TurnOver) {
                    sweep.given_up.insert(bucket);
                }
            }
        }
        Ok(())
    }

    async fn acquire(
        &self,
        id: &RelayId,
        sweep: &mut Sweep,
        wanted: &BTreeSet<Bucket>,
        budget: &Budget,
        report: &mut RunReport,
    ) -> Result<(), StoreError> {
        let asked = Moment::now(self.clock.as_ref());
        // Known before the request is sent: whatever becomes of it, this relay may be a member now and has to stop.
        sweep.last_acquired = Some(asked);
        let request = AcquireRequest {
            relay: id,
            bucket_count: self.options.bucket_count,
            times: times(asked, &self.options),
            wanted,
            limit: budget.for_fetch(),
        };
        let acquired = self.call(request.limit, "acquisition", self.store.acquire(&request)).await?;
        report.refused_writes += acquired.refused_writes;
        if acquired.clock_behind {
            report.clock_behind = true;
            tracing::warn!(relay = %id, "this relay's clock is behind: it claims nothing");
        }
        sweep.held = acquired.leases.into_iter().map(|lease| (lease.bucket, Held { lease, asked })).collect();
        Ok(())
    }

    /// Stamps the relay stopped and frees its leases, while there is time; otherwise they lapse as after a crash.
    async fn stop(&self, id: &RelayId, sweep: &Sweep, budget: &Budget, report: &mut RunReport) {
        let limit = budget.for_close();
        let Some(ownership) = self.ownership().filter(|_| !limit.is_zero()) else {
            return;
        };
        let leases: Vec<Lease> = sweep.held.values().map(|held| held.lease).collect();
        let stop = ownership.stop(id, &leases, sweep.stop_stamp(self.clock.as_ref()), limit);
        self.note(report, "stop", self.call(limit, "stop", stop).await);
    }

    /// Claims, drains and releases `wanted`; returns the buckets that had a message after their release.
    async fn claim_and_drain(
        &self,
        id: &RelayId,
        wanted: &BTreeSet<Bucket>,
        budget: &Budget,
        report: &mut RunReport,
    ) -> BTreeSet<Bucket> {
        let Some(ownership) = self.ownership() else {
            return BTreeSet::new();
        };
        let asked = Moment::now(self.clock.as_ref());
        let limit = budget.for_fetch();
        let claim = ownership.claim(id, wanted, times(asked, &self.options), limit);
        let claimed = match self.call(limit, "claim", claim).await {
            Ok(leases) => leases,
            Err(error) => {
                self.note(report, "claim", Err(error));
                return BTreeSet::new();
            }
        };
        let work: Vec<Held> = claimed.into_iter().map(|lease| Held { lease, asked }).collect();
        let mine: BTreeSet<Bucket> = work.iter().map(|held| held.lease.bucket).collect();
        report.held_elsewhere.retain(|bucket| !mine.contains(bucket));
        report.held_elsewhere.extend(wanted.difference(&mine));

        let drained = self.drain_all(id, work, budget, None, report).await;
        let still_held: Vec<Lease> =
            drained.iter().filter_map(|(_, held, _)| held.map(|held| held.lease)).collect();
        let limit = budget.for_close();
        if !still_held.is_empty() && !limit.is_zero() {
            let release = ownership.release(id, &still_held, limit);
            self.note(report, "release", self.call(limit, "release", release).await);
        }
        self.woken(&still_held.iter().map(|lease| lease.bucket).collect(), report, budget).await
    }

    /// Which of the buckets that were drained and have been freed have a message now.
    ///
    /// A hint may have arrived, and been refused, between this relay's last empty fetch and its release. Its message
    /// was committed before the refusal, the refusal came before the release, and the release before this read: a
    /// strongly consistent read sees it (design.md, section 7).
    async fn woken(&self, freed: &BTreeSet<Bucket>, report: &RunReport, budget: &Budget) -> BTreeSet<Bucket> {
        let Some(ownership) = self.ownership() else {
            return BTreeSet::new();
        };
        let drained = |bucket: &&Bucket| report.buckets.get(bucket).is_none_or(|b| b.end == BucketEnd::Empty);
        let probe = |bucket: Bucket| {
            async move {
                if !budget.may_start_batch() {
                    return None;
                }
                let limit = budget.for_fetch();
                let found = self.call(limit, "probe", ownership.has_message(bucket, limit)).await;
                // A probe that fails costs latency: a sweep finds the message.
                found.is_ok_and(|found| found).then_some(bucket)
            }
            .boxed()
        };
        let probes = freed.iter().filter(drained).map(|bucket| probe(*bucket)).collect();
        concurrently(CONCURRENT_BUCKETS, probes).await.into_iter().flatten().collect()
    }

    async fn drain_all(
        &self,
        id: &RelayId,
        work: Vec<Held>,
        budget: &Budget,
        turn_ends: Option<crate::Monotonic>,
        report: &mut RunReport,
    ) -> Vec<(Bucket, Option<Held>, BucketEnd)> {
        let turn = |held: Held| {
            async move { (held.lease.bucket, drain(self, id, held, budget, turn_ends).await) }.boxed()
        };
        let turns = concurrently(CONCURRENT_BUCKETS, work.into_iter().map(turn).collect()).await;
        let mut ends = Vec::with_capacity(turns.len());
        for (bucket, turn) in turns {
            if let Some(error) = &turn.report.error {
                tracing::warn!(%bucket, end = ?turn.report.end, error = %Chain(error), "a bucket was not drained");
            }
            ends.push((bucket, turn.held, turn.report.end));
            report.add(bucket, turn.report);
        }
        ends
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        self.store.ownership()
    }

    async fn call<T>(
        &self,
        limit: Duration,
        what: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.clock.as_ref(), limit, what, call).await
    }

    fn note(&self, report: &mut RunReport, what: &str, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(error = %Chain(&error), "{what} failed");
            report.errors.push(RunError::Store(error));
        }
    }
}

/// What a sweep knows from round to round.
struct Sweep {
    held: BTreeMap<Bucket, Held>,
    /// Buckets that this run does not come back to: they wait for somebody or something else.
    given_up: BTreeSet<Bucket>,
    last_acquired: Option<Moment>,
}

impl Sweep {
    /// Later than any heartbeat this sweep sent, also if the clock has gone back since.
    fn stop_stamp(&self, clock: &dyn Clock) -> Ticks {
        let now = clock.now_utc();
        self.last_acquired.map_or(now, |last| now.max(last.wall.next()))
    }

    /// An acquisition costs a heartbeat, a query and a write for each lease: one at first, one when leases are due
    /// for renewal, and one when there is work in a bucket that is not held, but then not all the time.
    fn should_acquire(&self, pending: &BTreeSet<Bucket>, clock: &dyn Clock, options: &RelayOptions) -> bool {
        let Some(last) = self.last_acquired else {
            return true;
        };
        let age = Moment::now(clock).since(last);
        let unheld = pending.iter().any(|bucket| !self.held.contains_key(bucket));
        age >= options.lease_renew_interval || (unheld && age >= ACQUIRE_PAUSE)
    }
}
