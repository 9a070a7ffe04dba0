//! Sweeps: the safety net under the hints.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future;

use super::budget::Budget;
use super::drain::Memory;
use super::engine::{CONCURRENT_BUCKETS, Ended, Relay, Turns, WakeUps};
use super::held::Held;
use super::report::{BucketEnd, RunReport};
use super::sampling::BacklogSample;
use super::workers;
use crate::concurrently::concurrently;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::{OutboxStore, Place};
use crate::{Bucket, Chain, Clock, Lease, Monotonic, RelayId, RelayOptions, StoreError, Ticks};

/// The least pause between two acquisitions of one sweep, unless leases are due for renewal.
const ACQUIRE_PAUSE: Duration = Duration::from_secs(1);
/// The shortest turn: a few batches.
const SHORTEST_TURN: Duration = Duration::from_secs(1);
/// How long the turns of the first round take.
const FIRST_TURN: Duration = Duration::from_secs(1);
/// How often sweeps beside this one are asked for when none was started.
const SPREADS: u32 = 2;
/// How long sweeps that were asked for have until the one that asked acquires again and hands buckets over: about what a
/// cold start takes.
const JOIN_PAUSE: Duration = Duration::from_secs(2);

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// A sweep: probes every bucket, and where there is work takes part in fair share, drains what it is given, and
    /// stops. With nothing pending it writes nothing (invariant 7).
    ///
    /// `id` must be new for every run. Nothing is in flight when it returns.
    pub async fn sweep(&self, id: &RelayId, budget: &Budget) -> RunReport {
        self.sweep_and(id, budget, false).await
    }

    /// A sweep that samples, or does not.
    pub(super) async fn sweep_and(&self, id: &RelayId, budget: &Budget, samples: bool) -> RunReport {
        let mut report = match self.begin() {
            ControlFlow::Continue(report) => report,
            ControlFlow::Break(faulted) => return faulted,
        };
        let mut sweep = Sweep::new(Moment::now(self.clock.as_ref()));
        if samples {
            report.backlog = BacklogSample::not_yet();
            sweep.is_to_sample = true;
        }
        if let Err(error) = self.sweep_rounds(id, &mut sweep, budget, &mut report).await {
            tracing::warn!(error = %Chain(&error), "a sweep ended early");
            report.note(error.into());
        }
        report.unfinished = sweep.unfinished(&report);
        if let Some(announced) = sweep.announced {
            let leases: Vec<Lease> = sweep.held.values().map(|held| held.lease).collect();
            // After a stop, those that go on find the buckets free, and this relay no member any more. Without one they
            // would only wait for its leases to lapse, as the schedule does.
            if self.stop(id, &leases, announced, budget, &mut report).await {
                let (max, left) = (self.workers.max(), report.unfinished.len());
                let count = workers::after(max, sweep.place, left, self.options.bucket_count);
                report.workers += self.start_workers(count, budget).await;
            }
        }
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
            let now = self.clock.monotonic();
            let candidates: BTreeSet<Bucket> = self
                .options
                .bucket_count
                .buckets()
                .filter(|bucket| !sweep.has_given_up(*bucket, now))
                .collect();
            let limit = budget.for_fetch();
            let mut pending = self.call(limit, "probe", self.store.pending(&candidates, limit)).await?;
            report.probed = true;
            if std::mem::take(&mut sweep.is_to_sample) {
                self.sample(&pending, budget, report).await;
            }
            pending.append(&mut sweep.woken);
            sweep.backlog.retain(|bucket| pending.contains(bucket));
            // A probe that was slow has used up the time of what would follow: that is no failure of the table's.
            if !budget.may_start_batch() {
                break;
            }
            if pending.is_empty() {
                if self.free_idle(id, sweep, budget, report).await {
                    continue;
                }
                break;
            }
            let acquired_now = sweep.should_acquire(&pending, self.clock.as_ref(), &self.options);
            if acquired_now {
                self.sweep_acquire(id, sweep, &pending, budget, report).await?;
            }
            let work = sweep.begin_turns(&pending, self);
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
            let helpers = if acquired_now { self.helpers(sweep, &pending) } else { 0 };
            let turns = Some(sweep.turns(work.len(), helpers > 0, self.clock.as_ref(), &self.options));
            let drain = self.drain_and_release(id, work, budget, turns, report);
            // Beside the turns, which leave no lease to age meanwhile.
            let (ended, started) = future::join(drain, self.start_workers(helpers, budget)).await;
            report.workers += started;
            if helpers > 0 {
                sweep.note_spread(started);
            }
            for (bucket, ended) in ended {
                sweep.end_turn(bucket, ended, acquired_now, self.clock.as_ref(), &self.options);
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
        let is_released = released.is_ok();
        self.note(report, "release", released);
        sweep.freed.extend(held.keys());
        if !is_released || !budget.may_start_batch() {
            return false;
        }
        let probe = |bucket: Bucket| {
            async move {
                let limit = budget.for_fetch();
                (bucket, self.call(limit, "probe", ownership.has_message(bucket, limit)).await)
            }
            .boxed()
        };
        let idle = held.into_keys().filter(|bucket| !sweep.given_up.contains_key(bucket));
        let probes = idle.map(probe).collect();
        for (bucket, found) in concurrently(CONCURRENT_BUCKETS, probes).await {
            // A probe that fails costs latency: the next sweep finds the message.
            if found.unwrap_or(false) {
                sweep.woken.insert(bucket);
            }
        }
        !sweep.woken.is_empty()
    }

    /// How many sweeps to ask for beside this one, which has been at work for a while and is behind in some buckets.
    fn helpers(&self, sweep: &Sweep<S>, pending: &BTreeSet<Bucket>) -> usize {
        let mine = sweep.backlog.iter().filter(|bucket| sweep.held.contains_key(bucket)).count();
        let worked = Moment::now(self.clock.as_ref()).since(sweep.began);
        if mine == 0 || sweep.spreads == SPREADS || worked < self.options.lease_renew_interval {
            return 0;
        }
        let free = sweep.available.intersection(pending).count();
        workers::beside(self.workers.max(), sweep.place, mine, free, self.options.bucket_count)
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
        sweep.surplus = acquired.surplus;
        sweep.parked = acquired.parked;
        sweep.place = acquired.place;
        sweep.freed.clear();
        sweep.held = acquired.leases.into_iter().map(|lease| (lease.bucket, Held { lease, asked })).collect();
        sweep.memory.retain(|bucket, _| sweep.held.contains_key(bucket));
        // What was handed over is another's to finish.
        sweep.backlog.retain(|bucket| sweep.held.contains_key(bucket));
        Ok(())
    }
}

