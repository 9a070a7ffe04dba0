//! What a relay does about its leases while it works.

use std::sync::Arc;
use std::time::Duration;

use outbox::{BucketEnd, Clock as _};

use crate::support::{Bench, START, take_over};

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_as_long_as_a_publish_takes() {
    let bench = Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.publish_takes(Duration::from_secs(75));
    let run = Arc::clone(&bench);
    let run = tokio::spawn(async move { run.hinted(&[bucket], 600).await });
    for _ in 0..14 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let coordination = bench.store.memory.coordination();
        assert!(!coordination.is_free(bucket, bench.clock.now_utc()), "free during a publish");
    }
    let report = run.await.unwrap();
    assert_eq!(report.deleted(), 1);
    assert_eq!(bench.owner(bucket), None);
}

/// design.md, section 7: the publish is waited for, nothing is deleted, and the next owner's lease is left alone.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_a_publish_deletes_nothing() {
    let bench = Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.publish_takes(Duration::from_secs(15));
    let run = Arc::clone(&bench);
    let run = tokio::spawn(async move { run.hinted(&[bucket], 600).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let other = bench.take_over(bucket);
    let report = run.await.unwrap();
    assert_eq!((report.buckets[&bucket].end, report.lease_losses()), (BucketEnd::LeaseLost, 1));
    assert_eq!(bench.published().len(), 1);
    assert_eq!(bench.store.memory.len(), 1);
    assert_eq!(bench.owner(bucket), Some(other));
}

/// A process that froze between its fetch and its publish, for longer than its lease.
#[tokio::test(start_paused = true)]
async fn a_thawed_relay_does_not_publish_under_an_old_lease() {
    let bench = Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    let (clock, memory) = (Arc::clone(&bench.clock), bench.store.memory.clone());
    bench.store.after_fetch(move || {
        clock.step_wall(45_000);
        take_over(&memory, bucket, clock.now_utc());
    });
    let report = bench.hinted(&[bucket], 600).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::LeaseLost);
    assert!(bench.published().is_empty());
    assert_eq!(bench.store.memory.len(), 1);
}

/// The same, with nobody having taken the bucket yet: the lease has lapsed all the same.
#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_is_not_renewed() {
    let bench = Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    let clock = Arc::clone(&bench.clock);
    bench.store.after_fetch(move || clock.step_wall(45_000));
    let report = bench.hinted(&[bucket], 600).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::LeaseLost);
    assert!(bench.published().is_empty());
}

/// A freeze during the publish itself: it cannot be called back, and what it acknowledged is not deleted.
#[tokio::test(start_paused = true)]
async fn a_relay_that_froze_during_a_publish_deletes_nothing() {
    let bench = Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    let clock = Arc::clone(&bench.clock);
    bench.judge(move |_| {
        clock.step_wall(45_000);
        outbox::Outcome::Acknowledged
    });
    let report = bench.hinted(&[bucket], 600).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::LeaseLost);
    assert_eq!(bench.store.memory.len(), 1);
    assert!(bench.clock.now_utc() > START);
}

/// design.md, section 6: a relay whose clock is behind publishes nothing, and moves no expiry backwards.
#[tokio::test(start_paused = true)]
async fn a_relay_whose_clock_went_back_publishes_nothing_more() {
    let mut options = outbox::RelayOptions::default();
    options.batch_size = 1;
    let bench = Arc::new(Bench::with(options));
    let bucket = Bench::bucket_of("21");
    for _ in 0..10 {
        bench.enqueue("21");
    }
    bench.publish_takes(Duration::from_secs(12));
    let run = Arc::clone(&bench);
    let run = tokio::spawn(async move { run.hinted(&[bucket], 600).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.clock.step_wall(-60_000);
    let before = bench.store.memory.coordination().version(bucket);
    let report = run.await.unwrap();
    assert_eq!(report.buckets[&bucket].end, BucketEnd::RetryLater);
    assert_eq!(
        (bench.published().len(), report.deleted()),
        (1, 1),
        "what was acknowledged in time is deleted"
    );
    assert!(bench.store.memory.coordination().version(bucket) >= before);
}
