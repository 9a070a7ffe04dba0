//! The time that is left, and what each step may take of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Clock, Monotonic};

// The reserves. Each step of a run leaves what the steps behind it need, so that a run whose every call takes all of its
// limit still ends in good order. A round trip to DynamoDB in the same region is a few milliseconds, a cold one (TCP,
// TLS) some 50 ms, a retry after a lost one as much again behind a pause: half a second is ten times what a round takes,
// and a step whose reserve is used up is left out, not hurried.

/// Kept back for the answer to reach the Runtime API, and for a step that ends a little after its limit: a call is held
/// to its limit and a tenth of a second, and there are at most three behind one another.
const ANSWER: Duration = Duration::from_millis(500);
/// Kept back for asking for the sweeps that go on: one request.
const HAND_ON: Duration = Duration::from_millis(500);
/// Kept back for the stopped stamp, the release of leases and the read that follows: three rounds of requests.
const CLOSE: Duration = Duration::from_millis(1500);
/// Kept back for the deletes of a batch that is being published, twenty requests of 25, side by side, and once more for
/// those that are throttled: without them it would be published again. A publisher that returns late, because its client
/// is slow to give records back, takes of this.
const DELETE: Duration = Duration::from_millis(1500);
/// The least time in which a publish is worth starting: a connection to a broker, and one round trip with all replicas.
const PUBLISH: Duration = Duration::from_millis(1000);
/// The least time in which a fetch is worth starting: its pages, and the probes of its gaps.
const FETCH: Duration = Duration::from_millis(1000);

/// The least time for which a batch is started: fetch, publish, delete, close, hand on, answer. An invocation that begins
/// with less does nothing; supported function timeouts start well above it, at 10 s (design.md, section 9).
pub const MIN_INVOCATION: Duration = FETCH.saturating_add(PUBLISH).saturating_add(BEHIND_PUBLISH);
/// What a publish leaves to the steps behind it.
const BEHIND_PUBLISH: Duration = DELETE.saturating_add(BEHIND_DELETE);
/// What the deletes leave.
const BEHIND_DELETE: Duration = CLOSE.saturating_add(BEHIND_CLOSE);
/// What stop and release leave.
const BEHIND_CLOSE: Duration = HAND_ON.saturating_add(ANSWER);

/// What one store call may take at most, however much time is left: a store answers in milliseconds or is in trouble, and
/// one that hangs must not take the run with it.
const LONGEST_CALL: Duration = Duration::from_secs(5);
/// What asking for further sweeps may take, however much time is left. Where their service cannot be reached, as from a
/// VPC without a way to it, this is what every attempt costs.
const LONGEST_HAND_ON: Duration = Duration::from_secs(1);
/// What the sample of the backlog may take, however much time is left: it is for those who watch, and what is to be
/// published waits for it.
const LONGEST_SAMPLE: Duration = Duration::from_secs(1);
/// What one publish may take in a run that has no deadline: a hung connection would hold a bucket for ever.
const OPEN_ENDED_PUBLISH: Duration = Duration::from_secs(120);

/// The time a run has, counted on the monotonic clock: until a deadline that was read once, or open-ended until it is
/// told to stop.
///
/// Every wait takes its limit from here, and each step leaves what the steps behind it need. Clones share the deadline.
#[derive(Clone, Debug)]
pub struct Budget {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    ends_at: Option<Monotonic>,
    stopping: bool,
}

impl Budget {
    /// A budget of `remaining` from now.
    pub fn new(clock: Arc<dyn Clock>, remaining: Duration) -> Self {
        let ends_at = Some(clock.monotonic().plus(remaining));
        Self { clock, state: Arc::new(Mutex::new(State { ends_at, stopping: false })) }
    }

