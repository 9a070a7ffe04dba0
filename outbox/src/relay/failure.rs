//! What messages were not acknowledged for, counted by kind.

use crate::publisher::PublishErrorKind;

/// What a message was not acknowledged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The broker is away, or has no room.
    Unavailable,
    /// Its topic or partition is not there.
    TopicUnavailable,
    /// Nobody knows whether it was stored.
    MayHaveHappened,
    /// It was refused, and will be every time.
    Rejected,
    /// A setting or a permission is wrong.
    Misconfigured,
    /// One of its key ahead of it failed: it shares that one's fate.
    Behind,
    /// What is stored is no message that could be sent. Counted once a run.
    Malformed,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Unavailable,
        Self::TopicUnavailable,
        Self::MayHaveHappened,
        Self::Rejected,
        Self::Misconfigured,
        Self::Behind,
        Self::Malformed,
    ];

    /// Its name in metrics. Alarms are made of them: they do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::TopicUnavailable => "topic_unavailable",
            Self::MayHaveHappened => "may_have_happened",
            Self::Rejected => "rejected",
            Self::Misconfigured => "misconfigured",
            Self::Behind => "behind",
            Self::Malformed => "malformed",
        }
    }
}

impl From<PublishErrorKind> for FailureKind {
    fn from(kind: PublishErrorKind) -> Self {
        match kind {
            PublishErrorKind::Unavailable => Self::Unavailable,
            PublishErrorKind::TopicUnavailable => Self::TopicUnavailable,
            PublishErrorKind::MayHaveHappened => Self::MayHaveHappened,
            PublishErrorKind::Rejected => Self::Rejected,
            PublishErrorKind::Misconfigured => Self::Misconfigured,
        }
    }
}

/// A count for each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; FailureKind::ALL.len()]);

impl Failures {
    /// How many of this kind.
    pub const fn of(&self, kind: FailureKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts one more of this kind.
    pub fn add(&mut self, kind: FailureKind) {
        self.0[kind as usize] += 1;
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_count_and_its_own_name() {
        let mut failures = Failures::default();
        for (n, kind) in (1..).zip(FailureKind::ALL) {
            (0..n).for_each(|_| failures.add(kind));
        }
        failures.append(&failures.clone());
        assert_eq!(FailureKind::ALL.map(|kind| failures.of(kind)), [2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(failures.total(), 56);
        let names: std::collections::BTreeSet<_> = FailureKind::ALL.map(FailureKind::name).into();
        assert_eq!(names.len(), FailureKind::ALL.len());
    }
}
