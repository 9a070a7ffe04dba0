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

/// Sixteen buckets with more than a turn's work, twice as many as are worked on at once: each gets its turn.
#[tokio::test(start_paused = true)]
async fn every_bucket_gets_its_turn() {
    let mut options = outbox::RelayOptions::default();
    options.bucket_count = outbox::BucketCount::new(16).unwrap();
    let count = options.bucket_count;
    let bench = Bench::with(options);
    for bucket in count.buckets() {
        for n in 0..20_000 {
            let id = outbox::Chance::seeded(n * 16 + u64::from(bucket.number())).message_id(bench.now());
            let partition = i32::try_from(bucket.number()).unwrap();
            let message = outbox::Message::new(id, "orders").with_partition(partition);
            bench.store.memory.enqueue(message, count).unwrap();
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    let report = bench.sweep(60).await;
    assert_eq!(report.buckets.len(), 16);
    assert!(report.buckets.values().all(|bucket| bucket.acknowledged > 0), "{report:#?}");
}

/// What was refused is tried once a sweep, and what was acknowledged behind it is not sent again, over many turns.
#[tokio::test(start_paused = true)]
async fn a_refused_message_is_tried_once_a_sweep() {
    let mut options = outbox::RelayOptions::default();
    options.batch_size = 10;
    let bench = Bench::with(options);
    let bucket = Bench::bucket_of("21");
    let other = (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap();
    let bad = bench.enqueue("21");
    let behind = bench.enqueue("21");
    for _ in 0..600 {
        bench.enqueue(&other);
    }
    bench.judge(move |message| match message.id == bad {
        true => failed(PublishErrorKind::Rejected),
        false => outbox::Outcome::Acknowledged,
    });
    bench.publish_takes(Duration::from_millis(900));
    bench.sweep(120).await;
    let times = |id| bench.published().iter().filter(|published| **published == id).count();
    assert_eq!((times(bad), times(behind)), (1, 1));
    assert_eq!(bench.store.memory.len(), 2);
    assert_eq!(bench.owner(bucket), None);
}

/// A sweep that was killed a moment ago still counts as a member, and keeps a share that it will not see to.
#[tokio::test(start_paused = true)]
async fn what_a_killed_sweep_leaves_is_done_by_the_next() {
    let bench = Arc::new(Bench::new());
    for key in Bench::keys() {
        bench.enqueue(&key);
    }
    let killed = Arc::clone(&bench);
    bench.publish_takes(Duration::from_secs(5));
    let killed = tokio::spawn(async move { killed.sweep(60).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    killed.abort();
    bench.publish_takes(Duration::from_millis(5));
    tokio::time::sleep(Duration::from_secs(31)).await;
    // Its leases have lapsed; its heartbeat is made to look fresh.
    let now = bench.now();
    bench.store.memory.change(|coordination| {
        for heartbeat in coordination.heartbeats.values_mut() {
            heartbeat.last_seen = now;
        }
    });
    let started = tokio::time::Instant::now();
    let report = bench.sweep(120).await;
    assert_eq!(report.acknowledged(), 8);
    assert!(bench.store.memory.is_empty());
    assert!(started.elapsed() < Duration::from_secs(33), "{:?}", started.elapsed());
}

/// Two acquisitions, the clock going back between them: the stop is later than the first, whose copy may still land.
#[tokio::test(start_paused = true)]
async fn the_stop_is_stamped_later_than_every_heartbeat() {
    let bench = Arc::new(Bench::new());
    for _ in 0..20_000 {
        bench.enqueue("21");
    }
    bench.publish_takes(Duration::from_millis(900));
    let run = Arc::clone(&bench);
    let run = tokio::spawn(async move { run.sweep(18).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = bench.now();
    bench.clock.step_wall(-20_000);
    run.await.unwrap();
    let stopped = bench.store.memory.coordination().heartbeats.into_values().next().unwrap();
    assert!(stopped.last_seen.plus(Duration::from_secs(1)) > first, "{stopped:?}");
}

/// Found by the model: a bucket whose turn was over with nothing left is freed at the end, and read once more like any
/// other that is freed.
#[tokio::test(start_paused = true)]
async fn a_bucket_whose_turn_was_over_is_read_once_more_when_it_is_freed() {
    let bench = Arc::new(Bench::new());
    for _ in 0..20 {
        bench.enqueue("21");
    }
    bench.publish_takes(Duration::from_secs(11));
    let late = Arc::clone(&bench);
    bench.store.before_release(move || {
        late.enqueue("21");
    });
    bench.sweep(120).await;
    assert_eq!(bench.published().len(), 21);
    assert_eq!(bench.owner(Bench::bucket_of("21")), None);
}
