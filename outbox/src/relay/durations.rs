//! How long many things took, in bounded memory.

use std::time::Duration;

/// Durations, all of them up to [`Durations::MOST`], and beyond that every second, fourth, and so on: an even sample over
/// the whole time, and the longest of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    kept: Vec<Duration>,
    /// One of so many is kept: a power of two.
    every: u64,
    count: u64,
    longest: Duration,
}

impl Default for Durations {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, count: 0, longest: Duration::ZERO }
    }
}

impl Durations {
    /// The most that are kept, besides the longest.
    pub const MOST: usize = 500;

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Those that are kept, the longest among them: at most one more than [`Self::MOST`], in no order.
    pub fn values(&self) -> impl Iterator<Item = Duration> {
        let longest = Some(self.longest).filter(|longest| self.count > 0 && !self.kept.contains(longest));
        self.kept.iter().copied().chain(longest)
    }

    /// Notes one more.
    pub fn note(&mut self, duration: Duration) {
        if self.count.is_multiple_of(self.every) {
            self.kept.push(duration);
        }
        self.count += 1;
        self.longest = self.longest.max(duration);
        self.thin();
    }

    pub(super) fn append(&mut self, mut other: Self) {
        while self.every < other.every {
            self.halve();
        }
        while other.every < self.every {
            other.halve();
        }
        self.kept.append(&mut other.kept);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.thin();
    }

    fn thin(&mut self) {
        while self.kept.len() > Self::MOST {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut keep = false;
        self.kept.retain(|_| {
            keep = !keep;
            keep
        });
        self.every = self.every.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn of(values: impl IntoIterator<Item = u64>) -> Durations {
        let mut durations = Durations::default();
        values.into_iter().for_each(|value| durations.note(millis(value)));
        durations
    }

    #[test]
    fn a_few_are_all_kept() {
        assert_eq!(of([]).values().count(), 0);
        let few = of([3, 1, 2, 3]);
        assert_eq!(few.values().collect::<Vec<_>>(), [3, 1, 2, 3].map(millis));
        assert_eq!(few.count(), 4);
    }

    #[test]
    fn many_are_sampled_evenly_and_the_longest_is_never_lost() {
        let many = of((0..100_000).map(|n| if n == 77_777 { 1_000_000 } else { n }));
        let values: Vec<_> = many.values().collect();
        assert!(
            values.len() <= Durations::MOST + 1 && values.len() > Durations::MOST / 3,
            "{}",
            values.len()
        );
        assert!(values.contains(&millis(1_000_000)));
        assert_eq!(many.count(), 100_000);
        let early = values.iter().filter(|value| **value < millis(50_000)).count();
        assert!(early.abs_diff(values.len() / 2) < 20, "{early} of {}", values.len());
    }

    #[test]
    fn those_of_a_busy_bucket_count_as_much_as_those_of_a_quiet_one() {
        let mut total = of(std::iter::repeat_n(1, 300));
        let busy = of(std::iter::repeat_n(9, 30_000));
        total.append(busy.clone());
        assert_eq!(total.count(), 30_300);
        assert!(total.values().count() <= Durations::MOST + 1);
        let slow = total.values().filter(|value| *value == millis(9)).count();
        assert!(slow * 100 > total.values().count() * 95, "{slow}");
        // The other way round as well.
        let mut other = busy;
        other.append(of(std::iter::repeat_n(1, 300)));
        assert!(other.values().filter(|value| *value == millis(1)).count() < 20);
        let mut endless = Durations::default();
        (0..1_000).for_each(|_| endless.append(of(0..1_000)));
        assert!(endless.values().count() <= Durations::MOST + 1);
        assert_eq!(endless.count(), 1_000_000);
    }
}
