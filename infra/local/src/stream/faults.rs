//! A stream whose batches do not all arrive as they should.

use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// The shares of a stream's batches that meet each fault, from 0 to 1; a batch meets one of them at most, so that
/// together they should not exceed 1. [`Default`] is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamFaults {
    /// Not sent at all: the function never hears of these records.
    pub drop: f64,
    /// Sent once more after it was done with.
    pub duplicate: f64,
    /// Its records in any order, and sent after the batch that follows it, or once nothing follows it.
    pub reorder: f64,
    /// Decides which batches, and which order.
    pub seed: u64,
}

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Sent,
    Dropped,
    Duplicated,
    Reordered,
}

/// The faults that apply now, and the randomness that they are drawn from.
#[derive(Debug)]
pub(super) struct Drawing(Mutex<(StreamFaults, StdRng)>);

impl Default for Drawing {
    fn default() -> Self {
        Self(Mutex::new((StreamFaults::default(), StdRng::seed_from_u64(0))))
    }
}

impl Drawing {
    pub(super) fn set(&self, faults: StreamFaults) {
        self.with(|state| *state = (faults, StdRng::seed_from_u64(faults.seed)));
    }

    pub(super) fn fate(&self) -> Fate {
        self.with(|(faults, random)| {
            let drawn: f64 = random.random();
            match drawn {
                it if it < faults.drop => Fate::Dropped,
                it if it < faults.drop + faults.duplicate => Fate::Duplicated,
                it if it < faults.drop + faults.duplicate + faults.reorder => Fate::Reordered,
                _ => Fate::Sent,
            }
        })
    }

    pub(super) fn shuffle<T>(&self, batch: &mut [T]) {
        self.with(|(_, random)| batch.shuffle(random));
    }

    fn with<T>(&self, act: impl FnOnce(&mut (StreamFaults, StdRng)) -> T) -> T {
        // Never left half changed.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: StreamFaults) -> Vec<Fate> {
        let drawing = Drawing::default();
        drawing.set(faults);
        (0..1_000).map(|_| drawing.fate()).collect()
    }

    #[test]
    fn each_share_is_met_and_the_seed_decides_which() {
        let faults = StreamFaults { drop: 0.2, duplicate: 0.3, reorder: 0.1, seed: 5 };
        let drawn = fates(faults);
        assert_eq!(drawn, fates(faults));
        assert_ne!(drawn, fates(StreamFaults { seed: 6, ..faults }));
        let count = |fate| drawn.iter().filter(|it| **it == fate).count();
        let (dropped, duplicated) = (count(Fate::Dropped), count(Fate::Duplicated));
        let (reordered, sent) = (count(Fate::Reordered), count(Fate::Sent));
        assert!((150..250).contains(&dropped) && (250..350).contains(&duplicated), "{dropped} {duplicated}");
        assert!((60..140).contains(&reordered) && (340..460).contains(&sent), "{reordered} {sent}");
    }

    #[test]
    fn all_and_none_are_exact() {
        let all = |fate| vec![fate; 1_000];
        assert_eq!(fates(StreamFaults::default()), all(Fate::Sent));
        assert_eq!(fates(StreamFaults { drop: 1.0, ..StreamFaults::default() }), all(Fate::Dropped));
        assert_eq!(fates(StreamFaults { duplicate: 1.0, ..StreamFaults::default() }), all(Fate::Duplicated));
        assert_eq!(fates(StreamFaults { reorder: 1.0, ..StreamFaults::default() }), all(Fate::Reordered));
    }
}
