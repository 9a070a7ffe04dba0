//! The continuous run: a long-lived process that holds its whole share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::drain::{Memory, Turn, drain};
use super::engine::{CONCURRENT_BUCKETS, Relay};
use super::held::Held;
use super::report::{BucketEnd, RunReport};
use crate::fair_share::may_stay_silent;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::store::{Acquired, OutboxStore};
use crate::{
    Backoff, Bucket, Chain, HintBroadcast, Lease, Monotonic, Notifier, RelayId, RelayOptions, StoreError,
    Ticks,
};

/// The longest turn of a bucket while others may be ready.
const TURN: Duration = Duration::from_secs(1);
/// Waits after a failed acquisition, and after a bucket's failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How long a bucket is left alone in which only waiting messages were found, unless somebody announces a new one.
const WAITING_PAUSE: Duration = Duration::from_secs(5);
/// How often a waiting message that the broker refused is tried again.
const WAITING_RETRY: Duration = Duration::from_mins(1);
/// The longest that the loop sleeps when nothing is due.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What wakes a continuous relay, and what ends it.
#[derive(Clone)]
pub struct Continuous {
    /// Commits of this process.
    pub notifier: Notifier,
    /// Hints from other processes.
    pub hints: Option<Arc<dyn HintBroadcast>>,
    /// Cancelled when the relay is to stop and hand over.
    pub stop: CancellationToken,
    /// How long a stop may take: the publish under way, its deletes, the hand-over. Without a rest of it nothing is
    /// released, and the leases lapse as after a crash: a peer must never be invited onto rows that are being published.
    pub grace: Duration,
    /// How often its buckets are looked at when nobody announces anything.
    pub poll_interval: Duration,
}

impl Continuous {
    /// Polls every second; 30 s for a stop.
    pub fn until(stop: CancellationToken) -> Self {
        Self {
            notifier: Notifier::new(),
            hints: None,
            stop,
            grace: Duration::from_secs(30),
            poll_interval: Duration::from_secs(1),
        }
    }
}

impl std::fmt::Debug for Continuous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuous").field("poll_interval", &self.poll_interval).finish_non_exhaustive()
    }
}

impl<S: OutboxStore, P: Publisher> Relay<S, P> {
    /// Runs until it is told to stop: holds its share of the buckets, renews it, publishes what is announced and what a
    /// poll finds, gives up what exceeds its share between two publishes, and hands everything over at the stop.
    ///
    /// `id` must be new for every run. Returns early only for a misconfiguration of the whole outbox; one bucket's stops
    /// that bucket, and is in the report.
    ///
    /// # Cancellation
    /// Dropping the future abandons the publishes under way, whose outcome nobody learns, and hands nothing over. Stop
    /// it instead.
    pub async fn run_continuously(&self, id: &RelayId, signals: Continuous) -> RunReport {
        let report = match self.begin() {
            ControlFlow::Continue(report) => report,
            ControlFlow::Break(faulted) => return faulted,
        };
        let budget = Budget::open_ended(Arc::clone(&self.clock));
        let mut state = State::new(self.clock.monotonic(), report);
        let mut turns: Turns<'_, S> = FuturesUnordered::new();
        loop {
            if signals.stop.is_cancelled() {
                break;
            }
            if let Err(error) = self.maintain(id, &budget, &signals, &mut state, &mut turns).await {
                state.report.note(error.into());
                break;
            }
            self.start_turns(id, &budget, &mut state, &mut turns);
            self.wait(&signals, &mut state, &mut turns).await;
        }
        // In this order: the publish in flight returns, what was acknowledged is deleted, the relay is stamped stopped,
        // the leases are freed.
        budget.stop_within(signals.grace);
        while let Some((bucket, turn)) = turns.next().await {
            self.end_turn(bucket, turn, &mut state);
        }
        if let Some(announced) = state.announced {
            let leases: Vec<Lease> = state.held.values().map(|held| held.lease).collect();
            self.stop(id, &leases, announced, &budget, &mut state.report).await;
        }
        state.report
    }

