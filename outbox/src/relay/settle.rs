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
    pub(super) failed: Vec<Failed>,
    /// How many the broker has acknowledged.
    pub(super) acknowledged: usize,
    /// How the run of this bucket goes on.
    pub(super) next: Next,
}

/// A message that was not acknowledged.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) index: usize,
    pub(super) error: PublishError,
    /// Whether it only shares the fate of one of its key ahead of it.
    pub(super) is_behind: bool,
    /// Whether the broker has acknowledged something of its key that is behind it.
    pub(super) is_overtaken: bool,
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
/// as a failure that may have happened. Where rows are not deleted `individually`, the first failure holds back all that
/// is behind it: only an acknowledged prefix may go.
pub(super) fn settle(keys: &[OrderKey<'_>], outcomes: &[Outcome], individually: bool) -> Settled {
    let mut settled = Settled::default();
    let mut stuck: HashSet<&[u8]> = HashSet::new();
    let mut overtaken: HashSet<&[u8]> = HashSet::new();
    for (index, key) in keys.iter().enumerate() {
        let key = key.key().map(AsRef::as_ref);
        let is_behind = key.is_some_and(|key| stuck.contains(key));
        let error = match outcomes.get(index) {
            Some(Outcome::Acknowledged) => {
                settled.acknowledged += 1;
                // What was appended behind a message of its key that was not must go again after it.
                if !is_behind && (individually || settled.failed.is_empty()) {
                    settled.delete.push(index);
                }
                overtaken.extend(key.filter(|_| is_behind));
                continue;
            }
            Some(Outcome::Failed(error)) => error.clone(),
            None => PublishError::new(
                PublishErrorKind::MayHaveHappened,
                "the publisher returned no outcome for a message",
            ),
        };
        stuck.extend(key);
        settled.failed.push(Failed { index, error, is_behind, is_overtaken: false });
    }
    for failed in &mut settled.failed {
        let key = keys[failed.index].key();
        failed.is_overtaken = !failed.is_behind && key.is_some_and(|key| overtaken.contains(key.as_ref()));
    }
    settled.next = next(&settled);
    settled
}

/// What is behind a message of its key that failed says nothing of the broker; nor does a message that is refused for its
/// own faults, or its topic's. The next batch may fare better. If nothing got through for any other reason, it will not.
fn next(settled: &Settled) -> Next {
    let heads = || settled.failed.iter().filter(|failed| !failed.is_behind).map(|failed| failed.error.kind());
    if heads().any(|kind| kind == PublishErrorKind::Misconfigured) {
        return Next::Misconfigured;
    }
    let of_its_own = |kind| matches!(kind, PublishErrorKind::Rejected | PublishErrorKind::TopicUnavailable);
    if settled.acknowledged == 0 && heads().any(|kind| !of_its_own(kind)) {
        Next::RetryLater
    } else {
        Next::GoOn
    }
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
        let settled = settle(&keys, &outcomes, true);
        assert_eq!(settled.delete, [1, 3, 4]);
        assert_eq!(settled.failed.len(), 1);
        assert!(settled.failed[0].is_overtaken);
        assert_eq!(settled.acknowledged, 4);
        assert_eq!(settled.next, Next::GoOn);
    }

    #[test]
    fn where_only_a_prefix_can_be_deleted_a_failure_holds_back_all_behind_it() {
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let keys = [OrderKey::Key(&a), OrderKey::Key(&b), OrderKey::Key(&a)];
        let outcomes = [Outcome::Acknowledged, failed(PublishErrorKind::Rejected), Outcome::Acknowledged];
        assert_eq!(settle(&keys, &outcomes, false).delete, [0]);
    }

    #[test]
    fn keyless_messages_hold_back_nobody() {
        let outcomes = [failed(PublishErrorKind::Rejected), Outcome::Acknowledged];
        assert_eq!(settle(&[OrderKey::None, OrderKey::None], &outcomes, true).delete, [1]);
    }

    #[test]
    fn a_batch_that_gets_nowhere_ends_the_run() {
        let keys = [OrderKey::None, OrderKey::None];
        let broken = [failed(PublishErrorKind::Unavailable), failed(PublishErrorKind::MayHaveHappened)];
        assert_eq!(settle(&keys, &broken, true).next, Next::RetryLater);
        let rejected = [failed(PublishErrorKind::Rejected), failed(PublishErrorKind::Rejected)];
        assert_eq!(settle(&keys, &rejected, true).next, Next::GoOn, "what is behind them may be sound");
        let refused = [Outcome::Acknowledged, failed(PublishErrorKind::Misconfigured)];
        assert_eq!(settle(&keys, &refused, true).next, Next::Misconfigured);
    }

    #[test]
    fn a_missing_outcome_is_no_acknowledgement() {
        let settled = settle(&[OrderKey::None, OrderKey::None], &[Outcome::Acknowledged], true);
        assert_eq!(settled.delete, [0]);
        assert_eq!(settled.failed.len(), 1);
    }

    /// What a publisher reports that finds the first message too large before anything is sent: the rest of the key
    /// waits behind it.
    #[test]
    fn a_rejected_message_with_its_key_behind_it_does_not_end_the_run() {
        let a = Bytes::from_static(b"a");
        let keys = [OrderKey::Key(&a), OrderKey::Key(&a)];
        let outcomes = [failed(PublishErrorKind::Rejected), failed(PublishErrorKind::Unavailable)];
        let settled = settle(&keys, &outcomes, true);
        assert_eq!(settled.next, Next::GoOn);
        assert_eq!(settled.failed.iter().map(|failed| failed.is_behind).collect::<Vec<_>>(), [false, true]);
        let missing_topic =
            [failed(PublishErrorKind::TopicUnavailable), failed(PublishErrorKind::Unavailable)];
        assert_eq!(settle(&keys, &missing_topic, true).next, Next::GoOn, "other topics are none the worse");
    }
}
