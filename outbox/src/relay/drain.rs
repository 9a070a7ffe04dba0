//! One bucket's turn: fetch, publish, delete, until nothing is left, the turn is over, or it may not go on.
//!
//! A little long, for it is one loop: what overlaps what, and which check comes before which step, is seen in one place.

use std::time::Duration;

use futures::future::{self, Either};
use tracing::field::display;

use super::budget::Budget;
use super::durations::Durations;
use super::engine::Relay;
use super::failure::FailureKind;
use super::held::{Held, times};
use super::report::{BucketEnd, BucketReport, RunError};
use super::settle::{Failed, Next, settle};
use super::waiting::{Rules, Until, Waiting};
use crate::lease_age::{Belief, Moment};
use crate::publisher::{Outcome, PublishErrorKind, Publisher};
use crate::store::{FetchRequest, OutboxStore, Stored};
use crate::{
    Bucket, Chain, Clock, Lease, Message, Monotonic, RelayId, RelayOptions, StoreError, StoreErrorKind,
    TraceId,
};

/// The longest that a renewal may take: it must be over, one way or the other, well before the lease is.
const RENEWAL_LIMIT: Duration = Duration::from_secs(2);
/// The first and the longest pause before a delete is tried again.
const DELETE_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A batch as small as this says that the bucket is quiet: what has arrived since is found by the read after the
/// release, by a hint or by a poll, and one more fetch would be for nothing nearly every time.
const QUIET_BATCH: usize = 16;
/// Where a batch ends whatever its number of messages: what bounds the memory of a run, with the buckets at work.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What a turn left behind.
pub(super) struct Turn<S: OutboxStore> {
    /// The lease as it stands; `None`: lost.
    pub(super) held: Option<Held>,
    pub(super) memory: Memory<S>,
    /// Whether the bucket has more messages, as far as is known: a turn that was over may have been over with the last.
    pub(super) is_behind: bool,
    /// Whether it was a turn at all.
    pub(super) had_turn: bool,
    /// How long each publish took.
    pub(super) publishes: Durations,
    pub(super) report: BucketReport,
}

impl<S: OutboxStore> Turn<S> {
    /// A turn that has not begun.
    pub(super) fn put_off(held: Held, memory: Memory<S>) -> Self {
        let report = BucketReport { end: BucketEnd::TurnOver, ..BucketReport::default() };
        let publishes = Durations::default();
        Self { held: Some(held), memory, is_behind: true, had_turn: false, publishes, report }
    }
}

/// What one turn of a bucket tells the next, for as long as the lease is held without a break: somebody who has lost it
/// knows nothing of the bucket any more.
pub(super) struct Memory<S: OutboxStore> {
    pub(super) waiting: Waiting<S>,
    /// Whether keys of the bucket are parked that are not known yet.
    pub(super) has_parked: bool,
    removed_up_to: Option<S::Row>,
    /// Acknowledged, and still to be deleted. Never sent again: the delete is tried again, not the publish.
    undeleted: Vec<S::Row>,
}

impl<S: OutboxStore> Memory<S> {
    /// `has_parked`: whether the bucket is said to have parked keys. Which they are is read before anything is published.
    pub(super) fn new(rules: Rules, has_parked: bool) -> Self {
        Self { waiting: Waiting::new(rules), has_parked, removed_up_to: None, undeleted: Vec::new() }
    }

    /// Whether a bucket that ended with waiting messages has one now that does not wait.
    pub(super) async fn has_news(
        &mut self,
        store: &S,
        clock: &dyn Clock,
        bucket: Bucket,
        limit: Duration,
    ) -> Result<bool, StoreError> {
        let request = FetchRequest {
            bucket,
            max_messages: self.waiting.skipped() + 1,
            max_bytes: self.waiting.skipped_bytes() + 1,
            removed_up_to: self.removed_up_to.as_ref(),
            limit,
        };
        let fetched = within(clock, limit, "fetch", store.fetch(&request)).await?;
        Ok(!self.waiting.select(fetched, 1).batch.is_empty())
    }

    /// Lets what waits be tried again.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.forget();
    }
}

