//! The relay itself, and what its three runs share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{self, Either};
use tracing::field::display;

use super::budget::Budget;
use super::drain::{Memory, Turn, drain, within};
use super::durations::Durations;
use super::held::{Held, times};
use super::report::{BucketEnd, BucketReport, RunError, RunReport};
use super::waiting::Rules;
use super::workers::{NoWorkers, Started, Workers};
use crate::concurrently::concurrently;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::{AcquireRequest, Acquired, OutboxStore};
use crate::{
    Bucket, Chain, Chance, Clock, Lease, Monotonic, PoisonPolicy, RelayId, RelayOptions, StoreError,
    StoreErrorKind, Ticks,
};

/// How many buckets are worked on at once: what bounds the memory of a run, with the size of a batch.
pub(super) const CONCURRENT_BUCKETS: usize = 8;

/// What became of a bucket's turn.
pub(super) struct Ended<S: OutboxStore> {
    /// The lease, where the turn is only over; otherwise it was freed or lost.
    pub(super) held: Option<Held>,
    pub(super) memory: Memory<S>,
    pub(super) end: BucketEnd,
    pub(super) acknowledged: u64,
    /// Whether it is known to have more messages than were published, or was not looked at.
    pub(super) is_behind: bool,
    /// Whether it had a turn, or that was put off.
    pub(super) had_turn: bool,
    /// Whether there was something to publish again after the release.
    pub(super) woken: bool,
    /// Whether its release failed, or nobody knows: the lease may be this relay's still.
    pub(super) unreleased: bool,
}

/// How long the turns of one round may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// One bucket's, from its start.
    pub(super) length: Duration,
    /// A turn that would begin later is put off to the next round, before which the leases are renewed.
    pub(super) begin_before: Monotonic,
}

/// How often a bucket is taken again in a row that had a message after its release and, once taken, nothing to publish.
/// Each time a message must have come and gone in between, or it is an item that no relay will ever read.
const FRUITLESS_WAKE_UPS: u32 = 8;

/// Bounds how often a bucket is taken again: without end for as long as something gets through.
#[derive(Debug, Default)]
pub(super) struct WakeUps(BTreeMap<Bucket, u32>);

impl WakeUps {
    /// Whether a bucket whose turn has ended is taken again.
    pub(super) fn allow<S: OutboxStore>(&mut self, bucket: Bucket, ended: &Ended<S>) -> bool {
        if !ended.woken {
            return false;
        }
        let fruitless = self.0.entry(bucket).or_default();
        *fruitless = if ended.acknowledged > 0 { 0 } else { *fruitless + 1 };
        *fruitless <= FRUITLESS_WAKE_UPS
    }
}

