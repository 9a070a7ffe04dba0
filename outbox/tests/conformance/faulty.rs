//! A store over the one in memory that breaks one promise of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::coordination::LeaseRecord;
use outbox::memory::MemoryStore;
use outbox::quarantine::Quarantine;
use outbox::store::{
    AcquireRequest, Acquired, BacklogMetrics, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal,
    NamedClaims,
};
use outbox::{Bucket, Lease, OutboxStore, RelayId, StoreError, StoreErrorKind, Ticks};

use crate::fault::Fault;

#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) memory: MemoryStore,
    pub(crate) fault: Fault,
    loses_the_next_reply: Arc<AtomicBool>,
    is_reachable: bool,
}

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { memory: MemoryStore::new(), fault, loses_the_next_reply: Arc::default(), is_reachable: true }
    }

    pub(crate) fn losing_the_next_reply(&self) -> Self {
        Self { loses_the_next_reply: Arc::new(AtomicBool::new(true)), ..self.clone() }
    }

    pub(crate) fn unreachable(&self) -> Self {
        Self { is_reachable: false, ..self.clone() }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Whether the call is to fail for want of a database: not where that is taken for an empty one.
    pub(crate) fn reach(&self) -> Result<(), StoreError> {
        if self.is_reachable || self.is(Fault::TakesSilenceForNothing) {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "nobody there"))
    }

    pub(crate) fn loses_the_reply(&self) -> bool {
        self.loses_the_next_reply.swap(false, Ordering::SeqCst)
    }

    /// The reply, if it is not lost.
    pub(crate) fn reply<T>(&self, reply: T) -> Result<T, StoreError> {
        if self.loses_the_reply() {
            return Err(StoreError::new(StoreErrorKind::MayHaveHappened, "no answer"));
        }
        Ok(reply)
    }

    pub(crate) fn stored(&self, bucket: Bucket) -> LeaseRecord {
        self.memory.coordination().leases.get(&bucket).cloned().unwrap_or_default()
    }

    pub(crate) fn store(&self, bucket: Bucket, lease: Option<LeaseRecord>) {
        self.memory.change(|coordination| {
            match lease {
                Some(lease) => coordination.leases.insert(bucket, lease),
                None => coordination.leases.remove(&bucket),
            };
        });
    }

    pub(crate) fn owned(&self, relay: &RelayId) -> Vec<Lease> {
        let leases = self.memory.coordination().leases;
        let of = leases.into_iter().filter(|(_, lease)| lease.owner.as_ref() == Some(relay));
        of.map(|(bucket, lease)| Lease { bucket, expires_at: lease.expires_at.unwrap() }).collect()
    }
}

pub(crate) fn held(relay: &RelayId, expires_at: Ticks) -> Option<LeaseRecord> {
    Some(LeaseRecord { owner: Some(relay.clone()), expires_at: Some(expires_at) })
}

pub(crate) const TICK: Duration = Duration::from_nanos(100);

