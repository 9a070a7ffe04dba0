//! Waits between tries: exponential, jittered, bounded.

use std::time::Duration;

use crate::Chance;

/// The waits after failures in a row. Counted from the failure, not from the try: a try that took long to fail is not
/// made again at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits that begin around `base`, double with each failure in a row, and never exceed `longest`.
    pub const fn new(base: Duration, longest: Duration) -> Self {
        Self { base, longest, failures: 0 }
    }

    /// The wait after one more failure: between half and the whole of the step, so that relays that failed together do
    /// not try again together. Never longer than `at_most`, for whoever has something else to do by then.
    pub fn after_failure(&mut self, chance: &Chance, at_most: Duration) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let step = self.base.saturating_mul(doubled).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let half = step / 2;
        let jitter = chance.below(u64::try_from(half.as_nanos()).unwrap_or(u64::MAX));
        (half + Duration::from_nanos(jitter)).min(at_most)
    }

    /// Back to the base, after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the last try failed.
    pub const fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);

    proptest! {
        #[test]
        fn a_wait_lies_within_its_step(seed in any::<u64>(), failures in 0..100_u32) {
            let chance = Chance::seeded(seed);
            let mut backoff = Backoff::new(BASE, LONGEST);
            let mut step = BASE;
            for _ in 0..failures {
                let wait = backoff.after_failure(&chance, Duration::MAX);
                prop_assert!(wait >= step / 2 && wait <= step, "{wait:?} in a step of {step:?}");
                step = (step * 2).min(LONGEST);
            }
            backoff.reset();
            prop_assert!(backoff.after_failure(&chance, Duration::MAX) <= BASE);
            let short = Duration::from_millis(7);
            prop_assert!(backoff.after_failure(&chance, short) <= short);
        }
    }
}
