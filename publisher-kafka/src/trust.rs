//! What the age of a client says of its connections.

use outbox::lease_age::Moment;

use crate::config::{MAX_IDLE, PROVEN_FOR};

/// What may be thought of a client before it is given a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Its connections are as good as a moment ago.
    Sound,
    /// They may have been lost: a broker is to be asked.
    Unproven,
    /// They are not worth asking: it is to be replaced.
    Gone,
}

/// The trust in a client that was made at one moment and last used at another.
///
/// A freeze may stop the monotonic clock, and a time server may set the wall clock back: each counts. Time asleep, in
/// which the client's own timers did not run, adds up over naps that are each short.
pub(crate) fn trust(made: Moment, last_used: Moment, now: Moment) -> Trust {
    let idle = now.since(last_used);
    if idle >= MAX_IDLE || now.asleep_since(made) >= MAX_IDLE {
        Trust::Gone
    } else if idle >= PROVEN_FOR {
        Trust::Unproven
    } else {
        Trust::Sound
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::{Monotonic, Ticks};

    use super::*;

    /// A moment, `monotonic` and `wall` seconds from the first.
    fn at(monotonic: u64, wall: u64) -> Moment {
        Moment {
            wall: Ticks::from_raw(639_000_000_000_000_000).plus(Duration::from_secs(wall)),
            monotonic: Monotonic::from_origin(Duration::from_secs(monotonic)),
        }
    }

    #[test]
    fn the_longer_of_both_clocks_counts() {
        let made = at(0, 0);
        // Awake and unused; frozen with the monotonic clock stopped; the wall clock set back.
        for (now, trusted) in [
            (at(1, 1), Trust::Sound),
            (at(2, 2), Trust::Unproven),
            (at(169, 169), Trust::Unproven),
            (at(170, 170), Trust::Gone),
            (at(0, 2), Trust::Unproven),
            (at(0, 900), Trust::Gone),
            (at(85, 170), Trust::Gone),
            (at(170, 0), Trust::Gone),
        ] {
            assert_eq!(trust(made, made, now), trusted, "{now:?}");
        }
    }

    #[test]
    fn short_naps_add_up() {
        // Used every ten seconds, of which the monotonic clock saw one.
        let naps = |count| trust(at(0, 0), at(count, count * 10), at(count, count * 10));
        assert_eq!(naps(18), Trust::Sound);
        assert_eq!(naps(19), Trust::Gone);
    }

    #[test]
    fn use_without_sleep_never_ends_it() {
        assert_eq!(trust(at(0, 0), at(1_000_000, 1_000_000), at(1_000_001, 1_000_001)), Trust::Sound);
    }
}
