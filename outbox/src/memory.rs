//! A store in memory, for tests of what is built on the contract. Nothing outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::coordination::{Coordination, HeartbeatRecord, LeaseRecord};
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
    fn lease(&mut self, bucket: Bucket, owner: Option<&RelayId>, expires_at: Ticks) {
        self.writes += 1;
        let record = LeaseRecord { owner: owner.cloned(), expires_at: Some(expires_at) };
        self.coordination.leases.insert(bucket, record);
    }

    fn owns(&self, relay: &RelayId, bucket: Bucket) -> bool {
        self.coordination.leases.get(&bucket).is_some_and(|lease| lease.owner.as_ref() == Some(relay))
    }

    fn free(&mut self, relay: &RelayId, bucket: Bucket) {
        if let (true, Some(expires_at)) = (self.owns(relay, bucket), self.coordination.version(bucket)) {
            self.lease(bucket, None, expires_at);
        }
    }
}

impl OutboxStore for MemoryStore {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        let mut state = self.lock();
        let AcquireRequest { relay, times, .. } = request;
        let last = state.coordination.heartbeats.get(relay).copied();
        if last.is_some_and(|last| last.last_seen >= times.now) {
            return Ok(Acquired { clock_behind: true, ..Acquired::default() });
        }
        state.writes += 1;
        let heartbeat = HeartbeatRecord { last_seen: times.now, stopped_at: None };
        state.coordination.heartbeats.insert((*relay).clone(), heartbeat);
        let plan = state.coordination.plan(request.bucket_count, relay, *times);
        for bucket in &plan.release {
            state.free(relay, *bucket);
        }
        let mut leases = Vec::new();
        for bucket in plan.keep.iter().chain(plan.claim.intersection(request.wanted)) {
            let expires_at = state.coordination.claim_expiry(*bucket, *times);
            state.lease(*bucket, Some(relay), expires_at);
            leases.push(Lease { bucket: *bucket, expires_at });
        }
        Ok(Acquired { leases, ..Acquired::default() })
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
        Box::pin(async move {
            let mut state = self.lock();
            if !state.owns(relay, lease.bucket) || state.coordination.is_free(lease.bucket, times.now) {
                return Ok(None);
            }
            let read = state.coordination.version(lease.bucket).unwrap_or(lease.expires_at);
            let expires_at = times.expires_at().max(read);
            state.lease(lease.bucket, Some(relay), expires_at);
            Ok(Some(Lease { bucket: lease.bucket, expires_at }))
        })
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
                    let expires_at = state.coordination.claim_expiry(*bucket, times);
                    state.lease(*bucket, Some(relay), expires_at);
                    leases.push(Lease { bucket: *bucket, expires_at });
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
            let mut state = self.lock();
            for lease in leases {
                state.free(relay, lease.bucket);
            }
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
            state.writes += 1;
            let heartbeat = HeartbeatRecord { last_seen: stamp, stopped_at: Some(stamp) };
            state.coordination.heartbeats.insert(relay.clone(), heartbeat);
            for lease in leases {
                state.free(relay, lease.bucket);
            }
            Ok(())
        })
    }

    fn has_message<'a>(&'a self, bucket: Bucket, _: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        let has = self.lock().messages.get(&bucket).is_some_and(|messages| !messages.is_empty());
        Box::pin(async move { Ok(has) })
    }
}
