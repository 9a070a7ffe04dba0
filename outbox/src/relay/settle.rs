//! What follows from the outcomes of one batch: a pure decision.

use std::collections::HashSet;

use crate::publisher::{Outcome, PublishError, PublishErrorKind};
use crate::store::OrderKey;

/// What to do with a batch that has been published.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The messages that may be deleted: acknowledged, with nothing of their key ahead of them that was not.
    pub(super) delete: Vec<usize>,
    /// The messages that were not acknowledged, with why. Their keys wait for the rest of the run.
    pub(super) failed: Vec<(usize, PublishError)>,
    /// How many the broker has acknowledged.
    pub(super) acknowledged: usize,
    /// How the run of this bucket goes on.
    pub(super) next: Next,
}

/// How the run of a bucket goes on after a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// With the next batch, past the keys that wait.
    #[default]
    GoOn,
    /// Not now: nothing gets through.
    RetryLater,
    /// Not until somebody changes a setting.
    Misconfigured,
}

/// Settles a batch: `keys` orders its messages, `outcomes` says what became of them. An outcome that is missing counts
/// as a failure that may have happened.
pub(super) fn settle(keys: &[OrderKey<'_>], outcomes: &[Outcome]) -> Settled {
    let mut settled = Settled::default();
    let mut stuck: HashSet<&[u8]> = HashSet::new();
    for (index, key) in keys.iter().enumerate() {
        let key = match key {
            OrderKey::Key(key) => Some(key.as_ref()),
            OrderKey::None | OrderKey::Unreadable => None,
        };
        match outcomes.get(index) {
            Some(Outcome::Acknowledged) => {
                settled.acknowledged += 1;
                // What was appended behind a message of its key that was not must go again after it.
                if !key.is_some_and(|key| stuck.contains(key)) {
                    settled.delete.push(index);
                }
            }
            Some(Outcome::Failed(error)) => {
                stuck.extend(key);
                settled.failed.push((index, error.clone()));
            }
            None => {
                stuck.extend(key);
                let missing = PublishError::new(
                    PublishErrorKind::MayHaveHappened,
                    "the publisher returned no outcome for a message",
                );
                settled.failed.push((index, missing));
            }
        }
    }
    let any = |kind| settled.failed.iter().any(|(_, error)| error.kind() == kind);
    settled.next = if any(PublishErrorKind::Misconfigured) {
        Next::Misconfigured
    } else if settled.acknowledged == 0
        && settled.failed.iter().any(|(_, error)| error.kind() != PublishErrorKind::Rejected)
    {
        // Nothing got through, and not for the messages' own faults: the next batch would fare no better.
        Next::RetryLater
    } else {
        Next::GoOn
    };
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn failed(kind: PublishErrorKind) -> Outcome {
        Outcome::Failed(PublishError::new(kind, "test"))
    }

    #[test]
    fn a_failure_holds_back_its_own_key_only() {
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let keys =
            [OrderKey::Key(&a), OrderKey::Key(&b), OrderKey::Key(&a), OrderKey::None, OrderKey::Key(&b)];
        let outcomes = [
            failed(PublishErrorKind::Rejected),
            Outcome::Acknowledged,
            Outcome::Acknowledged,
            Outcome::Acknowledged,
            Outcome::Acknowledged,
        ];
        let settled = settle(&keys, &outcomes);
        assert_eq!(settled.delete, [1, 3, 4]);
        assert_eq!(settled.failed.len(), 1);
        assert_eq!(settled.acknowledged, 4);
        assert_eq!(settled.next, Next::GoOn);
    }

    #[test]
    fn keyless_messages_hold_back_nobody() {
        let outcomes = [failed(PublishErrorKind::Rejected), Outcome::Acknowledged];
        assert_eq!(settle(&[OrderKey::None, OrderKey::None], &outcomes).delete, [1]);
    }

    #[test]
    fn a_batch_that_gets_nowhere_ends_the_run() {
        let keys = [OrderKey::None, OrderKey::None];
        let broken = [failed(PublishErrorKind::Unavailable), failed(PublishErrorKind::MayHaveHappened)];
        assert_eq!(settle(&keys, &broken).next, Next::RetryLater);
        let rejected = [failed(PublishErrorKind::Rejected), failed(PublishErrorKind::Rejected)];
        assert_eq!(settle(&keys, &rejected).next, Next::GoOn, "what is behind them may be sound");
        let refused = [Outcome::Acknowledged, failed(PublishErrorKind::Misconfigured)];
        assert_eq!(settle(&keys, &refused).next, Next::Misconfigured);
    }

    #[test]
    fn a_missing_outcome_is_no_acknowledgement() {
        let settled = settle(&[OrderKey::None, OrderKey::None], &[Outcome::Acknowledged]);
        assert_eq!(settled.delete, [0]);
        assert_eq!(settled.failed.len(), 1);
    }
}
