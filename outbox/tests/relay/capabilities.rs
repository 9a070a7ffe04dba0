//! Stores that can do less: what the relay does with them, and what it refuses.

use std::sync::Arc;
use std::time::Duration;

use outbox::memory::MemoryStore;
use outbox::publisher::{Outcome, PublishErrorKind};
use outbox::relay::RunError;
use outbox::{BucketEnd, Chance, Clock as _, Relay, RelayOptions, TokioClock};

use crate::support::{Bench, START, failed};

fn bounded() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.max_publish_duration = Some(Duration::from_secs(15));
    options
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_renew_needs_a_bound_that_fits_into_its_lease() {
    let refused = |options: RelayOptions| {
        let bench = Bench::new();
        let store = MemoryStore::new().without_renewal();
        let clock = Arc::new(TokioClock::starting_at(START));
        let relay = Relay::new(store, bench.publisher.clone(), options, clock, Chance::seeded(1));
        relay.err().map(|error| error.to_string())
    };
    assert!(refused(RelayOptions::default()).unwrap().contains("max_publish_duration"));
    let mut tight = bounded();
    tight.max_publish_duration = Some(Duration::from_secs(20));
    assert!(refused(tight).unwrap().contains("lease_duration"));
    assert_eq!(refused(bounded()), None);
}

#[tokio::test(start_paused = true)]
async fn without_renewal_no_publish_starts_that_might_outlive_its_lease() {
    let bench = Bench::over(MemoryStore::new().without_renewal(), bounded());
    let bucket = Bench::bucket_of("21");
    for _ in 0..3_000 {
        bench.enqueue("21");
    }
    // Six batches of 4 s: the lease has room for two of them, and is acquired anew in between.
    bench.publish_takes(Duration::from_secs(4));
    let (memory, clock) = (bench.store.memory.clone(), Arc::clone(&bench.clock));
    bench.judge(move |_| {
        // When the publish began 4 s ago, its bound of 15 s and a renewal interval of 10 s were left.
        let lapses = memory.coordination().version(bucket).unwrap();
        assert!(lapses.since(clock.now_utc()) >= Duration::from_secs(15 + 10 - 4));
        Outcome::Acknowledged
    });
    let report = bench.sweep(120).await;
    assert_eq!((report.acknowledged(), bench.published().len()), (3_000, 3_000));
    assert!(bench.store.memory.is_empty());
}

/// The bound is a statement about the publisher; once it has proved wrong nothing that rests on it may go on.
#[tokio::test(start_paused = true)]
async fn a_publish_that_outlasts_its_bound_faults_the_relay() {
    let bench = Bench::over(MemoryStore::new().without_renewal(), bounded());
    bench.enqueue("21");
    bench.publish_takes(Duration::from_secs(16));
    let report = bench.sweep(120).await;
    let error = report.buckets[&Bench::bucket_of("21")].error.as_ref();
    assert!(matches!(error, Some(RunError::PublishOutlastedBound { .. })), "{error:?}");
    assert!(report.misconfiguration().is_some());
    bench.enqueue("21");
    let again = bench.sweep(120).await;
    assert!(again.misconfiguration().unwrap().to_string().contains("max_publish_duration"));
    assert_eq!(bench.published().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn where_only_prefixes_can_be_deleted_nothing_goes_past_a_stuck_message() {
    let bench = Bench::over(MemoryStore::new().deleting_prefixes_only(), RelayOptions::default());
    let bucket = Bench::bucket_of("21");
    let other = (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap();
    bench.enqueue(&other);
    let bad = bench.enqueue("21");
    bench.enqueue(&other);
    bench.judge(
        move |message| {
            if message.id == bad { failed(PublishErrorKind::Rejected) } else { Outcome::Acknowledged }
        },
    );
    let report = bench.sweep(60).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Waiting);
    assert_eq!(report.deleted(), 1, "only what was ahead of it");
    assert_eq!(bench.store.memory.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_four_methods_alone_are_enough_for_a_sweep_and_not_for_hints() {
    let bench = Bench::over(MemoryStore::new().without_ownership(), RelayOptions::default());
    bench.enqueue("21");
    let hinted = bench.hinted(&[Bench::bucket_of("21")], 60).await;
    assert!(hinted.misconfiguration().unwrap().to_string().contains("by name"));
    let swept = bench.sweep(60).await;
    assert_eq!(swept.acknowledged(), 1);
    assert!(bench.owner(Bench::bucket_of("21")).is_some(), "nothing is handed back: it lapses");
}
