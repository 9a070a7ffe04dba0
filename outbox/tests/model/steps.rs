//! Everything that can happen: time, the writer, hints, requests and what becomes of them, crashes.

use crate::checker::{Step, What};
use crate::model::Protocol;
use crate::request::{Request, Write};
use crate::state::{
    BUCKETS, Buckets, FOR_EVER, Hint, LATE, MESSAGES, Mode, Phase, RELAYS, Relay, Row, State, at, bit,
};
use crate::table::Reply;

/// Collects steps; each is given its state in the one form it has.
pub(crate) struct Steps<'a> {
    pub(crate) protocol: &'a Protocol,
    pub(crate) from: &'a State,
    pub(crate) steps: &'a mut Vec<Step<State>>,
}

impl Steps<'_> {
    pub(crate) fn add(&mut self, who: Option<usize>, what: &'static str, to: State) {
        self.push(who, what, false, to);
    }

    fn fault(&mut self, who: Option<usize>, what: &'static str, to: State) {
        self.push(who, what, true, to);
    }

    fn push(&mut self, who: Option<usize>, what: &'static str, is_fault: bool, mut to: State) {
        self.protocol.forget(&mut to);
        to.settle(&self.protocol.horizons);
        self.protocol.order(&mut to);
        self.steps.push(Step { what: What { who, what }, is_fault, to });
    }
}

impl Protocol {
    pub(crate) fn all_steps(&self, state: &State, steps: &mut Vec<Step<State>>) {
        let mut steps = Steps { protocol: self, from: state, steps };
        self.time_and_writer(&mut steps);
        self.starts(&mut steps);
        for relay in 0..RELAYS {
            if state.relays[relay].is_running() {
                match state.relays[relay].outstanding(number(relay)) {
                    Some(request) => self.request(&mut steps, relay, request),
                    None => self.local(&mut steps, relay),
                }
                self.crash(&mut steps, relay);
            }
        }
        for slot in 0..LATE {
            if let Some(request) = state.late[slot] {
                let mut to = *state;
                to.late[slot] = None;
                to.late.sort_unstable();
                if self.is_permitted(&to, request) {
                    self.carry_out(&mut to, request);
                }
                steps.fault(Some(at(request.relay)), "an old request of its lands", to);
            }
        }
    }

    fn time_and_writer(&self, steps: &mut Steps<'_>) {
        let state = steps.from;
        let mut later = *state;
        later.tick();
        later.left.units = match state.left.units {
            FOR_EVER => FOR_EVER,
            units => units.saturating_sub(1),
        };
        if state.left.units == 0 {
            // The time that is looked at has gone by.
        } else if self.config.may_freeze || (0..RELAYS).all(|relay| self.is_in_time(&later, relay)) {
            steps.add(None, "time goes on", later);
        }
        if let Some(message) = state.messages.iter().position(|message| message.row == Row::NotYet) {
            let mut to = *state;
            to.messages[message].row = Row::Waiting;
            if self.config.has_hints {
                to.messages[message].hint = Hint::UnderWay;
            }
            steps.add(None, "the writer commits a message", to);
        }
    }

    /// Whether nothing that a relay holds or asks for has lapsed by its own clock.
    fn is_in_time(&self, state: &State, relay: usize) -> bool {
        let Relay { held, phase, last_acquired, mode, .. } = state.relays[relay];
        if !state.relays[relay].is_running() {
            return true;
        }
        let asked = match phase {
            Phase::Claiming { asked, .. }
            | Phase::Renewing { asked, .. }
            | Phase::Publishing { renewal: Some((_, asked)), .. } => Some(asked),
            _ => None,
        };
        let member = last_acquired.filter(|_| mode == Mode::Sweep);
        let mut times = held.iter().flatten().map(|held| held.asked).chain(asked).chain(member);
        times.all(|asked| self.age(relay, asked) < self.options.lease_duration)
    }

    fn starts(&self, steps: &mut Steps<'_>) {
        let state = steps.from;
        let free = |relay: &usize| state.relays[*relay].phase == Phase::Free;
        // The ids of hinted runs are never compared: of those whose clocks agree, any stands for all.
        let clocks = self.config.clocks;
        let first = |relay: &usize| {
            !(0..*relay).any(|r| self.config.hinted[r] && free(&r) && clocks[r] == clocks[*relay])
        };
        for message in 0..MESSAGES {
            if state.messages[message].hint != Hint::UnderWay {
                continue;
            }
            let bucket = self.config.messages[message];
            for relay in (0..RELAYS).filter(free).filter(|r| self.config.hinted[*r]).filter(first) {
                let mut to = *state;
                to.messages[message].hint = Hint::Delivered;
                to.relays[relay] = Relay::NEW;
                self.read_to_claim(&mut to, relay, bucket);
                steps.add(Some(relay), "starts with a hint and reads the leases", to);
                if let Some(repeats) = state.left.repeats.checked_sub(1) {
                    to.left.repeats = repeats;
                    to.messages[message].hint = Hint::UnderWay;
                    steps.add(
                        Some(relay),
                        "starts with a hint that will come again, and reads the leases",
                        to,
                    );
                }
            }
            if let Some(left) = state.left.hints.checked_sub(1) {
                let mut to = *state;
                to.left.hints = left;
                to.messages[message].hint = Hint::Lost;
                steps.fault(None, "a hint is lost", to);
            }
        }
        let pending = self.pending(state);
        // A sweep that finds nothing writes nothing, and is as if it had not been.
        if pending == 0 {
            return;
        }
        for relay in (0..RELAYS).filter(free).filter(|relay| self.config.sweeps[*relay]) {
            let mut to = *state;
            to.relays[relay] = Relay { mode: Mode::Sweep, ..Relay::NEW };
            self.tell(&mut to, Buckets::MAX);
            self.announce(&mut to, relay, pending);
            steps.add(Some(relay), "starts a sweep", to);
        }
    }

