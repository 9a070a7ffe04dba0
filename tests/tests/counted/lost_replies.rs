//! The SDK sends a conditional write again whose answer was lost, and is refused by its own first attempt: the relay
//! must not believe that it lost what it holds.

use std::time::Duration;

use futures::FutureExt as _;
use outbox::{
    BucketEnd, Lease, OutboxStore as _, Outcome, PoisonPolicy, PublishError, PublishErrorKind, RelayOptions,
};

use crate::kind::Kind;
use crate::support::{BUCKET, Bench, Fake, LIMIT, at, numbers, relay, until};
use crate::wire::Fault::ReplyLost;

async fn claim(bench: &Bench, id: &str, seconds: u64) -> Vec<Lease> {
    let claims = bench.store.named_claims().unwrap();
    claims.claim(&relay(id), &[BUCKET].into(), at(seconds), LIMIT).await.unwrap().leases
}

/// Both attempts were sent, and the database refused the second.
fn assert_refused_once(bench: &Bench, kind: Kind) {
    let counts = bench.wire.counts();
    let tally = counts.of(kind);
    assert_eq!((tally.requests, tally.refused), (2, 1), "the reply of {kind:?} was not lost:\n{counts}");
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_held() {
    let bench = Bench::new().await;
    bench.wire.fail(Kind::Claim, 1, ReplyLost);
    let claimed = claim(&bench, "a", 0).await;
    assert_refused_once(&bench, Kind::Claim);
    assert_eq!(claimed, [Lease { bucket: BUCKET, expires_at: at(0).expires_at() }]);
    assert_eq!(bench.owner(BUCKET).await.as_deref(), Some("a"));
    assert!(claim(&bench, "b", 1).await.is_empty());
}

#[tokio::test]
async fn claims_and_keeps_of_a_round_whose_replies_were_lost_are_held_and_not_refused() {
    let bench = Bench::new().await;
    let all = (0..8).collect();
    for (kind, seconds) in [(Kind::Claim, 0), (Kind::Keep, 10)] {
        bench.wire.fail(kind, 8, ReplyLost);
        let acquired = bench.acquire("a", at(seconds)).await;
        let counts = bench.wire.counts();
        assert_eq!((counts.of(kind).requests, counts.of(kind).refused), (16, 8), "{counts}");
        assert_eq!(numbers(&acquired), all, "after lost replies of {kind:?}");
        assert_eq!(acquired.refused_writes, 0, "its own earlier attempts are no refusals ({kind:?})");
        assert!(acquired.error.is_none(), "{:?}", acquired.error);
        assert!(acquired.leases.iter().all(|lease| lease.expires_at == at(seconds).expires_at()));
    }
}

#[tokio::test]
async fn a_heartbeat_whose_reply_was_lost_is_no_clock_that_is_behind() {
    let bench = Bench::new().await;
    bench.wire.fail(Kind::Heartbeat, 1, ReplyLost);
    let acquired = bench.acquire("a", at(0)).await;
    assert_refused_once(&bench, Kind::Heartbeat);
    assert!(!acquired.clock_behind);
    assert_eq!((acquired.leases.len(), acquired.refused_writes), (8, 0));
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_held() {
    let bench = Bench::new().await;
    let claimed = claim(&bench, "a", 0).await[0];
    bench.wire.fail(Kind::Renew, 1, ReplyLost);
    let renewed = bench.store.renewal().unwrap().renew(&relay("a"), claimed, at(10), LIMIT).await.unwrap();
    assert_eq!(bench.wire.counts().of(Kind::Renew).requests, 2);
    assert_eq!(renewed, Some(Lease { bucket: BUCKET, expires_at: at(10).expires_at() }));
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_has_freed_the_bucket() {
    let bench = Bench::new().await;
    let claimed = claim(&bench, "a", 0).await;
    bench.wire.fail(Kind::Release, 1, ReplyLost);
    bench.store.ownership().unwrap().release(&relay("a"), &claimed, LIMIT).await.unwrap();
    assert_refused_once(&bench, Kind::Release);
    assert_eq!(bench.owner(BUCKET).await, None);
    assert_eq!(claim(&bench, "b", 1).await.len(), 1);
}

/// Between the release and its second attempt another relay takes the bucket: the second attempt must leave it alone,
/// also where the other's lease has the same relay id's earlier version in its past.
#[tokio::test]
async fn a_release_that_is_sent_again_does_not_free_the_next_owner() {
    let bench = std::sync::Arc::new(Bench::new().await);
    let claimed = claim(&bench, "a", 0).await;
    bench.wire.fail(Kind::Release, 1, ReplyLost);
    let next = std::sync::Arc::clone(&bench);
    bench.wire.before(Kind::Release, || std::future::ready(()).boxed());
    bench.wire.before(Kind::Release, move || {
        async move {
            assert_eq!(claim(&next, "b", 1).await.len(), 1);
        }
        .boxed()
    });
    bench.store.ownership().unwrap().release(&relay("a"), &claimed, LIMIT).await.unwrap();
    assert_refused_once(&bench, Kind::Release);
    assert_eq!(bench.owner(BUCKET).await.as_deref(), Some("b"));
}

/// The whole of it: a run whose claim, renewals, delete and release each lose their first reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_loses_the_reply_of_every_write_publishes_once_and_frees_its_bucket() {
    let bench = Bench::new().await;
    let sent = bench.enqueue("21").await;
    for kind in [Kind::Claim, Kind::Renew, Kind::Delete, Kind::Release] {
        bench.wire.fail(kind, 1, ReplyLost);
    }
    let wire = bench.wire.clone();
    let publisher = Fake::during(move || {
        let wire = wire.clone();
        async move {
            until("a renewal was sent twice", || wire.counts().of(Kind::Renew).requests >= 2).await;
            Outcome::Acknowledged
        }
        .boxed()
    });
    let mut options = outbox::RelayOptions::default();
    options.lease_renew_interval = Duration::from_secs(1);
    let relay = bench.relay_with(&publisher, options);
    let report = relay.hinted(&bench.relay_id(), &[BUCKET].into(), &bench.budget()).await;
    let counts = bench.wire.counts();
    eprintln!("a hinted run that loses the reply of every write:\n{counts}");
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!((report.deleted(), report.buckets[&BUCKET].end), (1, BucketEnd::Empty), "{counts}");
    assert_eq!(publisher.published(), [sent], "published once");
    for kind in [Kind::Claim, Kind::Renew, Kind::Delete, Kind::Release] {
        assert!(counts.of(kind).requests >= 2, "{kind:?} was not sent again:\n{counts}");
    }
    assert_eq!((bench.waiting().await, bench.owner(BUCKET).await), (0, None));
}

/// A move is a transaction with a token of the SDK's, by which DynamoDB knows the second attempt for the first. The way
/// back as well.
#[tokio::test]
async fn a_move_whose_reply_was_lost_is_made_once_and_the_way_back_too() {
    let bench = Bench::new().await;
    let sent = [bench.enqueue("21").await, bench.enqueue("21").await];
    bench.wire.fail(Kind::Move, 1, ReplyLost);
    let refusal = || Outcome::Failed(PublishError::new(PublishErrorKind::Rejected, "too large"));
    let publisher = Fake::during(move || std::future::ready(refusal()).boxed());
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    let relay = bench.relay_with(&publisher, options);
    let report = relay.hinted(&bench.relay_id(), &[BUCKET].into(), &bench.budget()).await;
    let counts = bench.wire.counts();
    assert!(counts.of(Kind::Move).requests >= 2, "no reply was lost:\n{counts}");
    assert!(report.errors.is_empty() && report.buckets[&BUCKET].end != BucketEnd::LeaseLost, "{report:?}");
    assert_eq!((report.quarantined(), bench.waiting().await), (2, 0), "{report:?}");
    let aside = async || {
        let aside = bench.store.quarantined(BUCKET, None, 10, LIMIT).await.unwrap();
        aside.iter().map(|one| one.message.as_ref().unwrap().id).collect::<Vec<_>>()
    };
    let parked = async || {
        let parked = bench.item("OUTBOX#COORDINATION", "PARKED#0000000004").await.unwrap();
        parked["ParkedKeys"].as_n().unwrap().clone()
    };
    assert_eq!((aside().await, parked().await.as_str()), (sent.to_vec(), "1"));
    assert_eq!(bench.owner(BUCKET).await, None);

    bench.wire.fail(Kind::Move, 1, ReplyLost);
    let before = bench.wire.counts();
    assert_eq!(bench.store.redrive_key(BUCKET, b"21", LIMIT).await.unwrap().messages, 2);
    let counts = bench.wire.counts().since(&before);
    assert!(counts.of(Kind::Move).requests >= 2, "no reply was lost:\n{counts}");
    assert_eq!((aside().await.len(), bench.waiting().await), (0, 2));
    assert_eq!(parked().await, "0");
}
