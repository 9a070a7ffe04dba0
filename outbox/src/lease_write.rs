//! The writes of leases and heartbeats, as pure functions: what each is conditional on, what it leaves, and what a
//! refusal means to whoever sent it (the table of design.md, section 6).
//!
//! Stores express the same conditions in their own terms; the conformance suite and the model hold them to these.

use crate::coordination::{HeartbeatRecord, LeaseRecord};
use crate::{Lease, LeaseTimes, RelayId, Ticks};

/// A conditional write of one bucket's lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseWrite {
    /// Takes a lease that was read as free or expired. Conditional on what was read.
    Claim {
        /// The lease as this round read it; `None`: there was none.
        read: Option<LeaseRecord>,
        /// When the claim is to lapse.
        expires_at: Ticks,
    },
    /// Extends a lease that this round read as the relay's own. Conditional on the owner and on what was read.
    Keep {
        /// The expiry that was read.
        read: Ticks,
        /// The new expiry.
        expires_at: Ticks,
    },
    /// Extends a lease that is in use. Conditional on the owner, on its not having expired, and on not moving its
    /// expiry backwards.
    Renew {
        /// The relay's wall clock, read before the request.
        now: Ticks,
        /// The new expiry.
        expires_at: Ticks,
    },
    /// Frees a lease and leaves its expiry as it is, so that the version neither goes back nor recurs. Conditional on
    /// the owner and on the version.
    Release {
        /// The expiry that was read or written last.
        read: Ticks,
    },
}

/// What a write's sender makes of its refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds the lease: the write was its own earlier attempt, whose reply was lost, or had nothing left to do.
    Held(Lease),
    /// It does not hold the lease (any more).
    NotHeld,
    /// It still holds the lease, under another version: to be released under that one.
    ReleaseAgain(LeaseWrite),
}

impl LeaseWrite {
    /// Whether the write's condition holds for what is stored.
    pub fn is_permitted(&self, relay: &RelayId, stored: Option<&LeaseRecord>) -> bool {
        let owned = stored.and_then(|lease| lease.expires_at.filter(|_| lease.owner.as_ref() == Some(relay)));
        match self {
            // The expiry is the version: the same one means the same state, or a release of it.
            Self::Claim { read: Some(read), .. } => {
                stored.is_some_and(|lease| lease.expires_at == read.expires_at)
            }
            Self::Claim { read: None, .. } => stored.is_none(),
            Self::Keep { read, .. } | Self::Release { read } => owned == Some(*read),
            Self::Renew { now, expires_at } => {
                owned.is_some_and(|stored| stored > *now && stored <= *expires_at)
            }
        }
    }

    /// What the write leaves when it is carried out over `stored`.
    pub fn result(&self, relay: &RelayId, stored: Option<&LeaseRecord>) -> LeaseRecord {
        match self {
            Self::Claim { expires_at, .. }
            | Self::Keep { expires_at, .. }
            | Self::Renew { expires_at, .. } => {
                LeaseRecord { owner: Some(relay.clone()), expires_at: Some(*expires_at) }
            }
            Self::Release { read } => {
                let expires_at = stored.and_then(|lease| lease.expires_at).unwrap_or(*read);
                LeaseRecord { owner: None, expires_at: Some(expires_at) }
            }
        }
    }

    /// What a refusal means, given what was stored.
    ///
    /// A request may be carried out and its reply lost; whoever sends it again is refused by its own first attempt.
    /// Finding exactly what it wanted to write, it has succeeded.
    pub fn judge(&self, relay: &RelayId, bucket: crate::Bucket, stored: Option<&LeaseRecord>) -> Verdict {
        let owned = stored.and_then(|lease| lease.expires_at.filter(|_| lease.owner.as_ref() == Some(relay)));
        let held = |expires_at| Verdict::Held(Lease { bucket, expires_at });
        match (self, owned) {
            (Self::Claim { expires_at, .. } | Self::Keep { expires_at, .. }, Some(stored))
                if stored == *expires_at =>
            {
                held(stored)
            }
            // A later expiry of its own: the clock went back since. The lease is held, and is left as it is.
            (Self::Renew { expires_at, .. }, Some(stored)) if stored >= *expires_at => held(stored),
            (Self::Release { read }, Some(stored)) if stored != *read => {
                Verdict::ReleaseAgain(Self::Release { read: stored })
            }
            _ => Verdict::NotHeld,
        }
    }

