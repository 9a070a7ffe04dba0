//! A lease that this relay holds.

use std::time::Duration;

use crate::lease_age::{Belief, Moment};
use crate::{Clock, Lease, LeaseTimes, RelayOptions};

/// A lease with the moment just before it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) asked: Moment,
}

impl Held {
    pub(super) fn belief(&self, clock: &dyn Clock, options: &RelayOptions) -> Belief {
        Belief::at_age(self.age(clock), options)
    }

    /// How long until it is due for renewal.
    pub(super) fn renewal_due_in(&self, clock: &dyn Clock, options: &RelayOptions) -> Duration {
        options.lease_renew_interval.saturating_sub(self.age(clock))
    }

    pub(super) fn age(&self, clock: &dyn Clock) -> Duration {
        Moment::now(clock).since(self.asked)
    }
}

/// The times of a lease request about to be sent.
pub(super) fn times(asked: Moment, options: &RelayOptions) -> LeaseTimes {
    LeaseTimes { now: asked.wall, duration: options.lease_duration }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bucket, Ticks, TokioClock};

    fn held(clock: &TokioClock) -> Held {
        let lease =
            Lease { bucket: Bucket::new(0), expires_at: clock.now_utc().plus(Duration::from_secs(30)) };
        Held { lease, asked: Moment::now(clock) }
    }

    #[tokio::test(start_paused = true)]
    async fn age_is_the_larger_of_both_clocks() {
        let clock = TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000));
        let options = RelayOptions::default();

        // A freeze that the monotonic clock slept through.
        let frozen = held(&clock);
        clock.step_wall(31_000);
        assert_eq!(frozen.belief(&clock, &options), Belief::Lapsed);

        // A wall clock set back does not make a lease young again.
        let stepped_back = held(&clock);
        clock.step_wall(-60_000);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(stepped_back.belief(&clock, &options), Belief::DueForRenewal);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(stepped_back.belief(&clock, &options), Belief::Lapsed);
    }
}
