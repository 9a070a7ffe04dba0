//! One form for all states that nothing can tell apart: what nothing can come of any more is left out.

use outbox::lease_write::LeaseWrite;

use crate::model::{Protocol, bucket_of, ticks};
use crate::request::{Request, Write};
use crate::state::{BUCKETS, Heartbeat, NOBODY, Phase, RELAYS, Relay, State, at};
use crate::steps::number;

impl Protocol {
    /// Puts hinted runs whose clocks agree in order: their ids are never compared, so any order stands for all.
    pub(crate) fn order(&self, state: &mut State) {
        if self.config.sweeps.contains(&true) {
            return;
        }
        for (first, second) in [(0, 1), (1, 2), (0, 1), (0, 2), (0, 1), (1, 2)] {
            let agree = self.config.clocks[first] == self.config.clocks[second]
                && self.config.hinted[first] == self.config.hinted[second];
            if agree && state.relays[first] > state.relays[second] {
                state.relays.swap(first, second);
                state.heartbeats.swap(first, second);
                state.rename(number(first), number(second));
            }
        }
    }

    /// Forgets what nothing can come of any more.
    pub(crate) fn forget(&self, state: &mut State) {
        for relay in 0..RELAYS {
            // Nobody counts a stopped relay, and pruning its record changes nothing; unless an old request of its own
            // may still find the record, or find it gone.
            let is_out = matches!(state.heartbeats[relay], Some(Heartbeat { stopped_at: Some(_), .. }))
                || (state.relays[relay].phase == Phase::Gone && !self.is_member(state, relay));
            let is_named =
                |request: &Request| request.item == number(relay) && request.write.is_of_heartbeat();
            if is_out && !state.requests().any(|request| is_named(&request)) {
                state.heartbeats[relay] = None;
            }
        }
        for bucket in 0..BUCKETS {
            self.forget_lease(state, bucket);
        }
        if self.config.restarts {
            self.replace_gone(state);
        }
    }

    /// A lease that is free for everybody is as good as none if nothing under way compares its version, and any claim
    /// moves past it by its own time.
    fn forget_lease(&self, state: &mut State, bucket: usize) {
        let Some(lease) = state.leases[bucket] else { return };
        // The cheap conditions first: this is asked of every state.
        let owner_is_gone = lease.owner == NOBODY || state.relays[at(lease.owner)].phase == Phase::Gone;
        if !owner_is_gone {
            return;
        }
        let is_used = state
            .requests()
            .any(|request| at(request.item) == bucket && !request.write.is_of_heartbeat())
            || state.relays.iter().any(|relay| relay.held[bucket].is_some() || relay.is_acquiring(bucket));
        if is_used {
            return;
        }
        let read = self.coordination(state);
        let is_free = (0..RELAYS).all(|relay| read.is_free(bucket_of(bucket), ticks(self.clock(relay))));
        let is_moved_past = (0..RELAYS).all(|relay| {
            let times = self.times(self.clock(relay));
            LeaseWrite::claim(read.leases.get(&bucket_of(bucket)), times)
                == LeaseWrite::Claim {
                    read: read.leases.get(&bucket_of(bucket)).cloned(),
                    expires_at: times.expires_at(),
                }
        });
        if is_free && is_moved_past {
            state.leases[bucket] = None;
            state.written_after[bucket] = 0;
        }
    }

    /// Lets somebody new take the place of a relay of which nothing is left.
    fn replace_gone(&self, state: &mut State) {
        for relay in 0..RELAYS {
            let id = number(relay);
            let is_named = |request: Request| {
                let read =
                    matches!(request.write, Write::Claim { read: Some((owner, _)), .. } if owner == id);
                read || request.relay == id || (request.item == id && request.write.is_of_heartbeat())
            };
            let is_left = state.heartbeats[relay].is_some()
                || state.leases.iter().flatten().any(|lease| lease.owner == id)
                || state.requests().any(is_named);
            if state.relays[relay].phase == Phase::Gone && !is_left {
                state.relays[relay] = Relay::NEW;
            }
        }
    }
}
