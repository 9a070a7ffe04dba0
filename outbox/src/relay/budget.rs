//! The time that is left, and what each step may take of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Clock, Monotonic};

/// Kept back for the answer to be sent, and for a step that ends a little after its limit.
const ANSWER: Duration = Duration::from_millis(500);
/// Kept back for the stopped stamp and the release of leases: two rounds of requests.
const CLOSE: Duration = Duration::from_millis(1500);
/// Kept back for the deletes of a batch that is being published: without them it would be published again.
const DELETE: Duration = Duration::from_millis(1500);
/// The least time in which a publish is worth starting.
const PUBLISH: Duration = Duration::from_millis(1000);
/// The least time in which a fetch is worth starting.
const FETCH: Duration = Duration::from_millis(1000);

/// The least time for which a batch is started: fetch, publish, delete, close, answer. An invocation that begins with
/// less does nothing; supported function timeouts start well above it, at 10 s (design.md, section 9).
pub const MIN_INVOCATION: Duration =
    FETCH.saturating_add(PUBLISH).saturating_add(DELETE).saturating_add(CLOSE).saturating_add(ANSWER);

/// What one store call may take at most, however much time is left: a store answers in milliseconds or is in trouble, and
/// one that hangs must not take the run with it.
const LONGEST_CALL: Duration = Duration::from_secs(5);
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

    /// What a fetch, a probe or an acquisition may take.
    pub fn for_fetch(&self) -> Duration {
        self.less(PUBLISH + DELETE + CLOSE + ANSWER).min(LONGEST_CALL)
    }

    /// What a publish may take.
    pub fn for_publish(&self) -> Duration {
        if self.remaining().is_none() { OPEN_ENDED_PUBLISH } else { self.less(DELETE + CLOSE + ANSWER) }
    }

    /// What the deletes of a published batch may take.
    pub fn for_delete(&self) -> Duration {
        self.less(CLOSE + ANSWER).min(LONGEST_CALL)
    }

    /// What stop and release may take. Zero: no release, the leases lapse as after a crash.
    pub fn for_close(&self) -> Duration {
        self.less(ANSWER).min(LONGEST_CALL)
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
        tokio::time::advance(Duration::from_millis(4500)).await;
        assert!(budget.may_start_batch());
        assert!(budget.for_fetch() < budget.for_publish());
        assert!(budget.for_publish() < budget.for_delete());
        assert!(budget.for_delete() < budget.for_close());
        assert!(budget.for_close() < budget.remaining().unwrap());

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
