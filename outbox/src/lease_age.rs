//! How old a lease is, and what its owner may believe of it.

use std::time::Duration;

use crate::{Clock, Monotonic, RelayOptions, Ticks};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock.
    pub wall: Ticks,
    /// The monotonic clock.
    pub monotonic: Monotonic,
}

impl Moment {
    /// Reads both clocks.
    pub fn now(clock: &dyn Clock) -> Self {
        Self { wall: clock.now_utc(), monotonic: clock.monotonic() }
    }

    /// How long after `earlier` this is: the larger of what the two clocks say. A freeze can stop the monotonic one, a
    /// time server can set the wall clock back, and a relay that believed the smaller would publish beside the bucket's
    /// next owner.
    pub fn since(self, earlier: Self) -> Duration {
        self.monotonic.since(earlier.monotonic).max(self.wall.since(earlier.wall))
    }

    /// How long the process was asleep between `earlier` and this, as far as can be told: what the wall clock gained on
    /// the monotonic one. No timer of the process ran meanwhile. Zero where a freeze does not stop the monotonic clock.
    pub fn asleep_since(self, earlier: Self) -> Duration {
        self.wall.since(earlier.wall).saturating_sub(self.monotonic.since(earlier.monotonic))
    }
}

/// What the owner of a lease of some age may do under it. The age counts from before the lease was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Belief {
    /// A publish may start: the rest of the duration is left for clocks that are apart (invariant 2 of design.md).
    Fresh,
    /// What was acknowledged may be deleted, and the lease renewed; no publish may start.
    DueForRenewal,
    /// Somebody else may own the bucket.
    Lapsed,
}

impl Belief {
    /// The belief in a lease of this age.
    pub fn at_age(age: Duration, options: &RelayOptions) -> Self {
        if age < options.lease_renew_interval {
            Self::Fresh
        } else if age < options.lease_duration {
            Self::DueForRenewal
        } else {
            Self::Lapsed
        }
    }
}
