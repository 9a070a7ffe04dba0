//! What is checked, and the way from a state to the engine's own functions and back.

use std::time::Duration;

use outbox::coordination::{Coordination, HeartbeatRecord, LeaseRecord};
use outbox::lease_age::{Belief, Moment};
use outbox::lease_write::{HeartbeatWrite, LeaseWrite};
use outbox::{Bucket, BucketCount, LeaseTimes, Monotonic, RelayId, RelayOptions, Ticks};

use crate::checker::{Model, Step};
use crate::guards::Guard;
use crate::request::Write;
use crate::state::{
    BUCKETS, Faults, Heartbeat, Hint, LATE, MESSAGES, Message, NOBODY, RELAYS, Relay, Row, State, Stored,
    Time, UNIT, at,
};
use crate::times::Horizons;

/// How long one tick of a state is: as long as a tick.
const TICK: Duration = Duration::from_nanos(100);
/// Where now is on the engine's clocks.
const NOW: i64 = 639_000_000_000_000_000;

/// One thing to check exhaustively.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    /// In units.
    pub(crate) lease: Time,
    pub(crate) renew: Time,
    /// How far each relay's clock is ahead, in ticks, of which [`UNIT`] make a unit.
    pub(crate) clocks: [Time; RELAYS],
    /// The bucket of each message that the writer may commit.
    pub(crate) messages: &'static [u8],
    /// How many of them are there from the start, nobody having been told.
    pub(crate) loaded: usize,
    /// Whether a commit gives a hint.
    pub(crate) has_hints: bool,
    /// Which relays may be hinted runs, and which sweeps.
    pub(crate) hinted: [bool; RELAYS],
    pub(crate) sweeps: [bool; RELAYS],
    pub(crate) faults: Faults,
    /// Whether a fetch and the start of its publish are one step, and its end and the delete: for what goes on around.
    pub(crate) is_coarse: bool,
    /// Whether a relay may be frozen for longer than its lease lasts.
    pub(crate) may_freeze: bool,
    /// Whether somebody new takes the place of a relay of which nothing is left.
    pub(crate) restarts: bool,
    /// Whether everything must end in all messages published and deleted.
    pub(crate) must_deliver: bool,
    /// Whether a message whose hint was delivered must be published once everybody has ended.
    pub(crate) keeps_wake_ups: bool,
    /// Whether clocks are closer than the bound, so that there is one owner at a time.
    pub(crate) one_owner: bool,
    /// Whether refused writes of sweeps that read the same are looked for.
    pub(crate) counts_refusals: bool,
    /// The guard that is taken away.
    pub(crate) without: Option<Guard>,
}

