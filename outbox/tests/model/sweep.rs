//! What a sweep does between its turns: probe, announce, read, plan, write; and stop (`relay/sweep.rs`, and the stores'
//! `acquire` and `stop`).

use outbox::coordination::Coordination;
use outbox::lease_write::{HeartbeatWrite, LeaseWrite};

use crate::guards::Guard;
use crate::model::{Protocol, bucket_of, ticks, time};
use crate::request::{Request, Write};
use crate::state::{BUCKETS, Buckets, Held, Mode, Phase, Round, State, at, bit};
use crate::steps::number;
use crate::table::Reply;

/// How often the leases are read back at a stop.
const PASSES: u8 = 2;

impl Protocol {
    pub(crate) fn probe(&self, state: &mut State, relay: usize) {
        self.tell(state, !state.relays[relay].given_up);
        let this = &state.relays[relay];
        let pending = self.pending(state) & !this.given_up;
        let held = held(&this.held);
        let age = this.last_acquired.map(|last| self.age(relay, last)).unwrap();
        let is_due = age >= self.options.lease_renew_interval;
        // As the engine: a bucket that it does not hold is asked for again after a pause, here the shortest there is.
        let is_short = pending & !held != 0 && !age.is_zero();
        match pending {
            0 => self.finish(state, relay),
            _ if is_due || is_short => self.announce(state, relay, pending),
            _ => self.work(state, relay, pending),
        }
    }

    fn work(&self, state: &mut State, relay: usize, pending: Buckets) {
        let this = &mut state.relays[relay];
        this.todo = pending & held(&this.held);
        let age = this.last_acquired.map(|last| self.age(relay, last)).unwrap();
        match this.todo {
            // As the engine: it waits for what it can ask for after the pause, and for what it left to others.
            0 if age.is_zero() || pending & this.available != 0 => this.phase = Phase::Pausing,
            0 => self.finish(state, relay),
            _ => self.next_turn(state, relay),
        }
    }

    pub(crate) fn announce(&self, state: &mut State, relay: usize, pending: Buckets) {
        let now = self.clock(relay);
        state.relays[relay].last_acquired = Some(now);
        state.relays[relay].available = 0;
        state.relays[relay].phase = Phase::Announcing { pending, now };
    }

    pub(crate) fn read_and_plan(&self, state: &mut State, relay: usize, pending: Buckets) {
        let times = self.times(state.relays[relay].last_acquired.unwrap());
        let read = self.coordination(state);
        let plan = self.planned_for(relay, &read).plan(self.options.bucket_count, &self.ids[relay], times);
        let available =
            read.available(self.options.bucket_count, &plan, &std::collections::BTreeSet::new(), times.now);
        let waits = self.config.has(Guard::WaitAfterHandBack);
        let is_left = |name| available.contains(&name) && (waits || !plan.release.contains(&name));
        let available = (0..BUCKETS).filter(|bucket| is_left(bucket_of(*bucket)));
        state.relays[relay].available = available.map(|bucket| bit(number(bucket))).sum();
        let mut round = Round { read: self.fingerprint(&read, times), ..Round::default() };
        for (of, prune) in read.prunable(times) {
            let HeartbeatWrite::Prune { read } = prune else { continue };
            round.prunes[at(self.number(&of))] = Some(time(read));
        }
        for bucket in 0..BUCKETS {
            let name = bucket_of(bucket);
            let write = if plan.release.contains(&name) {
                read.version(name).map(|read| LeaseWrite::Release { read })
            } else if plan.keep.contains(&name) {
                read.leases.get(&name).and_then(|lease| LeaseWrite::keep(lease, times))
            } else if plan.claim.contains(&name) && pending & bit(number(bucket)) != 0 {
                Some(LeaseWrite::claim(read.leases.get(&name), times))
            } else {
                None
            };
            round.writes[bucket] = write.map(|write| self.write(&write));
        }
        self.go_on_acquiring(state, relay, pending, round);
    }

    /// What a round plans from.
    fn planned_for(&self, relay: usize, read: &Coordination) -> Coordination {
        let mut read = read.clone();
        if !self.config.has(Guard::CommonPlan) {
            read.heartbeats.retain(|id, _| *id == self.ids[relay]);
        }
        read
    }

