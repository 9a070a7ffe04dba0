//! Writes on their way to the table, and those that will follow without another look at it.

use crate::state::{BUCKETS, Phase, RELAYS, Relay, State, Time};

/// A write of a lease, as [`outbox::lease_write::LeaseWrite`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    /// `read`: the owner and the expiry.
    Claim {
        read: Option<(u8, Time)>,
        expires_at: Time,
    },
    Keep {
        read: Time,
        expires_at: Time,
    },
    Renew {
        now: Time,
        expires_at: Time,
    },
    Release {
        read: Time,
    },
    Announce {
        now: Time,
    },
    Stop {
        stamp: Time,
    },
    /// Of the relay whose number is in the request's place of the bucket.
    Prune {
        read: Time,
    },
}

/// A request on its way to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) relay: u8,
    /// The bucket whose lease it writes; for a heartbeat, the relay whose.
    pub(crate) item: u8,
    pub(crate) write: Write,
}

impl Write {
    pub(crate) fn is_of_heartbeat(&self) -> bool {
        matches!(self, Self::Announce { .. } | Self::Stop { .. } | Self::Prune { .. })
    }
}

impl State {
    /// Every write that is under way or will be sent without another look at the table.
    pub(crate) fn requests(&self) -> impl Iterator<Item = Request> {
        let planned = (0..).zip(&self.relays).flat_map(|(relay, state)| state.planned(relay));
        self.late.iter().flatten().copied().chain(planned)
    }
}

impl Relay {
    /// Whether a round has given it the bucket, and is still going on.
    pub(crate) fn is_acquiring(&self, bucket: usize) -> bool {
        matches!(&self.phase, Phase::Acquiring { round, .. } if round.granted[bucket].is_some())
    }

    /// The write that it waits for, and those it will send after it.
    fn planned(&self, relay: u8) -> impl Iterator<Item = Request> {
        let none = ([None; BUCKETS], [None; RELAYS]);
        let (writes, prunes) = match &self.phase {
            Phase::Acquiring { round, .. } => (round.writes, round.prunes),
            Phase::Freeing { writes, .. } => (*writes, none.1),
            _ => none,
        };
        let writes = (0..).zip(writes);
        let prunes = (0..).zip(prunes.map(|read| read.map(|read| Write::Prune { read })));
        let first = self
            .outstanding(relay)
            .filter(|_| !matches!(self.phase, Phase::Acquiring { .. } | Phase::Freeing { .. }));
        let rest = writes
            .chain(prunes)
            .filter_map(move |(item, write)| Some(Request { relay, item, write: write? }));
        first.into_iter().chain(rest)
    }

    /// The write that it waits for.
    pub(crate) fn outstanding(&self, relay: u8) -> Option<Request> {
        let lease = |bucket: u8, write: Write| Some(Request { relay, item: bucket, write });
        let first = |writes: &[Option<Write>]| {
            let at = writes.iter().position(Option::is_some)?;
            lease(u8::try_from(at).unwrap(), writes[at]?)
        };
        match &self.phase {
            Phase::Claiming { bucket, write, .. }
            | Phase::Renewing { bucket, write, .. }
            | Phase::Releasing { bucket, write, .. } => lease(*bucket, *write),
            Phase::Publishing { bucket, renewal: Some((write, _)), .. } => lease(*bucket, *write),
            Phase::Announcing { now, .. } => lease(relay, Write::Announce { now: *now }),
            Phase::Stopping { stamp } => lease(relay, Write::Stop { stamp: *stamp }),
            Phase::Acquiring { round, .. } => {
                if let Some(of) = round.prunes.iter().position(Option::is_some) {
                    let read = round.prunes[of]?;
                    return lease(u8::try_from(of).unwrap(), Write::Prune { read });
                }
                first(&round.writes)
            }
            Phase::Freeing { writes, .. } => first(writes),
            _ => None,
        }
    }
}