/// What a sweep knows from round to round.
struct Sweep<S: OutboxStore> {
    began: Moment,
    /// Whether the backlog is to be sampled, after the first probe.
    is_to_sample: bool,
    held: BTreeMap<Bucket, Held>,
    /// What is known of the buckets that have been held without a break.
    memory: BTreeMap<Bucket, Memory<S>>,
    /// Buckets that this run does not come back to, or not before a time: they wait for somebody or something else.
    given_up: BTreeMap<Bucket, Option<Monotonic>>,
    /// Buckets that had a message again once they were freed.
    woken: BTreeSet<Bucket>,
    wake_ups: WakeUps,
    /// Buckets that the last acquisition left, free, to other relays.
    available: BTreeSet<Bucket>,
    /// Buckets that others were to hand back, as of the last acquisition.
    surplus: BTreeSet<Bucket>,
    /// Buckets with parked keys, as of the last acquisition.
    parked: BTreeSet<Bucket>,
    /// Buckets that this sweep has freed since the last acquisition.
    freed: BTreeSet<Bucket>,
    waits_since: Option<Moment>,
    last_acquired: Option<Moment>,
    /// The latest wall time at which the relay announced itself: a clock that went back announced an earlier one since.
    announced: Option<Ticks>,
    reacquire: bool,
    /// The round in which each bucket last had its turn.
    served: BTreeMap<Bucket, u64>,
    round: u64,
    /// Buckets with more work than their last turn, or than the time that was left.
    backlog: BTreeSet<Bucket>,
    /// Where this relay stood among the members at the last acquisition.
    place: Place,
    /// How often sweeps beside this one have been asked for.
    spreads: u32,
}

