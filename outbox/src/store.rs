//! The store contract: what the relay asks of whatever keeps the messages and the leases.
//!
//! Four methods every store has, and optional capabilities it may have besides. One primitive carries the whole of it:
//! an atomic conditional write. What each write is conditional on is stated in [`crate::lease_write`].
//!
//! | capability | without it |
//! |---|---|
//! | [`OutboxStore::deletes_individually`] | only an acknowledged prefix of a batch is deleted: one stuck message holds its bucket |
//! | [`OutboxStore::renewal`] | the relay refuses to start without a bound on a whole publish ([`crate::RelayOptions::max_publish_duration`]) |
//! | [`OutboxStore::ownership`] | a stop hands nothing over: leases lapse as after a crash |
//! | [`OutboxStore::named_claims`] | no hinted runs |
//! | [`OutboxStore::quarantine`] | a message that can never be published holds up its key until somebody acts; it is sent, with what is behind it, by every run |
//! | [`OutboxStore::backlog`] | the backlog is unknown, which is not zero |
//!
//! [`crate::custom_store`] builds a store of one's own, step by step, and [`crate::conformance`] is the suite that holds any
//! store to all this.
//!
//! Every method is given a time limit and returns within it, with [`StoreErrorKind::MayHaveHappened`] where a write
//! was under way. Every method may be cancelled by dropping its future; what was sent may still happen.
//!
//! Semantics a store must keep: a message is removed by [`OutboxStore::delete`] alone, never by age; one bucket is never
//! granted to two live relays; a bucket out of range fails loudly rather than sit unclaimed.
//!
//! [`StoreErrorKind::MayHaveHappened`]: crate::StoreErrorKind::MayHaveHappened

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::quarantine::Quarantine;
use crate::{About, Bucket, BucketCount, Message, RelayId, StoreError, Ticks};

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

    /// Which of `buckets` have a message waiting. May miss one written just now: it is found the next time. A bucket that
    /// could not be looked at counts as one that has: one that is throttled must not hide the others.
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

    /// Removes messages that the broker has acknowledged: always the rows that a fetch returned, in their order, and
    /// without gaps from the first one on unless the store [deletes individually](Self::deletes_individually). Rows
    /// already gone are no error: a call may be repeated.
    fn delete(
        &self,
        bucket: Bucket,
        rows: &[Self::Row],
        limit: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether any set of fetched rows can be deleted, and not a prefix alone. Then a message that cannot be published
    /// holds back its own key, and what was acknowledged behind it is not sent again.
    fn deletes_individually(&self) -> bool {
        false
    }

    /// The capability to extend a lease while a publish is under way.
    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        None
    }

    /// The capability to give leases up before they lapse.
    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        None
    }

    /// The capability to claim named buckets: hinted runs.
    fn named_claims(&self) -> Option<&dyn NamedClaims> {
        None
    }

    /// The capability to set messages aside that can never be published, and to count attempts. It takes one to
    /// [delete individually](Self::deletes_individually).
    fn quarantine(&self) -> Option<&dyn Quarantine<Self::Row>> {
        None
    }

    /// The capability to tell how much waits.
    fn backlog(&self) -> Option<&dyn BacklogMetrics> {
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

/// Claims named buckets.
pub trait NamedClaims: Send + Sync {
    /// Claims those of `buckets` that are free, without membership or share: a hinted run.
    /// A bucket that another relay holds is passed over. A claim that fails takes nothing from those that were granted.
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>>;
}

/// What claims by name ended with.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The leases that were granted.
    pub leases: Vec<Lease>,
    /// What failed beside them. A bucket whose claim failed may have been granted all the same:
    /// [`LeaseOwnership::release_strays`].
    pub error: Option<StoreError>,
    /// Buckets with [parked](crate::quarantine) keys, as read before the claims.
    pub parked: BTreeSet<Bucket>,
}

