//! The capabilities of the faulty store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use outbox::coordination::{HeartbeatRecord, LeaseRecord};
use outbox::quarantine::{Move, Moved, Parking, Quarantine, Why};
use outbox::store::{Backlog, BacklogMetrics, Claimed, LeaseOwnership, LeaseRenewal, NamedClaims};
use outbox::{
    Bucket, BucketCount, Lease, LeaseTimes, OutboxStore as _, RelayId, StoreError, StoreErrorKind, Ticks,
};

use crate::fault::Fault;
use crate::faulty::{Faulty, TICK, held};

impl LeaseRenewal for Faulty {
    fn renew<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(async move {
            self.reach()?;
            let bucket = lease.bucket;
            let stored = self.stored(bucket);
            let is_own = stored.owner.as_ref() == Some(relay);
            let has_lapsed = stored.expires_at.is_none_or(|expiry| expiry <= times.now);
            let renewed = Lease { bucket, expires_at: times.expires_at() };
            let forced = match self.fault {
                Fault::RenewsNothing if is_own && !has_lapsed => return self.reply(Some(renewed)),
                Fault::RenewsByVersion if stored.expires_at != Some(lease.expires_at) => {
                    return self.reply(None);
                }
                Fault::TakesALostRenewalForRefused if self.loses_the_reply() => {
                    self.memory.renewal().unwrap().renew(relay, lease, times, limit).await?;
                    return Ok(None);
                }
                Fault::RenewsWhatHasLapsed => is_own && has_lapsed,
                Fault::RenewsWhatAnotherHas => stored.owner.is_some() && !is_own,
                Fault::RenewsWhatWasReleased => stored.owner.is_none() && stored.expires_at.is_some(),
                Fault::RenewsBackwards => is_own && !has_lapsed,
                _ => false,
            };
            if forced {
                self.store(bucket, held(relay, renewed.expires_at));
                return self.reply(Some(renewed));
            }
            let renewed = self.memory.renewal().unwrap().renew(relay, lease, times, limit).await?;
            self.reply(renewed)
        })
    }
}

impl LeaseOwnership for Faulty {
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.reach()?;
            for lease in leases {
                let stored = self.stored(lease.bucket);
                let is_own = stored.owner.as_ref() == Some(relay);
                let is_same = stored.expires_at == Some(lease.expires_at);
                match self.fault {
                    Fault::ReleasesNothing => {}
                    Fault::ReleasesByVersion if !is_same => {}
                    Fault::ReleasesWhatAnotherHas => {
                        self.store(lease.bucket, Some(LeaseRecord { owner: None, ..stored }));
                    }
                    Fault::ReleaseForgetsTheVersion if is_own => self.store(lease.bucket, None),
                    Fault::RefusesToReleaseAgain if !is_own => {
                        return Err(StoreError::new(StoreErrorKind::Unavailable, "not yours"));
                    }
                    _ => self.memory.ownership().unwrap().release(relay, &[*lease], limit).await?,
                }
            }
            self.reply(())
        })
    }

    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.reach()?;
            match self.fault {
                Fault::FindsNoStrays => {}
                Fault::TakesAllForStrays => self.memory.change(|coordination| {
                    coordination.leases.values_mut().for_each(|lease| lease.owner = None);
                }),
                _ => self.memory.ownership().unwrap().release_strays(relay, limit).await?,
            }
            self.reply(())
        })
    }

    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.reach()?;
            let ownership = self.memory.ownership().unwrap();
            let owned = self.owned(relay);
            let heartbeat = self.memory.coordination().heartbeats.get(relay).copied();
            ownership.stop(relay, leases, stamp, limit).await?;
            let put_back = |leases: &[Lease]| {
                for lease in leases {
                    self.store(lease.bucket, held(relay, lease.expires_at));
                }
            };
            let heartbeat_becomes = |heartbeat: Option<HeartbeatRecord>| {
                self.memory.change(|coordination| {
                    coordination.heartbeats.remove(relay);
                    coordination.heartbeats.extend(heartbeat.map(|heartbeat| (relay.clone(), heartbeat)));
                });
            };
            match self.fault {
                Fault::StopsAMemberOnly => put_back(&owned),
                Fault::StopFreesTheListedAlone => {
                    let unlisted = |lease: &Lease| !leases.iter().any(|listed| listed.bucket == lease.bucket);
                    put_back(&owned.iter().copied().filter(unlisted).collect::<Vec<_>>());
                }
                Fault::StopKeepsTheMember => heartbeat_becomes(heartbeat),
                Fault::StopDeletesTheHeartbeat => heartbeat_becomes(None),
                _ => {}
            }
            self.reply(())
        })
    }

    fn has_message<'a>(&'a self, bucket: Bucket, limit: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            self.reach()?;
            let has = self.memory.ownership().unwrap().has_message(bucket, limit).await?;
            Ok(has && !self.is(Fault::LooksLate))
        })
    }
}