impl<S: OutboxStore> Sweep<S> {
    fn new(began: Moment) -> Self {
        Self {
            began,
            is_to_sample: false,
            held: BTreeMap::new(),
            memory: BTreeMap::new(),
            given_up: BTreeMap::new(),
            woken: BTreeSet::new(),
            wake_ups: WakeUps::default(),
            available: BTreeSet::new(),
            surplus: BTreeSet::new(),
            parked: BTreeSet::new(),
            freed: BTreeSet::new(),
            waits_since: None,
            last_acquired: None,
            announced: None,
            reacquire: false,
            served: BTreeMap::new(),
            round: 0,
            backlog: BTreeSet::new(),
            place: Place::default(),
            spreads: 0,
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

    /// Whether to wait for work that nobody does: in buckets that are free and another relay's by the plan, which takes
    /// them within moments, unless it is dead; then it stops being counted within one lease duration. And in those that
    /// others hold beyond their share, and that this very sweep freed a moment ago, which can be acquired after a pause.
    /// Whatever others hold within their share is theirs to do.
    fn is_worth_waiting(
        &mut self,
        pending: &BTreeSet<Bucket>,
        clock: &dyn Clock,
        options: &RelayOptions,
    ) -> bool {
        let now = Moment::now(clock);
        let since = *self.waits_since.get_or_insert(now);
        let comes = [&self.available, &self.surplus, &self.freed].iter().any(|set| !set.is_disjoint(pending));
        comes && now.since(since) <= options.lease_duration + ACQUIRE_PAUSE
    }

    fn has_given_up(&self, bucket: Bucket, now: Monotonic) -> bool {
        self.given_up.get(&bucket).is_some_and(|until| until.is_none_or(|until| now < until))
    }

    /// The buckets that have their turn next, those that have waited longest for it first.
    fn begin_turns<P: Publisher>(
        &mut self,
        pending: &BTreeSet<Bucket>,
        relay: &Relay<S, P>,
    ) -> Vec<(Held, Memory<S>)> {
        self.round += 1;
        let mut buckets: Vec<Bucket> =
            pending.iter().filter(|bucket| self.held.contains_key(bucket)).copied().collect();
        buckets.sort_by_key(|bucket| self.served.get(bucket).copied());
        let begin = |bucket: Bucket| {
            let has_parked = self.parked.contains(&bucket);
            let memory = self.memory.remove(&bucket).unwrap_or_else(|| relay.memory(true, has_parked));
            Some((*self.held.get(&bucket)?, memory))
        };
        buckets.into_iter().filter_map(begin).collect()
    }

    /// How long the turns of a round may take: bounded so that one full bucket does not keep the others, or other relays,
    /// waiting, and so that the leases of those that come last are renewed in time. The first round is short, for others
    /// may have begun at the same time, and so is one in which others are asked for: they take their share at the next
    /// acquisition.
    fn turns(&mut self, held: usize, helpers: bool, clock: &dyn Clock, options: &RelayOptions) -> Turns {
        let round = options.lease_renew_interval;
        let groups = u32::try_from(held.div_ceil(CONCURRENT_BUCKETS).max(1)).unwrap_or(u32::MAX);
        let mut length = (round / groups).max(SHORTEST_TURN);
        if self.round == 1 || helpers {
            length = length.min(if helpers { JOIN_PAUSE } else { FIRST_TURN });
            self.reacquire = true;
        }
        Turns { length, begin_before: clock.monotonic().plus(round) }
    }

    /// One that none could be started for is tried again, once.
    fn note_spread(&mut self, started: usize) {
        self.spreads = if started > 0 { SPREADS } else { self.spreads + 1 };
    }

    fn end_turn(
        &mut self,
        bucket: Bucket,
        ended: Ended<S>,
        acquired_now: bool,
        clock: &dyn Clock,
        options: &RelayOptions,
    ) {
        let again = self.wake_ups.allow(bucket, &ended);
        match ended.held {
            Some(held) => {
                self.held.insert(bucket, held);
                self.memory.insert(bucket, ended.memory);
            }
            None => {
                self.held.remove(&bucket);
                self.freed.insert(bucket);
            }
        }
        if ended.is_behind && matches!(ended.end, BucketEnd::TurnOver | BucketEnd::OutOfTime) {
            self.backlog.insert(bucket);
        } else {
            self.backlog.remove(&bucket);
        }
        if ended.had_turn {
            self.served.insert(bucket, self.round);
        }
        match ended.end {
            BucketEnd::TurnOver => {}
            BucketEnd::Empty | BucketEnd::Waiting if again => {
                self.woken.insert(bucket);
            }
            // A lease that is too short right after it was acquired will be so the next time.
            BucketEnd::LeaseTooShort if !acquired_now || ended.acknowledged > 0 => self.reacquire = true,
            // In a run that goes on for long, which it is another bucket's to decide, this one is tried again: no other
            // relay may take it while it is this one's by the plan.
            BucketEnd::RetryLater => {
                let until = clock.monotonic().plus(options.lease_duration);
                self.given_up.insert(bucket, Some(until));
            }
            end => {
                if end == BucketEnd::LeaseTooShort {
                    tracing::error!(
                        %bucket,
                        "acquisition took so long that max_publish_duration and lease_renew_interval no longer fit into \
                         lease_duration: the messages stay"
                    );
                }
                self.given_up.insert(bucket, None);
            }
        }
    }

    /// The buckets that others are to go on with. One in which this run got nowhere is not among them: a sweep started for
    /// it would do no better, one after another without end. So every sweep that was started by another was paid for
    /// with a message of its own bucket.
    fn unfinished(&self, report: &RunReport) -> BTreeSet<Bucket> {
        let is_for_others = |bucket: &&Bucket| {
            report.buckets.get(bucket).is_none_or(|bucket| {
                let untouched = bucket.acknowledged == 0 && bucket.failed == 0 && bucket.malformed == 0;
                bucket.deleted > 0 || untouched
            })
        };
        let unfinished: BTreeSet<Bucket> = self.backlog.iter().filter(is_for_others).copied().collect();
        if report.deleted() == 0 { BTreeSet::new() } else { unfinished }
    }
}