    /// Acquires when a round is due, and polls when a poll is; the turns under way go on meanwhile.
    async fn maintain(
        &self,
        id: &RelayId,
        budget: &Budget,
        signals: &Continuous,
        state: &mut State<S>,
        turns: &mut Turns<'_, S>,
    ) -> Result<(), StoreError> {
        let now = self.clock.monotonic();
        if now >= state.next_round {
            if self.stays_silent(state) {
                state.next_round = now.plus(self.options.lease_renew_interval);
            } else {
                self.round(id, budget, state, turns).await?;
            }
        }
        if now >= state.next_poll {
            state.next_poll = now.plus(signals.poll_interval);
            let idle: BTreeSet<Bucket> = state.held.keys().copied().collect();
            if !idle.is_empty() {
                let limit = budget.for_fetch();
                let probe = self.call(limit, "probe", self.store.pending(&idle, limit));
                match self.alongside(state, turns, probe).await {
                    Ok(pending) => state.ready.extend(pending),
                    Err(error) if error.is_misconfiguration() => return Err(error),
                    Err(error) => tracing::warn!(error = %Chain(&error), "a poll failed"),
                }
            }
        }
        Ok(())
    }

    fn stays_silent(&self, state: &State<S>) -> bool {
        let RelayOptions { bucket_count, lease_duration, lease_renew_interval, .. } = &self.options;
        let since = state.last_acquired.map(|last| Moment::now(self.clock.as_ref()).since(last));
        since.is_some_and(|since| {
            may_stay_silent(state.standby_rank, *bucket_count, since, *lease_renew_interval, *lease_duration)
        })
    }

    async fn round(
        &self,
        id: &RelayId,
        budget: &Budget,
        state: &mut State<S>,
        turns: &mut Turns<'_, S>,
    ) -> Result<(), StoreError> {
        let asked = Moment::now(self.clock.as_ref());
        state.last_acquired = Some(asked);
        state.announced = Some(state.announced.map_or(asked.wall, |announced| announced.max(asked.wall)));
        let wanted: BTreeSet<Bucket> = self.options.bucket_count.buckets().collect();
        let busy = state.busy.clone();
        let previous: BTreeSet<Bucket> = state.held.keys().chain(&busy).copied().collect();
        let round = self.acquire(id, asked, &wanted, &previous, &busy, budget);
        // A turn that ends meanwhile keeps its lease as it is: the round leaves busy buckets alone.
        match self.alongside(state, turns, round).await {
            Ok(mut acquired) => {
                self.note_lease_error(&mut state.report, "acquisition", acquired.error.take());
                state.acquired(acquired, &busy, asked);
                state.round_backoff.reset();
                state.next_round = asked.monotonic.plus(self.options.lease_renew_interval);
                Ok(())
            }
            Err(error) if error.is_misconfiguration() => Err(error),
            Err(error) => {
                // Counted from the failure, and never past the next renewal.
                let wait = state.round_backoff.after_failure(&self.chance, self.options.lease_renew_interval);
                tracing::warn!(error = %Chain(&error), ?wait, "an acquisition failed");
                state.next_round = self.clock.monotonic().plus(wait);
                Ok(())
            }
        }
    }

