//! Backlogs that are too large for one sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::publisher::PublishErrorKind;

use crate::support::{Bench, failed};

/// `messages` in every bucket, of which a batch of 500 takes 900 ms.
fn backlog(messages: usize) -> Arc<Bench> {
    let bench = Arc::new(Bench::new());
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
    let bench = backlog(3_000);
    bench.allow_workers(4, |_| {});
    let report = bench.sweep(60).await;
    assert!(bench.store.memory.is_empty());
    assert_eq!((bench.asked(), report.workers), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_takes_more_than_a_turn_is_spread_and_divided() {
    let bench = backlog(12_000);
    let (started, running) = start_sweeps(&bench, 4, 60);
    let sweep = Arc::clone(&bench);
    let first = tokio::spawn(async move { sweep.sweep(60).await });
    // A turn of 10 s, the acquisition that asks for three, 2 s until the next: by then they have their share.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for lease in bench.store.memory.coordination().leases.values() {
        *held.entry(lease.owner.as_ref().map(ToString::to_string).unwrap_or_default()).or_default() += 1;
    }
    assert_eq!(held.values().copied().collect::<Vec<_>>(), [2, 2, 2, 2], "{held:?}");
    drained(&bench, &running, 60).await;
    let first = first.await.unwrap();
    assert_eq!((bench.asked(), first.workers, started.load(Ordering::Relaxed)), (vec![3], 3, 3));
    assert_eq!((first.unfinished.len(), first.refused_writes), (0, 0));
    assert_each_once(&bench, 96_000);
}

#[tokio::test(start_paused = true)]
async fn no_more_sweeps_are_asked_for_than_there_are_buckets_with_work() {
    let bench = Arc::new(Bench::new());
    for key in &Bench::keys()[..2] {
        for _ in 0..8_000 {
            bench.enqueue(key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    bench.allow_workers(8, |_| {});
    bench.sweep(60).await;
    assert_eq!(bench.asked(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_runs_out_of_time_is_gone_on_with_until_nothing_is_left() {
    let bench = backlog(20_000);
    let (started, running) = start_sweeps(&bench, 1, 20);
    let first = bench.sweep(20).await;
    assert_eq!((first.workers, first.unfinished.len()), (1, 8));
    let took = drained(&bench, &running, 600).await;
    // Each of the 40 batches of a bucket takes 0.9 s, and a sweep of 20 s has 14 s for them.
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(started.load(Ordering::Relaxed) <= 4, "{}", started.load(Ordering::Relaxed));
    assert!(bench.asked().iter().all(|count| *count == 1), "{:?}", bench.asked());
    assert_each_once(&bench, 160_000);
    let coordination = bench.store.memory.coordination();
    assert!(coordination.heartbeats.values().all(|heartbeat| heartbeat.stopped_at.is_some()));
}

/// Short invocations never see the end of a turn: they are spread by the one that goes on.
#[tokio::test(start_paused = true)]
async fn short_sweeps_are_spread_when_they_are_gone_on_with() {
    let bench = backlog(6_000);
    let (_, running) = start_sweeps(&bench, 4, 10);
    bench.sweep(10).await;
    assert_eq!(bench.asked(), [4]);
    drained(&bench, &running, 120).await;
    assert_each_once(&bench, 48_000);
}

/// Ticks of the schedule come on top of sweeps that go on: together they do not become more and more.
#[tokio::test(start_paused = true)]
async fn ticks_beside_sweeps_that_go_on_do_not_add_up() {
    let bench = backlog(100_000);
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
    let bench = backlog(1_000);
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

#[tokio::test(start_paused = true)]
async fn whoever_does_not_answer_costs_a_second_and_no_deadline() {
    let bench = backlog(40_000);
    bench.allow_workers(4, |_| {});
    bench.workers_hang();
    let started = tokio::time::Instant::now();
    let report = bench.sweep(30).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!((bench.asked(), report.workers), (vec![3, 4], 0));
    assert!(report.acknowledged() > 0);
    assert!(bench.store.memory.coordination().leases.values().all(|lease| lease.owner.is_none()));
}
