//! The continuous run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outbox::publisher::PublishErrorKind;
use outbox::{
    Bucket, BucketCount, Continuous, HintBroadcast as _, InProcessHints, Notifier, RelayId, RunReport,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, failed};

/// A relay that runs until it is told to stop.
struct Running {
    stop: CancellationToken,
    notifier: Notifier,
    task: JoinHandle<RunReport>,
}

impl Running {
    fn start(bench: &Arc<Bench>, id: &str) -> Self {
        Self::with(bench, id, |_| {})
    }

    fn with(bench: &Arc<Bench>, id: &str, change: impl FnOnce(&mut Continuous)) -> Self {
        let stop = CancellationToken::new();
        let mut signals = Continuous::until(stop.clone());
        change(&mut signals);
        let notifier = signals.notifier.clone();
        let (bench, id) = (Arc::clone(bench), RelayId::new(id).unwrap());
        let task = tokio::spawn(async move { bench.relay.run_continuously(&id, signals).await });
        Self { stop, notifier, task }
    }

    async fn stop(self) -> RunReport {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// Waits for a condition, on virtual time, with a bound.
async fn until(what: &str, seconds: u64, condition: impl Fn() -> bool) {
    for _ in 0..seconds * 100 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within {seconds} s: {what}");
}

fn owned(bench: &Bench, id: &str) -> usize {
    let all = BucketCount::DEFAULT.buckets();
    all.filter(|bucket| bench.owner(*bucket).is_some_and(|owner| owner.as_str() == id)).count()
}

#[tokio::test(start_paused = true)]
async fn it_holds_everything_alone_and_hands_it_over_at_the_stop() {
    let bench = Arc::new(Bench::new());
    let relay = Running::start(&bench, "a");
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    bench.enqueue("21");
    // Nobody announced it: a poll finds it.
    until("published", 2, || bench.store.memory.is_empty()).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(owned(&bench, "a"), 8, "renewed");
    let report = relay.stop().await;
    assert_eq!((report.acknowledged(), report.refused_writes), (1, 0));
    assert_eq!(owned(&bench, "a"), 0);
    let heartbeats = bench.store.memory.coordination().heartbeats;
    assert!(heartbeats.into_values().all(|heartbeat| heartbeat.stopped_at.is_some()));
}

#[tokio::test(start_paused = true)]
async fn an_announced_commit_is_published_at_once() {
    let bench = Arc::new(Bench::new());
    let relay = Running::with(&bench, "a", |signals| signals.poll_interval = Duration::from_hours(1));
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    bench.enqueue("21");
    relay.notifier.announce([Bench::bucket_of("21")]);
    until("published", 1, || bench.store.memory.is_empty()).await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_from_another_process_is_followed() {
    let bench = Arc::new(Bench::new());
    let here = Arc::new(InProcessHints::new());
    let there = here.join();
    let relay = Running::with(&bench, "a", |signals| {
        signals.poll_interval = Duration::from_hours(1);
        signals.hints = Some(here);
    });
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    bench.enqueue("21");
    there.send(&[Bench::bucket_of("21")].into());
    until("published", 1, || bench.store.memory.is_empty()).await;
    relay.stop().await;
}

/// Buckets change hands only between publishes: twenty times from one relay to two and back, under load.
#[tokio::test(start_paused = true)]
async fn scaling_under_load_makes_no_duplicate() {
    let bench = Arc::new(Bench::new());
    bench.publish_takes(Duration::from_millis(80));
    let first = Running::start(&bench, "m");
    let mut sent = 0;
    for round in 0..20 {
        let second = Running::start(&bench, if round % 2 == 0 { "a" } else { "z" });
        for _ in 0..300 {
            for key in Bench::keys() {
                bench.enqueue(&key);
                sent += 1;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (a, b) = (owned(&bench, "m"), 8 - owned(&bench, "m"));
        assert_eq!((a, b), (4, 4), "round {round}: the split is fair");
        let report = second.stop().await;
        assert_eq!(report.refused_writes, 0);
    }
    until("all published", 60, || bench.store.memory.is_empty()).await;
    let report = first.stop().await;
    assert_eq!(report.refused_writes, 0);
    let published = bench.published();
    assert_eq!(published.len(), sent);
    assert_eq!(published.iter().collect::<BTreeSet<_>>().len(), sent, "something was sent twice");
}

/// A bucket whose backlog does not end is busy whenever a round looks: it is handed over all the same, after the turn that
/// is under way.
#[tokio::test(start_paused = true)]
async fn buckets_that_are_always_busy_are_handed_over_too() {
    let bench = Arc::new(Bench::new());
    for key in Bench::keys() {
        for _ in 0..30_000 {
            bench.enqueue(&key);
        }
    }
    bench.publish_takes(Duration::from_millis(900));
    let first = Running::start(&bench, "m");
    until("all buckets held", 5, || owned(&bench, "m") == 8).await;
    let second = Running::start(&bench, "a");
    until("half of them handed over", 25, || owned(&bench, "a") == 4).await;
    for relay in [first, second] {
        relay.stop().await;
    }
    let published = bench.published();
    assert_eq!(published.iter().collect::<BTreeSet<_>>().len(), published.len(), "something was sent twice");
}

/// Sixteen busy buckets, more than are worked on at once, with a backlog in half of them that does not end.
#[tokio::test(start_paused = true)]
async fn a_full_bucket_starves_nobody() {
    let mut options = outbox::RelayOptions::default();
    options.bucket_count = BucketCount::new(16).unwrap();
    options.batch_size = 10;
    let count = options.bucket_count;
    let bench = Arc::new(Bench::with(options));
    let message = |bucket: Bucket, n: u64| {
        let id = outbox::Chance::seeded(n).message_id(crate::support::START);
        let partition = i32::try_from(bucket.number()).unwrap();
        outbox::Message::new(id, "orders").with_partition(partition)
    };
    for bucket in count.buckets() {
        let messages = if bucket.number() < 8 { 20_000 } else { 1 };
        for n in 0..messages {
            bench.store.memory.enqueue(message(bucket, n * 16 + u64::from(bucket.number())), count).unwrap();
        }
    }
    bench.publish_takes(Duration::from_millis(50));
    let relay = Running::start(&bench, "a");
    let published = |bucket: u32| {
        let published = bench.publisher_messages();
        published.iter().filter(|m| m.partition == i32::try_from(bucket).ok()).count()
    };
    until("the quiet buckets were served", 5, || (8..16).all(|bucket| published(bucket) == 1)).await;
    assert!((0..8).all(|bucket| published(bucket) < 20_000), "the full ones are not done");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_bucket_backs_off_alone() {
    let bench = Arc::new(Bench::new());
    let keys = Bench::keys();
    let bad = Bench::bucket_of(&keys[0]);
    bench.judge(move |message| match message.bucket(BucketCount::DEFAULT) == Some(bad) {
        true => failed(PublishErrorKind::Unavailable),
        false => outbox::Outcome::Acknowledged,
    });
    let relay = Running::start(&bench, "a");
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    for _ in 0..60 {
        for key in &keys {
            bench.enqueue(key);
        }
        relay.notifier.announce(keys.iter().map(|key| Bench::bucket_of(key)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until("the others are served", 5, || bench.store.memory.len() == 60).await;
    let tries = bench.publish_calls(bad);
    assert!((3..=14).contains(&tries), "{tries} tries in a minute");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn relays_far_back_stay_silent() {
    let mut options = outbox::RelayOptions::default();
    options.bucket_count = BucketCount::new(1).unwrap();
    let bench = Arc::new(Bench::with(options));
    let relays: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|id| Running::start(&bench, id)).collect();
    tokio::time::sleep(Duration::from_secs(35)).await;
    let before = bench.store.memory.coordination_writes();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let writes = bench.store.memory.coordination_writes() - before;
    // In five minutes: thirty rounds of the owner, heartbeat and lease, and of the first standby; fifteen of the others,
    // which are silent every other time.
    assert!((115..=125).contains(&writes), "{writes} writes");
    let active = bench.store.memory.coordination().active(bench.now(), Duration::from_secs(30));
    assert_eq!(active.len(), 4, "the silent ones stay counted");
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_publish_deletes_what_was_acknowledged_and_then_hands_over() {
    let bench = Arc::new(Bench::new());
    bench.publish_takes(Duration::from_secs(8));
    let relay = Running::start(&bench, "a");
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    bench.enqueue("21");
    relay.notifier.announce([Bench::bucket_of("21")]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = bench.store.memory.clone();
    bench.store.before_release(move || assert!(memory.is_empty(), "released before the delete"));
    let report = relay.stop().await;
    assert_eq!((report.deleted(), owned(&bench, "a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_time_left_a_stop_releases_nothing() {
    let bench = Arc::new(Bench::new());
    bench.publish_takes(Duration::from_secs(8));
    let relay = Running::with(&bench, "a", |signals| signals.grace = Duration::from_secs(3));
    until("all buckets held", 5, || owned(&bench, "a") == 8).await;
    bench.enqueue("21");
    relay.notifier.announce([Bench::bucket_of("21")]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    relay.stop().await;
    assert_eq!(owned(&bench, "a"), 8, "a peer was invited onto rows that were being published");
}
