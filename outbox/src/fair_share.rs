//! Fair shares: how many buckets each relay should hold, and which range it looks at first (design.md, section 6).
//!
//! Pure functions over what one strongly consistent read showed. Relays that read the same state compute the same
//! shares, which is why a healthy fleet makes no refused conditional write.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{BucketCount, RelayId};

/// How many buckets each active relay should hold: floor plus remainder. The remainder goes first to relays that
/// hold more than the floor already, then to the rest, both in id order; so that a relay that joins takes nothing
/// from one that is publishing unless it must.
///
/// `held` counts the unexpired leases that name each relay; a relay it does not name holds none.
pub fn shares(
    bucket_count: BucketCount,
    active: &BTreeSet<RelayId>,
    held: &BTreeMap<RelayId, u32>,
) -> BTreeMap<RelayId, u32> {
    let relays = u32::try_from(active.len()).unwrap_or(u32::MAX);
    if relays == 0 {
        return BTreeMap::new();
    }
    let floor = bucket_count.get() / relays;
    let mut remainder = bucket_count.get() % relays;
    let mut shares: BTreeMap<RelayId, u32> = active.iter().map(|relay| (relay.clone(), floor)).collect();
    let holds_more = |relay: &RelayId| held.get(relay).is_some_and(|held| *held > floor);
    for wanted in [true, false] {
        for (_, share) in shares.iter_mut().filter(|(relay, _)| holds_more(relay) == wanted) {
            if remainder > 0 {
                *share += 1;
                remainder -= 1;
            }
        }
    }
    shares
}

/// Each relay's own range of bucket numbers: the shares accumulated in id order. Together they cover every bucket.
/// A relay without a share has an empty range.
pub fn ranges(shares: &BTreeMap<RelayId, u32>) -> BTreeMap<RelayId, Range<u32>> {
    let mut start = 0;
    let range_of = |(relay, share): (&RelayId, &u32)| {
        let range = start..start + share;
        start = range.end;
        (relay.clone(), range)
    };
    shares.iter().map(range_of).collect()
}

/// How far back a relay without a share waits: its place, in id order, among those that have none. `None` for a
/// relay with a share, and for one that is not active.
pub fn standby_rank(shares: &BTreeMap<RelayId, u32>, relay: &RelayId) -> Option<usize> {
    shares.iter().filter(|(_, share)| **share == 0).position(|(standby, _)| standby == relay)
}
