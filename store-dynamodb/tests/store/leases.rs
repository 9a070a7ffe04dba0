//! Leases and heartbeats: who may write what, and what a late request meets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use outbox::store::{AcquireRequest, Acquired, LeaseOwnership, LeaseRenewal};
use outbox::{BucketCount, Lease, LeaseTimes, OutboxStore as _, Ticks};
use outbox_store_dynamodb::DynamoDbStore;

use crate::support::{Bench, DURATION, Item, LIMIT, NOW, at, buckets, key, relay};

fn ownership(store: &DynamoDbStore) -> &dyn LeaseOwnership {
    store.ownership().unwrap()
}

fn renewal(store: &DynamoDbStore) -> &dyn LeaseRenewal {
    store.renewal().unwrap()
}

async fn claim(bench: &Bench, id: &str, numbers: &[u32], times: LeaseTimes) -> Vec<Lease> {
    let wanted = buckets(numbers.iter().copied());
    bench.store.named_claims().unwrap().claim(&relay(id), &wanted, times, LIMIT).await.unwrap().leases
}

async fn acquire(bench: &Bench, id: &str, times: LeaseTimes) -> Acquired {
    let wanted: BTreeSet<_> = BucketCount::DEFAULT.buckets().collect();
    let id = relay(id);
    let request = AcquireRequest {
        relay: &id,
        bucket_count: BucketCount::DEFAULT,
        times,
        wanted: &wanted,
        previous: &BTreeSet::new(),
        busy: &BTreeSet::new(),
        limit: LIMIT,
    };
    bench.store.acquire(&request).await.unwrap()
}

fn numbers(acquired: &Acquired) -> Vec<u32> {
    let mut numbers: Vec<u32> = acquired.leases.iter().map(|lease| lease.bucket.number()).collect();
    numbers.sort_unstable();
    numbers
}

async fn lease(bench: &Bench, bucket: u32) -> Item {
    bench.item("OUTBOX#COORDINATION", &format!("LEASE#{bucket:010}")).await.unwrap()
}

fn owner(item: &Item) -> Option<&str> {
    item.get("Owner").map(|owner| owner.as_s().unwrap().as_str())
}