impl NamedClaims for Faulty {
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        mut times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            self.reach()?;
            match self.fault {
                Fault::ClaimsNothing => return self.reply(Claimed::default()),
                Fault::ClaimsWhatIsHeld => {
                    for bucket in buckets {
                        let stored = self.stored(*bucket);
                        self.store(*bucket, Some(LeaseRecord { owner: None, ..stored }));
                    }
                }
                Fault::ClaimsMakeMembers => {
                    let heartbeat = HeartbeatRecord { last_seen: times.now, stopped_at: None };
                    self.memory.change(|coordination| {
                        coordination.heartbeats.insert(relay.clone(), heartbeat);
                    });
                }
                Fault::LapsesLate => times.now = times.now.minus(TICK),
                Fault::LapsesEarly => times.now = times.now.plus(TICK),
                _ => {}
            }
            let mut claimed = self.memory.named_claims().unwrap().claim(relay, buckets, times, limit).await?;
            match self.fault {
                Fault::MovesAndHidesIt => claimed.parked.clear(),
                Fault::ClaimsRepeatVersions => {
                    for lease in &mut claimed.leases {
                        lease.expires_at = times.expires_at();
                        self.store(lease.bucket, held(relay, lease.expires_at));
                    }
                }
                Fault::TakesALostClaimForRefused if self.loses_the_reply() => {
                    return Ok(Claimed::default());
                }
                _ => {}
            }
            self.reply(claimed)
        })
    }
}

impl Quarantine<i64> for Faulty {
    fn parked<'a>(
        &'a self,
        bucket: Bucket,
        limit: Duration,
    ) -> BoxFuture<'a, Result<BTreeMap<Bytes, Parking>, StoreError>> {
        Box::pin(async move {
            let parked = self.memory.quarantine().unwrap().parked(bucket, limit).await?;
            Ok(if self.is(Fault::MovesAndParksNoKey) { BTreeMap::new() } else { parked })
        })
    }

    fn park<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        moves: &'a [Move<i64>],
        limit: Duration,
    ) -> BoxFuture<'a, Moved<i64>> {
        Box::pin(async move {
            let mut moves = moves.to_vec();
            match self.fault {
                Fault::FollowsEverything => {
                    for one in &mut moves {
                        one.why = Why::Poison { reason: String::new(), was_sent: false };
                    }
                }
                Fault::MovesForAnybody => self.store(lease.bucket, held(relay, lease.expires_at)),
                _ => {}
            }
            let quarantine = self.memory.quarantine().unwrap();
            let mut moved = quarantine.park(relay, lease, times, &moves, limit).await;
            if self.is(Fault::MovesAndExtendsNothing) {
                self.store(lease.bucket, held(relay, lease.expires_at));
                moved.lease = Some(lease);
            }
            moved
        })
    }

    fn count_parked(&self, limit: Duration) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.memory.quarantine().unwrap().count_parked(limit)
    }

    fn count_attempts<'a>(
        &'a self,
        bucket: Bucket,
        rows: &'a [i64],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.is(Fault::CountsOnce) {
                let request = outbox::store::FetchRequest {
                    bucket,
                    max_messages: usize::MAX,
                    max_bytes: usize::MAX,
                    removed_up_to: None,
                    limit,
                };
                let fetched = self.memory.fetch(&request).await?;
                if fetched.messages.iter().any(|stored| stored.attempts > 0) {
                    return Ok(());
                }
            }
            self.memory.quarantine().unwrap().count_attempts(bucket, rows, limit).await
        })
    }
}

impl BacklogMetrics for Faulty {
    fn sample<'a>(
        &'a self,
        buckets: &'a BTreeSet<Bucket>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        Box::pin(async move {
            self.reach()?;
            let backlog = self.memory.backlog().unwrap();
            let sample = backlog.sample(buckets, limit).await?;
            Ok(match self.fault {
                Fault::SamplesZero => Backlog { is_exact: true, ..Backlog::default() },
                Fault::SamplesAllBuckets => {
                    backlog.sample(&BucketCount::DEFAULT.buckets().collect(), limit).await?
                }
                // As many ticks as messages: it gets younger by the message.
                Fault::DatesTheNewest => Backlog {
                    oldest: (sample.pending > 0)
                        .then(|| Ticks::from_raw(i64::try_from(sample.pending).unwrap())),
                    ..sample
                },
                _ => sample,
            })
        })
    }
}
