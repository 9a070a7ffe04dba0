//! Runs whose every call takes all of its time: they end in good order, before the deadline.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use outbox::memory::MemoryStore;
use outbox::publisher::{Outcome, PublishError, PublishErrorKind};
use outbox::relay::{BucketEnd, Started, Workers};
use outbox::store::{
    AcquireRequest, Acquired, Claimed, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal, NamedClaims,
};
use outbox::{
    Bucket, BucketCount, Budget, Chance, Clock as _, Lease, LeaseTimes, Message, OutboxStore, Publisher,
    Relay, RelayId, RelayOptions, RunReport, StoreError, StoreErrorKind, Ticks, TokioClock,
};

use crate::support::START;

/// Decides, call by call, how long it takes: no time, some of its limit, all of it, or for ever.
#[derive(Clone)]
struct Pace(Chance);

enum Takes {
    Time(Duration),
    ForEver,
}

impl Pace {
    fn next(&self, limit: Duration) -> Takes {
        match self.0.below(6) {
            0 | 1 => Takes::Time(Duration::ZERO),
            2 => Takes::Time(limit.mul_f64(0.3)),
            3 => Takes::Time(limit),
            // What was asked for happens, and nobody hears of it.
            4 => Takes::Time(limit + Duration::from_millis(90)),
            _ => Takes::ForEver,
        }
    }

    /// Takes the call's time before it happens, after it, or instead.
    async fn call<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match (self.next(limit), self.0.below(4)) {
            (Takes::Time(time), 0) => {
                let done = call.await;
                tokio::time::sleep(time).await;
                done
            }
            (Takes::Time(time), 1) => {
                tokio::time::sleep(time).await;
                Err(StoreError::new(StoreErrorKind::Throttled, "told to fail"))
            }
            (Takes::Time(time), _) => {
                tokio::time::sleep(time).await;
                call.await
            }
            (Takes::ForEver, _) => std::future::pending().await,
        }
    }
}

#[derive(Clone)]
struct Slow {
    memory: MemoryStore,
    pace: Pace,
}

impl OutboxStore for Slow {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        self.pace.call(request.limit, self.memory.acquire(request)).await
    }

    async fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        self.pace.call(limit, self.memory.pending(buckets, limit)).await
    }

    async fn fetch(&self, request: &FetchRequest<'_, i64>) -> Result<Fetched<i64>, StoreError> {
        self.pace.call(request.limit, self.memory.fetch(request)).await
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], limit: Duration) -> Result<(), StoreError> {
        self.pace.call(limit, self.memory.delete(bucket, rows, limit)).await
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

    fn deletes_individually(&self) -> bool {
        true
    }
}

impl LeaseRenewal for Slow {
    fn renew<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        let renew = self.memory.renewal().unwrap().renew(relay, lease, times, limit);
        self.pace.call(limit, renew).boxed()
    }
}

impl NamedClaims for Slow {
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        let claim = self.memory.named_claims().unwrap().claim(relay, buckets, times, limit);
        self.pace.call(limit, claim).boxed()
    }
}

impl LeaseOwnership for Slow {
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.pace.call(limit, self.memory.release(relay, leases, limit)).boxed()
    }

    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.pace.call(limit, self.memory.release_strays(relay, limit)).boxed()
    }

    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.pace.call(limit, self.memory.stop(relay, leases, stamp, limit)).boxed()
    }

    fn has_message<'a>(&'a self, bucket: Bucket, limit: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.pace.call(limit, self.memory.has_message(bucket, limit)).boxed()
    }
}

/// Keeps to its limit, as its contract says, with records coming back at its very end.
struct SlowPublisher {
    pace: Pace,
    in_flight: Arc<AtomicUsize>,
}

impl Publisher for SlowPublisher {
    async fn publish(&self, batch: &[&Message], limit: Duration) -> Vec<Outcome> {
        self.in_flight.fetch_add(batch.len(), Ordering::Relaxed);
        let outcome = match self.pace.next(limit) {
            Takes::Time(time) => {
                tokio::time::sleep(time.min(limit)).await;
                Outcome::Acknowledged
            }
            Takes::ForEver => {
                tokio::time::sleep(limit).await;
                Outcome::Failed(PublishError::new(PublishErrorKind::MayHaveHappened, "told to fail"))
            }
        };
        self.in_flight.fetch_sub(batch.len(), Ordering::Relaxed);
        batch.iter().map(|_| outcome.clone()).collect()
    }
}

#[derive(Debug)]
struct SlowWorkers;

impl Workers for SlowWorkers {
    fn max(&self) -> usize {
        4
    }

    fn start(&self, _: usize, _: Duration) -> BoxFuture<'_, Started> {
        std::future::pending().boxed()
    }
}

enum Run {
    Hinted,
    Sweep,
}

/// One run with `left` until its deadline. Returns its report, once it has ended in time with nothing in flight.
async fn run(seed: u64, run: &Run, left: Duration) -> RunReport {
    let clock = Arc::new(TokioClock::starting_at(START));
    let chance = Chance::seeded(seed);
    let store = Slow { memory: MemoryStore::new(), pace: Pace(chance.clone()) };
    for number in 0..600_u64 {
        let key = (number % 13).to_string();
        let message = Message::new(chance.message_id(START), "orders").with_key(key);
        store.memory.enqueue(message, BucketCount::DEFAULT).unwrap();
    }
    let in_flight = Arc::<AtomicUsize>::default();
    let publisher = SlowPublisher { pace: store.pace.clone(), in_flight: Arc::clone(&in_flight) };
    let mut options = RelayOptions::default();
    options.batch_size = 20;
    let relay = Relay::new(store, publisher, options, clock.clone(), chance.clone()).unwrap();
    let relay = relay.with_workers(Arc::new(SlowWorkers));
    let id = chance.relay_id("test", clock.now_utc());
    let budget = Budget::new(clock, left);
    let started = tokio::time::Instant::now();
    let report = match run {
        Run::Hinted => relay.hinted(&id, &BucketCount::DEFAULT.buckets().collect(), &budget).await,
        Run::Sweep => relay.sweep(&id, &budget).await,
    };
    let took = started.elapsed();
    // What is left is for the answer.
    assert!(took + Duration::from_millis(100) <= left || took.is_zero(), "seed {seed}: {took:?} of {left:?}");
    assert_eq!(in_flight.load(Ordering::Relaxed), 0, "seed {seed}");
    report
}

#[tokio::test(start_paused = true)]
async fn whatever_hangs_a_run_ends_before_its_deadline() {
    let (mut acknowledged, mut out_of_time) = (0, 0);
    for seed in 0..240 {
        let left = Duration::from_millis(500 * (seed % 120));
        for kind in [Run::Hinted, Run::Sweep] {
            let report = run(seed, &kind, left).await;
            acknowledged += report.acknowledged();
            out_of_time += report.buckets.values().filter(|b| b.end == BucketEnd::OutOfTime).count();
        }
    }
    // Not for want of anything to do.
    assert!(acknowledged > 3_000 && out_of_time > 30, "{acknowledged} {out_of_time}");
}