impl Config {
    pub(crate) fn has(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

pub(crate) struct Protocol {
    pub(crate) config: Config,
    pub(crate) ids: [RelayId; RELAYS],
    pub(crate) options: RelayOptions,
    pub(crate) horizons: Horizons,
}

impl Protocol {
    pub(crate) fn new(config: Config) -> Self {
        let mut options = RelayOptions::default();
        options.bucket_count = BucketCount::new(u32::try_from(BUCKETS).unwrap()).unwrap();
        options.lease_duration = duration(config.lease * UNIT);
        options.lease_renew_interval = duration(config.renew * UNIT);
        let behind = *config.clocks.iter().min().unwrap();
        let horizons = Horizons {
            lease: behind,
            heartbeat: behind - config.lease * UNIT,
            asked: config.clocks.map(|ahead| ahead - config.lease * UNIT),
        };
        let ids = ["a", "b", "c"].map(|id| RelayId::new(id).unwrap());
        Self { config, ids, options, horizons }
    }

    /// What a relay's wall clock says.
    pub(crate) fn clock(&self, relay: usize) -> Time {
        self.config.clocks[relay]
    }

    pub(crate) fn times(&self, asked: Time) -> LeaseTimes {
        LeaseTimes { now: ticks(asked), duration: self.options.lease_duration }
    }

    /// How long ago `asked` is by the clocks of `relay`.
    pub(crate) fn age(&self, relay: usize, asked: Time) -> Duration {
        moment(self.clock(relay)).since(moment(asked))
    }

    pub(crate) fn belief(&self, relay: usize, asked: Time) -> Belief {
        Belief::at_age(self.age(relay, asked), &self.options)
    }

    pub(crate) fn coordination(&self, state: &State) -> Coordination {
        let lease = |(bucket, lease): (usize, &Option<Stored>)| {
            lease.map(|lease| (bucket_of(bucket), self.lease_record(lease)))
        };
        let heartbeat = |(relay, heartbeat): (usize, &Option<Heartbeat>)| {
            heartbeat.map(|heartbeat| (self.ids[relay].clone(), heartbeat_record(heartbeat)))
        };
        Coordination {
            leases: state.leases.iter().enumerate().filter_map(lease).collect(),
            heartbeats: state.heartbeats.iter().enumerate().filter_map(heartbeat).collect(),
            ..Coordination::default()
        }
    }

    pub(crate) fn lease_record(&self, lease: Stored) -> LeaseRecord {
        let owner = (lease.owner != NOBODY).then(|| self.ids[at(lease.owner)].clone());
        LeaseRecord { owner, expires_at: Some(ticks(lease.expires_at)) }
    }

    pub(crate) fn stored(&self, record: &LeaseRecord) -> Stored {
        let expires_at = time(record.expires_at.unwrap());
        Stored { owner: record.owner.as_ref().map_or(NOBODY, |owner| self.number(owner)), expires_at }
    }

    pub(crate) fn number(&self, id: &RelayId) -> u8 {
        u8::try_from(self.ids.iter().position(|known| known == id).unwrap()).unwrap()
    }

    pub(crate) fn lease_write(&self, write: Write) -> Option<LeaseWrite> {
        let record = |(owner, expires_at)| self.lease_record(Stored { owner, expires_at });
        Some(match write {
            Write::Claim { read, expires_at } => {
                LeaseWrite::Claim { read: read.map(record), expires_at: ticks(expires_at) }
            }
            Write::Keep { read, expires_at } => {
                LeaseWrite::Keep { read: ticks(read), expires_at: ticks(expires_at) }
            }
            Write::Renew { now, expires_at } => {
                LeaseWrite::Renew { now: ticks(now), expires_at: ticks(expires_at) }
            }
            Write::Release { read } => LeaseWrite::Release { read: ticks(read) },
            Write::Announce { .. } | Write::Stop { .. } | Write::Prune { .. } => return None,
        })
    }

    pub(crate) fn write(&self, write: &LeaseWrite) -> Write {
        match write {
            LeaseWrite::Claim { read, expires_at } => {
                let read = read.as_ref().map(|read| self.stored(read));
                let read = read.map(|read| (read.owner, read.expires_at));
                Write::Claim { read, expires_at: time(*expires_at) }
            }
            LeaseWrite::Keep { read, expires_at } => {
                Write::Keep { read: time(*read), expires_at: time(*expires_at) }
            }
            LeaseWrite::Renew { now, expires_at } => {
                Write::Renew { now: time(*now), expires_at: time(*expires_at) }
            }
            LeaseWrite::Release { read } => Write::Release { read: time(*read) },
        }
    }
}

impl Model for Protocol {
    type State = State;

    fn initial(&self) -> State {
        let none = Message { row: Row::Deleted, hint: Hint::None, is_published: true };
        let mut messages = [none; MESSAGES];
        for (number, message) in messages[..self.config.messages.len()].iter_mut().enumerate() {
            let row = if number < self.config.loaded { Row::Waiting } else { Row::NotYet };
            *message = Message { row, hint: Hint::None, is_published: false };
        }
        State {
            leases: [None; BUCKETS],
            heartbeats: [None; RELAYS],
            messages,
            relays: [Relay::NEW; RELAYS],
            late: [None; LATE],
            left: self.config.faults,
            wrong: None,
            written_after: [0; BUCKETS],
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step<State>>) {
        self.all_steps(state, steps);
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        self.violated(state)
    }

    fn goal(&self, state: &State) -> Option<bool> {
        let delivered = |message: &Message| message.row == Row::Deleted && message.is_published;
        self.config.must_deliver.then(|| state.messages.iter().all(delivered))
    }

    fn describe(&self, state: &State) -> String {
        crate::describe::describe(state)
    }
}

pub(crate) fn heartbeat_write(write: Write) -> Option<HeartbeatWrite> {
    Some(match write {
        Write::Announce { now } => HeartbeatWrite::Announce { now: ticks(now) },
        Write::Stop { stamp } => HeartbeatWrite::Stop { stamp: ticks(stamp) },
        Write::Prune { read } => HeartbeatWrite::Prune { read: ticks(read) },
        _ => return None,
    })
}

pub(crate) fn heartbeat_record(heartbeat: Heartbeat) -> HeartbeatRecord {
    HeartbeatRecord { last_seen: ticks(heartbeat.last_seen), stopped_at: heartbeat.stopped_at.map(ticks) }
}

pub(crate) fn heartbeat(record: HeartbeatRecord) -> Heartbeat {
    Heartbeat { last_seen: time(record.last_seen), stopped_at: record.stopped_at.map(time) }
}

pub(crate) fn bucket_of(number: usize) -> Bucket {
    Bucket::new(u32::try_from(number).unwrap())
}

pub(crate) fn ticks(time: Time) -> Ticks {
    Ticks::from_raw(NOW + i64::from(time))
}

pub(crate) fn time(ticks: Ticks) -> Time {
    Time::try_from(ticks.as_raw() - NOW).unwrap()
}

fn duration(time: Time) -> Duration {
    TICK * u32::try_from(time).unwrap()
}

/// Both clocks of a relay; its monotonic one has its origin long before.
fn moment(wall: Time) -> Moment {
    const ORIGIN: Time = 1 << 12;
    Moment { wall: ticks(wall), monotonic: Monotonic::from_origin(duration(wall + ORIGIN)) }
}
