//! What a relay does with a bucket: a transcription of `relay/hinted.rs`, `relay/engine.rs` and `relay/drain.rs`, one
//! request at a time.

use outbox::lease_age::Belief;
use outbox::lease_write::LeaseWrite;

use crate::guards::Guard;
use crate::model::{Protocol, bucket_of, ticks};
use crate::request::Request;
use crate::state::{BUCKETS, Held, Mode, Phase, RELAYS, Row, State, Time, at, bit, buckets};
use crate::steps::Steps;
use crate::table::Reply;

/// How the turn of a bucket ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Empty,
    /// A sweep's alone: it keeps the bucket, and looks around.
    TurnOver,
    RetryLater,
    LeaseLost,
}

impl Protocol {
    /// What a relay can do that waits for no answer.
    pub(crate) fn local(&self, steps: &mut Steps<'_>, relay: usize) {
        let mut to = *steps.from;
        let what = match to.relays[relay].phase {
            Phase::ReadingToClaim { bucket } => {
                self.read_to_claim(&mut to, relay, bucket);
                "reads the leases to claim"
            }
            Phase::Working { bucket } => {
                self.fetch(&mut to, relay, bucket);
                "makes sure of its lease and fetches"
            }
            Phase::Fetched { bucket, batch } => {
                self.begin_publish(&mut to, relay, bucket, batch);
                "makes sure of its lease and publishes"
            }
            Phase::Publishing { bucket, batch, .. } => return self.publishing(steps, relay, bucket, batch),
            Phase::Deleting { bucket, batch } => return self.deletes(steps, relay, bucket, batch, &to),
            Phase::Pausing => {
                let last = to.relays[relay].last_acquired.unwrap();
                if self.age(relay, last).is_zero() {
                    return;
                }
                self.probe(&mut to, relay);
                "has waited, and looks again"
            }
            Phase::Rereading => {
                self.reread(&mut to, relay);
                "reads a bucket again that it has freed"
            }
            Phase::Reading { pending } => {
                self.read_and_plan(&mut to, relay, pending);
                "reads who holds what"
            }
            _ => return,
        };
        steps.add(Some(relay), what, to);
    }

    /// Goes on with the answer to the write that a relay waits for.
    pub(crate) fn answer(&self, state: &mut State, relay: usize, request: Request, reply: Reply) {
        match state.relays[relay].phase {
            Phase::Claiming { bucket, asked, .. } => match reply {
                Reply::Held(expires_at) => {
                    self.hold(state, relay, bucket, expires_at, asked);
                    state.relays[relay].phase = Phase::Working { bucket };
                }
                // It may have been granted: freed, if so, or nobody could have the bucket until it lapses.
                Reply::None => self.read_back(state, relay, 0),
                _ => self.reread_rest(state, relay),
            },
            Phase::Renewing { bucket, batch, asked, .. } => match reply {
                Reply::Held(expires_at) => {
                    self.hold(state, relay, bucket, expires_at, asked);
                    match batch {
                        0 => state.relays[relay].phase = Phase::Working { bucket },
                        _ if self.config.has(Guard::RecheckAfterRenewal) => {
                            state.relays[relay].phase = Phase::Fetched { bucket, batch };
                        }
                        _ => self.publish(state, relay, bucket, batch),
                    }
                }
                Reply::None => self.turn_over(state, relay, bucket, End::RetryLater),
                _ => self.turn_over(state, relay, bucket, End::LeaseLost),
            },
            Phase::Publishing { bucket, batch, renewal } => {
                state.relays[relay].phase = Phase::Publishing { bucket, batch, renewal: None };
                let held = &mut state.relays[relay].held[at(bucket)];
                match (reply, renewal) {
                    (Reply::Held(expires_at), Some((_, asked))) => {
                        self.hold(state, relay, bucket, expires_at, asked);
                    }
                    (Reply::None, _) => {
                        *held = held.filter(|held| self.belief(relay, held.asked) < Belief::Lapsed);
                    }
                    _ => *held = None,
                }
            }
            Phase::Releasing { bucket, was_emptied, .. } => {
                if let Reply::Again(write) = reply {
                    state.relays[relay].phase = Phase::Releasing { bucket, write, was_emptied };
                    return;
                }
                let is_known = reply != Reply::None;
                if is_known && was_emptied && self.config.has(Guard::RereadAfterRelease) {
                    state.relays[relay].freed |= bit(bucket);
                }
                self.reread_rest(state, relay);
            }
            Phase::Announcing { pending, .. } => match reply {
                Reply::Done => state.relays[relay].phase = Phase::Reading { pending },
                Reply::Refused => {
                    // Its clock is behind: it holds nothing.
                    state.relays[relay].held = [None; BUCKETS];
                    self.finish(state, relay);
                }
                _ => self.finish(state, relay),
            },
            Phase::Acquiring { pending, round } => {
                self.acquiring(state, relay, request, reply, pending, round)
            }
            Phase::Stopping { .. } => match reply {
                Reply::Done => {
                    state.relays[relay].mode = Mode::Stopped;
                    state.relays[relay].last_acquired = None;
                    self.free(state, relay, 0);
                }
                // No time left: the leases lapse as after a crash.
                _ => self.end(state, relay),
            },
            Phase::Freeing { mut writes, pass } => {
                let write = &mut writes[at(request.item)];
                *write = if let Reply::Again(again) = reply { Some(again) } else { None };
                self.freeing(state, relay, writes, pass);
            }
            _ => {}
        }
    }

