//! The model that the suite compares a store with, and the calls that are carried out on both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::report::Violation;
use super::stage::{LIMIT, Stage, all_buckets, at, relay};
use super::{BUCKET_COUNT, Harness};
use crate::coordination::Coordination;
use crate::lease_write::{HeartbeatWrite, LeaseWrite, Verdict};
use crate::store::Place;
use crate::store::{AcquireRequest, Acquired};
use crate::{Bucket, Lease, LeaseTimes, OutboxStore as _, RelayId, Ticks};

/// The leases and heartbeats that follow from the calls so far.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) coordination: Coordination,
}

/// What an acquisition must answer.
#[derive(Debug, Default)]
struct Expected {
    leases: BTreeMap<Bucket, Ticks>,
    excess: BTreeSet<Bucket>,
    available: BTreeSet<Bucket>,
    handed_back: BTreeSet<Bucket>,
    clock_behind: bool,
    standby_rank: Option<usize>,
    surplus: BTreeSet<Bucket>,
    place: Place,
}

impl Model {
    fn acquire(&mut self, request: &AcquireRequest<'_>) -> Expected {
        let AcquireRequest { relay, times, .. } = *request;
        if !self.write_heartbeat(relay, HeartbeatWrite::Announce { now: times.now }) {
            return Expected { clock_behind: true, ..Expected::default() };
        }
        let read = self.coordination.clone();
        for (pruned, prune) in read.prunable(times) {
            self.write_heartbeat(&pruned, prune);
        }
        let plan = read.plan(request.bucket_count, relay, times);
        let mut expected = Expected {
            excess: &plan.release & request.busy,
            handed_back: &plan.release - request.busy,
            available: read.available(request.bucket_count, &plan, request.busy, times.now),
            standby_rank: plan.standby_rank,
            place: read.place(relay, times),
            surplus: plan.surplus.clone(),
            ..Expected::default()
        };
        for bucket in &expected.handed_back {
            self.free(relay, *bucket);
        }
        let keeps = (&plan.keep - request.busy).into_iter().filter_map(|bucket| {
            read.leases.get(&bucket).and_then(|lease| LeaseWrite::keep(lease, times)).map(|w| (bucket, w))
        });
        let claims = (&plan.claim & request.wanted)
            .into_iter()
            .map(|bucket| (bucket, LeaseWrite::claim(read.leases.get(&bucket), times)));
        for (bucket, write) in keeps.chain(claims) {
            let granted = self.write_lease(relay, bucket, &write);
            expected.leases.extend(granted.map(|lease| (bucket, lease.expires_at)));
        }
        expected
    }

    /// Carries out a lease write if its condition holds, and says what the relay holds by it.
    fn write_lease(&mut self, relay: &RelayId, bucket: Bucket, write: &LeaseWrite) -> Option<Lease> {
        let stored = self.coordination.leases.get(&bucket);
        if !write.is_permitted(relay, stored) {
            return match write.judge(relay, bucket, stored) {
                Verdict::Held(lease) => Some(lease),
                Verdict::NotHeld => None,
                Verdict::ReleaseAgain(again) => self.write_lease(relay, bucket, &again),
            };
        }
        let result = write.result(relay, stored);
        self.coordination.leases.insert(bucket, result);
        write.grants(bucket)
    }

    fn write_heartbeat(&mut self, relay: &RelayId, write: HeartbeatWrite) -> bool {
        let stored = self.coordination.heartbeats.get(relay);
        if !write.is_permitted(stored) {
            return write.is_own_attempt(stored);
        }
        match write.result() {
            Some(heartbeat) => self.coordination.heartbeats.insert(relay.clone(), heartbeat),
            None => self.coordination.heartbeats.remove(relay),
        };
        true
    }

    fn free(&mut self, relay: &RelayId, bucket: Bucket) {
        if let Some(read) = self.coordination.version(bucket) {
            self.write_lease(relay, bucket, &LeaseWrite::Release { read });
        }
    }

    /// The leases that name a relay, lapsed ones too.
    pub(super) fn held_by(&self, relay: &RelayId) -> Vec<Lease> {
        let of = self.coordination.leases.iter().filter(|(_, lease)| lease.owner.as_ref() == Some(relay));
        of.filter_map(|(bucket, lease)| Some(Lease { bucket: *bucket, expires_at: lease.expires_at? }))
            .collect()
    }
}

