//! UTC ticks: how every time in the table is written (design.md, section 4).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TICKS_PER_SECOND: i64 = 10_000_000;
const NANOS_PER_TICK: u32 = 100;
/// The tick at which the Unix epoch begins.
const UNIX_EPOCH_TICKS: i64 = 621_355_968_000_000_000;

/// A point in UTC time, in units of 100 ns since 0001-01-01T00:00:00Z.
///
/// Arithmetic saturates: a lease cannot wrap round into the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(i64);

impl Ticks {
    /// The time with this number of ticks, as read from the table.
    pub const fn from_raw(ticks: i64) -> Self {
        Self(ticks)
    }

    /// The number of ticks, as written to the table.
    pub const fn as_raw(self) -> i64 {
        self.0
    }

    /// The tick in which `time` lies; times before the Unix epoch count back from it.
    pub fn from_system_time(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(UNIX_EPOCH_TICKS).plus(after),
            Err(before) => Self(UNIX_EPOCH_TICKS.saturating_sub(duration_to_ticks(before.duration()))),
        }
    }

    /// This time, `duration` later. A part of a tick is cut off.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration_to_ticks(duration)))
    }

    /// This time, `duration` earlier. A part of a tick is cut off.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration_to_ticks(duration)))
    }

    /// The very next tick: what moves a version forward when the clock did not.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        let ticks = self.0.saturating_sub(earlier.0);
        let Ok(ticks) = u64::try_from(ticks) else {
            return Duration::ZERO;
        };
        let per_second = TICKS_PER_SECOND.unsigned_abs();
        let rest = u32::try_from(ticks % per_second).unwrap_or(0);
        Duration::new(ticks / per_second, rest * NANOS_PER_TICK)
    }

    /// Milliseconds since the Unix epoch; zero for times before it.
    pub fn unix_millis(self) -> u64 {
        u64::try_from((self.0 - UNIX_EPOCH_TICKS) / (TICKS_PER_SECOND / 1000)).unwrap_or(0)
    }
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn duration_to_ticks(duration: Duration) -> i64 {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    seconds
        .saturating_mul(TICKS_PER_SECOND)
        .saturating_add(i64::from(duration.subsec_nanos() / NANOS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Ticks(i64::MAX).plus(Duration::MAX), Ticks(i64::MAX));
        assert_eq!(Ticks(i64::MAX).next(), Ticks(i64::MAX));
        assert_eq!(Ticks(5).since(Ticks(9)), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_span_of_whole_ticks_survives(start in 0..i64::MAX / 4, ticks in 0..i64::MAX / 4) {
            let span = Ticks(start + ticks).since(Ticks(start));
            prop_assert_eq!(Ticks(start).plus(span), Ticks(start + ticks));
        }
    }
}