    pub(crate) fn hold(&self, state: &mut State, relay: usize, bucket: u8, expires_at: Time, asked: Time) {
        let counts_from_before = self.config.has(Guard::AgeFromBeforeAsking);
        let asked = if counts_from_before { asked } else { self.clock(relay) };
        state.relays[relay].held[at(bucket)] = Some(Held { expires_at, asked });
    }

    pub(crate) fn read_to_claim(&self, state: &mut State, relay: usize, bucket: u8) {
        let read = self.coordination(state);
        let asked = self.clock(relay);
        let times = self.times(asked);
        let name = bucket_of(at(bucket));
        if !read.is_free(name, times.now) {
            return self.reread_rest(state, relay);
        }
        let write = self.write(&LeaseWrite::claim(read.leases.get(&name), times));
        state.relays[relay].phase = Phase::Claiming { bucket, write, asked };
    }

    fn fetch(&self, state: &mut State, relay: usize, bucket: u8) {
        let Some(held) = state.relays[relay].held[at(bucket)] else {
            return self.turn_over(state, relay, bucket, End::LeaseLost);
        };
        if !self.may_publish(self.belief(relay, held.asked)) {
            return self.renew(state, relay, bucket, 0);
        }
        match self.batch(state, bucket) {
            0 => self.turn_over(state, relay, bucket, End::Empty),
            batch if self.config.is_coarse => self.publish(state, relay, bucket, batch),
            batch => state.relays[relay].phase = Phase::Fetched { bucket, batch },
        }
    }

    fn may_publish(&self, belief: Belief) -> bool {
        belief == Belief::Fresh || (!self.config.has(Guard::FreshBeforePublish) && belief < Belief::Lapsed)
    }

    fn begin_publish(&self, state: &mut State, relay: usize, bucket: u8, batch: u8) {
        let Some(held) = state.relays[relay].held[at(bucket)] else {
            return self.turn_over(state, relay, bucket, End::LeaseLost);
        };
        if self.may_publish(self.belief(relay, held.asked)) || !self.config.has(Guard::RecheckAfterFetch) {
            self.publish(state, relay, bucket, batch);
        } else {
            self.renew(state, relay, bucket, batch);
        }
    }

    fn renew(&self, state: &mut State, relay: usize, bucket: u8, batch: u8) {
        let asked = self.clock(relay);
        let write = self.write(&LeaseWrite::renew(self.times(asked)));
        state.relays[relay].phase = Phase::Renewing { bucket, batch, write, asked };
    }

    /// A publish begins. Within the bound on clocks, nobody may be able to take the bucket at this moment.
    fn publish(&self, state: &mut State, relay: usize, bucket: u8, batch: u8) {
        let read = self.coordination(state);
        let name = bucket_of(at(bucket));
        let is_owner =
            read.leases.get(&name).is_some_and(|lease| lease.owner.as_ref() == Some(&self.ids[relay]));
        let can_be_taken = (0..RELAYS).any(|other| read.is_free(name, ticks(self.clock(other))));
        if self.config.one_owner && (!is_owner || can_be_taken) {
            state.wrong = Some("a publish was started without the bucket being its relay's");
        }
        state.relays[relay].phase = Phase::Publishing { bucket, batch, renewal: None };
    }

