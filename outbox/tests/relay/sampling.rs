//! What a run tells for metrics: the backlog by one sampler, and what it has done itself.

use std::time::Duration;

use outbox::publisher::PublishErrorKind;
use outbox::relay::{BacklogSample, FailureKind, MIN_INVOCATION};
use outbox::{Outcome, PoisonPolicy, RelayOptions, RunReport};
use tokio::time::Instant;

use crate::support::{Bench, Sampler, failed};

/// What a sampling sweep may take longer than another.
const DELAY: Duration = Duration::from_millis(1_100);

impl Bench {
    async fn sampling_sweep(&self, limit: Duration) -> RunReport {
        let budget = outbox::Budget::new(self.clock.clone(), limit);
        self.relay.sampling_sweep(&self.relay_id(), &budget).await
    }
}

const MINUTE: Duration = Duration::from_mins(1);

fn is_unknown(report: &RunReport, why: &str) -> bool {
    matches!(&report.backlog, BacklogSample::Unknown { reason } if reason.contains(why))
}

#[tokio::test(start_paused = true)]
async fn nothing_pending_is_a_known_backlog_that_nobody_was_asked_for() {
    let bench = Bench::new();
    // An answer would be an error.
    bench.store.samples(Sampler::Fails);
    let report = bench.sampling_sweep(MINUTE).await;
    let nothing = BacklogSample::Known { pending: 0, is_exact: true, oldest_age: Some(Duration::ZERO) };
    assert_eq!((report.backlog, bench.store.sampled()), (nothing, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_buckets_with_work_are_sampled_once_before_anything_is_done_about_them() {
    let bench = Bench::new();
    for key in &Bench::keys()[..2] {
        for age in [7, 3] {
            bench.enqueue(key);
            bench.store.memory.date_last(bench.now().minus(Duration::from_secs(age)));
        }
    }
    let report = bench.sampling_sweep(MINUTE).await;
    let known = BacklogSample::Known { pending: 4, is_exact: true, oldest_age: Some(Duration::from_secs(7)) };
    assert_eq!((&report.backlog, report.deleted()), (&known, 4));
    let with_work = Bench::keys()[..2].iter().map(|key| Bench::bucket_of(key)).collect();
    assert_eq!(bench.store.sampled(), [with_work]);
}

#[tokio::test(start_paused = true)]
async fn other_runs_sample_nothing() {
    let bench = Bench::new();
    let bucket = Bench::bucket_of("21");
    bench.enqueue("21");
    assert_eq!(bench.hinted(&[bucket], 60).await.backlog, BacklogSample::NotSampled);
    bench.enqueue("21");
    let report = bench.sweep(60).await;
    assert_eq!((report.deleted(), report.backlog), (1, BacklogSample::NotSampled));
    assert!(bench.store.sampled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sampler_that_fails_or_hangs_leaves_the_backlog_unknown_and_the_sweep_as_it_was() {
    for (sampler, why) in [(Sampler::Fails, "told to fail"), (Sampler::Hangs, "did not end within")] {
        let bench = Bench::new();
        bench.enqueue("21");
        bench.store.samples(sampler);
        let began = Instant::now();
        let report = bench.sampling_sweep(MINUTE).await;
        assert!(is_unknown(&report, why), "{report:?}");
        assert_eq!((report.deleted(), report.errors.len()), (1, 0));
        let other = Bench::new();
        other.enqueue("21");
        let took = began.elapsed();
        let began = Instant::now();
        other.sweep(60).await;
        assert!(took <= began.elapsed() + DELAY, "{took:?}, and {:?} without", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sample_never_takes_the_time_that_a_batch_needs() {
    let bench = Bench::new();
    for left in [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(300), DELAY * 2] {
        bench.enqueue("21");
        bench.store.samples(Sampler::Hangs);
        let report = bench.sampling_sweep(MIN_INVOCATION + left).await;
        assert_eq!(report.deleted(), 1, "with {left:?} to spare: {report:?}");
        assert!(is_unknown(&report, ""), "{report:?}");
    }
    let report = bench.sampling_sweep(MIN_INVOCATION - Duration::from_millis(1)).await;
    assert!(is_unknown(&report, "no bucket could be looked at"), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_tell_leaves_the_backlog_unknown() {
    let bench = Bench::new();
    bench.store.samples(Sampler::Missing);
    bench.enqueue("21");
    assert!(is_unknown(&bench.sampling_sweep(MINUTE).await, "cannot tell"));
}

#[tokio::test(start_paused = true)]
async fn parked_keys_are_counted_where_messages_are_set_aside() {
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    let bench = Bench::with(options);
    bench.judge(|_| failed(PublishErrorKind::Rejected));
    assert_eq!(bench.sampling_sweep(MINUTE).await.parked_keys, Some(0));
    for key in &Bench::keys()[..3] {
        bench.enqueue(key);
        bench.enqueue(key);
    }
    let report = bench.sampling_sweep(MINUTE).await;
    assert_eq!((report.parked_keys, report.quarantined()), (Some(0), 6), "as it was before");
    assert_eq!(bench.sampling_sweep(MINUTE).await.parked_keys, Some(3), "also where nothing is pending");
    assert_eq!(bench.sweep(60).await.parked_keys, None);
    let blocking = Bench::over(bench.store.memory.clone(), RelayOptions::default());
    assert_eq!(blocking.sampling_sweep(MINUTE).await.parked_keys, None);
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_by_kind_and_those_behind_another_by_themselves() {
    let bench = Bench::new();
    let refused = bench.enqueue("21");
    bench.enqueue("21");
    bench.enqueue("3");
    bench.judge(move |message| match message.key.as_deref() {
        Some(b"21") if message.id == refused => failed(PublishErrorKind::Rejected),
        Some(b"21") => failed(PublishErrorKind::Unavailable),
        _ => Outcome::Acknowledged,
    });
    let report = bench.sweep(60).await;
    let failures = report.failures();
    assert_eq!(failures.of(FailureKind::Rejected), 1);
    assert_eq!(failures.of(FailureKind::Behind), 1);
    assert_eq!((failures.total(), report.waiting_buckets()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn each_publish_is_told_with_how_long_it_took() {
    let mut options = RelayOptions::default();
    options.batch_size = 100;
    let bench = Bench::with(options);
    for _ in 0..250 {
        bench.enqueue("21");
    }
    bench.enqueue("3");
    bench.publish_takes(Duration::from_millis(40));
    let report = bench.sweep(60).await;
    let took: Vec<_> = report.publishes.values().collect();
    assert_eq!(took, [Duration::from_millis(40); 4]);
}