/// One acquisition to make.
#[derive(Clone, Debug)]
pub(super) struct Round {
    relay: RelayId,
    times: LeaseTimes,
    wanted: BTreeSet<Bucket>,
    busy: BTreeSet<Bucket>,
}

impl Round {
    /// The round of a relay, so many seconds after the start: it wants every bucket, and none is busy.
    pub(super) fn of(id: &str, seconds: i64) -> Self {
        Self { relay: relay(id), times: at(seconds), wanted: all_buckets(), busy: BTreeSet::new() }
    }

    pub(super) fn at(mut self, times: LeaseTimes) -> Self {
        self.times = times;
        self
    }

    pub(super) fn wanting(mut self, wanted: BTreeSet<Bucket>) -> Self {
        self.wanted = wanted;
        self
    }

    pub(super) fn busy_in(mut self, busy: BTreeSet<Bucket>) -> Self {
        self.busy = busy;
        self
    }

    pub(super) fn request<'a>(&'a self, previous: &'a BTreeSet<Bucket>) -> AcquireRequest<'a> {
        AcquireRequest {
            relay: &self.relay,
            bucket_count: BUCKET_COUNT,
            times: self.times,
            wanted: &self.wanted,
            previous,
            busy: &self.busy,
            limit: LIMIT,
        }
    }
}

