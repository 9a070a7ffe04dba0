//! How often a client was replaced, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a publisher replaced its Kafka client by a new one. No message is lost by it: what was not acknowledged stays in
/// the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Replaced {
    /// It was unused or asleep for too long, or gave no answer when it was asked.
    Stale,
    /// It failed for good: its account of what the brokers have stored was lost (librdkafka's fatal errors).
    Fatal,
    /// A publish was given up on it, for lack of time or of a broker, and its records were taken back.
    GivenUp,
    /// It remembers an answer about a topic that may have changed since.
    Outdated,
}

impl Replaced {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Stale, Self::Fatal, Self::GivenUp, Self::Outdated];
}

/// One count for each reason.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; Replaced::ALL.len()]);

impl Counts {
    pub(crate) fn add(&self, reason: Replaced) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, reason: Replaced) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let counts = Counts::default();
        for (n, reason) in (1..).zip(Replaced::ALL) {
            (0..n).for_each(|_| counts.add(reason));
        }
        assert_eq!(Replaced::ALL.map(|reason| counts.of(reason)), [1, 2, 3, 4]);
    }
}