/// Tells how much waits. May run at the same time as any other call.
pub trait BacklogMetrics: Send + Sync {
    /// The backlog of all of `buckets`. An error means that it is unknown, never that it is empty.
    fn sample<'a>(
        &'a self,
        buckets: &'a BTreeSet<Bucket>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Backlog, StoreError>>;
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Messages that wait; exact only if `is_exact`.
    pub pending: u64,
    /// Whether all messages were counted, or the count ended at a bound of the store's.
    pub is_exact: bool,
    /// When the oldest message that waits was written, whoever was to publish it. A relay that keeps its heartbeat and
    /// publishes nothing shows here.
    pub oldest: Option<Ticks>,
}

/// Gives leases up before they lapse.
pub trait LeaseOwnership: Send + Sync {
    /// Frees leases that `relay` holds, so that another can claim them at once. One that is lost already is no error.
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Frees whatever lease names `relay`: after a claim of which it is not known whether it was granted.
    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
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
    /// What this relay's last acquisition returned: a hint for stores that must probe bucket by bucket, where to begin.
    /// Never proof of ownership.
    pub previous: &'a BTreeSet<Bucket>,
    /// Buckets that are being worked on right now. Their leases are left exactly as they are (whoever works on them
    /// renews them); those that exceed the share are named in [`Acquired::excess`].
    pub busy: &'a BTreeSet<Bucket>,
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
#[derive(Debug, Default)]
pub struct Acquired {
    /// Every lease the relay holds now, but for the busy ones.
    pub leases: Vec<Lease>,
    /// Busy buckets that exceed the share: to be handed back once what is under way in them has ended.
    pub excess: BTreeSet<Bucket>,
    /// Buckets that nobody holds and that the plan leaves to another relay, which may be dead: they are worth another
    /// round once it has had the time to take them.
    pub available: BTreeSet<Bucket>,
    /// What failed for single leases. The others are granted all the same.
    pub error: Option<StoreError>,
    /// The relay's membership was refused because a later one is stored: its clock is behind. It holds nothing.
    pub clock_behind: bool,
    /// Conditional writes that were refused: more than none, in a healthy fleet, is a fault worth a look.
    pub refused_writes: u32,
    /// The relay's place among those that have no share; `None` if it has one.
    pub standby_rank: Option<usize>,
    /// Buckets that other members hold beyond their share: they are about to hand them back.
    pub surplus: BTreeSet<Bucket>,
    /// Where this relay stands among those that take part in fair share.
    pub place: Place,
    /// Buckets with [parked](crate::quarantine) keys, as read before the claims.
    pub parked: BTreeSet<Bucket>,
}

/// A relay's place among those that take part in fair share
/// ([`Coordination::place`](crate::coordination::Coordination::place)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// How many are before it, in id order.
    pub rank: usize,
    /// How many there are, this one included; 0: not known, as for a relay whose clock is behind.
    pub members: usize,
}

/// What to read of a bucket.
#[derive(Clone, Debug)]
pub struct FetchRequest<'a, Row> {
    /// The bucket.
    pub bucket: Bucket,
    /// The most messages to return.
    pub max_messages: usize,
    /// The size past which no further message is returned; one larger than that is returned all the same.
    pub max_bytes: usize,
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
    /// How much memory it takes, in bytes, near enough to bound a batch by.
    pub size: usize,
    /// How many runs have sent it in vain, as far as they were [counted](Quarantine::count_attempts).
    pub attempts: u32,
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

impl<'a> OrderKey<'a> {
    /// The key, if there is one that can be read.
    pub const fn key(self) -> Option<&'a Bytes> {
        match self {
            Self::Key(key) => Some(key),
            Self::None | Self::Unreadable => None,
        }
    }
}

/// A stored message that can never be published as it is. It stays where it is.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// Which item, and what is wrong with it.
    pub reason: String,
    /// Its key, which may be readable all the same.
    pub key: MalformedKey,
    /// What else can be read of it.
    pub about: About,
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
