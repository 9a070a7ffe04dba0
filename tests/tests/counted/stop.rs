//! What a stop leaves, and what lands after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use outbox::{BucketEnd, OutboxStore as _, Outcome};
use tokio::sync::Notify;

use crate::kind::Kind;
use crate::support::{BUCKET, Bench, DURATION, Fake, LIMIT, at, numbers, relay};
use crate::wire::Fault::{Throttled, Underway};

/// A claim that the relay gave up on reaches the table after the leases were freed: the read after the release finds it.
#[tokio::test]
async fn a_claim_abandoned_at_the_stop_that_lands_after_the_release_is_handed_back() {
    let bench = Bench::new().await;
    // The bucket's claim, and what the SDK makes of it when it hears nothing.
    bench.wire.fail(Kind::Claim, 3, Underway);
    let id = relay("a");
    let acquired = bench.try_acquire(&id, at(0), &[BUCKET].into(), &BTreeSet::new()).await.unwrap();
    assert!(acquired.leases.is_empty() && acquired.error.is_some(), "{acquired:?}");
    assert_eq!(bench.owner(BUCKET).await, None);

    let wire = bench.wire.clone();
    bench.wire.before(Kind::Coordination, move || {
        async move {
            assert_eq!(wire.land().await, 1, "one of the copies took the bucket");
        }
        .boxed()
    });
    let before = bench.wire.sent();
    bench.store.ownership().unwrap().stop(&id, &[], at(1).now, LIMIT).await.unwrap();
    let sent = bench.wire.sent_since(before);
    assert_eq!(sent, [Kind::StoppedStamp, Kind::Coordination, Kind::Release, Kind::Coordination]);
    assert_eq!(bench.owner(BUCKET).await, None, "a relay that is gone holds the bucket");
    assert_eq!(bench.acquire("b", at(2)).await.leases.len(), 8);
}

/// The same after a hinted run, which has no heartbeat to stamp.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hinted_run_hands_back_what_an_abandoned_claim_takes() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    bench.wire.fail(Kind::Claim, 3, Underway);
    // The first read is the claim's own; the second looks for what the claim may have taken.
    let wire = bench.wire.clone();
    bench.wire.before(Kind::Coordination, || std::future::ready(()).boxed());
    bench.wire.before(Kind::Coordination, move || {
        async move {
            assert_eq!(wire.land().await, 1);
        }
        .boxed()
    });
    let publisher = Fake::instant();
    let report = bench.hinted(&publisher).await;
    assert_eq!(report.errors.len(), 1, "{report:?}");
    let counts = bench.wire.counts();
    let requests = [Kind::Coordination, Kind::Release].map(|kind| counts.of(kind).requests);
    assert_eq!(requests, [3, 1], "read, read again, one lease freed, none left:\n{counts}");
    assert!(publisher.published().is_empty());
    assert_eq!(bench.owner(BUCKET).await, None, "nobody could have the bucket until it lapses");
}

/// A release that fails is made good by the reading back, which is done all the same.
#[tokio::test]
async fn a_stop_whose_releases_were_throttled_for_a_while_frees_everything() {
    let bench = Bench::new().await;
    let acquired = bench.acquire("a", at(0)).await;
    assert_eq!(acquired.leases.len(), 8);
    // Each release and what the SDK makes of its refusal: the first round fails as a whole.
    bench.wire.fail(Kind::Release, 24, Throttled);
    bench.store.ownership().unwrap().stop(&relay("a"), &acquired.leases, at(1).now, LIMIT * 3).await.unwrap();
    let counts = bench.wire.counts();
    assert_eq!(counts.of(Kind::Release).requests, 24 + 8, "{counts}");
    assert_eq!(bench.acquire("b", at(2)).await.leases.len(), 8, "a lease was left to lapse");
}

/// Freed first, the buckets would be kept for a relay that peers still count.
#[tokio::test]
async fn a_stop_that_is_cut_short_after_its_stamp_costs_a_lapse_and_no_ghost() {
    let bench = Bench::new().await;
    let acquired = bench.acquire("a", at(0)).await;
    assert_eq!(acquired.leases.len(), 8);
    let before = bench.wire.sent();
    bench.wire.fail(Kind::Release, u32::MAX, Throttled);
    let ownership = bench.store.ownership().unwrap();
    ownership.stop(&relay("a"), &acquired.leases, at(1).now, LIMIT).await.unwrap_err();
    bench.wire.heal();
    assert_eq!(bench.wire.sent_since(before)[0], Kind::StoppedStamp, "the stamp goes first");

    // Peers do not count it: its leases lapse, and not one of them is left to it.
    assert!(numbers(&bench.acquire("b", at(2)).await).is_empty());
    let lapsed = bench.acquire("b", at(30)).await;
    assert_eq!((lapsed.leases.len(), lapsed.refused_writes), (8, 0));
}

/// A plain function gets no signal before it is frozen or killed: whatever a run has to tidy, it has tidied when it
/// returns.
#[tokio::test]
async fn nothing_is_left_to_a_shutdown_when_a_run_has_returned() {
    let bench = Bench::new().await;
    let publisher = Fake::instant();
    bench.enqueue("21").await;
    bench.hinted(&publisher).await;
    bench.enqueue("21").await;
    bench.relay(&publisher).sweep(&bench.relay_id(), &bench.budget()).await;
    let sent = bench.wire.sent();
    let left = bench.partition("OUTBOX#COORDINATION").await;
    for item in &left {
        let sort = item["SK"].as_s().unwrap();
        assert!(!item.contains_key("Owner"), "{sort} names an owner");
        assert!(sort.starts_with("LEASE#") || item.contains_key("StoppedAtUtc"), "{sort} says it is alive");
    }
    assert_eq!(left.len(), 2, "one lease and the sweep's record");
    assert_eq!((publisher.published().len(), bench.waiting().await), (2, 0));
    // Killed now, it says nothing more; and nothing was under way that could.
    tokio::task::yield_now().await;
    assert_eq!((bench.wire.sent(), bench.wire.land().await), (sent, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_leaves_a_lease_that_lapses_and_nothing_else() {
    let bench = Arc::new(Bench::new().await);
    let sent = bench.enqueue("21").await;
    let entered = Arc::new(Notify::new());
    let publishing = Arc::clone(&entered);
    let hangs = Fake::during(move || {
        publishing.notify_one();
        std::future::pending::<Outcome>().boxed()
    });
    let killed = Arc::clone(&bench);
    let killed = tokio::spawn(async move { killed.hinted(&hangs).await });
    entered.notified().await;
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());

    let left = bench.partition("OUTBOX#COORDINATION").await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(bench.owner(BUCKET).await.is_some());
    assert_eq!(bench.waiting().await, 1, "what nobody acknowledged stays");

    // Until the lease lapses its bucket is left alone; then the next run needs no help.
    let publisher = Fake::instant();
    bench.clock.step_wall(i64::try_from(DURATION.as_millis()).unwrap() - 5_000);
    assert_eq!(bench.hinted(&publisher).await.held_elsewhere, [BUCKET].into());
    bench.clock.step_wall(5_000);
    let report = bench.hinted(&publisher).await;
    assert_eq!((report.deleted(), report.buckets[&BUCKET].end), (1, BucketEnd::Empty));
    assert_eq!(publisher.published(), [sent]);
    assert_eq!(bench.owner(BUCKET).await, None);
}
