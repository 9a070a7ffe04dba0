//! What one relay writes in one acquisition round (design.md, section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Bucket, BucketCount, RelayId, fair_share};

/// Who holds a bucket, as one read of the leases showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseState {
    /// The owner its lease names; `None`: free, or no lease item at all.
    pub owner: Option<RelayId>,
    /// Whether the lease has expired by this round's timestamp.
    pub expired: bool,
}

/// What one relay writes in one round. The plan orders the writes; the conditional write alone grants ownership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasePlan {
    /// Leases of its own that it renews.
    pub keep: BTreeSet<Bucket>,
    /// Leases of its own that exceed its share.
    pub release: BTreeSet<Bucket>,
    /// Buckets that it claims.
    pub claim: BTreeSet<Bucket>,
    /// Its place among the relays without a share; `None` if it has one.
    pub standby_rank: Option<usize>,
    /// Leases of the other active relays that exceed their shares: they hand them back in their own next rounds.
    pub surplus: BTreeSet<Bucket>,
}

/// Plans the round of `relay`: the plan of every active relay is computed, and its own part returned. `relay` counts
/// as active whether or not `active` names it. A bucket that `leases` lacks is free; one out of range is ignored.
pub fn plan(
    bucket_count: BucketCount,
    active: &BTreeSet<RelayId>,
    relay: &RelayId,
    leases: &BTreeMap<Bucket, LeaseState>,
) -> LeasePlan {
    let mut active = active.clone();
    active.insert(relay.clone());

    let mut holdings: BTreeMap<RelayId, BTreeSet<Bucket>> = BTreeMap::new();
    let mut held_counts: BTreeMap<RelayId, u32> = BTreeMap::new();
    let mut free = BTreeSet::new();
    for bucket in bucket_count.buckets() {
        match leases.get(&bucket) {
            // Whoever owns an unexpired lease holds it, member or not: a hinted run's leases are not free.
            Some(LeaseState { owner: Some(owner), expired: false }) => {
                holdings.entry(owner.clone()).or_default().insert(bucket);
                *held_counts.entry(owner.clone()).or_default() += 1;
            }
            // Its own expired lease is still this relay's to keep, for as long as nobody has claimed it.
            Some(LeaseState { owner: Some(owner), expired: true }) if owner == relay => {
                holdings.entry(owner.clone()).or_default().insert(bucket);
            }
            _ => {
                free.insert(bucket);
            }
        }
    }

    let shares = fair_share::shares(bucket_count, &active, &held_counts);
    let mut members = members(&shares, &holdings);
    // First everyone takes what is free in its own range, then the rest goes to whoever is still short: computed for
    // all members, so that two of them who read the same state never claim the same bucket.
    for member in &mut members {
        let range = member.range.clone();
        member.claim(&mut free, |bucket| range.contains(&bucket.number()));
    }
    for member in &mut members {
        member.claim(&mut free, |_| true);
    }

    let mut own =
        LeasePlan { standby_rank: fair_share::standby_rank(&shares, relay), ..LeasePlan::default() };
    for Member { id, keep, release, claims, .. } in members {
        if id == relay {
            (own.keep, own.release, own.claim) = (keep, release, claims);
        } else {
            own.surplus.extend(release);
        }
    }
    own
}

/// One active relay's part of the plan, as it is worked out.
struct Member<'a> {
    id: &'a RelayId,
    share: usize,
    range: Range<u32>,
    keep: BTreeSet<Bucket>,
    release: BTreeSet<Bucket>,
    claims: BTreeSet<Bucket>,
}

impl Member<'_> {
    /// Takes free buckets, lowest first, until the share is full.
    fn claim(&mut self, free: &mut BTreeSet<Bucket>, wanted: impl Fn(Bucket) -> bool) {
        let short = self.share.saturating_sub(self.keep.len() + self.claims.len());
        let taken: Vec<Bucket> = free.iter().copied().filter(|bucket| wanted(*bucket)).take(short).collect();
        for bucket in taken {
            free.remove(&bucket);
            self.claims.insert(bucket);
        }
    }
}

/// Every active relay in id order, with what it keeps of what it holds and what it must give back.
fn members<'a>(
    shares: &'a BTreeMap<RelayId, u32>,
    holdings: &BTreeMap<RelayId, BTreeSet<Bucket>>,
) -> Vec<Member<'a>> {
    let mut ranges = fair_share::ranges(shares);
    let member = |(id, share): (&'a RelayId, &u32)| {
        let share = usize::try_from(*share).unwrap_or(usize::MAX);
        let range = ranges.remove(id).unwrap_or_default();
        let held = holdings.get(id).cloned().unwrap_or_default();
        // Its own range first: what lies outside is where others look.
        let (own, other): (Vec<_>, Vec<_>) = held.iter().partition(|bucket| range.contains(&bucket.number()));
        let keep: BTreeSet<Bucket> = own.into_iter().chain(other).take(share).copied().collect();
        let release = held.difference(&keep).copied().collect();
        Member { id, share, range, keep, release, claims: BTreeSet::new() }
    };
    shares.iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn relay(number: u8) -> RelayId {
        RelayId::new(format!("relay-{number}")).unwrap()
    }

    fn lease() -> impl Strategy<Value = LeaseState> {
        (proptest::option::of(0..9_u8), any::<bool>())
            .prop_map(|(owner, expired)| LeaseState { owner: owner.map(relay), expired })
    }

    proptest! {
        /// Invariant 5 of design.md: relays that read the same state write disjoint leases.
        #[test]
        fn active_relays_never_write_the_same_unexpired_bucket(
            members in proptest::collection::btree_set(0..9_u8, 1..7),
            leases in proptest::collection::vec(lease(), 1..40),
        ) {
            let count = BucketCount::new(u32::try_from(leases.len()).unwrap()).unwrap();
            let leases: BTreeMap<_, _> = count.buckets().zip(leases).collect();
            let active: BTreeSet<RelayId> = members.into_iter().map(relay).collect();
            let mut written = BTreeSet::new();
            for member in &active {
                let plan = plan(count, &active, member, &leases);
                prop_assert!(plan.claim.iter().all(|bucket| written.insert(*bucket)));
                let own = |bucket: &Bucket| leases[bucket].owner.as_ref() == Some(member);
                prop_assert!(plan.keep.iter().chain(&plan.release).all(own));
                let held_by_another = |bucket: &Bucket| !leases[bucket].expired && leases[bucket].owner.is_some();
                prop_assert!(!plan.claim.iter().any(held_by_another));
            }
        }

        /// With everything free, the claims of all relays cover every bucket.
        #[test]
        fn a_free_outbox_is_claimed_whole(members in proptest::collection::btree_set(0..9_u8, 1..7), buckets in 1..40_u32) {
            let count = BucketCount::new(buckets).unwrap();
            let active: BTreeSet<RelayId> = members.into_iter().map(relay).collect();
            let claimed: usize =
                active.iter().map(|member| plan(count, &active, member, &BTreeMap::new()).claim.len()).sum();
            prop_assert_eq!(claimed, usize::try_from(buckets).unwrap());
        }
    }
}
