//! Leases while a publish is under way.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use outbox::{BucketEnd, Clock as _, LeaseTimes, OutboxStore as _, Outcome, RelayOptions};

use crate::kind::Kind;
use crate::support::{BUCKET, Bench, DURATION, Fake, LIMIT, relay, until};
use crate::wire::Fault::Throttled;

/// The lease lasts long enough; only its renewals are refused for want of capacity. What was acknowledged inside it is
/// deleted, and not published again by the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_renewal_is_not_a_lost_lease() {
    let bench = Bench::new().await;
    let sent = bench.enqueue("21").await;
    bench.wire.fail(Kind::Renew, u32::MAX, Throttled);
    let wire = bench.wire.clone();
    let publisher = Fake::during(move || {
        let wire = wire.clone();
        async move {
            until("renewals were throttled", || wire.counts().of(Kind::Renew).requests >= 3).await;
            Outcome::Acknowledged
        }
        .boxed()
    });
    let mut options = RelayOptions::default();
    options.lease_renew_interval = Duration::from_secs(1);
    let run = bench.relay_with(&publisher, options);
    let report = run.hinted(&bench.relay_id(), &[BUCKET].into(), &bench.budget()).await;
    let counts = bench.wire.counts();
    eprintln!("a hinted run whose renewals are throttled:\n{counts}");
    assert_eq!(counts.of(Kind::Renew).units, 0.0, "a renewal got through:\n{counts}");
    let bucket = &report.buckets[&BUCKET];
    assert_eq!((bucket.acknowledged, bucket.deleted), (1, 1), "{report:?}\n{counts}");
    assert_ne!(bucket.end, BucketEnd::LeaseLost);
    assert_eq!((bench.waiting().await, bench.owner(BUCKET).await), (0, None));
    bench.wire.heal();
    bench.hinted(&publisher).await;
    assert_eq!(publisher.published(), [sent], "published once");
}

/// Frozen inside a publish for longer than its lease, while another relay takes the bucket: it deletes nothing, and
/// leaves the other's lease alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_frozen_inside_a_publish_past_its_lease_deletes_nothing() {
    let bench = Arc::new(Bench::new().await);
    let sent = bench.enqueue("21").await;
    let (clock, store) = (Arc::clone(&bench.clock), bench.store.clone());
    let frozen = Fake::during(move || {
        let (clock, store) = (Arc::clone(&clock), store.clone());
        async move {
            clock.step_wall(45_000);
            let times = LeaseTimes { now: clock.now_utc(), duration: DURATION };
            let claims = store.named_claims().unwrap();
            let taken = claims.claim(&relay("other"), &[BUCKET].into(), times, LIMIT).await.unwrap();
            assert_eq!(taken.leases.len(), 1);
            Outcome::Acknowledged
        }
        .boxed()
    });
    let before = bench.wire.counts();
    let report = bench.hinted(&frozen).await;
    let counts = bench.wire.counts().since(&before);
    eprintln!("a hinted run frozen past its lease inside a publish:\n{counts}");
    assert_eq!(report.buckets[&BUCKET].end, BucketEnd::LeaseLost);
    let writes = [Kind::Delete, Kind::Release].map(|kind| counts.of(kind).requests);
    assert_eq!(writes, [0, 0], "deletes and releases after the lease was lost:\n{counts}");
    assert_eq!((bench.waiting().await, bench.owner(BUCKET).await.as_deref()), (1, Some("other")));

    // Once that lease has lapsed too, the next one publishes: twice is allowed, never not at all.
    bench.clock.step_wall(45_000);
    let next = Fake::instant();
    assert_eq!(bench.hinted(&next).await.deleted(), 1);
    assert_eq!((frozen.published(), next.published()), (vec![sent], vec![sent]));
    assert_eq!(bench.waiting().await, 0);
}
