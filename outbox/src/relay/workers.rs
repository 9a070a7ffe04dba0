//! Further sweeps, for a backlog that is too large for one: who asks for how many, and when.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::Bucket;

/// Starts further sweeps, each in a process of its own: on Lambda, asynchronous invocations of the function itself.
///
/// A sweep that is at work for a whole turn and is not done asks for helpers beside it; one that runs out of time asks
/// for those that go on after it. Fair share divides the buckets among them. Advisory, like a hint: a sweep that is not
/// started costs time until the schedule's next one, never a message; one too many finds no share and leaves.
pub trait Workers: Debug + Send + Sync {
    /// The most sweeps that are to be at work at once, whoever started them. 1: a sweep is gone on with, and not
    /// spread. 0: none is ever started, and what a sweep leaves waits for the schedule.
    fn max(&self) -> usize;

    /// Asks for `count` sweeps, at least one, within `limit`. On an error any number of them may have been started.
    fn start(&self, count: usize, limit: Duration) -> BoxFuture<'_, Result<(), WorkersError>>;
}

/// Why further sweeps were not started.
pub type WorkersError = Box<dyn Error + Send + Sync>;

/// No further sweeps: what one leaves waits for the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWorkers;

impl Workers for NoWorkers {
    fn max(&self) -> usize {
        0
    }

    fn start(&self, _: usize, _: Duration) -> BoxFuture<'_, Result<(), WorkersError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// How many sweeps to start beside this one: `members` take part now, this one included, and `backlog` buckets have more
/// work than a turn and are this relay's or free. More sweeps than such buckets would find nothing to do.
pub(super) fn beside(max: usize, members: usize, backlog: usize) -> usize {
    max.min(backlog).saturating_sub(members.max(1))
}

/// How many sweeps to start after this one, which ends: `members` took part, this one included, and it leaves the buckets
/// of `unfinished` free, with work in them.
///
/// A run that deleted nothing starts none, whatever it left: started sweeps would do no better, one after another,
/// without end. So every sweep that was started by another was paid for with a message.
pub(super) fn after(max: usize, members: usize, unfinished: &BTreeSet<Bucket>, deleted: u64) -> usize {
    if deleted == 0 {
        return 0;
    }
    let others = members.saturating_sub(1);
    max.saturating_sub(others).min(unfinished.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BucketCount;

    fn buckets(count: u32) -> BTreeSet<Bucket> {
        BucketCount::new(count).map(|count| count.buckets().collect()).unwrap_or_default()
    }

    #[test]
    fn a_backlog_is_spread_over_as_many_as_are_allowed_and_have_a_bucket_each() {
        assert_eq!(beside(4, 1, 8), 3);
        assert_eq!(beside(4, 1, 2), 1);
        assert_eq!(beside(4, 1, 1), 0, "one bucket is one relay's");
        assert_eq!(beside(4, 3, 8), 1, "those that are there already count");
        assert_eq!(beside(4, 9, 8), 0);
        assert_eq!(beside(1, 1, 8), 0);
        assert_eq!(beside(0, 1, 8), 0);
        assert_eq!(beside(4, 0, 8), 3, "a store that does not count members has this one");
    }

    #[test]
    fn a_sweep_that_ends_is_gone_on_with_in_its_place() {
        assert_eq!(after(4, 1, &buckets(8), 1), 4, "alone: by all that may be at work");
        assert_eq!(after(4, 4, &buckets(2), 1), 1, "beside three others: by one");
        assert_eq!(after(4, 5, &buckets(2), 1), 0, "beside four others: by nobody");
        assert_eq!(after(4, 1, &buckets(1), 1), 1);
        assert_eq!(after(4, 1, &BTreeSet::new(), 1), 0, "nothing is left");
        assert_eq!(after(4, 0, &buckets(8), 1), 4);
        assert_eq!(after(1, 1, &buckets(8), 1), 1);
        assert_eq!(after(0, 1, &buckets(8), 1), 0);
    }

    #[test]
    fn a_sweep_that_got_nowhere_is_not_gone_on_with() {
        assert_eq!(after(4, 1, &buckets(8), 0), 0);
    }
}
