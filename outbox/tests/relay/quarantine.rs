//! Messages that can never be published: counted and left alone, or set aside with what follows them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use outbox::memory::MemoryStore;
use outbox::publisher::PublishErrorKind;
use outbox::quarantine::Parking;
use outbox::store::{Malformed, MalformedKey};
use outbox::{About, BucketEnd, Chance, MessageId, Outcome, PoisonPolicy, Relay, RelayOptions, SystemClock};

use crate::support::{Bench, failed};

fn quarantining() -> Bench {
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    Bench::with(options)
}

/// Messages that are refused until they are taken out of the set.
fn refuse(bench: &Bench, kind: PublishErrorKind) -> Arc<Mutex<HashSet<MessageId>>> {
    let refused = Arc::<Mutex<HashSet<MessageId>>>::default();
    let judged = Arc::clone(&refused);
    bench.judge(move |message| {
        if judged.lock().unwrap().contains(&message.id) { failed(kind) } else { Outcome::Acknowledged }
    });
    refused
}

/// Another key of the bucket of "21".
fn neighbour() -> String {
    let bucket = Bench::bucket_of("21");
    (22..).map(|n: u32| n.to_string()).find(|key| Bench::bucket_of(key) == bucket).unwrap()
}

fn times(bench: &Bench, id: MessageId) -> usize {
    bench.published().iter().filter(|published| **published == id).count()
}

/// The first time that each of these was published, in the order given.
fn assert_first_in_order(bench: &Bench, ids: &[MessageId]) {
    let published = bench.published();
    let first = |id: &MessageId| published.iter().rposition(|one| one == id).unwrap();
    assert!(ids.windows(2).all(|pair| first(&pair[0]) < first(&pair[1])), "{published:?}");
}