    /// The lease that the write grants when it is carried out; `None` for a release.
    pub fn grants(&self, bucket: crate::Bucket) -> Option<Lease> {
        match self {
            Self::Claim { expires_at, .. }
            | Self::Keep { expires_at, .. }
            | Self::Renew { expires_at, .. } => Some(Lease { bucket, expires_at: *expires_at }),
            Self::Release { .. } => None,
        }
    }

    /// The claim of a bucket, given its lease as this round read it. The expiry is later than what was read, even if
    /// this relay's clock is behind its last owner's, so that a version never recurs.
    pub fn claim(read: Option<&LeaseRecord>, times: LeaseTimes) -> Self {
        Self::Claim { read: read.cloned(), expires_at: later_than(read, times) }
    }

    /// The extension of a lease that this round read as the relay's own. Never backwards, should this clock have gone
    /// back since. `None` if it has no expiry to be conditional on: then it is nobody's.
    pub fn keep(read: &LeaseRecord, times: LeaseTimes) -> Option<Self> {
        let version = read.expires_at?;
        Some(Self::Keep { read: version, expires_at: later_than(Some(read), times) })
    }

    /// The extension of a lease in use.
    pub fn renew(times: LeaseTimes) -> Self {
        Self::Renew { now: times.now, expires_at: times.expires_at() }
    }
}

fn later_than(read: Option<&LeaseRecord>, times: LeaseTimes) -> Ticks {
    let fresh = times.expires_at();
    read.and_then(|lease| lease.expires_at).map_or(fresh, |read| fresh.max(read.next()))
}

/// A write of one relay's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeartbeatWrite {
    /// Says that the relay is alive. Conditional on moving forward, strictly: one that lands late is refused.
    Announce {
        /// The round's timestamp.
        now: Ticks,
    },
    /// Says that the relay has stopped. Unconditional; the stamp is later than any heartbeat the relay sent.
    Stop {
        /// The stamp.
        stamp: Ticks,
    },
    /// Removes a record that has served its time. Conditional on its being the one that was read, or gone already.
    Prune {
        /// The time that was read.
        read: Ticks,
    },
}

impl HeartbeatWrite {
    /// Whether the write's condition holds for what is stored.
    pub fn is_permitted(&self, stored: Option<&HeartbeatRecord>) -> bool {
        match self {
            Self::Announce { now } => stored.is_none_or(|stored| stored.last_seen < *now),
            Self::Stop { .. } => true,
            // Two relays may prune the same record: the second finds nothing, and that is no refusal.
            Self::Prune { read } => stored.is_none_or(|stored| stored.last_seen == *read),
        }
    }

    /// What the write leaves; `None`: nothing.
    pub fn result(&self) -> Option<HeartbeatRecord> {
        match self {
            Self::Announce { now } => Some(HeartbeatRecord { last_seen: *now, stopped_at: None }),
            Self::Stop { stamp } => Some(HeartbeatRecord { last_seen: *stamp, stopped_at: Some(*stamp) }),
            Self::Prune { .. } => None,
        }
    }