/// Works on a bucket under `held`. `turn_ends`: when the turn is over and others have theirs; `None`: when it is empty.
pub(super) async fn drain<S: OutboxStore, P: Publisher>(
    relay: &Relay<S, P>,
    id: &RelayId,
    held: Held,
    memory: Memory<S>,
    budget: &Budget,
    turn_ends: Option<Monotonic>,
) -> Turn<S> {
    let drain = Drain {
        store: &relay.store,
        publisher: &relay.publisher,
        options: &relay.options,
        clock: relay.clock.as_ref(),
        id,
        budget,
        bucket: held.lease.bucket,
        held: Some(held),
        memory,
        outlasted: None,
        is_behind: true,
        not_set_aside: None,
        publishes: Durations::default(),
        report: BucketReport::default(),
    };
    drain.run(turn_ends).await
}

pub(super) struct Drain<'a, S: OutboxStore, P> {
    pub(super) store: &'a S,
    pub(super) publisher: &'a P,
    pub(super) options: &'a RelayOptions,
    pub(super) clock: &'a dyn Clock,
    pub(super) id: &'a RelayId,
    pub(super) budget: &'a Budget,
    pub(super) bucket: Bucket,
    /// `None` once it is lost; nothing is published, deleted or released from then on.
    pub(super) held: Option<Held>,
    pub(super) memory: Memory<S>,
    /// How long a publish took that was bound to end sooner.
    pub(super) outlasted: Option<Duration>,
    /// Whether the last fetch said that there is more, or there was none yet.
    pub(super) is_behind: bool,
    /// What moving messages to the quarantine failed with: the turn ends in it once the others were served.
    pub(super) not_set_aside: Option<StoreError>,
    publishes: Durations,
    pub(super) report: BucketReport,
}

/// Why a turn ends, with what there is to say about it.
pub(super) type End = (BucketEnd, Option<RunError>);

