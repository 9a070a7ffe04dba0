//! What runs cost: an outbox that has nothing to do writes nothing, and one message costs what it must.

use std::time::Duration;

use outbox::BucketEnd;
use outbox::relay::BacklogSample;

use crate::kind::Kind;
use crate::support::{BUCKET, Bench, Fake, LIMIT, at, relay};
use outbox::OutboxStore as _;

/// The one that samples the backlog, which costs nothing more: each bucket has been looked at.
async fn idle_sweep(buckets: u32) {
    let bench = Bench::with_buckets(buckets).await;
    let publisher = Fake::instant();
    let metered = bench.usage();
    let report = bench.relay(&publisher).sampling_sweep(&bench.relay_id(), &bench.budget()).await;
    let nothing = BacklogSample::Known { pending: 0, is_exact: true, oldest_age: Some(Duration::ZERO) };
    assert_eq!(report.backlog, nothing);
    assert!(report.errors.is_empty() && report.buckets.is_empty(), "{report:?}");
    let (counts, used) = (bench.wire.counts(), bench.usage().since(&metered));
    eprintln!("an idle sweep of {buckets} buckets:\n{counts}");
    assert_eq!(
        (counts.writes(), used.write_units()),
        (0, 0.0),
        "an idle sweep of {buckets} buckets wrote:\n{counts}"
    );
    let a_bucket = used.read_units() / f64::from(buckets);
    assert!(a_bucket <= 0.5, "{a_bucket} read units a bucket for an idle sweep of {buckets}:\n{counts}");
    assert_eq!(counts.requests(), u64::from(buckets), "one probe a bucket:\n{counts}");
    assert_eq!(counts.read_units(), used.read_units(), "both counts agree");
}

#[tokio::test]
async fn an_idle_sweep_writes_nothing_and_reads_half_a_unit_a_bucket() {
    idle_sweep(8).await;
    idle_sweep(256).await;
}

/// Also beside what earlier runs left: free leases and records of relays that stopped.
#[tokio::test]
async fn an_idle_sweep_after_work_writes_nothing_either() {
    let bench = Bench::new().await;
    let publisher = Fake::instant();
    bench.enqueue("21").await;
    let relay = bench.relay(&publisher);
    relay.sweep(&bench.relay_id(), &bench.budget()).await;
    assert_eq!(publisher.published().len(), 1);
    bench.clock.step_wall(3_600_000);
    let before = bench.wire.counts();
    relay.sampling_sweep(&bench.relay_id(), &bench.budget()).await;
    let counts = bench.wire.counts().since(&before);
    assert_eq!((counts.writes(), counts.requests()), (0, 8), "{counts}");
    assert!(counts.read_units() <= 4.0, "{counts}");
}

#[tokio::test]
async fn a_hinted_run_for_one_message_costs_three_writes_and_four_reads() {
    let bench = Bench::new().await;
    let publisher = Fake::instant();
    // The first is number 1, with no gap before it; the second is number 2, and what is before it is looked into.
    for (run, gap_probes) in [(1, 0), (2, 1)] {
        bench.enqueue("21").await;
        let (before, metered) = (bench.wire.counts(), bench.usage());
        let report = bench.hinted(&publisher).await;
        let (counts, used) = (bench.wire.counts().since(&before), bench.usage().since(&metered));
        eprintln!("hinted run {run} for one message:\n{counts}");
        assert_eq!((report.acknowledged(), report.deleted()), (1, 1));
        assert_eq!(report.buckets[&BUCKET].end, BucketEnd::Empty);
        assert_eq!(used.write_units(), 3.0, "write units of run {run} (claim, delete, release):\n{counts}");
        for kind in [Kind::Claim, Kind::Delete, Kind::Release] {
            assert_eq!(counts.of(kind).units, 1.0, "write units of {kind:?} in run {run}:\n{counts}");
        }
        assert!(used.read_units() <= 4.0, "{} read units in run {run}:\n{counts}", used.read_units());
        for (kind, requests) in [
            (Kind::Coordination, 1),
            (Kind::Fetch, 1),
            (Kind::GapProbe, gap_probes),
            (Kind::LookAfterRelease, 1),
        ] {
            assert_eq!(counts.of(kind).requests, requests, "requests of {kind:?} in run {run}:\n{counts}");
        }
        assert_eq!(counts.refused(), 0, "{counts}");
        assert_eq!((counts.write_units(), counts.read_units()), (used.write_units(), used.read_units()));
    }
}

/// A Lambda invocation whose bucket another has ends at once: one read, whose price is one unit.
#[tokio::test]
async fn a_hinted_run_that_finds_no_free_bucket_costs_one_read() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let claims = bench.store.named_claims().unwrap();
    assert_eq!(claims.claim(&relay("other"), &[BUCKET].into(), at(0), LIMIT).await.unwrap().leases.len(), 1);
    let publisher = Fake::instant();
    let before = bench.wire.counts();
    let started = std::time::Instant::now();
    let report = bench.hinted(&publisher).await;
    let took = started.elapsed();
    let counts = bench.wire.counts().since(&before);
    eprintln!("a hinted run that finds no free bucket:\n{counts}");
    assert_eq!(report.held_elsewhere, [BUCKET].into());
    assert_eq!((counts.requests(), counts.of(Kind::Coordination).requests), (1, 1), "{counts}");
    assert_eq!((counts.read_units(), counts.write_units()), (1.0, 0.0), "{counts}");
    assert!(took < Duration::from_secs(1), "it waited: {took:?}");
    assert!(publisher.published().is_empty());
}