impl OutboxStore for Faulty {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        self.reach()?;
        let AcquireRequest { relay, times, .. } = *request;
        let before = self.memory.coordination();
        let all: BTreeSet<Bucket> = request.bucket_count.buckets().collect();
        let none = BTreeSet::new();
        let mut request = request.clone();
        match self.fault {
            Fault::TakesALateHeartbeat => {
                self.memory.change(|coordination| coordination.heartbeats.retain(|other, _| other != relay));
            }
            Fault::ForgetsOthers => {
                self.memory.change(|coordination| coordination.heartbeats.retain(|other, _| other == relay));
            }
            Fault::CountsTheCrashedForEver => self.memory.change(|coordination| {
                for heartbeat in coordination.heartbeats.values_mut() {
                    heartbeat.last_seen = heartbeat.last_seen.max(times.now.minus(TICK));
                }
            }),
            Fault::RefusesItsOwnHeartbeat
                if before.heartbeats.get(relay).is_some_and(|seen| seen.last_seen == times.now) =>
            {
                return Ok(Acquired { clock_behind: true, refused_writes: 1, ..Acquired::default() });
            }
            Fault::TakesWhatIsNotWanted => request.wanted = &all,
            Fault::FreesBusyBuckets => request.busy = &none,
            Fault::LapsesLate => request.times.now = times.now.minus(TICK),
            Fault::LapsesEarly => request.times.now = times.now.plus(TICK),
            _ => {}
        }
        let mut acquired = self.memory.acquire(&request).await?;
        match self.fault {
            Fault::GrantsTwice if !acquired.leases.iter().any(|lease| lease.bucket.number() == 0) => {
                acquired.leases.push(Lease { bucket: Bucket::new(0), expires_at: times.expires_at() });
            }
            Fault::TakesMoreThanItsShare => {
                let more = self.memory.named_claims().unwrap().claim(relay, &all, times, TICK).await?;
                acquired.leases.extend(more.leases);
            }
            Fault::KeepsItsSurplus => {
                for (bucket, lease) in before.leases.iter().filter(|(_, l)| l.owner.as_ref() == Some(relay)) {
                    if self.stored(*bucket).owner.is_none() {
                        self.store(*bucket, Some(lease.clone()));
                        acquired
                            .leases
                            .push(Lease { bucket: *bucket, expires_at: lease.expires_at.unwrap() });
                    }
                }
            }
            Fault::NeverPrunes => self.memory.change(|coordination| {
                for (relay, heartbeat) in before.heartbeats {
                    coordination.heartbeats.entry(relay).or_insert(heartbeat);
                }
            }),
            Fault::PrunesStampsAtOnce => self.memory.change(|coordination| {
                coordination.heartbeats.retain(|_, heartbeat| heartbeat.stopped_at.is_none());
            }),
            Fault::HidesTheExcess => acquired.excess.clear(),
            Fault::HidesWhatIsAvailable => acquired.available.clear(),
            Fault::ForgetsTheRank => acquired.standby_rank = None,
            Fault::TakesALostRoundForALaterOne if self.loses_the_reply() => {
                return Ok(Acquired { clock_behind: true, ..Acquired::default() });
            }
            _ => {}
        }
        self.reply(acquired)
    }

    async fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        self.reach()?;
        match self.fault {
            Fault::ProbesFindNothing => Ok(BTreeSet::new()),
            Fault::ProbesFindAll => Ok(buckets.clone()),
            _ => self.memory.pending(buckets, limit).await,
        }
    }

    async fn fetch(&self, request: &FetchRequest<'_, i64>) -> Result<Fetched<i64>, StoreError> {
        self.reach()?;
        let mut request = request.clone();
        match self.fault {
            Fault::FetchesMoreThanAsked => request.max_messages += 1,
            Fault::FetchesPastTheSize => request.max_bytes = usize::MAX,
            _ => {}
        }
        let mut fetched = self.memory.fetch(&request).await?;
        match self.fault {
            Fault::FetchesOutOfOrder => fetched.messages.reverse(),
            Fault::FetchesLate => drop(fetched.messages.pop()),
            Fault::NeverSaysMore => fetched.more = false,
            // A message that a slow writer commits late has a lower number than one that has been removed.
            Fault::HidesWhatIsBehindTheRemoved => {
                let removed = request.removed_up_to.copied().unwrap_or(0);
                fetched.messages.retain(|stored| stored.row > removed + 1);
            }
            Fault::TakesAnEmptyKeyForNone => {
                for message in fetched.messages.iter_mut().filter_map(|stored| stored.message.as_mut().ok()) {
                    message.key = message.key.take().filter(|key| !key.is_empty());
                }
            }
            _ => {}
        }
        Ok(fetched)
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], limit: Duration) -> Result<(), StoreError> {
        self.reach()?;
        let request = FetchRequest {
            bucket,
            max_messages: usize::MAX,
            max_bytes: usize::MAX,
            removed_up_to: None,
            limit,
        };
        let stored: Vec<i64> =
            self.memory.fetch(&request).await?.messages.iter().map(|stored| stored.row).collect();
        let mut rows = rows.to_vec();
        match self.fault {
            Fault::DeletesOneMore => {
                rows.extend(stored.iter().find(|row| rows.last().is_some_and(|last| *row > last)).copied());
            }
            Fault::DeletesAllUpTo => {
                let last = rows.last().copied().unwrap_or(0);
                rows = stored.iter().copied().filter(|row| *row <= last).collect();
            }
            Fault::DeletesByPlace => rows = stored.into_iter().take(rows.len()).collect(),
            Fault::RefusesToDeleteAgain if rows.iter().any(|row| !stored.contains(row)) => {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "no such row"));
            }
            Fault::DeletesMoreTheSecondTime if self.loses_the_reply() => rows = stored,
            _ => {}
        }
        self.memory.delete(bucket, &rows, limit).await?;
        self.reply(())
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        Some(self)
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        Some(self)
    }

    fn named_claims(&self) -> Option<&dyn NamedClaims> {
        Some(self)
    }

    fn backlog(&self) -> Option<&dyn BacklogMetrics> {
        Some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine<i64>> {
        Some(self)
    }

    fn deletes_individually(&self) -> bool {
        true
    }
}
