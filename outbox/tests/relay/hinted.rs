//! Hinted runs.

use std::time::Duration;

use outbox::publisher::{Outcome, PublishErrorKind};
use outbox::store::{Malformed, MalformedKey};
use outbox::{About, BucketEnd, RelayOptions};

use crate::support::{Bench, failed};

#[tokio::test(start_paused = true)]
async fn hinted_buckets_are_drained_in_order_and_released() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    let sent: Vec<_> = (0..1_200).map(|_| bench.enqueue("21")).collect();
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published(), sent);
    assert_eq!((report.acknowledged(), report.deleted()), (1_200, 1_200));
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Empty);
    assert!(bench.store.memory.is_empty());
    assert_eq!(bench.owner(bucket), None);
    assert!(bench.store.memory.coordination().heartbeats.is_empty(), "a hinted run has no heartbeat");
}

#[tokio::test(start_paused = true)]
async fn only_the_hinted_buckets_are_claimed() {
    let bench = Bench::new();
    let keys = Bench::keys();
    for key in &keys {
        bench.enqueue(key);
    }
    bench.hinted(&[Bench::bucket_of(&keys[2])], 60).await;
    assert_eq!(bench.published().len(), 1);
    assert_eq!(bench.store.memory.coordination().leases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_another_holds_is_left_to_it() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    let other = bench.take_over(bucket);
    let report = bench.hinted(&[bucket], 60).await;
    assert!(report.held_elsewhere.contains(&bucket));
    assert!(bench.published().is_empty());
    assert_eq!(bench.owner(bucket), Some(other));
}

/// design.md, section 7: the message was committed, and its hint refused, between the last fetch and the release.
#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_before_the_release_is_not_lost() {
    let bench = std::sync::Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    let late = std::sync::Arc::clone(&bench);
    bench.store.before_release(move || {
        late.enqueue("21");
    });
    bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published().len(), 2);
    assert!(bench.store.memory.is_empty());
    assert_eq!(bench.owner(bucket), None);
}

#[tokio::test(start_paused = true)]
async fn what_the_broker_does_not_take_stays_and_the_bucket_is_freed() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.judge(|_| failed(PublishErrorKind::Unavailable));
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::RetryLater);
    assert!(report.misconfiguration().is_none());
    assert_eq!(bench.store.memory.len(), 1);
    assert_eq!(bench.owner(bucket), None);
    assert_eq!(bench.published().len(), 1, "a run does not try the same thing again and again");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_holds_back_its_key_and_no_other() {
    let bench = Bench::with({
        let mut options = RelayOptions::default();
        options.batch_size = 4;
        options
    });
    let bucket = Bench::bucket_of("21");
    let other = (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap();
    let bad = bench.enqueue("21");
    let mut held_back = Vec::new();
    let mut free = Vec::new();
    for _ in 0..20 {
        held_back.push(bench.enqueue("21"));
        free.push(bench.enqueue(&other));
    }
    bench.judge(
        move |message| {
            if message.id == bad { failed(PublishErrorKind::Rejected) } else { Outcome::Acknowledged }
        },
    );
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Waiting);
    assert_eq!(bench.store.memory.len(), 21, "the bad message and those of its key behind it stay");
    let published = bench.published();
    assert!(free.iter().all(|id| published.contains(id)));
    // What went out with the bad message in its batch went once; what was behind it in later batches not at all.
    assert!(held_back[3..].iter().all(|id| !published.contains(id)));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_message_holds_back_its_key_and_no_other() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    let other = (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap();
    let key = MalformedKey::Readable(Some("21".into()));
    bench
        .store
        .memory
        .insert(bucket, Err(Malformed { reason: "no topic".to_owned(), key, about: About::default() }));
    bench.enqueue("21");
    let free = bench.enqueue(&other);
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published(), [free]);
    assert_eq!(report.buckets[&bucket].malformed, 1);
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Waiting);
    assert_eq!(bench.store.memory.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_is_never_sent_again_when_deletes_fail() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.store.fail_deletes(4);
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published().len(), 1);
    assert_eq!(report.deleted(), 1);
    assert!(bench.store.memory.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deletes_that_never_succeed_end_with_the_time_and_free_the_bucket() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.store.fail_deletes(u32::MAX);
    let started = tokio::time::Instant::now();
    let report = bench.hinted(&[bucket], 20).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(report.buckets[&bucket].end, BucketEnd::RetryLater);
    assert_eq!(bench.published().len(), 1);
    assert_eq!(bench.owner(bucket), None);
}

