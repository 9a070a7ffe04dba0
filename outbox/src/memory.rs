//! A store in memory, for tests of what is built on the contract. Nothing outlives it.

mod quarantine;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;

use quarantine::SetAside;

use crate::coordination::{Coordination, LeaseRecord};
use crate::lease_write::{HeartbeatWrite, LeaseWrite, Verdict};
use crate::quarantine::Quarantine;
use crate::store::{
    AcquireRequest, Acquired, Backlog, BacklogMetrics, Claimed, FetchRequest, Fetched, LeaseOwnership,
    LeaseRenewal, NamedClaims, OutboxStore, Stored,
};
use crate::{Bucket, BucketCount, Lease, LeaseTimes, Message, RelayId, StoreError, StoreErrorKind, Ticks};

/// An outbox in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    capabilities: Capabilities,
}

/// What the store can do besides the four methods; everything, unless it is made with less.
#[derive(Clone, Copy, Debug)]
struct Capabilities {
    individually: bool,
    renewal: bool,
    ownership: bool,
    quarantine: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { individually: true, renewal: true, ownership: true, quarantine: true }
    }
}

#[derive(Debug, Default)]
struct State {
    messages: BTreeMap<Bucket, BTreeMap<i64, Stored<i64>>>,
    created: BTreeMap<i64, Ticks>,
    last_sequence: i64,
    coordination: Coordination,
    set_aside: BTreeMap<Bucket, SetAside>,
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
        let stored = Stored { row, size: message.size(), attempts: 0, message: Ok(message) };
        state.messages.entry(bucket).or_default().insert(row, stored);
        Ok(())
    }

    /// Puts any stored message, malformed ones too, at the end of a bucket.
    pub fn insert(&self, bucket: Bucket, message: Result<Message, crate::store::Malformed>) {
        let mut state = self.lock();
        state.last_sequence += 1;
        let row = state.last_sequence;
        let size = message.as_ref().map_or(0, Message::size);
        state.messages.entry(bucket).or_default().insert(row, Stored { row, size, attempts: 0, message });
    }

    /// Dates the message that was added last, for those who ask how old the backlog is.
    pub fn date_last(&self, created: Ticks) {
        let mut state = self.lock();
        let row = state.last_sequence;
        state.created.insert(row, created);
    }

    /// The same outbox, as a store that can only delete a prefix of what it fetched.
    #[must_use]
    pub fn deleting_prefixes_only(mut self) -> Self {
        self.capabilities.individually = false;
        self
    }

    /// The same outbox, as a store that cannot renew a lease.
    #[must_use]
    pub fn without_renewal(mut self) -> Self {
        self.capabilities.renewal = false;
        self
    }

    /// The same outbox, as a store that can neither claim by name nor give a lease up: the four methods alone.
    #[must_use]
    pub fn without_ownership(mut self) -> Self {
        self.capabilities.ownership = false;
        self
    }

    /// The same outbox, as a store that cannot set messages aside.
    #[must_use]
    pub fn without_quarantine(mut self) -> Self {
        self.capabilities.quarantine = false;
        self
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

    /// Frees whatever lease names the relay.
    fn release_strays(&mut self, relay: &RelayId) {
        let owned = |lease: &LeaseRecord| lease.expires_at.filter(|_| lease.owner.as_ref() == Some(relay));
        let leases = self.coordination.leases.iter();
        let strays: Vec<Lease> = leases
            .filter_map(|(bucket, lease)| Some(Lease { bucket: *bucket, expires_at: owned(lease)? }))
            .collect();
        self.release(relay, &strays);
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
        let mut acquired = Acquired {
            standby_rank: plan.standby_rank,
            place: read.place(relay, times),
            surplus: plan.surplus.clone(),
            parked: state.with_parked_keys(),
            ..Acquired::default()
        };
        acquired.excess = plan.release.intersection(request.busy).copied().collect();
        for bucket in plan.release.difference(request.busy) {
            if let Some(expires_at) = read.version(*bucket) {
                state.release(relay, &[Lease { bucket: *bucket, expires_at }]);
            }
        }
        for bucket in plan.keep.difference(request.busy) {
            let keep = read.leases.get(bucket).and_then(|lease| LeaseWrite::keep(lease, times));
            acquired.note(keep.and_then(|keep| state.write_lease(relay, *bucket, &keep)));
        }
        acquired.available = read.available(request.bucket_count, &plan, request.busy, times.now);
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
        let mut first = Vec::new();
        let mut bytes = 0;
        for stored in messages.values().take(request.max_messages) {
            if bytes >= request.max_bytes && !first.is_empty() {
                break;
            }
            bytes += stored.size;
            first.push(stored.clone());
        }
        Ok(Fetched { more: messages.len() > first.len(), messages: first, fault: None })
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], _: Duration) -> Result<(), StoreError> {
        if let Some(messages) = self.lock().messages.get_mut(&bucket) {
            // What the contract promises to stores that can delete a prefix alone.
            let is_prefix = || messages.keys().zip(rows).all(|(stored, row)| stored == row);
            debug_assert!(
                self.capabilities.individually
                    || rows.iter().all(|row| !messages.contains_key(row))
                    || is_prefix()
            );
            for row in rows {
                messages.remove(row);
            }
        }
        Ok(())
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        self.capabilities.renewal.then_some(self)
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        self.capabilities.ownership.then_some(self)
    }

    fn named_claims(&self) -> Option<&dyn NamedClaims> {
        self.capabilities.ownership.then_some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine<i64>> {
        self.capabilities.quarantine.then_some(self)
    }

    fn backlog(&self) -> Option<&dyn BacklogMetrics> {
        Some(self)
    }

    fn deletes_individually(&self) -> bool {
        self.capabilities.individually
    }
}

impl BacklogMetrics for MemoryStore {
    fn sample<'a>(
        &'a self,
        buckets: &'a BTreeSet<Bucket>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        let state = self.lock();
        let waiting = buckets.iter().filter_map(|bucket| state.messages.get(bucket)).flat_map(BTreeMap::keys);
        let mut backlog = Backlog { is_exact: true, ..Backlog::default() };
        for row in waiting {
            backlog.pending += 1;
            let created = state.created.get(row).copied();
            backlog.oldest = backlog.oldest.into_iter().chain(created).min();
        }
        Box::pin(async move { Ok(backlog) })
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

impl NamedClaims for MemoryStore {
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        _: Duration,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let mut state = self.lock();
            let (mut leases, parked) = (Vec::new(), state.with_parked_keys());
            for bucket in buckets {
                if state.coordination.is_free(*bucket, times.now) {
                    let claim = LeaseWrite::claim(state.coordination.leases.get(bucket), times);
                    leases.extend(state.write_lease(relay, *bucket, &claim));
                }
            }
            Ok(Claimed { leases, error: None, parked })
        })
    }
}

impl LeaseOwnership for MemoryStore {
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

    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock().release_strays(relay);
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
            // What a claim took that the relay gave up on is in no list.
            state.release_strays(relay);
            Ok(())
        })
    }

    fn has_message<'a>(&'a self, bucket: Bucket, _: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        let has = self.lock().messages.get(&bucket).is_some_and(|messages| !messages.is_empty());
        Box::pin(async move { Ok(has) })
    }
}