#[tokio::test(start_paused = true)]
async fn poison_is_set_aside_and_its_key_follows_and_comes_back_in_order() {
    let bench = quarantining();
    let refused = refuse(&bench, PublishErrorKind::Rejected);
    let (key, bucket) = (Bytes::from_static(b"21"), Bench::bucket_of("21"));
    let bad = bench.enqueue("21");
    let behind = bench.enqueue("21");
    let other = bench.enqueue(&neighbour());
    refused.lock().unwrap().insert(bad);

    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!((report.quarantined(), report.deleted()), (2, 1));
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Empty);
    assert!(bench.store.memory.is_empty(), "an idle sweep has nothing to look at");
    assert_eq!(times(&bench, other), 1);
    let aside = bench.store.memory.set_aside(bucket);
    assert_eq!(aside.iter().map(|stored| stored.attempts).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(bench.owner(bucket), None, "the lease that moves extended is released");

    // What comes later follows, whoever finds it.
    let later = bench.enqueue("21");
    assert_eq!(bench.hinted(&[bucket], 60).await.quarantined(), 1);
    let latest = bench.enqueue("21");
    assert_eq!(bench.sweep(60).await.quarantined(), 1);
    assert_eq!((times(&bench, bad), times(&bench, later), times(&bench, latest)), (1, 0, 0));

    refused.lock().unwrap().clear();
    assert!(bench.store.memory.redrive(bucket, &key, 100));
    assert_eq!(bench.hinted(&[bucket], 60).await.deleted(), 4);
    assert_first_in_order(&bench, &[bad, behind, later, latest]);
    assert_eq!(times(&bench, bad), 2);
    // It had been sent when the one ahead of it was refused.
    assert_eq!(times(&bench, behind), 2, "one copy more than needed, and no further one");
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_key_is_published_while_it_is_being_redriven() {
    let bench = quarantining();
    let refused = refuse(&bench, PublishErrorKind::Rejected);
    let (key, bucket) = (Bytes::from_static(b"21"), Bench::bucket_of("21"));
    let ids: Vec<MessageId> = (0..6).map(|_| bench.enqueue("21")).collect();
    refused.lock().unwrap().insert(ids[0]);
    bench.sweep(60).await;
    refused.lock().unwrap().clear();
    let before = bench.published().len();
    // Two at a time, by somebody whose process ends in between.
    for _ in 0..2 {
        assert!(!bench.store.memory.redrive(bucket, &key, 2));
        let report = bench.sweep(60).await;
        assert_eq!((report.quarantined(), report.acknowledged()), (0, 0));
        assert_eq!(report.buckets[&bucket].end, BucketEnd::Waiting);
    }
    let late = bench.enqueue("21");
    bench.hinted(&[bucket], 60).await;
    assert_eq!(bench.published().len(), before);
    assert!(bench.store.memory.redrive(bucket, &key, 2));
    bench.hinted(&[bucket], 60).await;
    let mut in_order = ids;
    in_order.push(late);
    assert_eq!(bench.published()[before..], in_order);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_blocks_honours_keys_that_another_parked() {
    let quarantining = quarantining();
    let refused = refuse(&quarantining, PublishErrorKind::Rejected);
    let bucket = Bench::bucket_of("21");
    let bad = quarantining.enqueue("21");
    refused.lock().unwrap().insert(bad);
    quarantining.sweep(60).await;

    let blocking = Bench::over(quarantining.store.memory.clone(), RelayOptions::default());
    blocking.enqueue("21");
    let report = blocking.hinted(&[bucket], 60).await;
    assert_eq!((report.quarantined(), blocking.published().len()), (1, 0));
    assert_eq!(blocking.store.memory.set_aside(bucket).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn malformed_items_are_set_aside_unless_their_key_cannot_be_read() {
    let bench = quarantining();
    let bucket = Bench::bucket_of("21");
    let malformed = |key| Err(Malformed { reason: "test".to_owned(), key, about: About::default() });
    bench.store.memory.insert(bucket, malformed(MalformedKey::Readable(Some(Bytes::from_static(b"21")))));
    bench.enqueue("21");
    bench.store.memory.insert(bucket, malformed(MalformedKey::Readable(None)));
    let other = bench.enqueue(&neighbour());
    bench.store.memory.insert(bucket, malformed(MalformedKey::Unreadable));
    let behind = bench.enqueue(&neighbour());
    let report = bench.sweep(60).await;
    assert_eq!((report.quarantined(), report.buckets[&bucket].malformed), (3, 3));
    assert_eq!(report.buckets[&bucket].end, BucketEnd::Waiting);
    assert_eq!((times(&bench, other), times(&bench, behind)), (1, 0));
    let parked = bench.store.memory.parked_keys(bucket);
    assert_eq!(parked, [(Bytes::from_static(b"21"), Parking::Parked)].into());
}

/// However long its head is stuck, and however often somebody wakes a relay.
#[tokio::test(start_paused = true)]
async fn what_is_behind_a_refused_message_is_sent_once_too_often_at_most() {
    let bench = Bench::new();
    let refused = refuse(&bench, PublishErrorKind::Rejected);
    let bucket = Bench::bucket_of("21");
    let bad = bench.enqueue("21");
    let behind: Vec<MessageId> = (0..3).map(|_| bench.enqueue("21")).collect();
    refused.lock().unwrap().insert(bad);
    for _ in 0..10 {
        bench.hinted(&[bucket], 60).await;
    }
    assert_eq!(times(&bench, bad), 1, "trying again is a sweep's");
    for sweeps in 1..=10 {
        bench.enqueue(&neighbour());
        let report = bench.sweep(60).await;
        assert_eq!((report.deleted(), times(&bench, bad)), (1, 1 + sweeps));
    }
    assert!(behind.iter().all(|id| times(&bench, *id) == 1));
    refused.lock().unwrap().clear();
    bench.sweep(60).await;
    assert!(bench.store.memory.is_empty());
    assert!(behind.iter().all(|id| times(&bench, *id) == 2));
    let mut in_order = vec![bad];
    in_order.extend(behind);
    assert_first_in_order(&bench, &in_order);
}

/// Such as a key whose messages go to two topics, of which one is not there for a while.
#[tokio::test(start_paused = true)]
async fn what_overtook_a_message_within_a_run_is_sent_once_too_often_at_most() {
    let bench = Bench::new();
    let refused = refuse(&bench, PublishErrorKind::TopicUnavailable);
    let bucket = Bench::bucket_of("21");
    let head = bench.enqueue("21");
    let behind = bench.enqueue("21");
    refused.lock().unwrap().insert(head);
    for _ in 0..5 {
        bench.enqueue(&neighbour());
        bench.sweep(60).await;
        bench.hinted(&[bucket], 60).await;
    }
    assert_eq!(times(&bench, behind), 1);
    refused.lock().unwrap().clear();
    bench.sweep(60).await;
    assert_eq!(times(&bench, behind), 2);
    assert_first_in_order(&bench, &[head, behind]);
    assert!(bench.store.memory.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_set_aside_under_a_lease_that_another_has() {
    let bench = quarantining();
    let refused = refuse(&bench, PublishErrorKind::Rejected);
    let bucket = Bench::bucket_of("21");
    refused.lock().unwrap().insert(bench.enqueue("21"));
    let (memory, now) = (bench.store.memory.clone(), bench.now());
    bench.store.after_fetch(move || drop(crate::support::take_over(&memory, bucket, now)));
    let report = bench.hinted(&[bucket], 60).await;
    assert_eq!(report.buckets[&bucket].end, BucketEnd::LeaseLost);
    assert_eq!((report.quarantined(), bench.store.memory.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_beside_a_poisoned_one_drains_at_its_speed() {
    let bench = Bench::new();
    let refused = refuse(&bench, PublishErrorKind::Rejected);
    let keys = Bench::keys();
    refused.lock().unwrap().insert(bench.enqueue(&keys[0]));
    for _ in 0..5_000 {
        bench.enqueue(&keys[1]);
    }
    let report = bench.sweep(300).await;
    assert_eq!(report.deleted(), 5_000);
    let (poisoned, healthy) = (Bench::bucket_of(&keys[0]), Bench::bucket_of(&keys[1]));
    assert_eq!(bench.publish_calls(poisoned), 1, "once a sweep");
    assert_eq!(bench.publish_calls(healthy), 10, "batches of 500");
}

#[test]
fn the_policy_needs_a_store_that_can() {
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    let bench = Bench::new();
    for store in [MemoryStore::new().without_quarantine(), MemoryStore::new().deleting_prefixes_only()] {
        let clock = Arc::new(SystemClock::new());
        let relay = Relay::new(store, bench.publisher.clone(), options.clone(), clock, Chance::seeded(1));
        assert!(relay.err().unwrap().to_string().contains("OUTBOX_POISON_POLICY"));
    }
}
