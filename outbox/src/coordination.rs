//! The lease and heartbeat records of one read, and what follows from them (design.md, section 6).
//!
//! Every store keeps these records in its own way; what they mean is decided here, once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::lease_plan::{self, LeasePlan, LeaseState};
use crate::lease_write::HeartbeatWrite;
use crate::store::Place;
use crate::{Bucket, BucketCount, LeaseTimes, RelayId, Ticks};

/// A lease as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// Who holds it; `None`: nobody.
    pub owner: Option<RelayId>,
    /// When it lapses, and its version. `None` in a record that nobody of ours wrote: such a lease is free.
    pub expires_at: Option<Ticks>,
}

impl LeaseRecord {
    fn has_expired(&self, now: Ticks) -> bool {
        self.expires_at.is_none_or(|expires_at| expires_at <= now)
    }
}

/// A heartbeat as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeartbeatRecord {
    /// When the relay last said that it is alive.
    pub last_seen: Ticks,
    /// When it stopped; `None` while it runs.
    pub stopped_at: Option<Ticks>,
}

/// All lease and heartbeat records, as one strongly consistent read showed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Coordination {
    /// The leases. A bucket without one is free.
    pub leases: BTreeMap<Bucket, LeaseRecord>,
    /// Buckets whose lease record cannot be read: nobody's to claim until somebody has looked at it.
    pub unreadable: BTreeSet<Bucket>,
    /// The heartbeats. An owner without one (a hinted run) holds its leases, but is no member.
    pub heartbeats: BTreeMap<RelayId, HeartbeatRecord>,
    /// Buckets with [parked](crate::quarantine) keys.
    pub parked: BTreeSet<Bucket>,
}

impl Coordination {
    /// The relays that take part in fair share: not stopped, and seen within one lease duration. One that is seen in
    /// the future has a clock that is ahead, and is alive.
    pub fn active(&self, now: Ticks, lease_duration: Duration) -> BTreeSet<RelayId> {
        let active = |heartbeat: &HeartbeatRecord| {
            heartbeat.stopped_at.is_none() && heartbeat.last_seen.plus(lease_duration) > now
        };
        self.heartbeats
            .iter()
            .filter(|(_, heartbeat)| active(heartbeat))
            .map(|(relay, _)| relay.clone())
            .collect()
    }

    /// How many relays take part in fair share, `relay` included, and its place among them.
    pub fn place(&self, relay: &RelayId, times: LeaseTimes) -> Place {
        let active = self.active(times.now, times.duration);
        let rank = active.iter().filter(|other| *other < relay).count();
        Place { rank, members: active.len() + usize::from(!active.contains(relay)) }
    }

    /// What `relay` writes in this round.
    pub fn plan(&self, bucket_count: BucketCount, relay: &RelayId, times: LeaseTimes) -> LeasePlan {
        let state = |lease: &LeaseRecord| LeaseState {
            owner: lease.owner.clone().filter(|_| lease.expires_at.is_some()),
            expired: lease.has_expired(times.now),
        };
        let leases = self.leases.iter().map(|(bucket, lease)| (*bucket, state(lease)));
        // Held by nobody who is a member: neither free nor anybody's to keep.
        let nobody = RelayId::new("(unreadable)");
        let unreadable = self
            .unreadable
            .iter()
            .map(|bucket| (*bucket, LeaseState { owner: nobody.clone(), expired: false }));
        let leases = leases.chain(unreadable).collect();
        lease_plan::plan(bucket_count, &self.active(times.now, times.duration), relay, &leases)
    }

    /// Whether anybody may claim `bucket`.
    pub fn is_free(&self, bucket: Bucket, now: Ticks) -> bool {
        !self.unreadable.contains(&bucket)
            && self.leases.get(&bucket).is_none_or(|lease| lease.owner.is_none() || lease.has_expired(now))
    }

    /// The buckets that nobody holds and that `plan` does not claim: another relay's, by the plan. What the plan hands back
    /// is among them, unless it is `busy` and goes later.
    pub fn available(
        &self,
        bucket_count: BucketCount,
        plan: &LeasePlan,
        busy: &BTreeSet<Bucket>,
        now: Ticks,
    ) -> BTreeSet<Bucket> {
        let left = |bucket: &Bucket| {
            let free =
                self.is_free(*bucket, now) || (plan.release.contains(bucket) && !busy.contains(bucket));
            free && !plan.claim.contains(bucket) && !plan.keep.contains(bucket)
        };
        bucket_count.buckets().filter(left).collect()
    }

    /// The expiry that is stored for `bucket`: the version that the next write of its lease is conditional on.
    pub fn version(&self, bucket: Bucket) -> Option<Ticks> {
        self.leases.get(&bucket).and_then(|lease| lease.expires_at)
    }

    /// The relay records that have served their time, with the time that was read: a stopped relay's after one lease
    /// duration, a crashed one's after ten. Whoever reads them removes them, [`MAX_PRUNED`] a round.
    pub fn prunable(&self, times: LeaseTimes) -> Vec<(RelayId, HeartbeatWrite)> {
        let served = |heartbeat: &HeartbeatRecord| match heartbeat.stopped_at {
            Some(stopped) => stopped.plus(times.duration) <= times.now,
            None => heartbeat.last_seen.plus(times.duration.saturating_mul(10)) <= times.now,
        };
        let prunable = self.heartbeats.iter().filter(|(_, heartbeat)| served(heartbeat));
        let prune = |heartbeat: &HeartbeatRecord| HeartbeatWrite::Prune { read: heartbeat.last_seen };
        prunable.map(|(relay, heartbeat)| (relay.clone(), prune(heartbeat))).take(MAX_PRUNED).collect()
    }
}