    fn publishing(&self, steps: &mut Steps<'_>, relay: usize, bucket: u8, batch: u8) {
        let held = steps.from.relays[relay].held[at(bucket)];
        let belief = held.map(|held| self.belief(relay, held.asked));
        if belief.is_some_and(|belief| belief != Belief::Fresh) {
            let mut to = *steps.from;
            let asked = self.clock(relay);
            let write = self.write(&LeaseWrite::renew(self.times(asked)));
            to.relays[relay].phase = Phase::Publishing { bucket, batch, renewal: Some((write, asked)) };
            steps.add(Some(relay), "renews while it publishes", to);
        }
        let mut to = *steps.from;
        for message in messages(batch) {
            to.messages[message].is_published = true;
        }
        if !self.config.has(Guard::RereadAfterEmptyTurn) {
            to.relays[relay].acknowledged |= bit(bucket);
        }
        let has_lapsed = belief.is_none_or(|belief| belief == Belief::Lapsed);
        if has_lapsed && self.config.has(Guard::DeleteUnderLease) {
            to.relays[relay].held[at(bucket)] = None;
            self.turn_over(&mut to, relay, bucket, End::LeaseLost);
        } else {
            if has_lapsed {
                to.wrong = Some("a relay deletes under a lease that has lapsed");
            }
            if self.config.is_coarse {
                return self.deletes(steps, relay, bucket, batch, &to);
            }
            to.relays[relay].phase = Phase::Deleting { bucket, batch };
        }
        steps.add(Some(relay), "its publish is acknowledged", to);
    }

    /// Deletes a batch, after which the turn has ended: the bucket was quiet, or its time is over.
    fn deletes(&self, steps: &mut Steps<'_>, relay: usize, bucket: u8, batch: u8, from: &State) {
        let mut to = *from;
        for message in messages(batch) {
            to.messages[message].row = Row::Deleted;
        }
        let this = &to.relays[relay];
        let began = this.last_acquired.filter(|_| this.mode == Mode::Sweep);
        if began.is_some_and(|began| !self.age(relay, began).is_zero()) {
            let mut to = to;
            self.turn_over(&mut to, relay, bucket, End::TurnOver);
            steps.add(Some(relay), "deletes what was acknowledged, and its turn is over", to);
        }
        self.turn_over(&mut to, relay, bucket, End::Empty);
        steps.add(Some(relay), "deletes what was acknowledged", to);
    }

    fn turn_over(&self, state: &mut State, relay: usize, bucket: u8, end: End) {
        let this = &mut state.relays[relay];
        if end == End::LeaseLost {
            this.held[at(bucket)] = None;
        }
        if this.mode == Mode::Sweep {
            this.todo &= !bit(bucket);
            if end == End::TurnOver {
                return self.next_turn(state, relay);
            }
            this.given_up |= bit(bucket);
        }
        match this.held[at(bucket)].take() {
            Some(held) => {
                let write = self.write(&LeaseWrite::Release { read: ticks(held.expires_at) });
                this.phase = Phase::Releasing { bucket, write, was_emptied: end == End::Empty };
            }
            None => self.reread_rest(state, relay),
        }
    }

    pub(crate) fn next_turn(&self, state: &mut State, relay: usize) {
        match buckets(state.relays[relay].todo).next() {
            Some(bucket) => state.relays[relay].phase = Phase::Working { bucket },
            None => self.probe(state, relay),
        }
    }

    pub(crate) fn reread_rest(&self, state: &mut State, relay: usize) {
        let this = &mut state.relays[relay];
        match (this.freed, this.mode) {
            (0, Mode::Sweep) => self.next_turn(state, relay),
            (0, _) => self.end(state, relay),
            _ => this.phase = Phase::Rereading,
        }
    }

    /// The read after the release (design.md, section 7), and the way back to a claim.
    fn reread(&self, state: &mut State, relay: usize) {
        let Some(bucket) = buckets(state.relays[relay].freed).next() else {
            return self.reread_rest(state, relay);
        };
        let has_message = self.batch(state, bucket) != 0;
        let this = &mut state.relays[relay];
        this.freed &= !bit(bucket);
        let counts = self.config.has(Guard::RereadAfterEmptyTurn) || this.acknowledged & bit(bucket) != 0;
        this.acknowledged &= !bit(bucket);
        match this.mode {
            _ if !has_message || !counts => self.reread_rest(state, relay),
            Mode::Sweep => {
                this.given_up &= !bit(bucket);
                self.reread_rest(state, relay);
            }
            Mode::Hinted | Mode::Stopped => this.phase = Phase::ReadingToClaim { bucket },
        }
    }
}

/// The messages of a batch.
fn messages(batch: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |message| batch & (1 << message) != 0)
}
