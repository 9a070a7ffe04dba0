//! The capability to set messages aside that can never be published, and to count how often one was refused
//! (design.md, section 8).
//!
//! A message that is set aside moves out of its bucket's messages, under its own number, and its key is *parked*: what
//! comes later with that key follows it, in order, until somebody has the messages *redriven*, back to where they came
//! from. A key is parked in the same write that moves its first message, so that a relay finds both or neither.
//!
//! Every relay honours parked keys, whatever its own [policy](crate::PoisonPolicy): one that published a later message of
//! a parked key would overtake what is set aside.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{Bucket, Lease, LeaseTimes, RelayId, StoreError};

/// How far a parked key is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parking {
    /// Messages of the key are set aside, and what comes later follows.
    Parked,
    /// They are on their way back. Nothing of the key is published or set aside until all of them are.
    Redriving,
}

/// A message that is to be set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<Row> {
    /// Which one.
    pub row: Row,
    /// Why.
    pub why: Why,
}

/// Why a message is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It can never be published. Its key, if it has one, is parked with it.
    Poison {
        /// What is wrong with it, without key or payload.
        reason: String,
        /// Whether it was sent, and refused: one more attempt.
        was_sent: bool,
    },
    /// Its key is parked.
    KeyIsParked,
}

/// What became of messages that were to be set aside.
#[derive(Debug)]
pub struct Moved<Row> {
    /// The lease as it stands: each move extends it. `None`: it is lost, and nothing more was moved.
    pub lease: Option<Lease>,
    /// Those that are set aside now. Others stay where they were: their key is not parked (any more), or is being
    /// redriven, or they are too large to be set aside with the reason, or the moving ended in the error.
    pub rows: Vec<Row>,
    /// What the moving ended in, if it was not complete.
    pub error: Option<StoreError>,
}

/// Sets messages aside.
pub trait Quarantine<Row>: Send + Sync {
    /// The parked keys of a bucket. Strongly consistent.
    ///
    /// Asked once a bucket was claimed that is [said to have some](crate::store::Acquired::parked).
    fn parked<'a>(
        &'a self,
        bucket: Bucket,
        limit: Duration,
    ) -> BoxFuture<'a, Result<BTreeMap<Bytes, Parking>, StoreError>>;

    /// Moves messages of the lease's bucket aside, in the order given, and parks the keys of those that are poison.
    ///
    /// Each move is atomic: the message is in one place, and its key is parked when it is set aside. It is conditional on
    /// the lease as `lease` has it and extends it by `times`, never backwards: a move that lands late finds another
    /// version, and whoever claims the bucket after reading that no key of it is parked is refused if one was meanwhile.
    ///
    /// May be called again with the same messages: those that were moved already are no error.
    fn park<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        moves: &'a [Move<Row>],
        limit: Duration,
    ) -> BoxFuture<'a, Moved<Row>>;

    /// How many keys are parked, or on their way back, in all buckets. For those who watch: it may be a moment behind.
    fn count_parked(&self, limit: Duration) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Counts one more attempt at each of these messages, which stay. Those that are gone are no error.
    ///
    /// A message that has [attempts](crate::store::Stored::attempts) is sent ahead of what is behind it in its key, alone:
    /// or what is behind it would be sent again each time.
    fn count_attempts<'a>(
        &'a self,
        bucket: Bucket,
        rows: &'a [Row],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}
