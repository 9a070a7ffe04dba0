//! Further sweeps, for a backlog that is too large for one: who asks for how many, and when.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::BucketCount;
use crate::store::Place;

/// Starts further sweeps, each in a process of its own: on Lambda, asynchronous invocations of the function itself.
///
/// A sweep that has been at work for a while and is behind asks for helpers beside it; one that runs out of time asks for
/// those that go on after it. Fair share divides the buckets among them. Advisory, like a hint: a sweep that is not
/// started costs time until the schedule's next one, never a message; one too many finds nothing to take and leaves.
pub trait Workers: Debug + Send + Sync {
    /// The most sweeps that are to be at work at once, whoever started them. 1: a sweep is gone on with, and not
    /// spread. 0: none is ever started, and what a sweep leaves waits for the schedule.
    fn max(&self) -> usize;

    /// Asks for `count` sweeps, at least one, within `limit`.
    fn start(&self, count: usize, limit: Duration) -> BoxFuture<'_, Started>;
}

/// What came of asking for further sweeps.
#[derive(Debug, Default)]
pub struct Started {
    /// How many are known to have been started. One whose reply was lost may have been as well.
    pub count: usize,
    /// Why not all.
    pub error: Option<WorkersError>,
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

    fn start(&self, _: usize, _: Duration) -> BoxFuture<'_, Started> {
        Box::pin(std::future::ready(Started::default()))
    }
}

/// How many sweeps to start beside this one, which is behind in `mine` of its buckets; `free` more have work and are
/// nobody's. No more than fair share, which divides all buckets alike, will give something to.
pub(super) fn beside(max: usize, place: Place, mine: usize, free: usize, buckets: BucketCount) -> usize {
    let members = place.members.max(1);
    let allowed = part(max.saturating_sub(members), place.rank, members);
    fed(allowed, members, mine, free, buckets)
}

/// How many sweeps to start after this one, which ends and leaves `unfinished` buckets free, with work in them.
///
/// Every member that ends starts its part of those that are allowed, so that together they never start more, whether they
/// end at once or in turn. Where ticks of the schedule have made the members more than that, the older ones, which end
/// first, start none.
pub(super) fn after(max: usize, place: Place, unfinished: usize, buckets: BucketCount) -> usize {
    let members = place.members.max(1);
    let allowed = if members <= max {
        part(max, place.rank, members)
    } else {
        usize::from(max > 0 && place.rank >= members - max)
    };
    if allowed == 0 || unfinished == 0 {
        return 0;
    }
    // One takes this one's place, and the others come beside it.
    1 + fed(allowed - 1, members, unfinished, 0, buckets)
}

/// One member's part of `total`, which all of them divide: floor, and the remainder in id order.
fn part(total: usize, rank: usize, members: usize) -> usize {
    total / members + usize::from(rank < total % members)
}

/// The most helpers, up to `allowed`, each of which gets a bucket when a member that is behind in `mine` hands back what
/// exceeds its share.
fn fed(allowed: usize, members: usize, mine: usize, free: usize, buckets: BucketCount) -> usize {
    let buckets = usize::try_from(buckets.get()).unwrap_or(usize::MAX);
    let feeds = |helpers: &usize| mine.saturating_sub(buckets.div_ceil(members + helpers)) + free >= *helpers;
    (1..=allowed).rev().find(feeds).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: BucketCount = BucketCount::DEFAULT;

    fn place(rank: usize, members: usize) -> Place {
        Place { rank, members }
    }

    #[test]
    fn a_backlog_is_spread_over_as_many_as_fair_share_gives_something_to() {
        let alone = place(0, 1);
        assert_eq!(beside(4, alone, 8, 0, EIGHT), 3);
        assert_eq!(beside(4, alone, 4, 0, EIGHT), 0, "four of eight are a fair share of two");
        assert_eq!(beside(4, alone, 5, 0, EIGHT), 3, "two each, and five are behind");
        assert_eq!(beside(8, alone, 2, 0, EIGHT), 0);
        assert_eq!(beside(4, alone, 1, 2, EIGHT), 2, "what is free goes to those who come");
        assert_eq!(beside(4, place(0, 3), 3, 0, EIGHT), 1, "those that are there already count");
        assert_eq!(beside(4, place(2, 3), 3, 0, EIGHT), 0, "and one of them asks");
        assert_eq!(beside(4, place(0, 9), 8, 0, EIGHT), 0);
        assert_eq!(beside(1, alone, 8, 0, EIGHT), 0);
        assert_eq!(beside(0, alone, 8, 0, EIGHT), 0);
        assert_eq!(
            beside(4, Place::default(), 8, 0, EIGHT),
            3,
            "a store that does not count members has this one"
        );
        let many = BucketCount::new(64).unwrap();
        assert_eq!(beside(4, alone, 16, 0, many), 0, "all of it is one fair share");
        assert_eq!(beside(4, alone, 32, 0, many), 3);
    }

    #[test]
    fn a_sweep_that_ends_is_gone_on_with_in_its_place() {
        assert_eq!(after(4, place(0, 1), 8, EIGHT), 4, "alone: by all that may be at work");
        assert_eq!(after(4, place(0, 1), 1, EIGHT), 1);
        assert_eq!(after(4, place(0, 4), 2, EIGHT), 1);
        assert_eq!(after(4, place(0, 1), 0, EIGHT), 0, "nothing is left");
        assert_eq!(after(4, Place::default(), 8, EIGHT), 4);
        assert_eq!(after(1, place(0, 1), 8, EIGHT), 1);
        assert_eq!(after(0, place(0, 1), 8, EIGHT), 0);
        assert_eq!(after(0, place(4, 5), 8, EIGHT), 0);
    }

    #[test]
    fn members_that_end_at_once_start_no_more_than_are_allowed_and_somebody() {
        let most = BucketCount::new(BucketCount::MAX).unwrap();
        for max in 1..12 {
            for members in 1..20 {
                let started: usize =
                    (0..members).map(|rank| after(max, place(rank, members), 1_000, most)).sum();
                assert!((1..=max).contains(&started), "{started} by {members}, of {max}");
                let beside: usize =
                    (0..members).map(|rank| beside(max, place(rank, members), 1_000, 0, most)).sum();
                assert!(beside + members <= max.max(members), "{beside} beside {members}, of {max}");
            }
        }
    }
}