/// The most records one round prunes: more than can be added in one, and few enough not to hold up the leases.
pub const MAX_PRUNED: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_write::LeaseWrite;

    const NOW: Ticks = Ticks::from_raw(639_000_000_000_000_000);
    const DURATION: Duration = Duration::from_secs(30);

    fn relay(id: &str) -> RelayId {
        RelayId::new(id).unwrap()
    }

    fn one_lease(owner: Option<&str>, expires_at: Option<Ticks>) -> Coordination {
        let lease = LeaseRecord { owner: owner.map(relay), expires_at };
        Coordination { leases: [(Bucket::new(0), lease)].into(), ..Coordination::default() }
    }

    #[test]
    fn an_owner_without_an_expiry_is_nobody() {
        let read = one_lease(Some("stranger"), None);
        assert!(read.is_free(Bucket::new(0), NOW));
        let times = LeaseTimes { now: NOW, duration: DURATION };
        assert!(read.plan(BucketCount::DEFAULT, &relay("me"), times).claim.contains(&Bucket::new(0)));
    }

    #[test]
    fn a_claim_is_later_than_what_was_read() {
        let ahead = NOW.plus(Duration::from_mins(10));
        let times = LeaseTimes { now: NOW, duration: DURATION };
        let expiry = |read: Option<Ticks>| {
            let read = read.map(|read| LeaseRecord { owner: None, expires_at: Some(read) });
            LeaseWrite::claim(read.as_ref(), times).grants(Bucket::new(0)).unwrap().expires_at
        };
        assert_eq!(expiry(Some(ahead)), ahead.next());
        assert_eq!(expiry(Some(NOW)), NOW.plus(DURATION));
        assert_eq!(expiry(None), NOW.plus(DURATION));
    }

    #[test]
    fn stopped_relays_are_pruned_after_one_duration_and_crashed_ones_after_ten() {
        let heartbeat = |last_seen, stopped_at| HeartbeatRecord { last_seen, stopped_at };
        let heartbeats = [
            (relay("just-stopped"), heartbeat(NOW.minus(DURATION).next(), Some(NOW.minus(DURATION).next()))),
            (relay("stopped"), heartbeat(NOW.minus(DURATION), Some(NOW.minus(DURATION)))),
            (relay("silent"), heartbeat(NOW.minus(DURATION * 10).next(), None)),
            (relay("crashed"), heartbeat(NOW.minus(DURATION * 10), None)),
        ];
        let read = Coordination { heartbeats: heartbeats.into(), ..Coordination::default() };
        let pruned: Vec<_> = read.prunable(LeaseTimes { now: NOW, duration: DURATION });
        let expected = |id, before| (relay(id), HeartbeatWrite::Prune { read: NOW.minus(before) });
        assert_eq!(pruned, [expected("crashed", DURATION * 10), expected("stopped", DURATION)]);
    }

    #[test]
    fn a_lease_is_free_at_its_expiry_and_not_before() {
        assert!(one_lease(Some("a"), Some(NOW)).is_free(Bucket::new(0), NOW));
        assert!(!one_lease(Some("a"), Some(NOW.next())).is_free(Bucket::new(0), NOW));
    }

    /// Found by the model: what this round hands back is free in a moment, and may be nobody's.
    #[test]
    fn what_is_handed_back_is_available() {
        let count = BucketCount::new(2).unwrap();
        let lease = |owner| LeaseRecord { owner: Some(relay(owner)), expires_at: Some(NOW.plus(DURATION)) };
        let read = Coordination {
            leases: [(Bucket::new(0), lease("a")), (Bucket::new(1), lease("a"))].into(),
            heartbeats: [(relay("b"), HeartbeatRecord { last_seen: NOW, stopped_at: None })].into(),
            ..Coordination::default()
        };
        let plan = read.plan(count, &relay("a"), LeaseTimes { now: NOW, duration: DURATION });
        assert_eq!(plan.release, [Bucket::new(1)].into());
        assert_eq!(read.available(count, &plan, &BTreeSet::new(), NOW), [Bucket::new(1)].into());
    }

    #[test]
    fn the_stopped_and_the_silent_are_not_active() {
        let heartbeat = |last_seen, stopped_at| HeartbeatRecord { last_seen, stopped_at };
        let heartbeats = [
            (relay("alive"), heartbeat(NOW, None)),
            (relay("ahead"), heartbeat(NOW.plus(DURATION), None)),
            (relay("stopped"), heartbeat(NOW, Some(NOW))),
            (relay("silent"), heartbeat(NOW.minus(DURATION), None)),
        ];
        let read = Coordination { heartbeats: heartbeats.into(), ..Coordination::default() };
        assert_eq!(read.active(NOW, DURATION), [relay("ahead"), relay("alive")].into());
    }
}
