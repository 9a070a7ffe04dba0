//! One bucket's turn: fetch, publish, delete, until nothing is left, the turn is over, or it may not go on.

use std::time::Duration;

use futures::future::{self, Either};

use super::budget::Budget;
use super::held::{Held, times};
use super::report::{BucketEnd, BucketReport, RunError};
use super::run::Relay;
use super::settle::{Next, settle};
use super::waiting::Waiting;
use crate::lease_age::{Belief, Moment};
use crate::publisher::{Outcome, Publisher};
use crate::store::{FetchRequest, OutboxStore, Stored};
use crate::{Chain, Clock, Message, Monotonic, RelayId, RelayOptions, StoreError, StoreErrorKind};

/// The longest that a renewal may take: it must be over, one way or the other, well before the lease is.
const RENEWAL_LIMIT: Duration = Duration::from_secs(2);
/// The first and the longest pause before a delete is tried again.
const DELETE_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What a turn left behind.
pub(super) struct Turn {
    /// The lease as it stands; `None`: lost.
    pub(super) held: Option<Held>,
    pub(super) report: BucketReport,
}

/// Works on a bucket under `held`. `turn_ends`: when the turn is over and others have theirs; `None`: when it is empty.
pub(super) async fn drain<S: OutboxStore, P: Publisher>(
    relay: &Relay<S, P>,
    id: &RelayId,
    held: Held,
    budget: &Budget,
    turn_ends: Option<Monotonic>,
) -> Turn {
    let drain = Drain {
        store: &relay.store,
        publisher: &relay.publisher,
        options: &relay.options,
        clock: relay.clock.as_ref(),
        id,
        budget,
        held: Some(held),
        waiting: Waiting::new(),
        removed_up_to: None,
        report: BucketReport::default(),
    };
    drain.run(turn_ends).await
}

struct Drain<'a, S: OutboxStore, P> {
    store: &'a S,
    publisher: &'a P,
    options: &'a RelayOptions,
    clock: &'a dyn Clock,
    id: &'a RelayId,
    budget: &'a Budget,
    /// `None` once it is lost; nothing is published, deleted or released from then on.
    held: Option<Held>,
    waiting: Waiting<S>,
    removed_up_to: Option<S::Row>,
    report: BucketReport,
}

/// Why a turn ends, with what there is to say about it.
type End = (BucketEnd, Option<RunError>);