/// The relay engine over a store and a publisher. Holds no state between runs, each of which has its own relay id and
/// budget; but a publish that outlasted its bound ends them all.
#[derive(Debug)]
pub struct Relay<S, P> {
    pub(super) store: S,
    pub(super) publisher: P,
    pub(super) options: RelayOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) chance: Chance,
    pub(super) workers: Arc<dyn Workers>,
    faulted: AtomicBool,
}

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A relay over this store and this publisher.
    ///
    /// # Errors
    /// Refuses a store that cannot renew leases where nothing bounds a publish, or where the bound and a renewal
    /// interval do not fit into a lease; and one without a quarantine where the policy asks for it.
    pub fn new(
        store: S,
        publisher: P,
        options: RelayOptions,
        clock: Arc<dyn Clock>,
        chance: Chance,
    ) -> Result<Self, StoreError> {
        if store.renewal().is_none() {
            let Some(bound) = options.max_publish_duration else {
                let message = "the store cannot renew leases: max_publish_duration must say how long a publish can take";
                return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
            };
            let needed = bound.saturating_add(options.lease_renew_interval);
            if needed >= options.lease_duration {
                let message = format!(
                    "the store cannot renew leases: lease_duration ({:?}) must be longer than max_publish_duration \
                     ({bound:?}) and lease_renew_interval ({:?}) together",
                    options.lease_duration, options.lease_renew_interval
                );
                return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
            }
        }
        let can_quarantine = store.quarantine().is_some() && store.deletes_individually();
        if options.poison_policy == PoisonPolicy::Quarantine && !can_quarantine {
            let message =
                "the store has no quarantine: poison_policy must be Block (OUTBOX_POISON_POLICY=block)";
            return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
        }
        let (workers, faulted) = (Arc::new(NoWorkers), AtomicBool::new(false));
        Ok(Self { store, publisher, options, clock, chance, workers, faulted })
    }

    /// The relay, with what starts further sweeps where there is more to do than one can. Without it there are none.
    #[must_use]
    pub fn with_workers(self, workers: Arc<dyn Workers>) -> Self {
        Self { workers, ..self }
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

    /// What a run knows of a bucket at first. `retries`: whether it tries what earlier runs were refused.
    pub(super) fn memory(&self, retries: bool, has_parked: bool) -> Memory<S> {
        let individually = self.store.deletes_individually();
        let quarantines = self.options.poison_policy == PoisonPolicy::Quarantine;
        Memory::new(Rules { individually, retries, quarantines }, has_parked)
    }

    /// A report to begin a run with; one to end it with at once, if nothing may begin any more.
    pub(super) fn begin(&self) -> ControlFlow<RunReport, RunReport> {
        let mut report = RunReport::default();
        if !self.faulted.load(Ordering::Relaxed) {
            return ControlFlow::Continue(report);
        }
        let message =
            "this relay has faulted: a publish outlasted its bound; mend max_publish_duration and restart it";
        report.note(StoreError::new(StoreErrorKind::Misconfigured, message).into());
        ControlFlow::Break(report)
    }

    /// One acquisition round. The moment is just before the request: lease age counts from there.
    pub(super) async fn acquire(
        &self,
        id: &RelayId,
        asked: Moment,
        wanted: &BTreeSet<Bucket>,
        previous: &BTreeSet<Bucket>,
        busy: &BTreeSet<Bucket>,
        budget: &Budget,
    ) -> Result<Acquired, StoreError> {
        let request = AcquireRequest {
            relay: id,
            bucket_count: self.options.bucket_count,
            times: times(asked, &self.options),
            wanted,
            previous,
            busy,
            limit: budget.for_fetch(),
        };
        let acquired = self.call(request.limit, "acquisition", self.store.acquire(&request)).await?;
        if acquired.clock_behind {
            tracing::warn!(relay = %id, "this relay's clock is behind: it claims nothing");
        }
        Ok(acquired)
    }

    /// Takes what single leases of an acquisition or a claim failed with into the report.
    pub(super) fn note_lease_error(&self, report: &mut RunReport, what: &str, error: Option<StoreError>) {
        self.note(report, what, error.map_or(Ok(()), Err));
    }

    /// Stamps the relay stopped and frees its leases, while there is time; otherwise they lapse as after a crash.
    /// `announced`: the latest wall time at which it announced itself. Whether it was stopped.
    pub(super) async fn stop(
        &self,
        id: &RelayId,
        leases: &[Lease],
        announced: Ticks,
        budget: &Budget,
        report: &mut RunReport,
    ) -> bool {
        let limit = budget.for_close();
        let Some(ownership) = self.store.ownership().filter(|_| !limit.is_zero()) else { return false };
        // Later than any heartbeat it sent, also if the clock has gone back since: one that lands late is refused.
        let stamp: Ticks = self.clock.now_utc().max(announced.next());
        let stopped = self.call(limit, "stop", ownership.stop(id, leases, stamp, limit)).await;
        let is_stopped = stopped.is_ok();
        self.note(report, "stop", stopped);
        is_stopped
    }

    /// Asks for further sweeps, within what is left for that. How many were started.
    pub(super) async fn start_workers(&self, count: usize, budget: &Budget) -> usize {
        let limit = budget.for_hand_on();
        if count == 0 || limit.is_zero() {
            return 0;
        }
        let start = std::pin::pin!(self.workers.start(count, limit));
        let Started { count: started, error } = match future::select(start, self.clock.sleep(limit)).await {
            Either::Left((started, _)) => started,
            Either::Right(((), _)) => {
                Started { count: 0, error: Some(format!("no answer within {limit:?}").into()) }
            }
        };
        if let Some(error) = error {
            let error = Chain(error.as_ref());
            tracing::warn!(
                started,
                asked = count,
                %error,
                "further sweeps were not started: what is left waits for the schedule"
            );
        }
        started
    }

    /// Gives each bucket its turn, a bounded number at once, and frees each as its own turn ends, unless it is only over
    /// and goes on. `turns`: how long they may take; `None`: each until its bucket is empty.
    pub(super) async fn drain_and_release(
        &self,
        id: &RelayId,
        work: Vec<(Held, Memory<S>)>,
        budget: &Budget,
        turns: Option<Turns>,
        report: &mut RunReport,
    ) -> BTreeMap<Bucket, Ended<S>> {
        let turn = |(held, memory): (Held, Memory<S>)| {
            async move {
                let bucket = held.lease.bucket;
                let now = self.clock.monotonic();
                let turn_ends = turns.map(|turns| now.plus(turns.length));
                let mut turn = match turns {
                    Some(turns) if now >= turns.begin_before => Turn::put_off(held, memory),
                    _ => drain(self, id, held, memory, budget, turn_ends).await,
                };
                let (released, woken) = self.release(id, bucket, &mut turn, budget).await;
                (bucket, turn, released, woken)
            }
            .boxed()
        };
        let turns = concurrently(CONCURRENT_BUCKETS, work.into_iter().map(turn).collect()).await;
        let mut ended = BTreeMap::new();
        for (bucket, turn, released, woken) in turns {
            let unreleased = released.is_err();
            self.note_of(report, Some(bucket), "release", released);
            let Turn { held, memory, is_behind, had_turn, publishes, report: turn } = turn;
            let (end, acknowledged) = (turn.end, turn.acknowledged);
            self.turn_ended(bucket, turn, publishes, report);
            let turn = Ended { held, memory, end, acknowledged, is_behind, had_turn, woken, unreleased };
            ended.insert(bucket, turn);
        }
        ended
    }

    /// Frees a bucket whose turn has ended for good, and looks once more whether it has something to publish.
    ///
    /// A hint may have arrived, and been refused, between this relay's last fetch and its release. Its message was
    /// committed before the refusal, the refusal came before the release, and the release before this read: a strongly
    /// consistent read sees it (design.md, section 7).
    async fn release(
        &self,
        id: &RelayId,
        bucket: Bucket,
        turn: &mut Turn<S>,
        budget: &Budget,
    ) -> (Result<(), StoreError>, bool) {
        let (Some(ownership), Some(held)) = (self.store.ownership(), turn.held) else {
            return (Ok(()), false);
        };
        let limit = budget.for_close();
        let goes_on = matches!(turn.report.end, BucketEnd::TurnOver | BucketEnd::LeaseTooShort);
        if goes_on || limit.is_zero() {
            return (Ok(()), false);
        }
        turn.held = None;
        let leases = [held.lease];
        let released = self.call(limit, "release", ownership.release(id, &leases, limit)).await;
        if released.is_err() || !budget.may_start_batch() {
            return (released, false);
        }
        let limit = budget.for_fetch();
        let news = match turn.report.end {
            BucketEnd::Empty => self.call(limit, "probe", ownership.has_message(bucket, limit)).await,
            BucketEnd::Waiting => turn.memory.has_news(&self.store, self.clock.as_ref(), bucket, limit).await,
            _ => Ok(false),
        };
        // A probe that fails costs latency: a sweep finds the message.
        (released, news.unwrap_or(false))
    }

    /// Takes a turn's report into the run's.
    pub(super) fn turn_ended(
        &self,
        bucket: Bucket,
        turn: BucketReport,
        publishes: Durations,
        report: &mut RunReport,
    ) {
        if let Some(error) = &turn.error {
            tracing::warn!(%bucket, end = ?turn.end, error = %Chain(error), "a bucket was not drained");
            if matches!(error, RunError::PublishOutlastedBound { .. }) {
                self.faulted.store(true, Ordering::Relaxed);
            }
        }
        report.add(bucket, turn);
        report.publishes.append(publishes);
    }

    /// Holds a store call to its limit.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        what: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.clock.as_ref(), limit, what, call).await
    }

    pub(super) fn note(&self, report: &mut RunReport, what: &str, result: Result<(), StoreError>) {
        self.note_of(report, None, what, result);
    }

    fn note_of(
        &self,
        report: &mut RunReport,
        bucket: Option<Bucket>,
        what: &str,
        result: Result<(), StoreError>,
    ) {
        if let Err(error) = result {
            let bucket = bucket.map(display);
            tracing::warn!(bucket, error = %Chain(&error), "{what} failed");
            report.note(RunError::Store(error));
        }
    }
}