    /// What can become of a request that its sender waits for.
    fn request(&self, steps: &mut Steps<'_>, relay: usize, request: Request) {
        let state = steps.from;
        let permitted = self.is_permitted(state, request);
        let mut done = *state;
        if permitted {
            self.carry_out(&mut done, request);
            self.note_read(&mut done, relay, request);
            let mut to = done;
            self.answer(&mut to, relay, request, self.granted(request));
            steps.add(Some(relay), "its write is carried out", to);
        } else {
            let mut to = *state;
            self.note_refusal(&mut to, relay, request);
            self.answer(&mut to, relay, request, self.judged(state, request));
            steps.add(Some(relay), "its write is refused", to);
        }
        if let Some(replies) = state.left.replies.checked_sub(1)
            && permitted
        {
            let mut to = done;
            to.left.replies = replies;
            steps.fault(Some(relay), "its write is carried out, the reply is lost, it sends it again", to);
        }
        if let Some(lost) = state.left.lost.checked_sub(1) {
            let mut to = *state;
            to.left.lost = lost;
            self.answer(&mut to, relay, request, Reply::None);
            steps.fault(Some(relay), "its write is lost, and it gives up on it", to);
        }
        if let Some(mut to) = with_late(state, request) {
            steps.fault(Some(relay), "its write is late, and it sends it again", to);
            self.answer(&mut to, relay, request, Reply::None);
            steps.fault(Some(relay), "its write is late, and it gives up on it", to);
        }
    }

    fn crash(&self, steps: &mut Steps<'_>, relay: usize) {
        let state = steps.from;
        let Some(crashes) = state.left.crashes.checked_sub(1) else { return };
        let gone = |to: &mut State| {
            to.left.crashes = crashes;
            self.end(to, relay);
        };
        let mut to = *state;
        gone(&mut to);
        steps.fault(Some(relay), "crashes", to);
        let late =
            state.relays[relay].outstanding(number(relay)).and_then(|request| with_late(state, request));
        if let Some(mut to) = late {
            gone(&mut to);
            steps.fault(Some(relay), "crashes, its write under way", to);
        }
    }

    /// Ends a run, or the process that it is in.
    pub(crate) fn end(&self, state: &mut State, relay: usize) {
        let mode = match state.relays[relay].mode {
            Mode::Stopped => Mode::Stopped,
            Mode::Hinted | Mode::Sweep => Mode::Hinted,
        };
        state.relays[relay] = Relay { mode, phase: Phase::Gone, ..Relay::NEW };
    }

    /// A probe of `probed` has found what waits: from now on somebody must see to it, as after a hint.
    pub(crate) fn tell(&self, state: &mut State, probed: Buckets) {
        if !self.config.keeps_wake_ups {
            return;
        }
        for (message, bucket) in state.messages.iter_mut().zip(self.config.messages) {
            if message.row == Row::Waiting && message.hint == Hint::None && probed & bit(*bucket) != 0 {
                message.hint = Hint::Delivered;
            }
        }
    }

    /// The buckets with a message.
    pub(crate) fn pending(&self, state: &State) -> Buckets {
        (0..BUCKETS).map(number).filter(|bucket| self.batch(state, *bucket) != 0).map(bit).sum()
    }

    /// The messages of a bucket, by bit.
    pub(crate) fn batch(&self, state: &State, bucket: u8) -> u8 {
        let waits = |message: &usize| {
            state.messages[*message].row == Row::Waiting && self.config.messages[*message] == bucket
        };
        (0..self.config.messages.len()).filter(waits).map(|message| bit(number(message))).sum()
    }

    fn note_read(&self, state: &mut State, relay: usize, request: Request) {
        if let Phase::Acquiring { round, .. } = state.relays[relay].phase
            && !matches!(request.write, Write::Prune { .. })
        {
            state.written_after[at(request.item)] = round.read;
        }
    }

    fn note_refusal(&self, state: &mut State, relay: usize, request: Request) {
        if let Phase::Acquiring { round, .. } = state.relays[relay].phase
            && self.config.counts_refusals
            && !matches!(request.write, Write::Prune { .. })
            && state.written_after[at(request.item)] == round.read
        {
            state.wrong = Some("two sweeps that read the same wrote the same lease");
        }
    }
}

/// `state` with a request that may land at any time from now on.
fn with_late(state: &State, request: Request) -> Option<State> {
    let late = state.left.late.checked_sub(1)?;
    let slot = state.late.iter().position(Option::is_none)?;
    let mut to = *state;
    to.left.late = late;
    to.late[slot] = Some(request);
    to.late.sort_unstable();
    Some(to)
}

pub(crate) fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap()
}