    /// A budget without an end, until [`Budget::stop_within`] gives it one.
    pub fn open_ended(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::new(Mutex::new(State { ends_at: None, stopping: false })) }
    }

    /// Ends the run: no batch is started any more, and what is under way has `grace`. A second call changes nothing.
    pub fn stop_within(&self, grace: Duration) {
        let mut state = self.lock();
        if !state.stopping {
            let ends_at = self.clock.monotonic().plus(grace);
            *state = State {
                ends_at: Some(state.ends_at.map_or(ends_at, |end| end.min(ends_at))),
                stopping: true,
            };
        }
    }

    /// All the time that is left; `None`: no end is in sight.
    pub fn remaining(&self) -> Option<Duration> {
        self.lock().ends_at.map(|end| end.since(self.clock.monotonic()))
    }

    /// Whether a batch may be started that could still be fetched, published, deleted, and its lease released.
    pub fn may_start_batch(&self) -> bool {
        !self.lock().stopping && self.remaining().is_none_or(|left| left >= MIN_INVOCATION)
    }

    /// Whether a batch that has been fetched may still be published, with time for what follows.
    pub fn may_publish(&self) -> bool {
        self.remaining().is_none_or(|left| left >= PUBLISH + BEHIND_PUBLISH)
    }

    /// What a fetch, a probe or an acquisition may take.
    pub fn for_fetch(&self) -> Duration {
        self.less(PUBLISH + BEHIND_PUBLISH).min(LONGEST_CALL)
    }

    /// What a sample of the backlog may take. Zero: none is taken, for a batch that could be started before it could not be
    /// after it.
    pub fn for_sample(&self) -> Duration {
        // A call may end a tenth of a second after its limit.
        self.less(MIN_INVOCATION + LONGEST_SAMPLE / 5).min(LONGEST_SAMPLE)
    }

    /// What a publish may take.
    pub fn for_publish(&self) -> Duration {
        if self.remaining().is_none() { OPEN_ENDED_PUBLISH } else { self.less(BEHIND_PUBLISH) }
    }

    /// What the deletes of a published batch may take.
    pub fn for_delete(&self) -> Duration {
        self.less(BEHIND_DELETE).min(LONGEST_CALL)
    }

    /// What stop and release may take. Zero: no release, the leases lapse as after a crash.
    pub fn for_close(&self) -> Duration {
        self.less(BEHIND_CLOSE).min(LONGEST_CALL)
    }

    /// What asking for further sweeps may take. Zero: none are, and the schedule goes on.
    pub fn for_hand_on(&self) -> Duration {
        self.less(ANSWER).min(LONGEST_HAND_ON)
    }

    fn less(&self, reserve: Duration) -> Duration {
        self.remaining().map_or(Duration::MAX, |left| left.saturating_sub(reserve))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ticks, TokioClock};

    #[tokio::test(start_paused = true)]
    async fn each_step_leaves_time_for_those_behind_it() {
        let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000)));
        let budget = Budget::new(clock.clone(), Duration::from_secs(10));
        assert!(budget.may_start_batch());
        assert_eq!(budget.for_sample(), LONGEST_SAMPLE);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(budget.may_start_batch());
        assert!(budget.for_fetch() < budget.for_publish());
        assert!(budget.for_publish() < budget.for_delete());
        assert!(budget.for_delete() < budget.for_close());
        assert!(budget.for_close() < budget.remaining().unwrap());
        assert!(budget.for_hand_on() > Duration::from_millis(500));
        assert_eq!(budget.for_sample(), Duration::ZERO, "it would take the time of the last batch");

        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!budget.may_start_batch(), "a batch would be started that cannot be finished");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(budget.for_close(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_jumps_changes_nothing() {
        let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000)));
        let budget = Budget::new(clock.clone(), Duration::from_secs(10));
        clock.step_wall(-3_600_000);
        assert_eq!(budget.remaining(), Some(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_ended_run_ends_when_it_is_told_to() {
        let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000)));
        let budget = Budget::open_ended(clock);
        tokio::time::advance(Duration::from_hours(10)).await;
        assert!(budget.may_start_batch() && !budget.for_fetch().is_zero());
        budget.stop_within(Duration::from_secs(20));
        assert!(!budget.may_start_batch());
        tokio::time::advance(Duration::from_secs(5)).await;
        budget.stop_within(Duration::from_secs(20));
        assert_eq!(budget.remaining(), Some(Duration::from_secs(15)));
    }
}
