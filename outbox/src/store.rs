//! The store contract: what the relay asks of whatever keeps the messages and the leases.
//!
//! Four methods every store has, and optional capabilities it may have besides ([`OutboxStore::renewal`],
//! [`OutboxStore::ownership`]). One primitive carries the whole of it: an atomic conditional write.
//!
//! Every method is given a time limit and returns within it, with [`StoreErrorKind::MayHaveHappened`] where a write
//! was under way. Every method may be cancelled by dropping its future; what was sent may still happen.
//!
//! [`StoreErrorKind::MayHaveHappened`]: crate::StoreErrorKind::MayHaveHappened

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{Bucket, BucketCount, Message, RelayId, StoreError, Ticks};

/// Keeps messages and leases.
pub trait OutboxStore: Send + Sync + 'static {
    /// What identifies a stored message to the store: opaque to the relay, which hands back what it was given.
    type Row: Clone + Debug + Eq + Hash + Send + Sync + 'static;

    /// Takes part in fair share, once: makes the relay's membership known, reads who holds what, keeps and claims
    /// what the plan gives this relay and hands back what exceeds its share. Returns all that it holds now.
    ///
    /// Two relays must never be granted one bucket at once. May be called again at any time; a call whose reply was
    /// lost is made good by the next.
    fn acquire(
        &self,
        request: &AcquireRequest<'_>,
    ) -> impl Future<Output = Result<Acquired, StoreError>> + Send;

    /// Which of `buckets` have a message waiting. May miss one written just now: it is found the next time.
    fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> impl Future<Output = Result<BTreeSet<Bucket>, StoreError>> + Send;

    /// Reads the oldest messages of a bucket, in sequence order, from the first one on. Strongly consistent.
    ///
    /// A message that was committed before a later one of the same writer must not be missing when the later one is
    /// there.
    fn fetch(
        &self,
        request: &FetchRequest<'_, Self::Row>,
    ) -> impl Future<Output = Result<Fetched<Self::Row>, StoreError>> + Send;

    /// Removes messages that the broker has acknowledged. Rows already gone are no error: a call may be repeated.
    fn delete(
        &self,
        bucket: Bucket,
        rows: &[Self::Row],
        limit: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The capability to extend a lease while a publish is under way.
    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        None
    }

    /// The capability to claim named buckets and to give leases up.
    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        None
    }
}

/// Extends a lease, whatever the relay is doing with it.
pub trait LeaseRenewal: Send + Sync {
    /// Extends `lease` to `now` + `duration` if `relay` still holds it and it has not expired; never backwards.
    /// `None`: the lease is lost.
    fn renew<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>>;
}

/// Claims named buckets, and gives leases up before they expire.
pub trait LeaseOwnership: Send + Sync {
    /// Claims those of `buckets` that are free, without membership or share: a hinted run.
    /// A bucket that another relay holds is passed over.
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>, StoreError>>;

    /// Frees leases that `relay` holds, so that another can claim them at once. One that is lost already is no error.
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Ends the membership of a relay that took part in fair share, then frees its leases, in that order: peers that
    /// still counted it would leave the freed buckets to it.
    ///
    /// `stamp` is later than any time at which the relay announced itself, so that an announcement that lands late
    /// finds a newer one.
    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Whether `bucket` has a message, strongly consistent: asked after a release, so that no wake-up is lost
    /// (design.md, section 7).
    fn has_message<'a>(&'a self, bucket: Bucket, limit: Duration) -> BoxFuture<'a, Result<bool, StoreError>>;
}

/// A bucket that a relay owns until a time on everybody's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The bucket.
    pub bucket: Bucket,
    /// When it lapses, and the version that the next write of it is conditional on.
    pub expires_at: Ticks,
}

/// The times that a lease write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The relay's wall clock, read before the request.
    pub now: Ticks,
    /// How long the lease is to last from then.
    pub duration: Duration,
}

