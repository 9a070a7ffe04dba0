//! Sweeps: the safety net under the hints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt as _;

use super::budget::Budget;
use super::drain::Memory;
use super::engine::{CONCURRENT_BUCKETS, Ended, Relay, WakeUps};
use super::held::Held;
use super::report::{BucketEnd, RunReport};
use super::workers;
use crate::concurrently::concurrently;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::OutboxStore;
use crate::{Bucket, Chain, Clock, Lease, RelayId, RelayOptions, StoreError, Ticks};

/// The least pause between two acquisitions of one sweep, unless leases are due for renewal.
const ACQUIRE_PAUSE: Duration = Duration::from_secs(1);
/// How long sweeps that were asked for have until the one that asked acquires again and hands buckets over: about what a
/// cold start takes.
const JOIN_PAUSE: Duration = Duration::from_secs(2);

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A sweep: probes every bucket, and where there is work takes part in fair share, drains what it is given, and
    /// stops. With nothing pending it writes nothing (invariant 7).
    ///
    /// `id` must be new for every run. Nothing is in flight when it returns.
    pub async fn sweep(&self, id: &RelayId, budget: &Budget) -> RunReport {
        let mut report = match self.begin() {
            Ok(report) => report,
            Err(faulted) => return faulted,
        };
        let mut sweep = Sweep::new();
        if let Err(error) = self.sweep_rounds(id, &mut sweep, budget, &mut report).await {
            tracing::warn!(error = %Chain(&error), "a sweep ended early");
            report.note(error.into());
        }
        if let Some(announced) = sweep.announced {
            let leases: Vec<Lease> = sweep.held.values().map(|held| held.lease).collect();
            self.stop(id, &leases, announced, budget, &mut report).await;
        }
        // After the stop: those that go on find the buckets free, and this relay no member any more.
        report.unfinished = sweep.backlog;
        let count = workers::after(self.workers.max(), sweep.members, &report.unfinished, report.deleted());
        self.start_workers(count, budget, &mut report).await;
        report
    }

    async fn sweep_rounds(
        &self,
        id: &RelayId,
        sweep: &mut Sweep<S>,
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
            let mut pending = self.call(limit, "probe", self.store.pending(&candidates, limit)).await?;
            pending.append(&mut sweep.woken);
            if pending.is_empty() {
                if self.free_idle(id, sweep, budget, report).await {
                    continue;
                }
                break;
            }
            let acquired_now = sweep.should_acquire(&pending, self.clock.as_ref(), &self.options);
            if acquired_now {
                self.sweep_acquire(id, sweep, &pending, budget, report).await?;
                self.spread(sweep, &pending, budget, report).await;
            }
            let work: Vec<(Held, Memory<S>)> =
                pending.iter().filter_map(|bucket| sweep.begin_turn(*bucket, &self.store)).collect();
            report.held_elsewhere = pending.iter().filter(|b| !sweep.held.contains_key(b)).copied().collect();
            if work.is_empty() {
                if self.free_idle(id, sweep, budget, report).await {
                    continue;
                }
                if !sweep.is_worth_waiting(&pending, self.clock.as_ref(), &self.options) {
                    break;
                }
                self.clock.sleep(ACQUIRE_PAUSE).await;
                continue;
            }
            sweep.waits_since = None;
            // Turns are bounded so that one full bucket does not keep the others, or other relays, waiting.
            let turn = Some(sweep.turn(&self.options));
            for (bucket, ended) in self.drain_and_release(id, work, budget, turn, report).await {
                sweep.end_turn(bucket, ended, acquired_now);
            }
        }
        Ok(())
    }

    /// Frees the buckets that are held and have no turn to come, and reads each once more: a hint for one may have been
    /// refused while it was held, and nobody else will look. Whether one has a message again.
    async fn free_idle(
        &self,
        id: &RelayId,
        sweep: &mut Sweep<S>,
        budget: &Budget,
        report: &mut RunReport,
    ) -> bool {
        let limit = budget.for_close();
        let Some(ownership) = self.store.ownership().filter(|_| !sweep.held.is_empty() && !limit.is_zero())
        else {
            return false;
        };
        let held = std::mem::take(&mut sweep.held);
        sweep.memory.clear();
        let leases: Vec<Lease> = held.values().map(|held| held.lease).collect();
        let released = self.call(limit, "release", ownership.release(id, &leases, limit)).await;
        self.note(report, "release", released);
        let probe = |bucket: Bucket| {
            async move {
                let limit = budget.for_fetch();
                (bucket, self.call(limit, "probe", ownership.has_message(bucket, limit)).await)
            }
            .boxed()
        };
        let idle = held.into_keys().filter(|bucket| !sweep.given_up.contains(bucket));
        let probes = idle.map(probe).collect();
        for (bucket, found) in concurrently(CONCURRENT_BUCKETS, probes).await {
            // A probe that fails costs latency: the next sweep finds the message.
            if found.unwrap_or(false) {
                sweep.woken.insert(bucket);
            }
        }
        !sweep.woken.is_empty()
    }

    /// Asks for sweeps beside this one, once, when a bucket had more work than a turn: they take their share at this
    /// relay's next acquisition, which is to be soon.
    async fn spread(
        &self,
        sweep: &mut Sweep<S>,
        pending: &BTreeSet<Bucket>,
        budget: &Budget,
        report: &mut RunReport,
    ) {
        let mine = sweep.backlog.iter().filter(|bucket| sweep.held.contains_key(bucket)).count();
        if mine == 0 || sweep.has_spread {
            return;
        }
        let free = sweep.available.intersection(pending).count();
        let count = workers::beside(self.workers.max(), sweep.members, mine + free);
        if count > 0 {
            sweep.has_spread = true;
            self.start_workers(count, budget, report).await;
            sweep.reacquire = true;
        }
    }

    async fn sweep_acquire(
        &self,
        id: &RelayId,
        sweep: &mut Sweep<S>,
        wanted: &BTreeSet<Bucket>,
        budget: &Budget,
        report: &mut RunReport,
    ) -> Result<(), StoreError> {
        let asked = Moment::now(self.clock.as_ref());
        // Known before the request is sent: whatever becomes of it, this relay may be a member now and has to stop.
        sweep.last_acquired = Some(asked);
        sweep.announced = Some(sweep.announced.map_or(asked.wall, |announced| announced.max(asked.wall)));
        sweep.reacquire = false;
        let previous: BTreeSet<Bucket> = sweep.held.keys().copied().collect();
        let acquired = self.acquire(id, asked, wanted, &previous, &BTreeSet::new(), budget).await?;
        report.refused_writes += acquired.refused_writes;
        report.clock_behind |= acquired.clock_behind;
        self.note_lease_error(report, "acquisition", acquired.error);
        sweep.available = acquired.available;
        sweep.members = acquired.members;
        sweep.has_share = acquired.standby_rank.is_none() && !acquired.clock_behind;
        sweep.held = acquired.leases.into_iter().map(|lease| (lease.bucket, Held { lease, asked })).collect();
        sweep.memory.retain(|bucket, _| sweep.held.contains_key(bucket));
        // What was handed over is another's to finish.
        sweep.backlog.retain(|bucket| sweep.held.contains_key(bucket));
        Ok(())
    }
}

