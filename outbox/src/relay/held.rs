//! A lease that this relay holds, and how far it may be believed.

use std::time::Duration;

use crate::{Clock, Lease, LeaseTimes, Monotonic, RelayOptions, Ticks};

/// When a lease request was about to be sent: lease age counts from there, not from the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    wall: Ticks,
    monotonic: Monotonic,
}

impl Asked {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self { wall: clock.now_utc(), monotonic: clock.monotonic() }
    }

    /// The wall clock's time: the timestamp that the request carried.
    pub(super) fn times_now(self) -> Ticks {
        self.wall
    }

    pub(super) fn times(self, options: &RelayOptions) -> LeaseTimes {
        LeaseTimes { now: self.wall, duration: options.lease_duration }
    }

    /// The larger of what the two clocks say: a freeze can stop the monotonic one, a time server can set the wall
    /// clock back, and a relay that believed the smaller would publish beside the bucket's next owner.
    pub(super) fn age(self, clock: &dyn Clock) -> Duration {
        clock.monotonic().since(self.monotonic).max(clock.now_utc().since(self.wall))
    }
}

/// A lease with the time it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) asked: Asked,
}

impl Held {
    /// Whether a publish may start under it. Only a lease younger than the renew interval will do: that leaves the
    /// rest of its duration for clocks that are apart (invariant 2).
    pub(super) fn is_fresh(&self, clock: &dyn Clock, options: &RelayOptions) -> bool {
        self.asked.age(clock) < options.lease_renew_interval
    }

    /// Whether it is still this relay's, by both of its clocks.
    pub(super) fn is_believed(&self, clock: &dyn Clock, options: &RelayOptions) -> bool {
        self.asked.age(clock) < options.lease_duration
    }

    /// How long until it is due for renewal.
    pub(super) fn renewal_due_in(&self, clock: &dyn Clock, options: &RelayOptions) -> Duration {
        options.lease_renew_interval.saturating_sub(self.asked.age(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bucket, TokioClock};

    fn held(clock: &TokioClock) -> Held {
        let lease =
            Lease { bucket: Bucket::new(0), expires_at: clock.now_utc().plus(Duration::from_secs(30)) };
        Held { lease, asked: Asked::now(clock) }
    }

    #[tokio::test(start_paused = true)]
    async fn age_is_the_larger_of_both_clocks() {
        let clock = TokioClock::starting_at(Ticks::from_raw(639_000_000_000_000_000));
        let options = RelayOptions::default();

        // A freeze that the monotonic clock slept through.
        let frozen = held(&clock);
        clock.step_wall(31_000);
        assert!(!frozen.is_believed(&clock, &options));

        // A wall clock set back does not make a lease young again.
        let stepped_back = held(&clock);
        clock.step_wall(-60_000);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(!stepped_back.is_fresh(&clock, &options));
        assert!(stepped_back.is_believed(&clock, &options));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(!stepped_back.is_believed(&clock, &options));
    }
}