/// Calls that are carried out on the store and on the model, and whose answers must agree.
impl<H: Harness> Stage<'_, H> {
    pub(super) async fn acquire(&mut self, round: Round) -> Result<Acquired, Violation> {
        let previous = self.model.held_by(&round.relay).iter().map(|lease| lease.bucket).collect();
        let request = round.request(&previous);
        let who = format!("the acquisition of {} at {}", round.relay, round.times.now);
        let mut acquired = self.succeeds(&who, self.store.acquire(&request).await)?;
        let error = acquired.error.take().map_or(Ok(()), Err);
        self.succeeds(&format!("every write of {who}"), error)?;

        let expected = self.model.acquire(&request);
        self.equal(
            &format!("a clock that is behind in {who}"),
            &acquired.clock_behind,
            &expected.clock_behind,
        )?;
        self.leases(&format!("the leases of {who}"), &acquired.leases, &expected.leases)?;
        if expected.clock_behind {
            return Ok(acquired);
        }
        self.equal(&format!("the writes refused in {who}"), &acquired.refused_writes, &0)?;
        self.equal(
            &format!("the busy buckets that exceed the share in {who}"),
            &acquired.excess,
            &expected.excess,
        )?;
        self.equal(&format!("the standby rank in {who}"), &acquired.standby_rank, &expected.standby_rank)?;
        self.equal(&format!("the place of {who} among the members"), &acquired.place, &expected.place)?;
        let what = format!("what others are to hand back, to {who}");
        self.equal(&what, &acquired.surplus, &expected.surplus)?;
        // What this very round has handed back is nobody's either: a store may name it or not.
        let but_for_those = |buckets: &BTreeSet<Bucket>| buckets - &expected.handed_back;
        let what = format!("the free buckets that {who} leaves");
        self.equal(&what, &but_for_those(&acquired.available), &but_for_those(&expected.available))?;
        Ok(acquired)
    }

    pub(super) async fn claim(
        &mut self,
        id: &str,
        buckets: BTreeSet<Bucket>,
        times: LeaseTimes,
    ) -> Result<Vec<Lease>, Violation> {
        let relay = relay(id);
        let who = format!("the claim of {id} at {}", times.now);
        let claims = self.named_claims()?;
        let claimed = self.succeeds(&who, claims.claim(&relay, &buckets, times, LIMIT).await)?;
        self.succeeds(&format!("every write of {who}"), claimed.error.map_or(Ok(()), Err))?;
        let mut expected = BTreeMap::new();
        for bucket in buckets {
            if self.model.coordination.is_free(bucket, times.now) {
                let write = LeaseWrite::claim(self.model.coordination.leases.get(&bucket), times);
                let granted = self.model.write_lease(&relay, bucket, &write);
                expected.extend(granted.map(|lease| (bucket, lease.expires_at)));
            }
        }
        self.leases(&format!("the leases of {who}"), &claimed.leases, &expected)?;
        Ok(claimed.leases)
    }

    pub(super) async fn renew(
        &mut self,
        id: &str,
        lease: Lease,
        times: LeaseTimes,
    ) -> Result<Option<Lease>, Violation> {
        let relay = relay(id);
        let who = format!("the renewal of bucket {} by {id} at {}", lease.bucket, times.now);
        let renewed = self.renewal()?.renew(&relay, lease, times, LIMIT).await;
        let renewed = self.succeeds(&who, renewed)?;
        let expected = self.model.write_lease(&relay, lease.bucket, &LeaseWrite::renew(times));
        self.equal(&format!("what {who} returns"), &renewed, &expected)?;
        Ok(renewed)
    }

    pub(super) async fn release(&mut self, id: &str, leases: &[Lease]) -> Result<(), Violation> {
        let relay = relay(id);
        let released = self.ownership()?.release(&relay, leases, LIMIT).await;
        self.succeeds(&format!("a release by {id}"), released)?;
        for lease in leases {
            self.model.write_lease(&relay, lease.bucket, &LeaseWrite::Release { read: lease.expires_at });
        }
        Ok(())
    }

    pub(super) async fn release_strays(&mut self, id: &str) -> Result<(), Violation> {
        let relay = relay(id);
        let released = self.ownership()?.release_strays(&relay, LIMIT).await;
        self.succeeds(&format!("a release of {id}'s strays"), released)?;
        self.note_released(&relay);
        Ok(())
    }

    pub(super) async fn stop(&mut self, id: &str, leases: &[Lease], stamp: Ticks) -> Result<(), Violation> {
        let relay = relay(id);
        let stopped = self.ownership()?.stop(&relay, leases, stamp, LIMIT).await;
        self.succeeds(&format!("the stop of {id}"), stopped)?;
        self.note_stopped(&relay, stamp);
        Ok(())
    }

    /// Takes note that every lease of a relay has been freed.
    pub(super) fn note_released(&mut self, relay: &RelayId) {
        for lease in self.model.held_by(relay) {
            self.model.free(relay, lease.bucket);
        }
    }

    /// Takes note that a relay has stopped.
    pub(super) fn note_stopped(&mut self, relay: &RelayId, stamp: Ticks) {
        self.model.write_heartbeat(relay, HeartbeatWrite::Stop { stamp });
        self.note_released(relay);
    }

    /// Looks at every bucket: whether it is free now, and with which version. Ends the scenario: the leases are claimed.
    pub(super) async fn audit(&mut self, seconds: i64) -> Result<(), Violation> {
        if self.store.named_claims().is_some() {
            self.claim("auditor", all_buckets(), at(seconds)).await?;
        }
        self.acquire(Round::of("auditor-in-chief", seconds)).await?;
        // By now every membership has ended and every lease has lapsed: all of it is one relay's.
        self.acquire(Round::of("receiver", seconds + 3_600)).await.map(drop)
    }

    /// That these leases, and no others, were granted, each once.
    fn leases(
        &self,
        what: &str,
        found: &[Lease],
        expected: &BTreeMap<Bucket, Ticks>,
    ) -> Result<(), Violation> {
        let mut found: Vec<(Bucket, Ticks)> =
            found.iter().map(|lease| (lease.bucket, lease.expires_at)).collect();
        found.sort_unstable();
        self.equal(what, &found, &expected.iter().map(|(bucket, expiry)| (*bucket, *expiry)).collect())
    }

    /// That a relay was granted these buckets: what the model says too, said once more for whoever reads the scenario.
    pub(super) fn holds(
        &self,
        who: &str,
        leases: &[Lease],
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<(), Violation> {
        let found: BTreeSet<u32> = leases.iter().map(|lease| lease.bucket.number()).collect();
        self.equal(&format!("the buckets granted to {who}"), &found, &numbers.into_iter().collect())
    }

    /// The lease of one bucket among those that were granted.
    pub(super) fn lease_of(&self, leases: &[Lease], bucket: u32) -> Result<Lease, Violation> {
        let lease = leases.iter().find(|lease| lease.bucket.number() == bucket).copied();
        lease.ok_or_else(|| self.violation(format!("a lease of bucket {bucket}"), "none"))
    }
}

/// How long after the start the lease of a relay that acquired at the start lapses, in seconds.
pub(super) const LAPSE: i64 = 30;

/// One tick before a time, to stand just short of it.
pub(super) fn just_before(times: LeaseTimes) -> LeaseTimes {
    LeaseTimes { now: times.now.minus(Duration::from_nanos(100)), ..times }
}
