//! The time that is left, and what each step may take of it.

use std::sync::Arc;
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

/// The time an invocation has, counted on the monotonic clock from a deadline that was read once.
///
/// Every wait takes its limit from here, and each step leaves what the steps behind it need.
#[derive(Clone, Debug)]
pub struct Budget {
    clock: Arc<dyn Clock>,
    ends_at: Monotonic,
}

impl Budget {
    /// A budget of `remaining` from now.
    pub fn new(clock: Arc<dyn Clock>, remaining: Duration) -> Self {
        let ends_at = clock.monotonic().plus(remaining);
        Self { clock, ends_at }
    }

    /// All the time that is left.
    pub fn remaining(&self) -> Duration {
        self.ends_at.since(self.clock.monotonic())
    }

    /// Whether a batch may be started that could still be fetched, published, deleted, and its lease released.
    pub fn may_start_batch(&self) -> bool {
        self.remaining() >= MIN_INVOCATION
    }

    /// What a fetch, a probe or an acquisition may take.
    pub fn for_fetch(&self) -> Duration {
        self.less(PUBLISH + DELETE + CLOSE + ANSWER)
    }

    /// What a publish may take.
    pub fn for_publish(&self) -> Duration {
        self.less(DELETE + CLOSE + ANSWER)
    }

    /// What the deletes of a published batch may take.
    pub fn for_delete(&self) -> Duration {
        self.less(CLOSE + ANSWER)
    }

    /// What stop and release may take. Zero: no release, the leases lapse as after a crash.
    pub fn for_close(&self) -> Duration {
        self.less(ANSWER)
    }

    fn less(&self, reserve: Duration) -> Duration {
        self.remaining().saturating_sub(reserve)
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
        assert!(budget.for_fetch() < budget.for_publish());
        assert!(budget.for_publish() < budget.for_delete());
        assert!(budget.for_delete() < budget.for_close());
        assert!(budget.for_close() < budget.remaining());

        tokio::time::advance(Duration::from_millis(4501)).await;
        assert!(!budget.may_start_batch(), "a batch would be started that cannot be finished");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(budget.for_close(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_jumps_changes_nothing() {
        let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000)));
        let budget = Budget::new(clock.clone(), Duration::from_secs(10));
        clock.step_wall(-3_600_000);
        assert_eq!(budget.remaining(), Duration::from_secs(10));
    }
}
