//! A dependency that fails is tried again with waits that grow, are jittered, end with the next renewal at the latest,
//! and start over after a success. And a run that has nothing to wait for does not wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::coordination::HeartbeatRecord;
use outbox::memory::MemoryStore;
use outbox::store::{AcquireRequest, Acquired, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal};
use outbox::{
    Bucket, BucketCount, Chance, Continuous, OutboxStore, Outcome, Publisher, Relay, RelayId, RelayOptions,
    StoreError, StoreErrorKind, TokioClock,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, START, take_over};

/// What a try takes that fails.
const TAKES: Duration = Duration::from_secs(3);
const BASE: Duration = Duration::from_millis(200);

/// The store in memory, whose acquisitions take a while and fail while they are told to.
#[derive(Clone, Default)]
struct Failing {
    memory: MemoryStore,
    fails: Arc<Mutex<bool>>,
    /// When each try was made.
    tries: Arc<Mutex<Vec<Instant>>>,
}

impl Failing {
    fn set(&self, fails: bool) {
        *self.fails.lock().unwrap() = fails;
        self.tries.lock().unwrap().clear();
    }

    /// From each failure to the next try.
    fn waits(&self) -> Vec<Duration> {
        let tries = self.tries.lock().unwrap();
        tries.windows(2).map(|pair| pair[1] - pair[0] - TAKES).collect()
    }
}

impl OutboxStore for Failing {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        self.tries.lock().unwrap().push(Instant::now());
        if *self.fails.lock().unwrap() {
            tokio::time::sleep(TAKES).await;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "told to fail"));
        }
        self.memory.acquire(request).await
    }

    async fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        self.memory.pending(buckets, limit).await
    }

    async fn fetch(&self, request: &FetchRequest<'_, i64>) -> Result<Fetched<i64>, StoreError> {
        self.memory.fetch(request).await
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], limit: Duration) -> Result<(), StoreError> {
        self.memory.delete(bucket, rows, limit).await
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        self.memory.renewal()
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        self.memory.ownership()
    }
}

struct Acknowledging;

impl Publisher for Acknowledging {
    async fn publish(&self, batch: &[&outbox::Message], _: Duration) -> Vec<Outcome> {
        vec![Outcome::Acknowledged; batch.len()]
    }
}

/// A continuous relay over a store that fails for two minutes, recovers, and fails again: the waits of both outages.
async fn outages(seed: u64) -> [Vec<Duration>; 2] {
    let store = Failing::default();
    let clock = Arc::new(TokioClock::starting_at(START));
    let chance = Chance::seeded(seed);
    let relay = Relay::new(store.clone(), Acknowledging, RelayOptions::default(), clock, chance).unwrap();
    let stop = CancellationToken::new();
    let signals = Continuous::until(stop.clone());
    let run = tokio::spawn(async move { relay.run_continuously(&RelayId::new("a").unwrap(), signals).await });
    let mut outages = [Vec::new(), Vec::new()];
    for waits in &mut outages {
        store.set(true);
        tokio::time::sleep(Duration::from_mins(2)).await;
        *waits = store.waits();
        store.set(false);
        tokio::time::sleep(Duration::from_secs(35)).await;
        let tries = store.tries.lock().unwrap().len();
        assert!((2..=4).contains(&tries), "{tries} rounds in 35 s, once it works again");
    }
    stop.cancel();
    run.await.unwrap();
    outages
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_tried_again_with_waits_that_grow_and_start_over_after_a_good_round() {
    let interval = RelayOptions::default().lease_renew_interval;
    let outages = outages(1).await;
    for waits in &outages {
        // 3 s for each try, and 0.2 s, 0.4 s, 0.8 s and so on up to the renewal interval between them.
        assert!((10..=18).contains(&waits.len()), "{} tries in two minutes: {waits:?}", waits.len() + 1);
        let mut step = BASE;
        for wait in waits {
            // Timers go by whole milliseconds.
            let longest = step.min(interval) + Duration::from_millis(2);
            assert!(
                (step / 2).min(interval) <= *wait && *wait <= longest,
                "{wait:?} in a step of {step:?}: {waits:?}"
            );
            step = (step * 2).min(Duration::from_secs(30));
        }
        assert!(waits.iter().any(|wait| *wait >= interval), "never capped: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn relays_that_fail_together_do_not_try_again_together() {
    let ([one, _], [other, _]) = (outages(1).await, outages(2).await);
    let uncapped = one.iter().zip(&other).take(5);
    assert!(uncapped.clone().all(|(one, other)| one != other), "no jitter: {one:?} and {other:?}");
}

/// Relays beyond the bucket count: a sweep without a share leaves at once, and does not read and write every second
/// until its time is over.
#[tokio::test(start_paused = true)]
async fn a_sweep_without_a_share_ends_at_once() {
    let mut options = RelayOptions::default();
    options.bucket_count = BucketCount::new(1).unwrap();
    let bench = Bench::with(options);
    let message = outbox::Message::new(Chance::seeded(9).message_id(START), "orders");
    bench.store.memory.enqueue(message, BucketCount::new(1).unwrap()).unwrap();
    let other = take_over(&bench.store.memory, Bucket::new(0), bench.now());
    let alive = HeartbeatRecord { last_seen: bench.now(), stopped_at: None };
    bench.store.memory.change(|coordination| {
        coordination.heartbeats.insert(other, alive);
    });
    let (writes, started) = (bench.store.memory.coordination_writes(), Instant::now());
    let report = bench.sweep(60).await;
    let writes = bench.store.memory.coordination_writes() - writes;
    assert!(report.held_elsewhere.contains(&Bucket::new(0)), "{report:?}");
    assert_eq!(writes, 2, "a heartbeat and a stopped stamp");
    assert!(started.elapsed() < Duration::from_secs(1), "it waited {:?}", started.elapsed());
}
