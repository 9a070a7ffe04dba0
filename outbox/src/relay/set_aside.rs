//! Messages that can never be published: set aside, or counted and left where they are (design.md, section 8).

use super::drain::{Drain, End, count, store_failed, within};
use super::held::{Held, times};
use super::report::BucketEnd;
use super::settle::Failed;
use crate::lease_age::Moment;
use crate::publisher::Publisher;
use crate::quarantine::{Move, Moved, Quarantine, Why};
use crate::store::{OutboxStore, Stored};
use crate::{Chain, PublishErrorKind};

impl<S: OutboxStore, P: Publisher> Drain<'_, S, P> {
    /// The store's quarantine, where a parked key holds back no other.
    pub(super) fn quarantine(&self) -> Option<&dyn Quarantine<S::Row>> {
        self.store.quarantine().filter(|_| self.store.deletes_individually())
    }

    /// Learns which keys are parked, before anything of the turn is published. Once a turn where there are any: they may
    /// have been redriven since.
    pub(super) async fn learn_parked(&mut self) -> Result<(), End> {
        let (Some(quarantine), Some(held)) = (self.quarantine(), self.held) else { return Ok(()) };
        if !self.memory.has_parked && !self.memory.waiting.has_parked() {
            return Ok(());
        }
        if !self.budget.may_start_batch() {
            return Err((BucketEnd::OutOfTime, None));
        }
        let limit = self.budget.for_fetch();
        let parked = quarantine.parked(held.lease.bucket, limit);
        let parked = within(self.clock, limit, "query of the parked keys", parked).await;
        self.memory.waiting.set_parked(parked.map_err(store_failed)?);
        self.memory.has_parked = false;
        Ok(())
    }

    /// Sets messages aside. How many were; the others wait for the bucket's next turn, and the turn goes on without them:
    /// what it failed with ends the turn at last.
    pub(super) async fn set_aside(&mut self, moves: &[Move<S::Row>]) -> Result<Vec<S::Row>, End> {
        if moves.is_empty() {
            return Ok(Vec::new());
        }
        let held = self.fresh_lease().await?;
        let Some(quarantine) = self.quarantine() else { return Ok(Vec::new()) };
        let asked = Moment::now(self.clock);
        let limit = self.budget.for_delete().min(self.options.lease_renew_interval / 2);
        let times = times(asked, self.options);
        let park = quarantine.park(self.id, held.lease, times, moves, limit);
        let parked = within(self.clock, limit, "moving to the quarantine", async { Ok(park.await) }).await;
        let Moved { lease, rows, error } = parked.unwrap_or_else(|error| Moved {
            lease: Some(held.lease),
            rows: Vec::new(),
            error: Some(error),
        });
        self.report.quarantined += count(rows.len());
        // An expiry beyond what was asked for is from before this clock went back: the lease is as old as it was.
        let extended = |lease: &crate::Lease| *lease != held.lease && lease.expires_at <= times.expires_at();
        self.held =
            lease.map(|lease| Held { lease, asked: if extended(&lease) { asked } else { held.asked } });
        let bucket = held.lease.bucket;
        if self.held.is_some()
            && let Some(error) = error
        {
            tracing::error!(%bucket, error = %Chain(&error), "messages were not set aside: they wait");
            // A move may have happened, or land yet: under a renewed lease it finds another version, and is refused.
            if let (Some(held), true) = (self.held, self.store.renewal().is_some())
                && let Ok(renewed) = self.renew(held).await
            {
                self.held = renewed;
            }
            self.not_set_aside = Some(error);
        }
        if self.held.is_none() {
            return Err((BucketEnd::LeaseLost, None));
        }
        for waits in moves.iter().filter(|one| !rows.contains(&one.row)) {
            self.memory.waiting.hold_row(&waits.row);
        }
        if !rows.is_empty() {
            tracing::warn!(%bucket, messages = rows.len(), "messages were set aside, to be redriven by somebody");
        }
        Ok(rows)
    }

    /// Sets aside, or counts an attempt at, what the publisher refused. `failed` holds its key back already.
    pub(super) async fn act_on_refused(
        &mut self,
        batch: &[Stored<S::Row>],
        failed: &[Failed],
    ) -> Result<(), End> {
        let rejected =
            |failed: &&Failed| !failed.is_behind && failed.error.kind() == PublishErrorKind::Rejected;
        let moves: Vec<Move<S::Row>> = if self.memory.waiting.rules().quarantines {
            let poison = failed.iter().filter(rejected);
            let why =
                |failed: &Failed| Why::Poison { reason: Chain(&failed.error).to_string(), was_sent: true };
            poison.map(|failed| Move { row: batch[failed.index].row.clone(), why: why(failed) }).collect()
        } else {
            Vec::new()
        };
        let moved = self.set_aside(&moves).await?;
        let mut counted = Vec::new();
        for failed in failed {
            let stored = &batch[failed.index];
            let key = stored.order_key().key();
            if moved.contains(&stored.row) {
                if let Some(key) = key {
                    self.memory.waiting.park(key);
                }
            } else if rejected(&failed) || failed.is_overtaken {
                // What is behind it is not to be sent again with each attempt.
                if let Some(key) = key {
                    self.memory.waiting.send_alone(key);
                }
                counted.push(stored.row.clone());
            }
        }
        self.count_attempts(&counted).await;
        Ok(())
    }

    /// A count that is not taken costs copies of what is behind the message, and no more.
    async fn count_attempts(&self, rows: &[S::Row]) {
        let (Some(quarantine), Some(held)) = (self.quarantine(), self.held) else { return };
        let limit = self.budget.for_delete().min(self.options.lease_renew_interval / 2);
        if rows.is_empty() || limit.is_zero() {
            return;
        }
        let bucket = held.lease.bucket;
        let counted = quarantine.count_attempts(bucket, rows, limit);
        if let Err(error) = within(self.clock, limit, "count of attempts", counted).await {
            tracing::warn!(%bucket, error = %Chain(&error), "attempts at messages were not counted");
        }
    }
}
