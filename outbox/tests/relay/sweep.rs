//! Sweeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outbox::publisher::PublishErrorKind;
use outbox::{BucketEnd, Clock as _};

use crate::support::{Bench, failed};

/// Invariant 7.
#[tokio::test(start_paused = true)]
async fn an_idle_sweep_writes_nothing() {
    let bench = Bench::new();
    let report = bench.sweep(60).await;
    assert_eq!(bench.store.memory.coordination_writes(), 0);
    assert!(report.buckets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sweep_drains_every_bucket_and_stops() {
    let bench = Bench::new();
    for key in Bench::keys() {
        for _ in 0..700 {
            bench.enqueue(&key);
        }
    }
    let report = bench.sweep(60).await;
    assert!(bench.store.memory.is_empty());
    assert_eq!((report.acknowledged(), report.refused_writes), (5_600, 0));
    let published = bench.published();
    assert_eq!(published.iter().collect::<BTreeSet<_>>().len(), published.len(), "something was sent twice");
    let coordination = bench.store.memory.coordination();
    assert!(coordination.leases.values().all(|lease| lease.owner.is_none()));
    assert!(coordination.heartbeats.values().all(|heartbeat| heartbeat.stopped_at.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_claims_only_buckets_with_work() {
    let bench = Bench::new();
    bench.enqueue("21");
    bench.sweep(60).await;
    let leased: Vec<_> = bench.store.memory.coordination().leases.into_keys().collect();
    assert_eq!(leased, [Bench::bucket_of("21")]);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_a_hinted_run_holds_is_left_to_it() {
    let bench = Bench::new();
    let keys = Bench::keys();
    for key in &keys {
        bench.enqueue(key);
    }
    let taken = Bench::bucket_of(&keys[3]);
    let other = bench.take_over(taken);
    let report = bench.sweep(60).await;
    assert_eq!(bench.published().len(), keys.len() - 1);
    assert!(report.held_elsewhere.contains(&taken));
    assert_eq!(bench.owner(taken), Some(other));
}

/// Invariant 5, for sweeps that overlap.
#[tokio::test(start_paused = true)]
async fn overlapping_sweeps_share_the_buckets_and_send_nothing_twice() {
    let bench = Arc::new(Bench::new());
    for key in Bench::keys() {
        for _ in 0..2_000 {
            bench.enqueue(&key);
        }
    }
    bench.publish_takes(Duration::from_millis(400));
    let sweeps = (0..3).map(|n| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300 * n)).await;
            bench.sweep(120).await
        })
    });
    let mut refused = 0;
    for sweep in sweeps.collect::<Vec<_>>() {
        refused += sweep.await.unwrap().refused_writes;
    }
    assert_eq!(refused, 0);
    assert!(bench.store.memory.is_empty());
    let published = bench.published();
    assert_eq!(published.len(), 16_000);
    assert_eq!(published.iter().collect::<BTreeSet<_>>().len(), published.len());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_before_the_stop_is_not_lost() {
    let bench = Arc::new(Bench::new());
    bench.enqueue("21");
    let late = Arc::clone(&bench);
    bench.store.before_release(move || {
        late.enqueue("21");
    });
    bench.sweep(60).await;
    assert_eq!(bench.published().len(), 2);
    assert!(bench.store.memory.is_empty());
    assert_eq!(bench.owner(Bench::bucket_of("21")), None);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_ends_the_sweep_and_keeps_everything() {
    let bench = Bench::new();
    for key in Bench::keys() {
        bench.enqueue(&key);
    }
    bench.judge(|_| failed(PublishErrorKind::Unavailable));
    let report = bench.sweep(60).await;
    assert!(report.buckets.values().all(|bucket| bucket.end == BucketEnd::RetryLater));
    assert_eq!(bench.store.memory.len(), 8);
    assert_eq!(bench.published().len(), 8, "each bucket is tried once a sweep");
    assert!(bench.store.memory.coordination().leases.values().all(|lease| lease.owner.is_none()));
}

#[tokio::test(start_paused = true)]
async fn the_stop_is_stamped_later_than_the_heartbeat_though_the_clock_went_back() {
    let bench = Arc::new(Bench::new());
    bench.enqueue("21");
    let clock = Arc::clone(&bench.clock);
    let before = bench.clock.now_utc();
    bench.store.after_fetch(move || clock.step_wall(-5_000));
    bench.sweep(60).await;
    let heartbeats = bench.store.memory.coordination().heartbeats;
    assert_eq!(heartbeats.len(), 1);
    let stopped = heartbeats.into_values().next().unwrap();
    assert!(stopped.stopped_at.unwrap() > before && stopped.last_seen > before);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_ends_before_its_deadline() {
    let bench = Bench::new();
    for key in Bench::keys() {
        for _ in 0..20_000 {
            bench.enqueue(&key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    let started = tokio::time::Instant::now();
    bench.sweep(30).await;
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(!bench.store.memory.is_empty());
    let coordination = bench.store.memory.coordination();
    assert!(coordination.leases.values().all(|lease| lease.owner.is_none()));
}
