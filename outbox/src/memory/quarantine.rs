//! What the store in memory has set aside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{MemoryStore, State};
use crate::coordination::LeaseRecord;
use crate::quarantine::{Move, Moved, Parking, Quarantine, Why};
use crate::store::Stored;
use crate::{Bucket, Lease, LeaseTimes, RelayId, StoreError};

/// One bucket's.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    messages: BTreeMap<i64, Stored<i64>>,
    parked: BTreeMap<Bytes, Parking>,
}

impl MemoryStore {
    /// The messages of a bucket that are set aside, oldest first.
    pub fn set_aside(&self, bucket: Bucket) -> Vec<Stored<i64>> {
        let state = self.lock();
        state.set_aside.get(&bucket).map_or_else(Vec::new, |aside| aside.messages.values().cloned().collect())
    }

    /// The parked keys of a bucket.
    pub fn parked_keys(&self, bucket: Bucket) -> BTreeMap<Bytes, Parking> {
        self.lock().set_aside.get(&bucket).map_or_else(BTreeMap::new, |aside| aside.parked.clone())
    }

    /// Redrives the messages of a parked key, `most` at a time, as somebody would whose process may end between two
    /// calls. Whether all of them are back.
    pub fn redrive(&self, bucket: Bucket, key: &Bytes, most: usize) -> bool {
        let mut state = self.lock();
        let State { set_aside, messages, .. } = &mut *state;
        let Some(aside) = set_aside.get_mut(&bucket) else { return true };
        if let Some(parking) = aside.parked.get_mut(key) {
            *parking = Parking::Redriving;
        }
        let of_key = |stored: &&Stored<i64>| stored.order_key().key() == Some(key);
        let rows: Vec<i64> = aside.messages.values().filter(of_key).map(|stored| stored.row).collect();
        for row in rows.iter().take(most) {
            if let Some(stored) = aside.messages.remove(row) {
                messages.entry(bucket).or_default().insert(*row, Stored { attempts: 0, ..stored });
            }
        }
        let is_done = rows.len() <= most;
        if is_done {
            aside.parked.remove(key);
        }
        is_done
    }
}

impl State {
    pub(super) fn with_parked_keys(&self) -> BTreeSet<Bucket> {
        let parked = |(bucket, aside): (&Bucket, &SetAside)| (!aside.parked.is_empty()).then_some(*bucket);
        self.set_aside.iter().filter_map(parked).collect()
    }

    /// Moves one message aside; whether it is there now.
    fn move_aside(&mut self, bucket: Bucket, one: &Move<i64>) -> bool {
        let aside = self.set_aside.entry(bucket).or_default();
        if aside.messages.contains_key(&one.row) {
            return true;
        }
        let Some(messages) = self.messages.get_mut(&bucket) else { return false };
        let Some(stored) = messages.get(&one.row) else { return false };
        let key = stored.order_key().key().cloned();
        let parking = key.as_ref().and_then(|key| aside.parked.get(key));
        let may_move = match &one.why {
            Why::Poison { .. } => parking != Some(&Parking::Redriving),
            Why::KeyIsParked => parking == Some(&Parking::Parked),
        };
        if !may_move {
            return false;
        }
        aside.parked.extend(key.map(|key| (key, Parking::Parked)));
        if let Some(mut stored) = messages.remove(&one.row) {
            if matches!(one.why, Why::Poison { was_sent: true, .. }) {
                stored.attempts += 1;
            }
            aside.messages.insert(one.row, stored);
        }
        true
    }
}

impl Quarantine<i64> for MemoryStore {
    fn parked<'a>(
        &'a self,
        bucket: Bucket,
        _: Duration,
    ) -> BoxFuture<'a, Result<BTreeMap<Bytes, Parking>, StoreError>> {
        Box::pin(async move { Ok(self.parked_keys(bucket)) })
    }

    fn park<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        moves: &'a [Move<i64>],
        _: Duration,
    ) -> BoxFuture<'a, Moved<i64>> {
        Box::pin(async move {
            let mut state = self.lock();
            let read = LeaseRecord { owner: Some(relay.clone()), expires_at: Some(lease.expires_at) };
            if state.coordination.leases.get(&lease.bucket) != Some(&read) {
                return Moved { lease: None, rows: Vec::new(), error: None };
            }
            let expires_at = times.expires_at().max(lease.expires_at.next());
            let extended = LeaseRecord { expires_at: Some(expires_at), ..read };
            state.coordination.leases.insert(lease.bucket, extended);
            state.writes += 1;
            let rows = moves.iter().filter(|one| state.move_aside(lease.bucket, one)).map(|one| one.row);
            let rows = rows.collect::<Vec<_>>();
            Moved { lease: Some(Lease { bucket: lease.bucket, expires_at }), rows, error: None }
        })
    }

    fn count_parked(&self, _: Duration) -> BoxFuture<'_, Result<u64, StoreError>> {
        let count: usize = self.lock().set_aside.values().map(|aside| aside.parked.len()).sum();
        Box::pin(async move { Ok(u64::try_from(count).unwrap_or(u64::MAX)) })
    }

    fn count_attempts<'a>(
        &'a self,
        bucket: Bucket,
        rows: &'a [i64],
        _: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(messages) = self.lock().messages.get_mut(&bucket) {
                for row in rows {
                    if let Some(stored) = messages.get_mut(row) {
                        stored.attempts += 1;
                    }
                }
            }
            Ok(())
        })
    }
}