    /// Whether a refusal was the sender's own earlier attempt, whose reply was lost.
    pub fn is_own_attempt(&self, stored: Option<&HeartbeatRecord>) -> bool {
        self.result().is_some_and(|wanted| stored == Some(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bucket;
    use std::time::Duration;

    const NOW: Ticks = Ticks::from_raw(639_000_000_000_000_000);
    const TIMES: LeaseTimes = LeaseTimes { now: NOW, duration: Duration::from_secs(30) };
    const BUCKET: Bucket = Bucket::new(3);

    fn relay(id: &str) -> RelayId {
        RelayId::new(id).unwrap()
    }

    fn lease(owner: Option<&str>, expires_at: Ticks) -> LeaseRecord {
        LeaseRecord { owner: owner.map(relay), expires_at: Some(expires_at) }
    }

    /// Carries the write out if it is permitted, as a store does.
    fn apply(write: &LeaseWrite, id: &str, stored: Option<LeaseRecord>) -> (Option<LeaseRecord>, bool) {
        if write.is_permitted(&relay(id), stored.as_ref()) {
            (Some(write.result(&relay(id), stored.as_ref())), true)
        } else {
            (stored, false)
        }
    }

    /// The SDK sends a request again whose answer was lost: the second is refused by the first, and is a success.
    #[test]
    fn a_write_that_finds_its_own_earlier_attempt_has_succeeded() {
        let mine = lease(Some("a"), NOW.plus(Duration::from_secs(5)));
        let expired = lease(Some("b"), NOW);
        for (write, stored) in [
            (LeaseWrite::claim(None, TIMES), None),
            (LeaseWrite::claim(Some(&expired), TIMES), Some(expired)),
            (LeaseWrite::keep(&mine, TIMES).unwrap(), Some(mine.clone())),
            (LeaseWrite::renew(TIMES), Some(mine.clone())),
        ] {
            let (stored, done) = apply(&write, "a", stored);
            assert!(done, "{write:?}");
            let (stored, again) = apply(&write, "a", stored);
            // A renewal is not refused by itself: it does not move the expiry backwards.
            assert_eq!(again, matches!(write, LeaseWrite::Renew { .. }));
            let granted = write.grants(BUCKET).unwrap();
            assert_eq!(
                write.judge(&relay("a"), BUCKET, stored.as_ref()),
                Verdict::Held(granted),
                "{write:?}"
            );
            assert_eq!(write.judge(&relay("b"), BUCKET, stored.as_ref()), Verdict::NotHeld, "{write:?}");
        }
        let release = LeaseWrite::Release { read: mine.expires_at.unwrap() };
        let (freed, _) = apply(&release, "a", Some(mine));
        let (freed, again) = apply(&release, "a", freed);
        assert!(!again);
        assert_eq!(release.judge(&relay("a"), BUCKET, freed.as_ref()), Verdict::NotHeld);
    }

    #[test]
    fn no_late_write_undoes_a_release() {
        let read = lease(Some("a"), NOW.plus(Duration::from_secs(5)));
        let keep = LeaseWrite::keep(&read, TIMES).unwrap();
        let renew = LeaseWrite::renew(TIMES);
        let (freed, done) = apply(&LeaseWrite::Release { read: read.expires_at.unwrap() }, "a", Some(read));
        assert!(done);
        for late in [keep, renew] {
            assert!(!apply(&late, "a", freed.clone()).1, "{late:?}");
        }
    }

    #[test]
    fn a_release_of_an_earlier_life_frees_nothing() {
        let first = LeaseWrite::claim(None, TIMES);
        let (stored, _) = apply(&first, "a", None);
        let release = LeaseWrite::Release { read: TIMES.expires_at() };
        let (stored, _) = apply(&release, "a", stored);
        let (stored, claimed) = apply(&LeaseWrite::claim(stored.as_ref(), TIMES), "a", stored);
        assert!(claimed);
        // The same release, landing once more: the version has moved on.
        assert!(!apply(&release, "a", stored).1);
    }

    #[test]
    fn of_two_claims_of_what_both_read_one_succeeds() {
        let free = lease(None, NOW.plus(Duration::from_secs(99)));
        let (stored, a) = apply(&LeaseWrite::claim(Some(&free), TIMES), "a", Some(free.clone()));
        let (_, b) = apply(&LeaseWrite::claim(Some(&free), TIMES), "b", stored);
        assert_eq!((a, b), (true, false));
    }

    #[test]
    fn a_late_heartbeat_does_not_undo_a_stop() {
        let announce = HeartbeatWrite::Announce { now: NOW };
        let stopped = HeartbeatWrite::Stop { stamp: NOW.next() }.result();
        assert!(!announce.is_permitted(stopped.as_ref()));
        assert!(!announce.is_own_attempt(stopped.as_ref()));
        assert!(announce.is_own_attempt(announce.result().as_ref()));
    }

    #[test]
    fn a_record_that_moved_on_is_not_pruned() {
        let seen = |last_seen| HeartbeatRecord { last_seen, stopped_at: None };
        let prune = HeartbeatWrite::Prune { read: NOW };
        assert!(prune.is_permitted(Some(&seen(NOW))) && prune.is_permitted(None));
        assert!(!prune.is_permitted(Some(&seen(NOW.next()))));
    }
}
