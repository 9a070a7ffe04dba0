//! What must hold in every state.

use std::hash::{DefaultHasher, Hash, Hasher};

use outbox::LeaseTimes;
use outbox::coordination::Coordination;
use outbox::lease_age::Belief;

use crate::model::{Protocol, bucket_of, heartbeat_record, ticks};
use crate::state::{BUCKETS, Hint, Mode, Phase, RELAYS, Row, State};
use crate::steps::number;

impl Protocol {
    /// What is wrong with a state, if anything.
    pub(crate) fn violated(&self, state: &State) -> Option<&'static str> {
        if state.wrong.is_some() {
            return state.wrong;
        }
        if state.messages.iter().any(|message| message.row == Row::Deleted && !message.is_published) {
            return Some("a message was deleted that nobody had published");
        }
        if self.config.one_owner && (0..BUCKETS).any(|bucket| self.believers(state, bucket) > 1) {
            return Some("two relays believe at once that they may publish from a bucket");
        }
        let has_stopped = |relay: usize| {
            let this = &state.relays[relay];
            this.mode == Mode::Stopped || matches!(this.phase, Phase::Freeing { .. })
        };
        if (0..RELAYS).any(|relay| has_stopped(relay) && self.is_member(state, relay)) {
            return Some("a relay counts as a member that frees its leases or has stopped");
        }
        if self.config.keeps_wake_ups && self.is_forgotten(state) {
            return Some("somebody had been told of a message, and it was forgotten");
        }
        None
    }

    /// How many relays would start a publish from the bucket without asking anybody.
    fn believers(&self, state: &State, bucket: usize) -> usize {
        let believes = |relay: &usize| {
            let this = &state.relays[*relay];
            let is_fresh =
                this.held[bucket].is_some_and(|held| self.belief(*relay, held.asked) == Belief::Fresh);
            is_fresh && this.believes_in(number(bucket))
        };
        (0..RELAYS).filter(believes).count()
    }

    /// Whether anybody's clock counts the relay among those that take part in fair share.
    pub(crate) fn is_member(&self, state: &State, relay: usize) -> bool {
        let Some(heartbeat) = state.heartbeats[relay].map(heartbeat_record) else { return false };
        let read = Coordination {
            heartbeats: [(self.ids[relay].clone(), heartbeat)].into(),
            ..Coordination::default()
        };
        let counts = |other| !read.active(ticks(self.clock(other)), self.options.lease_duration).is_empty();
        (0..RELAYS).any(counts)
    }

    /// Whether everybody has ended and a message still waits of whose commit somebody had been told.
    fn is_forgotten(&self, state: &State) -> bool {
        let waits = state.messages.iter().any(|message| {
            message.hint == Hint::Delivered && message.row == Row::Waiting && !message.is_published
        });
        waits
            && !state.relays.iter().any(|relay| relay.is_running())
            && !state.messages.iter().any(|message| message.hint == Hint::UnderWay)
    }

    /// What the plan of a round depends on, in short; never 0.
    pub(crate) fn fingerprint(&self, read: &Coordination, times: LeaseTimes) -> u16 {
        if !self.config.counts_refusals {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        read.active(times.now, times.duration).hash(&mut hasher);
        for bucket in (0..BUCKETS).map(bucket_of) {
            let owner = read.leases.get(&bucket).and_then(|lease| lease.owner.as_ref());
            (owner, read.is_free(bucket, times.now)).hash(&mut hasher);
        }
        u16::try_from(hasher.finish() % 65_535).unwrap() + 1
    }
}