    pub(crate) fn acquiring(
        &self,
        state: &mut State,
        relay: usize,
        request: Request,
        reply: Reply,
        pending: Buckets,
        mut round: Round,
    ) {
        let item = at(request.item);
        match (request.write, reply) {
            (_, Reply::None) => return self.finish(state, relay),
            (Write::Prune { .. }, _) => round.prunes[item] = None,
            (Write::Release { .. }, Reply::Again(again)) => round.writes[item] = Some(again),
            (_, reply) => {
                round.writes[item] = None;
                if let Reply::Held(expires_at) = reply {
                    round.granted[item] = Some(expires_at);
                }
            }
        }
        self.go_on_acquiring(state, relay, pending, round);
    }

    fn go_on_acquiring(&self, state: &mut State, relay: usize, pending: Buckets, round: Round) {
        state.relays[relay].phase = Phase::Acquiring { pending, round };
        if state.relays[relay].outstanding(number(relay)).is_some() {
            return;
        }
        let asked = state.relays[relay].last_acquired.unwrap();
        state.relays[relay].held = [None; BUCKETS];
        for bucket in 0..BUCKETS {
            if let Some(expires_at) = round.granted[bucket] {
                self.hold(state, relay, number(bucket), expires_at, asked);
            }
        }
        self.work(state, relay, pending);
    }

    /// Ends a sweep's rounds: stop, free, read back, read what was freed.
    pub(crate) fn finish(&self, state: &mut State, relay: usize) {
        let this = &mut state.relays[relay];
        if self.config.has(Guard::RereadAfterStop) {
            this.freed |= held(&this.held);
        }
        this.todo = 0;
        this.given_up = 0;
        this.available = 0;
        if self.config.has(Guard::StopBeforeFreeing) {
            self.stop(state, relay);
        } else {
            self.free(state, relay, 0);
        }
    }

    fn stop(&self, state: &mut State, relay: usize) {
        let now = ticks(self.clock(relay));
        let this = &mut state.relays[relay];
        let stamp = this.last_acquired.map_or(now, |last| now.max(ticks(last).next()));
        this.phase = Phase::Stopping { stamp: time(stamp) };
    }

    pub(crate) fn free(&self, state: &mut State, relay: usize, pass: u8) {
        let held = std::mem::take(&mut state.relays[relay].held);
        let release = |held: Held| self.write(&LeaseWrite::Release { read: ticks(held.expires_at) });
        let writes = held.map(|held| held.map(release));
        self.freeing(state, relay, writes, pass);
    }

    pub(crate) fn freeing(
        &self,
        state: &mut State,
        relay: usize,
        writes: [Option<Write>; BUCKETS],
        pass: u8,
    ) {
        let this = &mut state.relays[relay];
        match (writes.iter().any(Option::is_some), this.mode) {
            (true, _) => this.phase = Phase::Freeing { writes, pass },
            // Only where the stop comes after the freeing.
            (false, Mode::Sweep) => self.stop(state, relay),
            (false, _) if pass < PASSES && self.config.has(Guard::ReadBackAfterStop) => {
                self.read_back(state, relay, pass);
            }
            (false, _) => {
                if state.leases.iter().flatten().any(|lease| lease.owner == number(relay)) {
                    state.wrong = Some("a relay leaves with a bucket that it could have known of");
                }
                self.reread_rest(state, relay);
            }
        }
    }

    pub(crate) fn read_back(&self, state: &mut State, relay: usize, pass: u8) {
        let read = self.coordination(state);
        let mut writes = [None; BUCKETS];
        for (bucket, write) in writes.iter_mut().enumerate() {
            let name = bucket_of(bucket);
            let owner = read.leases.get(&name).and_then(|lease| lease.owner.as_ref());
            if owner == Some(&self.ids[relay]) {
                *write = read.version(name).map(|read| self.write(&LeaseWrite::Release { read }));
                if state.relays[relay].mode == Mode::Stopped {
                    state.relays[relay].freed |= bit(number(bucket));
                }
            }
        }
        let is_clean = writes.iter().all(Option::is_none);
        self.freeing(state, relay, writes, if is_clean { PASSES } else { pass + 1 });
    }
}

fn held(held: &[Option<Held>; BUCKETS]) -> Buckets {
    (0..BUCKETS).filter(|bucket| held[*bucket].is_some()).map(|bucket| bit(number(bucket))).sum()
}
