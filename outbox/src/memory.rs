//! A store in memory, for tests of what is built on the contract. Nothing outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::coordination::Coordination;
use crate::lease_write::{HeartbeatWrite, LeaseWrite, Verdict};
use crate::store::{
    AcquireRequest, Acquired, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal, OutboxStore, Stored,
};
use crate::{Bucket, BucketCount, Lease, LeaseTimes, Message, RelayId, StoreError, StoreErrorKind, Ticks};

/// An outbox in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    messages: BTreeMap<Bucket, BTreeMap<i64, Stored<i64>>>,
    last_sequence: i64,
    coordination: Coordination,
    writes: u64,
}

impl MemoryStore {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message at the end of its bucket.
    ///
    /// # Errors
    /// Refuses what no broker would take.
    pub fn enqueue(&self, message: Message, bucket_count: BucketCount) -> Result<(), StoreError> {
        let refused = |error: crate::MessageError| {
            StoreError::new(StoreErrorKind::Misconfigured, "a message was refused").because(error)
        };
        message.validate().map_err(refused)?;
        let bucket = message.bucket(bucket_count);
        let bucket =
            bucket.ok_or_else(|| StoreError::new(StoreErrorKind::Misconfigured, "no such bucket"))?;
        let mut state = self.lock();
        state.last_sequence += 1;
        let row = state.last_sequence;
        state.messages.entry(bucket).or_default().insert(row, Stored { row, message: Ok(message) });
        Ok(())
    }

    /// Puts any stored message, malformed ones too, at the end of a bucket.
    pub fn insert(&self, bucket: Bucket, message: Result<Message, crate::store::Malformed>) {
        let mut state = self.lock();
        state.last_sequence += 1;
        let row = state.last_sequence;
        state.messages.entry(bucket).or_default().insert(row, Stored { row, message });
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.lock().messages.values().map(BTreeMap::len).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The leases and heartbeats as they stand.
    pub fn coordination(&self) -> Coordination {
        self.lock().coordination.clone()
    }

    /// Changes leases and heartbeats at will, as another relay might.
    pub fn change(&self, change: impl FnOnce(&mut Coordination)) {
        change(&mut self.lock().coordination);
    }

    /// How many writes of leases and heartbeats there have been.
    pub fn coordination_writes(&self) -> u64 {
        self.lock().writes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Carries out a lease write if its condition holds, as any store does, and says what the relay holds by it.
    fn write_lease(&mut self, relay: &RelayId, bucket: Bucket, write: &LeaseWrite) -> Option<Lease> {
        let stored = self.coordination.leases.get(&bucket);
        if !write.is_permitted(relay, stored) {
            return match write.judge(relay, bucket, stored) {
                Verdict::Held(lease) => Some(lease),
                Verdict::NotHeld => None,
                Verdict::ReleaseAgain(again) => self.write_lease(relay, bucket, &again),
            };
        }
        let result = write.result(relay, stored);
        self.coordination.leases.insert(bucket, result);
        self.writes += 1;
        write.grants(bucket)
    }

    /// Carries out a heartbeat write if its condition holds, and says whether it did.
    fn write_heartbeat(&mut self, relay: &RelayId, write: HeartbeatWrite) -> bool {
        let stored = self.coordination.heartbeats.get(relay);
        if !write.is_permitted(stored) {
            return write.is_own_attempt(stored);
        }
        match write.result() {
            Some(heartbeat) => self.coordination.heartbeats.insert(relay.clone(), heartbeat),
            None => self.coordination.heartbeats.remove(relay),
        };
        self.writes += 1;
        true
    }

    fn release(&mut self, relay: &RelayId, leases: &[Lease]) {
        for lease in leases {
            self.write_lease(relay, lease.bucket, &LeaseWrite::Release { read: lease.expires_at });
        }
    }
}

impl OutboxStore for MemoryStore {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        let mut state = self.lock();
        let AcquireRequest { relay, times, .. } = *request;
        if !state.write_heartbeat(relay, HeartbeatWrite::Announce { now: times.now }) {
            return Ok(Acquired { clock_behind: true, refused_writes: 1, ..Acquired::default() });
        }
        let read = state.coordination.clone();
        for (pruned, prune) in read.prunable(times) {
            state.write_heartbeat(&pruned, prune);
        }
        let plan = read.plan(request.bucket_count, relay, times);
        for bucket in &plan.release {
            if let Some(expires_at) = read.version(*bucket) {
                state.release(relay, &[Lease { bucket: *bucket, expires_at }]);
            }
        }
        let mut acquired = Acquired { standby_rank: plan.standby_rank, ..Acquired::default() };
        for bucket in &plan.keep {
            let keep = read.leases.get(bucket).and_then(|lease| LeaseWrite::keep(lease, times));
            acquired.note(keep.and_then(|keep| state.write_lease(relay, *bucket, &keep)));
        }
        for bucket in plan.claim.intersection(request.wanted) {
            let claim = LeaseWrite::claim(read.leases.get(bucket), times);
            acquired.note(state.write_lease(relay, *bucket, &claim));
        }
        Ok(acquired)
    }

    async fn pending(&self, buckets: &BTreeSet<Bucket>, _: Duration) -> Result<BTreeSet<Bucket>, StoreError> {
        let state = self.lock();
        let has = |bucket: &&Bucket| state.messages.get(bucket).is_some_and(|messages| !messages.is_empty());
        Ok(buckets.iter().filter(has).copied().collect())
    }

    async fn fetch(&self, request: &FetchRequest<'_, i64>) -> Result<Fetched<i64>, StoreError> {
        let state = self.lock();
        let Some(messages) = state.messages.get(&request.bucket) else {
            return Ok(Fetched { messages: Vec::new(), more: false, fault: None });
        };
        let first = messages.values().take(request.max_messages).cloned().collect();
        Ok(Fetched { messages: first, more: messages.len() > request.max_messages, fault: None })
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], _: Duration) -> Result<(), StoreError> {
        if let Some(messages) = self.lock().messages.get_mut(&bucket) {
            for row in rows {
                messages.remove(row);
            }
        }
        Ok(())
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        Some(self)
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        Some(self)
    }
}

impl LeaseRenewal for MemoryStore {
    fn renew<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(async move { Ok(self.lock().write_lease(relay, lease.bucket, &LeaseWrite::renew(times))) })
    }
}

impl LeaseOwnership for MemoryStore {
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>, StoreError>> {
        Box::pin(async move {
            let mut state = self.lock();
            let mut leases = Vec::new();
            for bucket in buckets {
                if state.coordination.is_free(*bucket, times.now) {
                    let claim = LeaseWrite::claim(state.coordination.leases.get(bucket), times);
                    leases.extend(state.write_lease(relay, *bucket, &claim));
                }
            }
            Ok(leases)
        })
    }

    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        _: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock().release(relay, leases);
            Ok(())
        })
    }

    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut state = self.lock();
            state.write_heartbeat(relay, HeartbeatWrite::Stop { stamp });
            state.release(relay, leases);
            Ok(())
        })
    }

    fn has_message<'a>(&'a self, bucket: Bucket, _: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        let has = self.lock().messages.get(&bucket).is_some_and(|messages| !messages.is_empty());
        Box::pin(async move { Ok(has) })
    }
}