    /// Makes a store call while the turns under way go on.
    async fn alongside<T>(
        &self,
        state: &mut State<S>,
        turns: &mut Turns<'_, S>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                result = &mut call => return result,
                Some((bucket, turn)) = turns.next() => self.end_turn(bucket, turn, state),
            }
        }
    }

    /// Gives ready buckets their turn, a bounded number at once.
    fn start_turns<'a>(
        &'a self,
        id: &'a RelayId,
        budget: &Budget,
        state: &mut State<S>,
        turns: &mut Turns<'a, S>,
    ) {
        let now = self.clock.monotonic();
        for bucket in state.startable(now, CONCURRENT_BUCKETS.saturating_sub(turns.len())) {
            let Some(held) = state.held.remove(&bucket) else { continue };
            state.ready.remove(&bucket);
            state.busy.insert(bucket);
            state.served.insert(bucket, now);
            let mut memory = state
                .memory
                .remove(&bucket)
                .unwrap_or_else(|| self.memory(true, state.parked.contains(&bucket)));
            let waiting_since = state.waiting_since.get(&bucket);
            if waiting_since.is_some_and(|since| now.since(*since) >= WAITING_RETRY) {
                memory.forget_waiting();
                state.waiting_since.remove(&bucket);
            }
            let budget = budget.clone();
            let turn = async move {
                let turn_ends = Some(now.plus(TURN));
                (bucket, drain(self, id, held, memory, &budget, turn_ends).await)
            };
            turns.push(turn.boxed());
        }
    }

    fn end_turn(&self, bucket: Bucket, turn: Turn<S>, state: &mut State<S>) {
        let end = turn.report.end;
        self.turn_ended(bucket, turn.report, turn.publishes, &mut state.report);
        let now = self.clock.monotonic();
        state.busy.remove(&bucket);
        if state.excess.remove(&bucket) {
            // It is not busy any more: the next round hands it back, and none of it is taken up before that.
            state.next_round = now;
        }
        let Some(held) = turn.held else {
            state.forget(bucket);
            return;
        };
        state.held.insert(bucket, held);
        state.memory.insert(bucket, turn.memory);
        let pause = match end {
            BucketEnd::Empty => None,
            BucketEnd::TurnOver => {
                state.ready.insert(bucket);
                None
            }
            BucketEnd::LeaseTooShort => {
                state.next_round = now;
                state.ready.insert(bucket);
                Some(BACKOFF.0)
            }
            BucketEnd::Waiting => {
                state.waiting_since.entry(bucket).or_insert(now);
                Some(WAITING_PAUSE)
            }
            BucketEnd::Misconfigured => Some(WAITING_RETRY),
            BucketEnd::OutOfTime | BucketEnd::LeaseLost | BucketEnd::RetryLater => {
                state.ready.insert(bucket);
                let backoff = state.backoffs.entry(bucket).or_insert(Backoff::new(BACKOFF.0, BACKOFF.1));
                Some(backoff.after_failure(&self.chance, BACKOFF.1))
            }
        };
        match pause {
            Some(pause) => {
                state.not_before.insert(bucket, now.plus(pause));
            }
            None => {
                state.not_before.remove(&bucket);
                state.backoffs.remove(&bucket);
            }
        }
    }

    /// Waits for the first of: a turn's end, an announcement, a hint, the next thing that is due, the stop.
    async fn wait(&self, signals: &Continuous, state: &mut State<S>, turns: &mut Turns<'_, S>) {
        let now = self.clock.monotonic();
        let wait = state.next_due(turns.len()).since(now).min(LONGEST_WAIT);
        let hints = async {
            match &signals.hints {
                Some(hints) => hints.receive().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.stop.cancelled() => {}
            Some((bucket, turn)) = turns.next() => self.end_turn(bucket, turn, state),
            buckets = signals.notifier.announced() => state.announced(&buckets),
            buckets = hints => state.announced(&buckets),
            () = self.clock.sleep(wait) => {}
        }
    }
}

type Turns<'a, S> = FuturesUnordered<BoxFuture<'a, (Bucket, Turn<S>)>>;

/// What a continuous run knows.
struct State<S: OutboxStore> {
    /// Leases that are held, but for those of busy buckets.
    held: BTreeMap<Bucket, Held>,
    /// Buckets whose turn is under way.
    busy: BTreeSet<Bucket>,
    /// Busy buckets that exceed the share.
    excess: BTreeSet<Bucket>,
    /// Buckets that are said to have work.
    ready: BTreeSet<Bucket>,
    /// Buckets with parked keys, as of the last round.
    parked: BTreeSet<Bucket>,
    memory: BTreeMap<Bucket, Memory<S>>,
    waiting_since: BTreeMap<Bucket, Monotonic>,
    not_before: BTreeMap<Bucket, Monotonic>,
    backoffs: BTreeMap<Bucket, Backoff>,
    last_acquired: Option<Moment>,
    /// The latest wall time at which the relay announced itself.
    announced: Option<Ticks>,
    /// When each bucket had its last turn: those that waited longest go first, so that a full bucket starves nobody.
    served: BTreeMap<Bucket, Monotonic>,
    standby_rank: Option<usize>,
    round_backoff: Backoff,
    next_round: Monotonic,
    next_poll: Monotonic,
    report: RunReport,
}

