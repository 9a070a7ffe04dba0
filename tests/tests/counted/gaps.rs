//! A query is only read-committed against a transaction: what a fetch makes of numbers that are missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use outbox::publisher::{PublishError, PublishErrorKind};
use outbox::store::FetchRequest;
use outbox::{BucketEnd, Continuous, OutboxStore as _, Outcome};
use tokio_util::sync::CancellationToken;

use crate::kind::Kind;
use crate::support::{BUCKET, Bench, Fake, LIMIT, until};

/// Its transaction was cancelled after it had reserved the number. The rest of the bucket does not wait for it.
#[tokio::test]
async fn a_number_that_is_never_used_does_not_stall_its_bucket() {
    let bench = Bench::new().await;
    let first = bench.enqueue("21").await;
    bench.enqueue("21").await;
    let third = bench.enqueue("21").await;
    drop(bench.uncommit(2).await);
    let publisher = Fake::instant();
    let report = bench.hinted(&publisher).await;
    assert_eq!((report.deleted(), report.buckets[&BUCKET].end), (2, BucketEnd::Empty));
    assert_eq!(publisher.published(), [first, third]);
    let counts = bench.wire.counts();
    assert_eq!((counts.of(Kind::GapProbe).requests, counts.of(Kind::Fetch).requests), (1, 1), "{counts}");
}

#[tokio::test]
async fn no_fetch_probes_more_than_eight_gaps() {
    let bench = Bench::new().await;
    for _ in 0..40 {
        bench.enqueue("21").await;
    }
    for unused in 1..=20 {
        drop(bench.uncommit(unused * 2).await);
    }
    let request = FetchRequest {
        bucket: BUCKET,
        max_messages: 500,
        max_bytes: 4 << 20,
        removed_up_to: None,
        limit: LIMIT,
    };
    let fetched = bench.store.fetch(&request).await.unwrap();
    let counts = bench.wire.counts();
    eprintln!("a fetch of 20 messages with 19 gaps between them:\n{counts}");
    assert_eq!(fetched.messages.len(), 20);
    assert_eq!((counts.of(Kind::GapProbe).requests, counts.of(Kind::Fetch).requests), (8, 1), "{counts}");
}

/// The first publish fails, and the message before it is committed meanwhile: in the window of the second fetch, which
/// must not take the gap for one that was looked into already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_fetched_again_after_a_failure_is_probed_again() {
    let bench = Arc::new(Bench::new().await);
    let first = bench.enqueue("21").await;
    let second = bench.enqueue("21").await;
    let commit = bench.uncommit(1).await;
    bench.wire.before(Kind::GapProbe, || std::future::ready(()).boxed());
    bench.wire.before(Kind::GapProbe, commit);
    let failed = Arc::new(AtomicBool::new(false));
    let publisher = Fake::during(move || {
        let failure = PublishError::new(PublishErrorKind::Unavailable, "the broker is away");
        let outcome = match failed.swap(true, Ordering::SeqCst) {
            true => Outcome::Acknowledged,
            false => Outcome::Failed(failure),
        };
        std::future::ready(outcome).boxed()
    });
    // One relay that holds the bucket all the while.
    let stop = CancellationToken::new();
    let (run, signals, with) = (Arc::clone(&bench), Continuous::until(stop.clone()), publisher.clone());
    let run = tokio::spawn(async move { run.relay(&with).run_continuously(&run.relay_id(), signals).await });
    until("all published", || publisher.published().len() >= 3).await;
    stop.cancel();
    let report = run.await.unwrap();
    assert_eq!(
        publisher.published(),
        [second, first, second],
        "the second alone failed; then both, in order"
    );
    let counts = bench.wire.counts();
    assert_eq!((report.deleted(), counts.of(Kind::GapProbe).requests), (2, 2), "{counts}");
    assert_eq!(bench.waiting().await, 0);
}

/// What the last owner removed tells the next one nothing: a number below it may still be committed, and is looked for
/// from the first one on.
#[tokio::test]
async fn the_first_fetch_after_a_handover_has_no_baseline() {
    let bench = Bench::new().await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(bench.enqueue("21").await);
    }
    let commit = bench.uncommit(2).await;
    let last_owner = Fake::instant();
    bench.hinted(&last_owner).await;
    assert_eq!(last_owner.published(), [sent[0], sent[2]]);

    sent.push(bench.enqueue("21").await);
    bench.wire.before(Kind::GapProbe, commit);
    let before = bench.wire.counts();
    let next_owner = Fake::instant();
    let report = bench.hinted(&next_owner).await;
    let counts = bench.wire.counts().since(&before);
    assert_eq!(next_owner.published(), [sent[1], sent[3]], "number 2 went before number 4");
    assert_eq!((counts.of(Kind::GapProbe).requests, counts.of(Kind::Fetch).requests), (1, 2), "{counts}");
    assert_eq!((report.deleted(), bench.waiting().await), (2, 0));
}

/// Within one run, what it has removed itself is a baseline: an old gap is not probed again with every batch.
#[tokio::test]
async fn a_run_probes_no_gap_below_what_it_has_removed() {
    let bench = Bench::new().await;
    for _ in 0..100 {
        bench.enqueue("21").await;
    }
    drop(bench.uncommit(1).await);
    let publisher = Fake::instant();
    let mut options = outbox::RelayOptions::default();
    options.batch_size = 20;
    let relay = bench.relay_with(&publisher, options);
    let report = relay.hinted(&bench.relay_id(), &[BUCKET].into(), &bench.budget()).await;
    let counts = bench.wire.counts();
    assert_eq!(report.deleted(), 99);
    assert!(counts.of(Kind::Fetch).requests >= 5, "{counts}");
    assert_eq!(counts.of(Kind::GapProbe).requests, 1, "one gap, probed once in the run:\n{counts}");
}
