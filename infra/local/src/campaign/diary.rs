//! What was done in a segment, and when: so that a failure can name the round it fell into.

use std::time::{Instant, SystemTime};

use super::kept::time;

/// The rounds of one segment, and what is said of them, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Diary {
    begun: Vec<(SystemTime, String)>,
    lines: Vec<String>,
}

impl Diary {
    /// A round or an outage begins at `now`.
    pub(super) fn begin(&mut self, now: SystemTime, what: impl Into<String>) {
        let what = what.into();
        self.lines.push(format!("{} {what} begins", time(now)));
        self.begun.push((now, what));
    }

    /// What came of it.
    pub(super) fn note(&mut self, now: SystemTime, what: &str) {
        self.lines.push(format!("{} {what}", time(now)));
    }

    /// What was going on at that time, or had been last.
    pub(super) fn during(&self, at: SystemTime) -> &str {
        let last = self.begun.iter().rev().find(|(begun, _)| *begun <= at);
        last.map_or("before the first round", |(_, what)| what)
    }

    /// As [`during`](Self::during), for a moment of the past on the monotonic clock.
    pub(super) fn during_moment(&self, at: Instant) -> &str {
        let ago = Instant::now().saturating_duration_since(at);
        self.during(SystemTime::now() - ago)
    }

    /// For a person, line by line.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_belongs_to_the_round_that_began_last() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut diary = Diary::default();
        diary.begin(at(10), "round 1 kill");
        diary.note(at(11), "hit");
        diary.begin(at(20), "round 2 freeze");
        assert_eq!(diary.during(at(9)), "before the first round");
        assert_eq!(diary.during(at(10)), "round 1 kill");
        assert_eq!(diary.during(at(19)), "round 1 kill");
        assert_eq!(diary.during(at(99)), "round 2 freeze");
        assert_eq!(diary.lines().len(), 3);
        assert!(diary.lines()[1].ends_with(" hit"), "{:?}", diary.lines());
    }

    #[test]
    fn moments_of_both_clocks_are_the_same() {
        let mut diary = Diary::default();
        let now = Instant::now();
        diary.begin(SystemTime::now() - Duration::from_secs(60), "round 1 kill");
        diary.begin(SystemTime::now() - Duration::from_secs(20), "round 2 freeze");
        assert_eq!(diary.during_moment(now), "round 2 freeze");
        if let Some(earlier) = now.checked_sub(Duration::from_secs(40)) {
            assert_eq!(diary.during_moment(earlier), "round 1 kill");
        }
    }
}