fn expiry(item: &Item) -> Ticks {
    Ticks::from_raw(item["ExpiresAtUtc"].as_n().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_bucket_has_one_owner_until_it_is_freed() {
    let bench = Bench::new().await;
    let claimed = claim(&bench, "a", &[3, 5], at(0)).await;
    assert_eq!(claimed.len(), 2);
    assert!(claim(&bench, "b", &[3], at(1)).await.is_empty());

    ownership(&bench.store).release(&relay("a"), &claimed, LIMIT).await.unwrap();
    let freed = lease(&bench, 3).await;
    assert_eq!((owner(&freed), expiry(&freed)), (None, NOW.plus(DURATION)), "the version stays as it was");

    // A clock that is behind makes a later version all the same.
    let again = claim(&bench, "b", &[3], LeaseTimes { now: NOW.minus(DURATION), duration: DURATION }).await;
    assert_eq!(again[0].expires_at, NOW.plus(DURATION).next());
}

#[tokio::test]
async fn a_lapsed_lease_is_free() {
    let bench = Bench::new().await;
    claim(&bench, "a", &[3], at(0)).await;
    assert!(claim(&bench, "b", &[3], at(29)).await.is_empty());
    assert_eq!(claim(&bench, "b", &[3], at(30)).await.len(), 1);
    assert_eq!(owner(&lease(&bench, 3).await), Some("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_claim_at_once_each_bucket_gets_one() {
    let bench = Arc::new(Bench::new().await);
    let claims = (0..20).map(|n| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { claim(&bench, &format!("r{n}"), &[0, 1, 2, 3, 4, 5, 6, 7], at(0)).await })
    });
    let mut granted = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        granted.extend(claim.await.unwrap().into_iter().map(|lease| lease.bucket));
    }
    granted.sort_unstable();
    assert_eq!(granted, BucketCount::DEFAULT.buckets().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_owner_only_and_never_backwards() {
    let bench = Bench::new().await;
    let claimed = claim(&bench, "a", &[3], at(0)).await[0];
    let renew =
        async |id: &str, times| renewal(&bench.store).renew(&relay(id), claimed, times, LIMIT).await.unwrap();

    let renewed = renew("a", at(10)).await.unwrap();
    assert_eq!(renewed.expires_at, NOW.plus(Duration::from_secs(40)));
    assert_eq!(renew("b", at(11)).await, None);
    // A clock that went back: the lease is held, and its expiry stays.
    assert_eq!(renew("a", at(5)).await, Some(renewed));
    assert_eq!(expiry(&lease(&bench, 3).await), renewed.expires_at);
    // Lapsed: somebody may be about to claim it.
    assert_eq!(renew("a", at(40)).await, None);
    claim(&bench, "b", &[3], at(41)).await;
    assert_eq!(renew("a", at(42)).await, None);
    assert_eq!(owner(&lease(&bench, 3).await), Some("b"));
}

#[tokio::test]
async fn a_release_frees_what_a_lost_reply_has_renewed_and_nothing_of_others() {
    let bench = Bench::new().await;
    let claimed = claim(&bench, "a", &[3, 5], at(0)).await;
    for lease in &claimed {
        renewal(&bench.store).renew(&relay("a"), *lease, at(10), LIMIT).await.unwrap();
    }
    claim(&bench, "b", &[5], at(60)).await;
    ownership(&bench.store).release(&relay("a"), &claimed, LIMIT).await.unwrap();
    assert_eq!(owner(&lease(&bench, 3).await), None);
    assert_eq!(owner(&lease(&bench, 5).await), Some("b"));
}

#[tokio::test]
async fn relays_share_the_buckets_without_a_refused_write() {
    let bench = Bench::new().await;
    let first = acquire(&bench, "a", at(0)).await;
    assert_eq!(numbers(&first), [0, 1, 2, 3, 4, 5, 6, 7]);
    // The second finds everything held, and waits for the first to hand back.
    assert!(acquire(&bench, "b", at(1)).await.leases.is_empty());
    assert_eq!(numbers(&acquire(&bench, "a", at(2)).await), [0, 1, 2, 3]);
    assert_eq!(numbers(&acquire(&bench, "b", at(3)).await), [4, 5, 6, 7]);
    let again = acquire(&bench, "a", at(4)).await;
    assert_eq!((numbers(&again), again.refused_writes), (vec![0, 1, 2, 3], 0));
}

#[tokio::test]
async fn a_clock_that_is_behind_claims_nothing() {
    let bench = Bench::new().await;
    acquire(&bench, "a", at(10)).await;
    let behind = acquire(&bench, "a", at(5)).await;
    assert!(behind.clock_behind && behind.leases.is_empty());
    assert_eq!(expiry(&lease(&bench, 0).await), at(10).expires_at(), "no expiry went back");
}

#[tokio::test]
async fn a_stop_frees_everything_and_a_late_heartbeat_does_not_undo_it() {
    let bench = Bench::new().await;
    let acquired = acquire(&bench, "a", at(0)).await;
    // One lease is not in the list: taken by a claim that the relay gave up on.
    let known = &acquired.leases[..7];
    ownership(&bench.store).stop(&relay("a"), known, at(1).now, LIMIT).await.unwrap();
    for bucket in 0..8 {
        assert_eq!(owner(&lease(&bench, bucket).await), None);
    }
    assert!(acquire(&bench, "a", at(0)).await.clock_behind);
    let heartbeat = bench.item("OUTBOX#COORDINATION", "RELAY#a").await.unwrap();
    assert_eq!(heartbeat["StoppedAtUtc"].as_n().unwrap(), &at(1).now.to_string());
    // Peers no longer leave it a share.
    assert_eq!(numbers(&acquire(&bench, "b", at(2)).await).len(), 8);
}

#[tokio::test]
async fn strange_items_are_passed_over_or_claimed_as_the_format_says() {
    let bench = Bench::new().await;
    let n = |ticks: Ticks| AttributeValue::N(ticks.to_string());
    let s = |text: &str| AttributeValue::S(text.to_owned());
    // Out of range, of a later version, and a lease with an owner but no expiry, which nobody of ours wrote.
    let mut out_of_range = key("OUTBOX#COORDINATION", "LEASE#0000000099");
    out_of_range.extend([("Owner".to_owned(), s("x")), ("ExpiresAtUtc".to_owned(), n(at(60).now))]);
    let mut later = key("OUTBOX#COORDINATION", "PARKED#1");
    later.insert("ExpiresAtUtc".to_owned(), s("soon"));
    let mut ownerless = key("OUTBOX#COORDINATION", "LEASE#0000000003");
    ownerless.insert("Owner".to_owned(), s("stranger"));
    for item in [out_of_range, later, ownerless] {
        bench.put(item).await;
    }
    let acquired = acquire(&bench, "a", at(0)).await;
    assert_eq!((numbers(&acquired).len(), acquired.refused_writes), (8, 0));
    assert_eq!(owner(&lease(&bench, 3).await), Some("a"));
    assert_eq!(owner(&lease(&bench, 99).await), Some("x"));
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_stops_its_bucket_and_no_other() {
    let bench = Bench::new().await;
    let mut broken = key("OUTBOX#COORDINATION", "LEASE#0000000003");
    broken.insert("ExpiresAtUtc".to_owned(), AttributeValue::S("soon".to_owned()));
    bench.put(broken.clone()).await;
    let mut heartbeat = key("OUTBOX#COORDINATION", "RELAY#x");
    heartbeat.insert("LastSeenUtc".to_owned(), AttributeValue::S("just now".to_owned()));
    bench.put(heartbeat).await;

    let claims = bench.store.named_claims().unwrap();
    let claimed = claims.claim(&relay("a"), &buckets([2, 3]), at(0), LIMIT).await.unwrap();
    assert_eq!(claimed.leases.iter().map(|lease| lease.bucket.number()).collect::<Vec<_>>(), [2]);
    let named = |error: outbox::StoreError| {
        assert!(error.is_misconfiguration());
        assert!(
            error.to_string().contains("bucket 3") && error.to_string().contains("ExpiresAtUtc"),
            "{error}"
        );
    };
    named(claimed.error.unwrap());
    let acquired = acquire(&bench, "b", at(1)).await;
    assert_eq!(numbers(&acquired), [0, 1, 4, 5, 6, 7]);
    named(acquired.error.unwrap());
    assert_eq!(lease(&bench, 3).await, broken, "it was written over");
}

#[tokio::test]
async fn strays_are_found_and_freed() {
    let bench = Bench::new().await;
    claim(&bench, "a", &[3, 5], at(0)).await;
    claim(&bench, "b", &[6], at(0)).await;
    ownership(&bench.store).release_strays(&relay("a"), LIMIT).await.unwrap();
    assert_eq!((owner(&lease(&bench, 3).await), owner(&lease(&bench, 5).await)), (None, None));
    assert_eq!(owner(&lease(&bench, 6).await), Some("b"));
}

#[tokio::test]
async fn busy_buckets_are_left_as_they_are_and_named_when_they_exceed_the_share() {
    let bench = Bench::new().await;
    acquire(&bench, "a", at(0)).await;
    acquire(&bench, "b", at(1)).await;
    let (id, wanted) = (relay("a"), buckets(0..8));
    let busy = buckets([0, 7]);
    let request = AcquireRequest {
        relay: &id,
        bucket_count: BucketCount::DEFAULT,
        times: at(2),
        wanted: &wanted,
        previous: &wanted,
        busy: &busy,
        limit: LIMIT,
    };
    let acquired = bench.store.acquire(&request).await.unwrap();
    assert_eq!((numbers(&acquired), acquired.refused_writes), (vec![1, 2, 3], 0));
    assert_eq!(acquired.excess, buckets([7]), "to be handed back when it is not busy any more");
    for bucket in [0, 7] {
        assert_eq!(expiry(&lease(&bench, bucket).await), at(0).expires_at());
    }
}

#[tokio::test]
async fn relay_records_are_pruned_by_whoever_sees_them() {
    let bench = Bench::new().await;
    for n in 0..60 {
        let id = format!("r{n}");
        acquire(&bench, &id, at(n)).await;
        ownership(&bench.store).stop(&relay(&id), &[], at(n).now.next(), LIMIT).await.unwrap();
    }
    let relays = async || {
        let query = bench
            .client
            .query()
            .table_name("outbox")
            .key_condition_expression("PK = :p AND begins_with(SK, :r)");
        let s = |text: &str| AttributeValue::S(text.to_owned());
        let query = query.expression_attribute_values(":p", s("OUTBOX#COORDINATION"));
        query.expression_attribute_values(":r", s("RELAY#")).send().await.unwrap().count()
    };
    // The last thirty seconds' worth, and what one round could not prune yet.
    assert!((30..=32).contains(&relays().await), "{}", relays().await);
    for _ in 0..2 {
        acquire(&bench, "late", at(200)).await;
    }
    acquire(&bench, "late", at(201)).await;
    assert_eq!(relays().await, 1, "only the one that is alive");
}
