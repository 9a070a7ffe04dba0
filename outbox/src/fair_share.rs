//! Fair shares: how many buckets each relay should hold, and which range it looks at first (design.md, section 6).
//!
//! Pure functions over what one strongly consistent read showed. Relays that read the same state compute the same
//! shares, which is why a healthy fleet makes no refused conditional write.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

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

/// Whether a relay without a share may answer its own acquisition with nothing, without touching the store: it waits
/// further back than one standby for each bucket, so that nothing that frees up will be its to take, and it will be
/// heard again within three quarters of a lease duration, so that it stays counted.
///
/// `rank` is its [`standby_rank`] as of its last acquisition, `since_heartbeat` how long ago it announced itself, and
/// `until_next` when it would acquire next.
pub fn may_stay_silent(
    rank: Option<usize>,
    bucket_count: BucketCount,
    since_heartbeat: Duration,
    until_next: Duration,
    lease_duration: Duration,
) -> bool {
    let standbys = usize::try_from(bucket_count.get()).unwrap_or(usize::MAX);
    rank.is_some_and(|rank| rank >= standbys)
        && since_heartbeat.saturating_add(until_next) <= lease_duration.saturating_mul(3) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relays_far_back_stay_silent_and_not_for_long() {
        let (interval, duration) = (Duration::from_secs(10), Duration::from_secs(30));
        let silent = |rank, since| {
            may_stay_silent(rank, BucketCount::DEFAULT, Duration::from_secs(since), interval, duration)
        };
        assert!(!silent(None, 0), "a relay with a share");
        assert!(!silent(Some(7), 0), "the next in line");
        assert!(silent(Some(8), 10));
        assert!(!silent(Some(8), 13), "peers would stop counting it");
    }

    #[test]
    fn a_newcomer_whose_id_sorts_first_takes_nothing_from_a_fair_split() {
        let relay = |id: &str| RelayId::new(id).unwrap();
        let active = [relay("a"), relay("m"), relay("n"), relay("o")].into();
        let held = [(relay("m"), 1), (relay("n"), 1), (relay("o"), 1)].into();
        let shares = shares(BucketCount::new(3).unwrap(), &active, &held);
        assert_eq!(shares[&relay("a")], 0);
    }
}