/// What a sweep knows from round to round.
struct Sweep<S: OutboxStore> {
    held: BTreeMap<Bucket, Held>,
    /// What is known of the buckets that have been held without a break.
    memory: BTreeMap<Bucket, Memory<S>>,
    /// Buckets that this run does not come back to: they wait for somebody or something else.
    given_up: BTreeSet<Bucket>,
    /// Buckets that had a message again once they were freed.
    woken: BTreeSet<Bucket>,
    wake_ups: WakeUps,
    /// Buckets that the last acquisition left, free, to other relays.
    available: BTreeSet<Bucket>,
    /// Whether the last acquisition left a share to this relay: without one, another gives it nothing either.
    has_share: bool,
    waits_since: Option<Moment>,
    last_acquired: Option<Moment>,
    /// The latest wall time at which the relay announced itself: a clock that went back announced an earlier one since.
    announced: Option<Ticks>,
    reacquire: bool,
    /// Buckets with more work than their last turn, or than the time that was left.
    backlog: BTreeSet<Bucket>,
    /// How many relays took part in fair share at the last acquisition.
    members: usize,
    /// Whether sweeps beside this one have been asked for.
    has_spread: bool,
}

impl<S: OutboxStore> Sweep<S> {
    fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            memory: BTreeMap::new(),
            given_up: BTreeSet::new(),
            woken: BTreeSet::new(),
            wake_ups: WakeUps::default(),
            available: BTreeSet::new(),
            has_share: false,
            waits_since: None,
            last_acquired: None,
            announced: None,
            reacquire: false,
            backlog: BTreeSet::new(),
            members: 0,
            has_spread: false,
        }
    }

    /// An acquisition costs a heartbeat, a query and a write for each lease: one at first, one when leases are due
    /// for renewal, and one when there is work in a bucket that is not held, but then not all the time.
    fn should_acquire(&self, pending: &BTreeSet<Bucket>, clock: &dyn Clock, options: &RelayOptions) -> bool {
        let Some(last) = self.last_acquired else { return true };
        let age = Moment::now(clock).since(last);
        let unheld = pending.iter().any(|bucket| !self.held.contains_key(bucket));
        self.reacquire || age >= options.lease_renew_interval || (unheld && age >= ACQUIRE_PAUSE)
    }

    /// Whether to wait for work that nobody does: in buckets that are free and another relay's by the plan. That relay
    /// takes them within moments, unless it is dead; then it stops being counted within one lease duration.
    ///
    /// A relay with a share waits for the rest of it too: buckets freed by this very sweep a moment ago, which can be
    /// acquired again after a pause, and those that others hold beyond their share. One without a share leaves at once.
    fn is_worth_waiting(
        &mut self,
        pending: &BTreeSet<Bucket>,
        clock: &dyn Clock,
        options: &RelayOptions,
    ) -> bool {
        let now = Moment::now(clock);
        let since = *self.waits_since.get_or_insert(now);
        let acquirable =
            self.has_share && self.last_acquired.is_some_and(|last| now.since(last) < ACQUIRE_PAUSE);
        let left = !self.available.is_disjoint(pending);
        (left || acquirable) && now.since(since) <= options.lease_duration + ACQUIRE_PAUSE
    }

    /// How long the next turn may take: with others on their way to take their share, not long.
    fn turn(&self, options: &RelayOptions) -> Duration {
        if self.reacquire {
            options.lease_renew_interval.min(JOIN_PAUSE)
        } else {
            options.lease_renew_interval
        }
    }

    fn begin_turn(&mut self, bucket: Bucket, store: &S) -> Option<(Held, Memory<S>)> {
        let held = *self.held.get(&bucket)?;
        Some((held, self.memory.remove(&bucket).unwrap_or_else(|| Memory::new(store))))
    }

    fn end_turn(&mut self, bucket: Bucket, ended: Ended<S>, acquired_now: bool) {
        let again = self.wake_ups.allow(bucket, &ended);
        match ended.held {
            Some(held) => {
                self.held.insert(bucket, held);
                self.memory.insert(bucket, ended.memory);
            }
            None => {
                self.held.remove(&bucket);
            }
        }
        match ended.end {
            BucketEnd::TurnOver | BucketEnd::OutOfTime => self.backlog.insert(bucket),
            _ => self.backlog.remove(&bucket),
        };
        match ended.end {
            BucketEnd::TurnOver => {}
            BucketEnd::Empty | BucketEnd::Waiting if again => {
                self.woken.insert(bucket);
            }
            // A lease that is too short right after it was acquired will be so the next time.
            BucketEnd::LeaseTooShort if !acquired_now || ended.acknowledged > 0 => self.reacquire = true,
            end => {
                if end == BucketEnd::LeaseTooShort {
                    tracing::error!(
                        %bucket,
                        "acquisition took so long that max_publish_duration and lease_renew_interval no longer fit into \
                         lease_duration: the messages stay"
                    );
                }
                self.given_up.insert(bucket);
            }
        }
    }
}