impl LeaseTimes {
    /// When a lease taken now lapses.
    pub fn expires_at(self) -> Ticks {
        self.now.plus(self.duration)
    }
}

/// One acquisition round of one relay.
#[derive(Clone, Debug)]
pub struct AcquireRequest<'a> {
    /// Who asks.
    pub relay: &'a RelayId,
    /// How many buckets there are.
    pub bucket_count: BucketCount,
    /// The round's one timestamp, and the duration of leases (and of membership).
    pub times: LeaseTimes,
    /// Of the buckets that the plan gives this relay, those it wants. Others are left free.
    pub wanted: &'a BTreeSet<Bucket>,
    /// The time that the round may take.
    pub limit: Duration,
}

impl Acquired {
    /// Notes what became of one lease write; `None`: it was refused.
    pub fn note(&mut self, lease: Option<Lease>) {
        match lease {
            Some(lease) => self.leases.push(lease),
            None => self.refused_writes += 1,
        }
    }
}

/// What a round of acquisition ended with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquired {
    /// Every lease the relay holds now.
    pub leases: Vec<Lease>,
    /// The relay's membership was refused because a later one is stored: its clock is behind. It holds nothing.
    pub clock_behind: bool,
    /// Conditional writes that were refused: more than none, in a healthy fleet, is a fault worth a look.
    pub refused_writes: u32,
    /// The relay's place among those that have no share; `None` if it has one.
    pub standby_rank: Option<usize>,
}

/// What to read of a bucket.
#[derive(Clone, Debug)]
pub struct FetchRequest<'a, Row> {
    /// The bucket.
    pub bucket: Bucket,
    /// The most messages to return. A store may return fewer for its own bounds, but not none.
    pub max_messages: usize,
    /// The newest message that this relay has removed from the bucket, if any: nothing older can appear
    /// unless its writer committed late.
    pub removed_up_to: Option<&'a Row>,
    /// The time it may take.
    pub limit: Duration,
}

/// The oldest messages of a bucket.
#[derive(Debug)]
pub struct Fetched<Row> {
    /// In sequence order.
    pub messages: Vec<Stored<Row>>,
    /// Whether the bucket had more than these.
    pub more: bool,
    /// What stopped the reading behind these messages, if it was not the limit: they can be published all the same,
    /// and then the bucket's run ends in it.
    pub fault: Option<StoreError>,
}

/// A message as the store keeps it.
#[derive(Clone, Debug)]
pub struct Stored<Row> {
    /// What the store knows it by.
    pub row: Row,
    /// The message, or why it can never be published.
    pub message: Result<Message, Malformed>,
}

impl<Row> Stored<Row> {
    /// What orders it: its key if it has one.
    pub fn order_key(&self) -> OrderKey<'_> {
        match &self.message {
            Ok(message) => message.key.as_ref().map_or(OrderKey::None, OrderKey::Key),
            Err(malformed) => match &malformed.key {
                MalformedKey::Readable(Some(key)) => OrderKey::Key(key),
                MalformedKey::Readable(None) => OrderKey::None,
                MalformedKey::Unreadable => OrderKey::Unreadable,
            },
        }
    }
}

/// What a message is ordered by within its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKey<'a> {
    /// It keeps its place among the messages of this key.
    Key(&'a Bytes),
    /// It has no key, and no order to keep.
    None,
    /// Its key cannot be read: it may be any key, so the whole bucket waits for it.
    Unreadable,
}

/// A stored message that can never be published as it is. It stays where it is.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// Which item, and what is wrong with it.
    pub reason: String,
    /// Its key, which may be readable all the same.
    pub key: MalformedKey,
}

/// The key of a malformed message.
#[derive(Clone, PartialEq, Eq)]
pub enum MalformedKey {
    /// It has this key, or none.
    Readable(Option<Bytes>),
    /// It cannot be told.
    Unreadable,
}

/// Keys are never shown.
impl Debug for MalformedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Readable(_) => "Readable",
            Self::Unreadable => "Unreadable",
        })
    }
}
