//! Backlogs that are too large for one sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::RelayOptions;
use outbox::publisher::PublishErrorKind;

use crate::support::{Bench, failed};

/// A tenth of the usual batch, so that a tenth of the messages takes as long.
fn small_batches() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.batch_size = 50;
    options
}

/// `messages` in every bucket, of which a batch of 50 takes 900 ms.
fn backlog(messages: usize) -> Arc<Bench> {
    let bench = Arc::new(Bench::with(small_batches()));
    for key in Bench::keys() {
        for _ in 0..messages {
            bench.enqueue(&key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    bench
}

/// Starts a sweep of `seconds` for each that is asked for, as Lambda would: in a while, and in its own time. Returns how
/// many have been started and how many are running.
fn start_sweeps(bench: &Arc<Bench>, max: usize, seconds: u64) -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (started, running) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (weak, started_too, running_too) =
        (Arc::downgrade(bench), Arc::clone(&started), Arc::clone(&running));
    bench.allow_workers(max, move |count| {
        for _ in 0..count {
            let Some(bench) = weak.upgrade() else { return };
            let (started, running) = (Arc::clone(&started_too), Arc::clone(&running_too));
            started.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                running.fetch_add(1, Ordering::Relaxed);
                bench.sweep(seconds).await;
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    (started, running)
}

async fn drained(bench: &Bench, running: &AtomicUsize, seconds: u64) -> Duration {
    let started = tokio::time::Instant::now();
    while !bench.store.memory.is_empty() || running.load(Ordering::Relaxed) > 0 {
        assert!(started.elapsed() < Duration::from_secs(seconds), "{} are left", bench.store.memory.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    started.elapsed()
}

/// How many relays have owned each bucket's messages cannot be told from the store; that nothing was sent twice can.
fn assert_each_once(bench: &Bench, messages: usize) {
    let published = bench.published();
    assert_eq!(published.len(), messages);
    assert_eq!(published.iter().collect::<BTreeSet<_>>().len(), messages, "something was sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_is_done_within_a_turn_is_no_matter_for_others() {
    let bench = backlog(300);
    bench.allow_workers(4, |_| {});
    let report = bench.sweep(60).await;
    assert!(bench.store.memory.is_empty());
    assert_eq!((bench.asked(), report.workers), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_takes_more_than_a_turn_is_spread_and_divided() {
    let bench = backlog(1_200);
    let (started, running) = start_sweeps(&bench, 4, 60);
    let sweep = Arc::clone(&bench);
    let first = tokio::spawn(async move { sweep.sweep(60).await });
    // At work for 10 s, the acquisition that asks for three, 2 s until the next: by then they have their share.
    tokio::time::sleep(Duration::from_secs(17)).await;
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for lease in bench.store.memory.coordination().leases.values() {
        *held.entry(lease.owner.as_ref().map(ToString::to_string).unwrap_or_default()).or_default() += 1;
    }
    assert_eq!(held.values().copied().collect::<Vec<_>>(), [2, 2, 2, 2], "{held:?}");
    drained(&bench, &running, 60).await;
    let first = first.await.unwrap();
    assert_eq!((bench.asked(), first.workers, started.load(Ordering::Relaxed)), (vec![3], 3, 3));
    assert_eq!((first.unfinished.len(), first.refused_writes), (0, 0));
    assert_each_once(&bench, 9_600);
}

/// Fair share divides all eight buckets: two of them are no more than a share of two, of three or of four relays.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_who_would_get_nothing() {
    let bench = Arc::new(Bench::with(small_batches()));
    for key in &Bench::keys()[..2] {
        for _ in 0..800 {
            bench.enqueue(key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    bench.allow_workers(4, |_| {});
    bench.sweep(60).await;
    assert!(bench.store.memory.is_empty());
    assert!(bench.asked().is_empty(), "{:?}", bench.asked());
}

/// One that was started for nothing: what is pending is within another's share, and will not be handed over.
#[tokio::test(start_paused = true)]
async fn a_sweep_without_anything_to_take_leaves_at_once() {
    let bench = Arc::new(Bench::with(small_batches()));
    for key in &Bench::keys()[..3] {
        for _ in 0..2_000 {
            bench.enqueue(key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    let first = Arc::clone(&bench);
    let first = tokio::spawn(async move { first.sweep(60).await });
    tokio::time::sleep(Duration::from_secs(12)).await;
    let started = tokio::time::Instant::now();
    let second = bench.sweep(60).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!((second.acknowledged(), second.held_elsewhere.len()), (0, 3));
    first.await.unwrap();
}

/// A bucket in which a sweep gets nowhere is not gone on with, though others are: it would be for ever.
#[tokio::test(start_paused = true)]
async fn a_bucket_in_which_nothing_is_done_pays_for_nobody() {
    let bench = Arc::new(Bench::new());
    let keys = Bench::keys();
    // Every one of them is refused, for its own faults, and each has a key of its own.
    let stuck =
        (0..).map(|n: u32| n.to_string()).filter(|key| Bench::bucket_of(key) == Bench::bucket_of(&keys[0]));
    for key in stuck.take(900) {
        bench.enqueue(&key);
    }
    for _ in 0..500 {
        bench.enqueue(&keys[1]);
    }
    let bucket = Bench::bucket_of(&keys[0]);
    bench.judge(move |message| match message.bucket(outbox::BucketCount::DEFAULT) == Some(bucket) {
        true => failed(PublishErrorKind::Rejected),
        false => outbox::Outcome::Acknowledged,
    });
    bench.publish_takes(Duration::from_millis(4_500));
    bench.allow_workers(4, |_| {});
    let report = bench.sweep(10).await;
    assert!(report.deleted() > 0 && report.buckets[&bucket].failed > 0);
    assert!(bench.asked().is_empty(), "{:?}, {report:#?}", bench.asked());
}

/// A turn may be over with the very last message.
#[tokio::test(start_paused = true)]
async fn buckets_that_have_been_emptied_are_no_backlog() {
    let bench = backlog(50);
    bench.publish_takes(Duration::from_millis(4_500));
    bench.allow_workers(4, |_| {});
    let report = bench.sweep(10).await;
    assert!(bench.store.memory.is_empty());
    assert_eq!((report.unfinished.len(), bench.asked()), (0, vec![]));
}

/// Thirty times as many buckets as are worked on at once, for which a round of turns would outlast the leases: each has its
/// turn, every lease is renewed in time, and all are gone on with.
#[tokio::test(start_paused = true)]
async fn many_full_buckets_take_turns_and_keep_their_leases() {
    let mut options = small_batches();
    options.bucket_count = outbox::BucketCount::new(256).unwrap();
    let count = options.bucket_count;
    let bench = Bench::with(options);
    for bucket in count.buckets() {
        for n in 0..500 {
            let id = outbox::Chance::seeded(n * 256 + u64::from(bucket.number())).message_id(bench.now());
            let partition = i32::try_from(bucket.number()).unwrap();
            let message = outbox::Message::new(id, "orders").with_partition(partition);
            bench.store.memory.enqueue(message, count).unwrap();
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    bench.allow_workers(4, |_| {});
    let report = bench.sweep(90).await;
    assert_eq!((report.buckets.len(), report.unfinished.len()), (256, 256));
    assert!(report.buckets.values().all(|bucket| bucket.deleted > 0), "{report:#?}");
    assert!(report.buckets.values().all(|bucket| bucket.end != outbox::BucketEnd::LeaseLost), "{report:#?}");
    assert_eq!((bench.asked(), report.refused_writes), (vec![3, 4], 0));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_runs_out_of_time_is_gone_on_with_until_nothing_is_left() {
    let bench = backlog(2_000);
    let (started, running) = start_sweeps(&bench, 1, 20);
    let first = bench.sweep(20).await;
    assert_eq!((first.workers, first.unfinished.len()), (1, 8));
    let took = drained(&bench, &running, 600).await;
    // Each of the 40 batches of a bucket takes 0.9 s, and a sweep of 20 s has 14 s for them.
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(started.load(Ordering::Relaxed) <= 4, "{}", started.load(Ordering::Relaxed));
    assert!(bench.asked().iter().all(|count| *count == 1), "{:?}", bench.asked());
    assert_each_once(&bench, 16_000);
    let coordination = bench.store.memory.coordination();
    assert!(coordination.heartbeats.values().all(|heartbeat| heartbeat.stopped_at.is_some()));
}

/// Short invocations never see the end of a turn: they are spread by the one that goes on.
#[tokio::test(start_paused = true)]
async fn short_sweeps_are_spread_when_they_are_gone_on_with() {
    let bench = backlog(600);
    let (_, running) = start_sweeps(&bench, 4, 10);
    bench.sweep(10).await;
    assert_eq!(bench.asked(), [4]);
    // All four have their share, once the first has seen the others.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let leases = bench.store.memory.coordination().leases;
    let owners: BTreeSet<_> = leases.values().filter_map(|lease| lease.owner.clone()).collect();
    assert_eq!(owners.len(), 4, "{owners:?}");
    drained(&bench, &running, 120).await;
    assert_each_once(&bench, 4_800);
}

/// Ticks of the schedule come on top of sweeps that go on: together they do not become more and more.
#[tokio::test(start_paused = true)]
async fn ticks_beside_sweeps_that_go_on_do_not_add_up() {
    let bench = backlog(10_000);
    let (_, running) = start_sweeps(&bench, 2, 20);
    let mut most = 0;
    for second in 0..120 {
        if second % 10 == 0 {
            let (sweep, running) = (Arc::clone(&bench), Arc::clone(&running));
            running.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                sweep.sweep(20).await;
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        most = most.max(running.load(Ordering::Relaxed));
    }
    // Two of 20 s by a tick every 10 s, and the two that are allowed besides; one that was asked for meets others, and
    // its own end may overlap with the start of the next.
    assert!(most <= 5, "{most} sweeps at once");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_gets_nowhere_asks_for_nobody() {
    let bench = backlog(100);
    bench.allow_workers(4, |_| {});
    bench.judge(|_| failed(PublishErrorKind::Unavailable));
    bench.publish_takes(Duration::from_secs(12));
    let report = bench.sweep(20).await;
    assert_eq!((bench.asked(), report.deleted()), (vec![], 0));
}

/// Deletes that are never done, as where the permission is missing: what was published is published again by every sweep,
/// and no sweep may start the next.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_deleted_nothing_asks_for_nobody() {
    let bench = backlog(2_000);
    bench.allow_workers(4, |_| {});
    bench.store.fail_deletes(u32::MAX);
    let report = bench.sweep(12).await;
    assert!(report.acknowledged() > 0);
    assert_eq!((bench.asked(), report.workers), (vec![], 0));
}

/// Nobody could take over what it still holds.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_could_not_stop_is_not_gone_on_with() {
    let bench = backlog(2_000);
    bench.allow_workers(4, |_| {});
    bench.store.fail_stops();
    let report = bench.sweep(10).await;
    assert!(report.deleted() > 0 && !report.unfinished.is_empty());
    assert!(bench.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_answer_costs_a_second_and_no_deadline() {
    let bench = backlog(6_000);
    bench.allow_workers(4, |_| {});
    bench.workers_hang();
    let started = tokio::time::Instant::now();
    let report = bench.sweep(40).await;
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_eq!((bench.asked(), report.workers), (vec![3, 3, 4], 0), "twice beside it, and once to go on");
    assert!(report.acknowledged() > 0);
    assert!(bench.store.memory.coordination().leases.values().all(|lease| lease.owner.is_none()));
}