impl<S: OutboxStore, P: Publisher> Drain<'_, S, P> {
    async fn run(mut self, turn_ends: Option<Monotonic>) -> Turn<S> {
        self.memory.waiting.begin_turn();
        let (mut end, mut error) = match self.learn_parked().await {
            Ok(()) => self.batches(turn_ends).await,
            Err(end) => end,
        };
        if let (BucketEnd::Empty | BucketEnd::Waiting, Some(failure)) = (end, self.not_set_aside.take()) {
            (end, error) = store_failed(failure);
        }
        self.report.end = end;
        self.report.error = error;
        self.report.lease_losses = u64::from(self.held.is_none());
        let Self { held, memory, is_behind, publishes, report, .. } = self;
        Turn { held, memory, is_behind, had_turn: true, publishes, report }
    }

    async fn batches(&mut self, turn_ends: Option<Monotonic>) -> End {
        loop {
            if turn_ends.is_some_and(|end| self.clock.monotonic() >= end) {
                return (BucketEnd::TurnOver, None);
            }
            if let Err(end) = self.batch().await {
                return end;
            }
        }
    }

    /// One batch, from fetch to delete.
    async fn batch(&mut self) -> Result<(), End> {
        let bucket = self.fresh_lease().await?.lease.bucket;
        self.delete().await?;
        // After what may have taken its time: a fetch never starts that could not be published and deleted.
        if !self.budget.may_start_batch() {
            return Err((BucketEnd::OutOfTime, None));
        }
        let request = FetchRequest {
            bucket,
            max_messages: self.options.batch_size + self.memory.waiting.skipped(),
            max_bytes: MAX_BATCH_BYTES + self.memory.waiting.skipped_bytes(),
            removed_up_to: self.memory.removed_up_to.as_ref(),
            limit: self.budget.for_fetch(),
        };
        let fetched = within(self.clock, request.limit, "fetch", self.store.fetch(&request)).await;
        let mut fetched = fetched.map_err(store_failed)?;
        let fault = fetched.fault.take();
        let skipped = self.memory.waiting.skipped();
        let selected = self.memory.waiting.select(fetched, self.options.batch_size);
        self.is_behind = selected.more;
        for malformed in selected.malformed {
            self.report.malformed += 1;
            self.report.failures.add(FailureKind::Malformed);
            let what_now = self.what_becomes_of_poison();
            let about = malformed.about;
            tracing::error!(
                %bucket,
                message_id = about.id.map(display),
                topic = about.topic,
                trace_id = about.trace.map(display),
                reason = malformed.reason,
                "a message can never be published: {what_now}"
            );
        }
        if selected.hidden {
            let waiting = self.memory.waiting.skipped();
            tracing::warn!(%bucket, waiting, "so many messages wait that those behind them are not reached");
        }
        let moved = self.set_aside(&selected.moves).await?.len();
        let waits = self.memory.waiting.skipped() > 0 || moved < selected.moves.len();
        if selected.batch.is_empty() {
            // Reading on is worth it only if it leads past more waiting messages than the last time.
            let further = selected.more && self.memory.waiting.skipped() > skipped;
            return match (fault, waits) {
                (Some(fault), _) => Err(store_failed(fault)),
                (None, _) if further || moved > 0 => Ok(()),
                (None, false) => Err((BucketEnd::Empty, None)),
                (None, true) => Err((BucketEnd::Waiting, None)),
            };
        }
        // The fetch may have been slow: a publish never starts under a lease that is due for renewal.
        self.fresh_lease().await?;
        if !self.budget.may_publish() {
            self.is_behind = true;
            return Err((BucketEnd::OutOfTime, None));
        }
        let began = self.clock.monotonic();
        let outcomes = self.publish(&selected.batch).await;
        self.publishes.note(self.clock.monotonic().since(began));
        self.settle(&selected.batch, &outcomes).await?;
        if let Some(took) = self.outlasted {
            let bound = self.options.max_publish_duration.unwrap_or_default();
            return Err((BucketEnd::Misconfigured, Some(RunError::PublishOutlastedBound { bound, took })));
        }
        if let Some(fault) = fault {
            return Err(store_failed(fault));
        }
        let all_deleted = self.report.failed == 0 && !waits;
        if all_deleted && !selected.more && selected.batch.len() <= QUIET_BATCH {
            return Err((BucketEnd::Empty, None));
        }
        Ok(())
    }

    /// The lease, renewed first if it is due.
    pub(super) async fn fresh_lease(&mut self) -> Result<Held, End> {
        let lost = (BucketEnd::LeaseLost, None);
        let Some(held) = self.held else { return Err(lost) };
        if self.store.renewal().is_none() {
            // The whole bound of a publish and one renewal interval must be left, or it could outlive the lease.
            let bound = self.options.max_publish_duration.unwrap_or(Duration::MAX);
            let needed = bound.saturating_add(self.options.lease_renew_interval);
            let left = self.options.lease_duration.saturating_sub(held.age(self.clock));
            return if left >= needed { Ok(held) } else { Err((BucketEnd::LeaseTooShort, None)) };
        }
        if held.belief(self.clock, self.options) == Belief::Fresh {
            return Ok(held);
        }
        match self.renew(held).await {
            Ok(Some(renewed)) => {
                self.held = Some(renewed);
                if renewed.belief(self.clock, self.options) == Belief::Fresh {
                    return Ok(renewed);
                }
                let message = "a lease was not renewed: this relay's clock has gone back";
                Err(store_failed(StoreError::new(StoreErrorKind::Unavailable, message)))
            }
            Ok(None) => {
                self.held = None;
                Err(lost)
            }
            // Not known to be renewed: the turn ends while the lease is still ours, and is given back.
            Err(error) => Err(store_failed(error)),
        }
    }

    /// Extends the lease. `None`: it is lost.
    pub(super) async fn renew(&self, held: Held) -> Result<Option<Held>, StoreError> {
        let Some(renewal) = self.store.renewal() else {
            let message = "the store cannot renew a lease";
            return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
        };
        let asked = Moment::now(self.clock);
        let limit = self.budget.for_delete().min(RENEWAL_LIMIT);
        let renewed = renewal.renew(self.id, held.lease, times(asked, self.options), limit);
        let lease = within(self.clock, limit, "renewal", renewed).await?;
        // A later expiry than was asked for is an earlier renewal's: this clock has gone back since, and how long the
        // lease lasts can no longer be told from it. It is as old as it was.
        let behind = |lease: &Lease| lease.expires_at > times(asked, self.options).expires_at();
        if let Some(lease) = lease.filter(behind) {
            tracing::warn!(bucket = %lease.bucket, "this relay's clock has gone back: its lease is not renewed");
            return Ok(Some(Held { lease, asked: held.asked }));
        }
        Ok(lease.map(|lease| Held { lease, asked }))
    }

    /// Publishes, renewing the lease whenever it is due until the publish has returned. A lease that is lost on the
    /// way does not end the publish, which cannot be called back: it is waited for.
    async fn publish(&mut self, batch: &[Stored<S::Row>]) -> Vec<Outcome> {
        let messages: Vec<&Message> =
            batch.iter().filter_map(|stored| stored.message.as_ref().ok()).collect();
        let publish = self.publisher.publish(&messages, self.budget.for_publish());
        let mut publish = std::pin::pin!(publish);
        if self.store.renewal().is_none() {
            let began = Moment::now(self.clock);
            let outcomes = publish.await;
            let took = Moment::now(self.clock).since(began);
            self.outlasted =
                Some(took).filter(|took| self.options.max_publish_duration.is_some_and(|b| *took > b));
            return outcomes;
        }
        while let Some(held) = self.held {
            let due = held.renewal_due_in(self.clock, self.options);
            match future::select(publish.as_mut(), self.clock.sleep(due)).await {
                Either::Left((outcomes, _)) => return outcomes,
                Either::Right(((), _)) => {}
            }
            // A renewal that has begun is seen to its end, also when the publish returns first: its result is the
            // version that the release is conditional on.
            let (outcomes, renewed) = {
                let renew = std::pin::pin!(self.renew(held));
                match future::select(publish.as_mut(), renew).await {
                    Either::Left((outcomes, renew)) => (Some(outcomes), renew.await),
                    Either::Right((renewed, _)) => (None, renewed),
                }
            };
            self.held = match renewed {
                Ok(renewed) => renewed,
                Err(error) => {
                    let bucket = held.lease.bucket;
                    tracing::warn!(%bucket, error = %Chain(&error), "a lease was not renewed during a publish");
                    // Unanswered: the old lease stays in force for as long as it lasts.
                    Some(held).filter(|held| held.belief(self.clock, self.options) < Belief::Lapsed)
                }
            };
            if let Some(outcomes) = outcomes {
                return outcomes;
            }
            // Not answered, or not renewed for a clock that went back: not again at once.
            if self.held.is_some_and(|held| held.belief(self.clock, self.options) != Belief::Fresh) {
                let pause = self.clock.sleep(self.options.lease_renew_interval / 4);
                if let Either::Left((outcomes, _)) = future::select(publish.as_mut(), pause).await {
                    return outcomes;
                }
            }
        }
        publish.await
    }

    /// Deletes what may be deleted, and says how the turn goes on.
    async fn settle(&mut self, batch: &[Stored<S::Row>], outcomes: &[Outcome]) -> Result<(), End> {
        let keys: Vec<_> = batch.iter().map(Stored::order_key).collect();
        let settled = settle(&keys, outcomes, self.store.deletes_individually());
        self.report.acknowledged += count(settled.acknowledged);
        self.report.failed += count(settled.failed.len());
        for failed in &settled.failed {
            let kind = failed.error.kind().into();
            self.report.failures.add(if failed.is_behind { FailureKind::Behind } else { kind });
        }

        // Only under a lease that still holds: after losing it nothing is deleted, for the next owner is already at these
        // rows (design.md, section 7).
        self.memory.undeleted.extend(settled.delete.iter().map(|index| batch[*index].row.clone()));
        self.delete().await?;

        let first = settled.failed.first().map(|failed| failed.error.clone());
        for failed in &settled.failed {
            let until = match failed.error.kind() {
                PublishErrorKind::Rejected => Until::RunEnds,
                _ => Until::NextTurn,
            };
            self.memory.waiting.hold(&batch[failed.index], until);
            self.tell_of(failed, &batch[failed.index]);
        }
        for index in &settled.delete {
            if let Some(key) = keys[*index].key() {
                self.memory.waiting.has_gone(key);
            }
        }
        self.act_on_refused(batch, &settled.failed).await?;
        match settled.next {
            Next::GoOn => Ok(()),
            Next::RetryLater => Err((BucketEnd::RetryLater, first.map(RunError::Publish))),
            Next::Misconfigured => {
                let misconfigured = settled.failed.into_iter().map(|failed| RunError::Publish(failed.error));
                let error = misconfigured.into_iter().find(RunError::is_misconfiguration);
                Err((BucketEnd::Misconfigured, error))
            }
        }
    }

    fn what_becomes_of_poison(&self) -> &'static str {
        if self.memory.waiting.rules().quarantines { "it is to be set aside" } else { "its key waits" }
    }

    /// Logs a message that was not published: loudly the one that somebody has to act on, and no other.
    fn tell_of(&self, failed: &Failed, stored: &Stored<S::Row>) {
        let Ok(message) = &stored.message else { return };
        // Told also of a bucket that is lost by now.
        let (bucket, topic, error) = (self.bucket, &message.topic, Chain(&failed.error));
        let (message_id, trace_id) = (message.id, TraceId::of(&message.headers).map(display));
        match failed.error.kind() {
            _ if failed.is_behind => {
                tracing::debug!(%bucket, %message_id, topic, trace_id, %error, "a message waits behind another");
            }
            PublishErrorKind::Rejected => {
                let (attempts, what_now) = (stored.attempts.saturating_add(1), self.what_becomes_of_poison());
                tracing::error!(
                    %bucket, %message_id, topic, trace_id, attempts, %error,
                    "a message can never be published: {what_now}"
                );
            }
            PublishErrorKind::TopicUnavailable => {
                let what = "a message's topic is not available: its key waits";
                tracing::warn!(%bucket, %message_id, topic, trace_id, %error, "{what}");
            }
            _ => tracing::debug!(
                %bucket, %message_id, topic, trace_id, %error,
                "a message was not published"
            ),
        }
    }

    /// Deletes acknowledged rows: tried again until it succeeds, there is no more time for it, or the lease is lost.
    async fn delete(&mut self) -> Result<(), End> {
        let (mut pause, longest) = DELETE_PAUSES;
        while !self.memory.undeleted.is_empty() {
            let bucket = self.believed_lease().await?.lease.bucket;
            // A delete that is throttled for long must not outlive the lease: it is tried again under a renewed one.
            let limit = self.budget.for_delete().min(self.options.lease_renew_interval / 2);
            let rows = &self.memory.undeleted;
            let error =
                match within(self.clock, limit, "delete", self.store.delete(bucket, rows, limit)).await {
                    Ok(()) => {
                        self.report.deleted += count(rows.len());
                        self.memory.removed_up_to = rows.last().cloned();
                        self.memory.undeleted.clear();
                        return Ok(());
                    }
                    Err(error) => error,
                };
            tracing::warn!(%bucket, error = %Chain(&error), "acknowledged messages were not deleted");
            if error.is_misconfiguration() || self.budget.for_delete() <= pause {
                return Err(store_failed(error));
            }
            self.clock.sleep(pause).await;
            pause = longest.min(pause * 2);
        }
        Ok(())
    }

    /// The lease for as long as it is believed: renewed if it is due and can be, but a renewal that is throttled is not
    /// a lost lease. Under one that lapsed nothing is deleted: its next owner may be at these rows, and would be raced.
    async fn believed_lease(&mut self) -> Result<Held, End> {
        let lost = (BucketEnd::LeaseLost, None);
        let Some(held) = self.held else { return Err(lost) };
        if held.belief(self.clock, self.options) == Belief::DueForRenewal && self.store.renewal().is_some() {
            match self.renew(held).await {
                Ok(renewed) => self.held = renewed,
                Err(error) => {
                    tracing::debug!(bucket = %held.lease.bucket, error = %Chain(&error), "a lease was not renewed");
                }
            }
        }
        self.held = self.held.filter(|held| held.belief(self.clock, self.options) < Belief::Lapsed);
        self.held.ok_or(lost)
    }
}

pub(super) fn store_failed(error: StoreError) -> End {
    let end = if error.is_misconfiguration() { BucketEnd::Misconfigured } else { BucketEnd::RetryLater };
    (end, Some(RunError::Store(error)))
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Holds a store to its time limit: one that hangs must not take the invocation with it.
pub(super) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    what: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    /// What a store may take beyond its limit, to end the call itself and say more than this can.
    const GRACE: Duration = Duration::from_millis(100);
    let call = std::pin::pin!(call);
    match future::select(call, clock.sleep(limit + GRACE)).await {
        Either::Left((result, _)) => result,
        Either::Right(((), _)) => {
            let message = format!("{what} did not end within {limit:?}");
            Err(StoreError::new(StoreErrorKind::MayHaveHappened, message))
        }
    }
}