#[tokio::test(start_paused = true)]
async fn no_batch_is_started_that_could_not_be_finished() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.hinted(&[bucket], 3).await;
    assert!(bench.published().is_empty());
    assert_eq!(bench.store.memory.coordination_writes(), 0);
    assert_eq!(bench.store.memory.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_before_its_deadline_and_frees_its_buckets() {
    let bench = Bench::with({
        let mut options = RelayOptions::default();
        options.batch_size = 1;
        options
    });
    let bucket = Bench::bucket_of("21");
    for _ in 0..100 {
        bench.enqueue("21");
    }
    bench.publish_takes(Duration::from_millis(700));
    let started = tokio::time::Instant::now();
    let report = bench.hinted(&[bucket], 10).await;
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(report.buckets[&bucket].end, BucketEnd::OutOfTime);
    assert_eq!(bench.owner(bucket), None);
    assert_eq!(bench.store.memory.len() + bench.published().len(), 100, "nothing is sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_misconfigured_bucket_does_not_stop_the_others() {
    let bench = Bench::new();
    let keys = Bench::keys();
    let wrong = Bench::bucket_of(&keys[0]);
    for key in &keys {
        bench.enqueue(key);
    }
    bench.store.misconfigure(wrong);
    let all: Vec<_> = keys.iter().map(|key| Bench::bucket_of(key)).collect();
    let report = bench.hinted(&all, 60).await;
    assert_eq!(report.buckets[&wrong].end, BucketEnd::Misconfigured);
    assert!(report.misconfiguration().is_some());
    assert_eq!(bench.published().len(), keys.len(), "what is ahead of the wrong stamp goes too");
}

/// Each bucket is freed as its own turn ends: a hint for it must not be refused for as long as another is at work.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_done_is_free_while_another_is_at_work() {
    let bench = std::sync::Arc::new(Bench::new());
    let keys = Bench::keys();
    let (full, quick) = (Bench::bucket_of(&keys[0]), Bench::bucket_of(&keys[1]));
    for _ in 0..20_000 {
        bench.enqueue(&keys[0]);
    }
    bench.enqueue(&keys[1]);
    bench.publish_takes(Duration::from_millis(500));
    let run = std::sync::Arc::clone(&bench);
    let run = tokio::spawn(async move { run.hinted(&[full, quick], 120).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(bench.owner(full).is_some());
    assert_eq!(bench.owner(quick), None);
    bench.enqueue(&keys[1]);
    let second = bench.hinted(&[quick], 60).await;
    assert_eq!(second.acknowledged(), 1);
    assert_eq!(run.await.unwrap().acknowledged(), 20_001);
}

/// The lost wake-up, beside a message that waits.
#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_behind_a_waiting_one_is_not_lost() {
    let bench = std::sync::Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    let other = (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap();
    let bad = bench.enqueue("21");
    bench.enqueue(&other);
    bench.judge(
        move |message| {
            if message.id == bad { failed(PublishErrorKind::Rejected) } else { Outcome::Acknowledged }
        },
    );
    let late = std::sync::Arc::clone(&bench);
    bench.store.before_release(move || {
        late.enqueue(&other);
    });
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(report.acknowledged(), 2);
    assert_eq!(bench.store.memory.len(), 1);
}

/// A delete that hangs is given up well before the lease is over, and tried again under a renewed one.
#[tokio::test(start_paused = true)]
async fn deletes_that_hang_do_not_outlive_the_lease() {
    let bench = std::sync::Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    bench.store.hang_deletes(12);
    let run = std::sync::Arc::clone(&bench);
    let run = tokio::spawn(async move { run.hinted(&[bucket], 600).await });
    for _ in 0..11 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!bench.store.memory.coordination().is_free(bucket, bench.now()), "free during a delete");
    }
    assert_eq!(run.await.unwrap().deleted(), 1);
    assert_eq!(bench.published().len(), 1);
}

/// Found by the model: a run that finds nothing in its bucket still owes it the look after the release, for the hint of
/// what arrives meanwhile has been refused.
#[tokio::test(start_paused = true)]
async fn a_run_that_found_nothing_takes_the_bucket_again_for_what_arrived_meanwhile() {
    let bench = std::sync::Arc::new(Bench::new());
    let bucket = Bench::bucket_of("21");
    let late = std::sync::Arc::clone(&bench);
    bench.store.before_release(move || {
        late.enqueue("21");
    });
    bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published().len(), 1);
    assert_eq!(bench.owner(bucket), None);
}

/// Otherwise the lease holds up everybody else until it lapses.
#[tokio::test(start_paused = true)]
async fn a_release_that_was_not_answered_is_made_good_at_the_end() {
    let bench = Bench::new();
    bench.enqueue("21");
    bench.store.fail_releases(1);
    bench.hinted(&[Bench::bucket_of("21")], 60).await;
    assert!(bench.store.memory.is_empty());
    assert_eq!(bench.owner(Bench::bucket_of("21")), None);
}
