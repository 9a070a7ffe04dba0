//! A state of the model: small, and equal whenever nothing can tell two states apart.
//!
//! Every time is kept relative to now, in ticks; [`State::settle`] gives times that are too old to tell apart from now
//! their rank instead, which is what makes the states finite though time goes on for ever.

use crate::request::{Request, Write};

/// Nobody, where a relay's number is expected.
pub(crate) const NOBODY: u8 = u8::MAX;
pub(crate) const RELAYS: usize = 3;
pub(crate) const BUCKETS: usize = 2;
pub(crate) const MESSAGES: usize = 3;
/// How many requests may be under way that their senders have given up on, or have sent again.
pub(crate) const LATE: usize = 2;

/// No bound on the time that goes by.
pub(crate) const FOR_EVER: u8 = u8::MAX;

/// A time relative to now, in ticks of which [`UNIT`] make one unit of the model's time.
pub(crate) type Time = i16;
/// More than the ticks by which a version can move while the clock stands.
pub(crate) const UNIT: Time = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) leases: [Option<Stored>; BUCKETS],
    pub(crate) heartbeats: [Option<Heartbeat>; RELAYS],
    pub(crate) messages: [Message; MESSAGES],
    pub(crate) relays: [Relay; RELAYS],
    pub(crate) late: [Option<Request>; LATE],
    pub(crate) left: Faults,
    /// What the last step did wrong.
    pub(crate) wrong: Option<&'static str>,
    /// Which read the last lease write of each bucket followed from, and of which relay's round.
    pub(crate) written_after: [u16; BUCKETS],
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Requests that land after their sender has given up on them, or has sent them again.
    pub(crate) late: u8,
    /// Replies that are lost, after which the same request is sent again.
    pub(crate) replies: u8,
    /// Requests that are lost, and given up on.
    pub(crate) lost: u8,
    /// Relays that vanish at any point.
    pub(crate) crashes: u8,
    /// Hints that are lost.
    pub(crate) hints: u8,
    /// Hints that are delivered once more.
    pub(crate) repeats: u8,
    /// Units of time that may go by; [`FOR_EVER`]: any number.
    pub(crate) units: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) owner: u8,
    pub(crate) expires_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Heartbeat {
    pub(crate) last_seen: Time,
    pub(crate) stopped_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) row: Row,
    pub(crate) hint: Hint,
    pub(crate) is_published: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    NotYet,
    Waiting,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hint {
    None,
    UnderWay,
    Delivered,
    Lost,
}

/// A lease that a relay believes it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) expires_at: Time,
    /// The relay's wall clock, read before it asked.
    pub(crate) asked: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Relay {
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    pub(crate) held: [Option<Held>; BUCKETS],
    /// A sweep's buckets that it still has to work on before it looks again.
    pub(crate) todo: Buckets,
    pub(crate) given_up: Buckets,
    /// Freed, and to be read once more.
    pub(crate) freed: Buckets,
    /// Free, and left to others by a sweep's last round.
    pub(crate) available: Buckets,
    /// Where something got through; kept only where it makes a difference.
    pub(crate) acknowledged: Buckets,
    pub(crate) last_acquired: Option<Time>,
}

/// A set of buckets, by bit.
pub(crate) type Buckets = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Hinted,
    Sweep,
    /// A sweep whose stop stamp has been acknowledged: from here on like a hinted run.
    Stopped,
}

/// What a relay does next, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nobody yet; or somebody new, since nothing of its predecessor is left.
    Free,
    /// Ended or crashed.
    Gone,
    /// To read the coordination partition and claim what is free.
    ReadingToClaim {
        bucket: u8,
    },
    Claiming {
        bucket: u8,
        write: Write,
        asked: Time,
    },
    /// To make sure of its lease and fetch.
    Working {
        bucket: u8,
    },
    /// To make sure of its lease again and publish `batch`.
    Fetched {
        bucket: u8,
        batch: u8,
    },
    /// `batch` 0: before the fetch.
    Renewing {
        bucket: u8,
        batch: u8,
        write: Write,
        asked: Time,
    },
    Publishing {
        bucket: u8,
        batch: u8,
        renewal: Option<(Write, Time)>,
    },
    Deleting {
        bucket: u8,
        batch: u8,
    },
    Releasing {
        bucket: u8,
        write: Write,
        was_emptied: bool,
    },
    Rereading,
    /// A sweep's wait before it looks again.
    Pausing,
    Announcing {
        pending: Buckets,
        now: Time,
    },
    Reading {
        pending: Buckets,
    },
    Acquiring {
        pending: Buckets,
        round: Round,
    },
    Stopping {
        stamp: Time,
    },
    Freeing {
        writes: [Option<Write>; BUCKETS],
        pass: u8,
    },
}

/// The writes of one round of acquisition that are still to be made, and what those made have given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Round {
    pub(crate) prunes: [Option<Time>; RELAYS],
    pub(crate) writes: [Option<Write>; BUCKETS],
    pub(crate) granted: [Option<Time>; BUCKETS],
    /// A fingerprint of what was read, where refusals are looked at.
    pub(crate) read: u16,
}

impl State {
    /// Exchanges two relays' names wherever one is stored; of relays that take no part in fair share.
    pub(crate) fn rename(&mut self, first: u8, second: u8) {
        let change = |name: &mut u8| {
            if *name == first {
                *name = second;
            } else if *name == second {
                *name = first;
            }
        };
        let change_write = |write: &mut Write| {
            if let Write::Claim { read: Some((owner, _)), .. } = write {
                change(owner);
            }
        };
        self.leases.iter_mut().flatten().for_each(|lease| change(&mut lease.owner));
        for request in self.late.iter_mut().flatten() {
            change(&mut request.relay);
            change_write(&mut request.write);
        }
        self.late.sort_unstable();
        for relay in &mut self.relays {
            if let Phase::Claiming { write, .. } = &mut relay.phase {
                change_write(write);
            }
        }
    }
}

impl Relay {
    pub(crate) const NEW: Self = Self {
        mode: Mode::Hinted,
        phase: Phase::Free,
        held: [None; BUCKETS],
        todo: 0,
        given_up: 0,
        freed: 0,
        available: 0,
        acknowledged: 0,
        last_acquired: None,
    };

    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Free | Phase::Gone)
    }

    /// The buckets that it works on, or will without another look at the table.
    pub(crate) fn believes_in(&self, bucket: u8) -> bool {
        match self.phase {
            Phase::Working { bucket: at }
            | Phase::Fetched { bucket: at, .. }
            | Phase::Renewing { bucket: at, .. }
            | Phase::Publishing { bucket: at, .. }
            | Phase::Deleting { bucket: at, .. } => at == bucket || self.todo & bit(bucket) != 0,
            _ => false,
        }
    }
}

pub(crate) fn bit(bucket: u8) -> Buckets {
    1 << bucket
}

/// The buckets of a set.
pub(crate) fn buckets(set: Buckets) -> impl Iterator<Item = u8> {
    (0..u8::try_from(BUCKETS).unwrap()).filter(move |bucket| set & bit(*bucket) != 0)
}

pub(crate) fn at(number: u8) -> usize {
    usize::from(number)
}