impl<S: OutboxStore, P: Publisher> Drain<'_, S, P> {
    async fn run(mut self, turn_ends: Option<Monotonic>) -> Turn {
        let (end, error) = loop {
            if turn_ends.is_some_and(|end| self.clock.monotonic() >= end) {
                break (BucketEnd::TurnOver, None);
            }
            match self.batch().await {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        self.report.end = end;
        self.report.error = error;
        Turn { held: self.held, report: self.report }
    }

    /// One batch, from fetch to delete.
    async fn batch(&mut self) -> Result<(), End> {
        if !self.budget.may_start_batch() {
            return Err((BucketEnd::OutOfTime, None));
        }
        let bucket = self.fresh_lease().await?.lease.bucket;
        let request = FetchRequest {
            bucket,
            max_messages: self.options.batch_size + self.waiting.skipped(),
            removed_up_to: self.removed_up_to.as_ref(),
            limit: self.budget.for_fetch(),
        };
        let fetched = within(self.clock, request.limit, "fetch", self.store.fetch(&request)).await;
        let mut fetched = fetched.map_err(store_failed)?;
        let fault = fetched.fault.take();
        let skipped = self.waiting.skipped();
        let selected = self.waiting.select(fetched, self.options.batch_size);
        for malformed in selected.malformed {
            self.report.malformed += 1;
            tracing::error!(%bucket, reason = malformed.reason, "a message can never be published: its key waits");
        }
        if selected.batch.is_empty() {
            // Reading on is worth it only if it leads past more waiting messages than the last time.
            let further = selected.more && self.waiting.skipped() > skipped;
            return match (fault, self.waiting.skipped()) {
                (Some(fault), _) => Err(store_failed(fault)),
                (None, 0) => Err((BucketEnd::Empty, None)),
                (None, _) if further => Ok(()),
                (None, _) => Err((BucketEnd::Waiting, None)),
            };
        }
        // The fetch may have been slow: a publish never starts under a lease that is due for renewal.
        self.fresh_lease().await?;
        let outcomes = self.publish(&selected.batch).await;
        self.settle(&selected.batch, &outcomes).await?;
        fault.map_or(Ok(()), |fault| Err(store_failed(fault)))
    }

    /// The lease, renewed first if it is due.
    async fn fresh_lease(&mut self) -> Result<Held, End> {
        let lost = (BucketEnd::LeaseLost, None);
        let Some(held) = self.held else { return Err(lost) };
        if held.belief(self.clock, self.options) == Belief::Fresh {
            return Ok(held);
        }
        match self.renew(held).await {
            Ok(Some(renewed)) => {
                self.held = Some(renewed);
                Ok(renewed)
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
    async fn renew(&self, held: Held) -> Result<Option<Held>, StoreError> {
        let Some(renewal) = self.store.renewal() else {
            let message = "the store cannot renew a lease";
            return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
        };
        let asked = Moment::now(self.clock);
        let limit = self.budget.for_delete().min(RENEWAL_LIMIT);
        let renewed = renewal.renew(self.id, held.lease, times(asked, self.options), limit);
        let lease = within(self.clock, limit, "renewal", renewed).await?;
        Ok(lease.map(|lease| Held { lease, asked }))
    }

    /// Publishes, renewing the lease whenever it is due until the publish has returned. A lease that is lost on the
    /// way does not end the publish, which cannot be called back: it is waited for.
    async fn publish(&mut self, batch: &[Stored<S::Row>]) -> Vec<Outcome> {
        let messages: Vec<&Message> =
            batch.iter().filter_map(|stored| stored.message.as_ref().ok()).collect();
        let publish = self.publisher.publish(&messages, self.budget.for_publish());
        let mut publish = std::pin::pin!(publish);
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
            let answered = renewed.is_ok();
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
            if !answered {
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
        let settled = settle(&keys, outcomes);
        self.report.acknowledged += count(settled.acknowledged);
        self.report.failed += count(settled.failed.len());

        // After losing the lease nothing is deleted: the next owner is already at these rows (design.md, section 7).
        if self.held.is_none_or(|held| held.belief(self.clock, self.options) == Belief::Lapsed) {
            self.held = None;
            return Err((BucketEnd::LeaseLost, None));
        }
        let rows: Vec<S::Row> = settled.delete.iter().map(|index| batch[*index].row.clone()).collect();
        self.delete(&rows).await?;
        if let Some(row) = rows.last() {
            self.removed_up_to = Some(row.clone());
        }

        let first = settled.failed.first().map(|(_, error)| error.clone());
        for (index, error) in &settled.failed {
            self.waiting.hold(&batch[*index]);
            let id = batch[*index].message.as_ref().ok().map(|message| message.id.to_string());
            tracing::debug!(id, error = %Chain(error), "a message was not published");
        }
        match settled.next {
            Next::GoOn => Ok(()),
            Next::RetryLater => Err((BucketEnd::RetryLater, first.map(RunError::Publish))),
            Next::Misconfigured => {
                let misconfigured = settled.failed.into_iter().map(|(_, error)| RunError::Publish(error));
                let error = misconfigured.into_iter().find(RunError::is_misconfiguration);
                Err((BucketEnd::Misconfigured, error))
            }
        }
    }

    /// Deletes acknowledged rows. What was acknowledged is never sent again within a run: the delete is tried again,
    /// not the publish, until there is no more time for it.
    async fn delete(&mut self, rows: &[S::Row]) -> Result<(), End> {
        if rows.is_empty() {
            return Ok(());
        }
        let (mut pause, longest) = DELETE_PAUSES;
        loop {
            let Some(held) = self.held else {
                return Err((BucketEnd::LeaseLost, None));
            };
            let bucket = held.lease.bucket;
            let limit = self.budget.for_delete();
            let error =
                match within(self.clock, limit, "delete", self.store.delete(bucket, rows, limit)).await {
                    Ok(()) => {
                        self.report.deleted += count(rows.len());
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
            // Another owner may be at these rows by now; deleting them under it would race its publish.
            self.fresh_lease().await?;
        }
    }
}

fn store_failed(error: StoreError) -> End {
    let end = if error.is_misconfiguration() { BucketEnd::Misconfigured } else { BucketEnd::RetryLater };
    (end, Some(RunError::Store(error)))
}

fn count(number: usize) -> u64 {
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