impl<S: OutboxStore> State<S> {
    fn new(now: Monotonic, report: RunReport) -> Self {
        Self {
            held: BTreeMap::new(),
            busy: BTreeSet::new(),
            excess: BTreeSet::new(),
            ready: BTreeSet::new(),
            parked: BTreeSet::new(),
            memory: BTreeMap::new(),
            waiting_since: BTreeMap::new(),
            not_before: BTreeMap::new(),
            backoffs: BTreeMap::new(),
            last_acquired: None,
            announced: None,
            served: BTreeMap::new(),
            standby_rank: None,
            round_backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            next_round: now,
            next_poll: now,
            report,
        }
    }

    /// Takes in what a round ended with. `busy`: the buckets that it left alone, some of whose turns may have ended.
    fn acquired(&mut self, acquired: Acquired, busy: &BTreeSet<Bucket>, asked: Moment) {
        self.report.refused_writes += acquired.refused_writes;
        self.report.clock_behind |= acquired.clock_behind;
        self.standby_rank = acquired.standby_rank;
        self.parked = acquired.parked;
        let before: BTreeSet<Bucket> = self.held.keys().copied().collect();
        self.held.retain(|bucket, _| busy.contains(bucket));
        for lease in acquired.leases {
            self.held.insert(lease.bucket, Held { lease, asked });
            if !before.contains(&lease.bucket) {
                // Nobody may have looked at it for a while.
                self.ready.insert(lease.bucket);
            }
        }
        // Those whose turn has ended meanwhile are handed back by the next round, at once.
        let (still_busy, ended): (BTreeSet<_>, BTreeSet<_>) =
            acquired.excess.into_iter().partition(|bucket| self.busy.contains(bucket));
        self.excess = still_busy;
        for bucket in &ended {
            self.ready.remove(bucket);
        }
        let lost: Vec<Bucket> =
            before.into_iter().filter(|b| !self.held.contains_key(b) && !self.busy.contains(b)).collect();
        for bucket in lost {
            self.forget(bucket);
        }
    }

    fn forget(&mut self, bucket: Bucket) {
        self.held.remove(&bucket);
        self.memory.remove(&bucket);
        self.ready.remove(&bucket);
        self.waiting_since.remove(&bucket);
        self.not_before.remove(&bucket);
        self.backoffs.remove(&bucket);
    }

    fn announced(&mut self, buckets: &BTreeSet<Bucket>) {
        for bucket in buckets.iter().filter(|b| self.held.contains_key(b) || self.busy.contains(b)) {
            self.ready.insert(*bucket);
            // A new message is worth a look though others wait; a bucket that fails is not tried sooner for it.
            if !self.backoffs.contains_key(bucket) {
                self.not_before.remove(bucket);
            }
        }
    }

    /// The ready buckets that may start now, those that waited longest first.
    fn startable(&self, now: Monotonic, most: usize) -> Vec<Bucket> {
        let may_start = |bucket: &&Bucket| {
            self.held.contains_key(bucket) && self.not_before.get(bucket).is_none_or(|until| *until <= now)
        };
        let mut startable: Vec<Bucket> = self.ready.iter().filter(may_start).copied().collect();
        startable.sort_by_key(|bucket| self.served.get(bucket).copied());
        startable.truncate(most);
        startable
    }

    /// When the loop has something to do besides waiting to be told.
    fn next_due(&self, running: usize) -> Monotonic {
        let mut due = self.next_round.min(self.next_poll);
        if running < CONCURRENT_BUCKETS {
            for bucket in self.ready.iter().filter(|bucket| self.held.contains_key(bucket)) {
                due = due.min(
                    self.not_before.get(bucket).copied().unwrap_or(Monotonic::from_origin(Duration::ZERO)),
                );
            }
        }
        due
    }
}
