//! Setting messages aside and sending them back, with processes that end at every single request.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use outbox::quarantine::{Move, Moved, Parking, Quarantine as _, Why};
use outbox::store::{Claimed, NamedClaims as _};
use outbox::{
    Bucket, Budget, Chance, Lease, Message, MessageId, OutboxStore as _, Outcome, PoisonPolicy, PublishError,
    PublishErrorKind, Publisher, Relay, RelayOptions, RunReport, TokioClock,
};
use outbox_store_dynamodb::{DynamoDbStore, RedriveError, Redriven, Sequence};

use crate::support::{Bench, Hook, LIMIT, NOW, at, buckets, relay};

/// The bucket of the key "21".
const BUCKET: Bucket = Bucket::new(4);
const QUARANTINE: &str = "OUTBOX#QUARANTINE#4";
const MESSAGES: &str = "OUTBOX#MESSAGES#4";

fn sequence(number: i64) -> Sequence {
    Sequence::new(number).unwrap()
}

fn sort(number: i64) -> String {
    sequence(number).to_string()
}

fn poison(number: i64) -> Move<Sequence> {
    let why = Why::Poison { reason: "too large for its topic".to_owned(), was_sent: true };
    Move { row: sequence(number), why }
}

fn follows(number: i64) -> Move<Sequence> {
    Move { row: sequence(number), why: Why::KeyIsParked }
}

async fn claim(store: &DynamoDbStore, id: &str, seconds: u64) -> Claimed {
    store.claim(&relay(id), &buckets([4]), at(seconds), LIMIT).await.unwrap()
}

async fn park(store: &DynamoDbStore, id: &str, lease: Lease, moves: &[Move<Sequence>]) -> Moved<Sequence> {
    store.park(&relay(id), lease, at(1), moves, LIMIT).await
}

async fn sequences_in(bench: &Bench, partition: &str) -> Vec<String> {
    let query = bench
        .client
        .query()
        .table_name("outbox")
        .key_condition_expression("PK = :pk AND SK BETWEEN :first AND :last")
        .expression_attribute_values(":pk", AttributeValue::S(partition.to_owned()))
        .expression_attribute_values(":first", AttributeValue::S("0".to_owned()))
        .expression_attribute_values(":last", AttributeValue::S(":".to_owned()));
    let items = query.send().await.unwrap().items.unwrap_or_default();
    items.iter().map(|item| item["SK"].as_s().unwrap().clone()).collect()
}

#[tokio::test]
async fn a_message_moves_as_it_is_with_its_reason_and_its_key_is_parked() {
    let bench = Bench::new().await;
    let message = bench.enqueue("21").await;
    let before = bench.item(MESSAGES, &sort(1)).await.unwrap();
    assert!(claim(&bench.store, "other", 0).await.parked.is_empty());
    bench.store.ownership().unwrap().release_strays(&relay("other"), LIMIT).await.unwrap();

    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let moved = park(&bench.store, "me", lease, &[poison(1)]).await;
    assert!(moved.error.is_none() && moved.rows == [sequence(1)], "{moved:?}");
    assert!(moved.lease.unwrap().expires_at > lease.expires_at, "a move is a renewal");
    assert!(bench.item(MESSAGES, &sort(1)).await.is_none());
    let mut after = bench.item(QUARANTINE, &sort(1)).await.unwrap();
    assert_eq!(after.remove("QuarantineReason").unwrap().as_s().unwrap(), "too large for its topic");
    assert_eq!(after.remove("Attempts").unwrap().as_n().unwrap(), "1");
    assert!(after.remove("QuarantinedAtUtc").is_some());
    after.insert("PK".to_owned(), before["PK"].clone());
    assert_eq!(after, before, "byte for byte");
    assert_eq!(
        bench.store.parked(BUCKET, LIMIT).await.unwrap(),
        [(Bytes::from_static(b"21"), Parking::Parked)].into()
    );

    // Whoever claims the bucket next is told, by the read it makes anyhow.
    bench.store.ownership().unwrap().release(&relay("me"), &[moved.lease.unwrap()], LIMIT).await.unwrap();
    assert_eq!(claim(&bench.store, "next", 2).await.parked, buckets([4]));

    let listed = bench.store.quarantined(BUCKET, None, 10, LIMIT).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].message.as_ref().unwrap(), &message);
    assert_eq!((listed[0].sequence, listed[0].attempts), (sequence(1), 1));
    assert!(bench.store.quarantined(BUCKET, Some(sequence(1)), 10, LIMIT).await.unwrap().is_empty());
}

#[tokio::test]
async fn only_what_is_parked_is_followed() {
    let bench = Bench::new().await;
    for key in ["21", "21", "23"] {
        bench.enqueue(key).await;
    }
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let moved = park(&bench.store, "me", lease, &[follows(1)]).await;
    assert!(moved.rows.is_empty() && moved.error.is_none(), "{moved:?}");
    let moved = park(&bench.store, "me", lease, &[poison(1), follows(2)]).await;
    assert_eq!(moved.rows, [sequence(1), sequence(2)]);
    // Again, as after a reply that was lost.
    let again = park(&bench.store, "me", moved.lease.unwrap(), &[poison(1), follows(2)]).await;
    assert_eq!(again.rows, [sequence(1), sequence(2)]);
    assert_eq!(sequences_in(&bench, QUARANTINE).await, [sort(1), sort(2)]);
}

/// More than a transaction takes, by number and by size, and reads that are answered in any order.
#[tokio::test]
async fn many_and_large_ones_are_moved_in_their_order() {
    let bench = Bench::new().await;
    let messages: Vec<Message> = (0..40)
        .map(|at| bench.message("21").with_value(vec![7; if at % 4 == 0 { 300_000 } else { 10 }]))
        .collect();
    for some in messages.chunks(20) {
        bench.writer.enqueue(some).await.unwrap();
    }
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let mut moves = vec![poison(1)];
    moves.extend((2..=40).map(follows));
    let moved = park(&bench.store, "me", lease, &moves).await;
    assert!(moved.error.is_none(), "{moved:?}");
    assert_eq!(moved.rows, (1..=40).map(sequence).collect::<Vec<_>>());
    assert!(sequences_in(&bench, MESSAGES).await.is_empty());
    assert_eq!(bench.store.redrive(BUCKET, sequence(7), LIMIT).await.unwrap().messages, 40);
    let back = bench.fetch(BUCKET, 100).await.messages;
    let back: Vec<Message> = back.into_iter().map(|stored| stored.message.unwrap()).collect();
    assert!(back == messages, "they came back otherwise");
}

#[tokio::test]
async fn nothing_is_moved_under_a_lease_that_is_lost_or_has_another_version() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let stale = Lease { expires_at: lease.expires_at.plus(Duration::from_secs(1)), ..lease };
    let moved = park(&bench.store, "me", stale, &[poison(1)]).await;
    assert!(moved.lease.is_some() && moved.error.is_some() && moved.rows.is_empty(), "{moved:?}");
    claim(&bench.store, "other", 100).await;
    let moved = park(&bench.store, "me", lease, &[poison(1)]).await;
    assert!(moved.lease.is_none() && moved.rows.is_empty(), "{moved:?}");
    assert!(bench.item(MESSAGES, &sort(1)).await.is_some());
    assert!(sequences_in(&bench, QUARANTINE).await.is_empty());
}

/// A claim that was planned before a key was parked would not know of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_read_the_leases_before_a_move_is_refused() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let store = bench.store.clone();
    // Between the read of the leases, a lease duration later, and the claim.
    let hook = Hook::before(2, move || {
        let store = store.clone();
        let parked = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move { park(&store, "me", lease, &[poison(1)]).await })
        });
        assert_eq!(parked.join().unwrap().rows, [sequence(1)]);
    });
    let claimed = claim(&bench.hooked(hook), "other", 100).await;
    assert!(claimed.leases.is_empty(), "{claimed:?}");
}

/// Whoever redrives a key would not look again for what is set aside after it began.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_follows_a_key_whose_redrive_begins_meanwhile() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    bench.enqueue("21").await;
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    let lease = park(&bench.store, "me", lease, &[poison(1)]).await.lease.unwrap();
    let client = bench.client.clone();
    // After the reads of the message and of the marker, and before the move.
    let hook = Hook::before(3, move || {
        let client = client.clone();
        let began = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let marker = client.query().table_name("outbox");
                let marker = marker
                    .key_condition_expression("PK = :pk AND begins_with(SK, :key)")
                    .expression_attribute_values(":pk", AttributeValue::S(QUARANTINE.to_owned()))
                    .expression_attribute_values(":key", AttributeValue::S("KEY#".to_owned()));
                let mut marker = marker.send().await.unwrap().items.unwrap().remove(0);
                marker.insert("RedriveStartedAtUtc".to_owned(), AttributeValue::N("1".to_owned()));
                client.put_item().table_name("outbox").set_item(Some(marker)).send().await.unwrap();
            });
        });
        began.join().unwrap();
    });
    let moved = park(&bench.hooked(hook), "me", lease, &[follows(2)]).await;
    assert!(moved.rows.is_empty() && moved.error.is_some(), "{moved:?}");
    assert_eq!(sequences_in(&bench, MESSAGES).await, [sort(2)]);
}

#[tokio::test]
async fn attempts_are_counted_on_what_is_there_and_on_nothing_else() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    for _ in 0..2 {
        bench.store.count_attempts(BUCKET, &[sequence(1), sequence(7)], LIMIT).await.unwrap();
    }
    assert_eq!(bench.fetch(BUCKET, 10).await.messages[0].attempts, 2);
    assert!(bench.item(MESSAGES, &sort(7)).await.is_none(), "nothing is brought back");

    let lease = claim(&bench.store, "me", 0).await.leases[0];
    park(&bench.store, "me", lease, &[poison(1)]).await;
    assert_eq!(bench.store.quarantined(BUCKET, None, 1, LIMIT).await.unwrap()[0].attempts, 3);
    // Sent back, it is sent as any other is; refused again, nothing of its past is lost.
    let redriven = bench.store.redrive(BUCKET, sequence(1), LIMIT).await.unwrap();
    assert_eq!(redriven, Redriven { messages: 1 });
    assert_eq!(bench.fetch(BUCKET, 10).await.messages[0].attempts, 0);
    bench.store.ownership().unwrap().release_strays(&relay("me"), LIMIT).await.unwrap();
    let lease = claim(&bench.store, "me", 50).await;
    assert!(lease.parked.is_empty());
    park(&bench.store, "me", lease.leases[0], &[poison(1)]).await;
    assert_eq!(bench.store.quarantined(BUCKET, None, 1, LIMIT).await.unwrap()[0].attempts, 4);
}

#[tokio::test]
async fn a_message_without_a_key_parks_nothing() {
    let bench = Bench::new().await;
    let message = (0..).map(|_| Message { key: None, ..bench.message("x") });
    let message =
        message.into_iter().find(|one| one.bucket(bench.store.options().bucket_count()) == Some(BUCKET));
    bench.writer.enqueue(&[message.unwrap()]).await.unwrap();
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    assert_eq!(park(&bench.store, "me", lease, &[poison(1)]).await.rows.len(), 1);
    assert!(bench.store.parked(BUCKET, LIMIT).await.unwrap().is_empty());
    assert_eq!(bench.store.redrive(BUCKET, sequence(1), LIMIT).await.unwrap().messages, 1);
    let again = bench.store.redrive(BUCKET, sequence(1), LIMIT).await;
    assert!(matches!(again, Err(RedriveError::NotThere { .. })), "{again:?}");
    assert_eq!(sequences_in(&bench, MESSAGES).await, [sort(1)]);
}

#[tokio::test]
async fn nothing_is_overwritten_on_the_way_back() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let lease = claim(&bench.store, "me", 0).await.leases[0];
    park(&bench.store, "me", lease, &[poison(1)]).await;
    let mut other = bench.item(QUARANTINE, &sort(1)).await.unwrap();
    other.insert("PK".to_owned(), AttributeValue::S(MESSAGES.to_owned()));
    bench.put(other).await;
    let error = bench.store.redrive(BUCKET, sequence(1), LIMIT).await.unwrap_err();
    assert!(error.to_string().contains("is taken by another message"), "{error}");
    assert_eq!(bench.store.parked(BUCKET, LIMIT).await.unwrap()[&b"21"[..]], Parking::Redriving);
}

/// Notes what it is given, and refuses some.
#[derive(Clone, Default)]
struct Topic {
    published: Arc<Mutex<Vec<MessageId>>>,
    refused: Arc<Mutex<HashSet<MessageId>>>,
}

impl Publisher for Topic {
    async fn publish(&self, batch: &[&Message], _: Duration) -> Vec<Outcome> {
        let refused = self.refused.lock().unwrap();
        let mut stuck = false;
        let outcome = |message: &&Message| {
            stuck |= refused.contains(&message.id);
            match (stuck, refused.contains(&message.id)) {
                (_, true) => Outcome::Failed(PublishError::new(PublishErrorKind::Rejected, "too large")),
                // All messages here have one key.
                (true, false) => Outcome::Failed(PublishError::new(PublishErrorKind::Unavailable, "behind")),
                (false, false) => {
                    self.published.lock().unwrap().push(message.id);
                    Outcome::Acknowledged
                }
            }
        };
        batch.iter().map(outcome).collect()
    }
}

/// One invocation, `minutes` after the first; `None`: its process ended.
async fn run(store: DynamoDbStore, topic: &Topic, minutes: u64) -> Option<RunReport> {
    let clock = Arc::new(TokioClock::starting_at(NOW.plus(Duration::from_mins(minutes))));
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    options.batch_size = 20;
    let chance = Chance::seeded(minutes + 1);
    let relay = Relay::new(store, topic.clone(), options, clock.clone(), chance.clone()).unwrap();
    let run = async move {
        let budget = Budget::new(clock.clone(), Duration::from_secs(60));
        let id = chance.relay_id("test", NOW.plus(Duration::from_mins(minutes)));
        relay.hinted(&id, &buckets([4]), &budget).await
    };
    tokio::spawn(run).await.ok()
}

fn ends_before(bench: &Bench, request: usize) -> DynamoDbStore {
    bench.hooked(Hook::before(request, || panic!("the process ends")))
}

/// Enough for two transactions each way.
const COUNT: usize = 45;

async fn enqueue(bench: &Bench) -> Vec<MessageId> {
    let messages: Vec<Message> = (0..COUNT).map(|_| bench.message("21")).collect();
    bench.writer.enqueue(&messages).await.unwrap();
    messages.iter().map(|message| message.id).collect()
}

/// Every message is in one place, and those of the key come out in order in the end.
#[tokio::test]
async fn a_relay_that_ends_at_any_request_of_a_quarantine_loses_and_reorders_nothing() {
    for request in 1.. {
        let bench = Bench::new().await;
        let ids = enqueue(&bench).await;
        let topic = Topic::default();
        topic.refused.lock().unwrap().insert(ids[3]);
        let ended = run(ends_before(&bench, request), &topic, 0).await.is_none();
        let in_both = sequences_in(&bench, QUARANTINE).await.into_iter().collect::<HashSet<_>>();
        let left: HashSet<_> = sequences_in(&bench, MESSAGES).await.into_iter().collect();
        assert!(in_both.is_disjoint(&left), "request {request}");

        run(bench.store.clone(), &topic, 1).await.unwrap();
        assert_eq!(sequences_in(&bench, QUARANTINE).await.len(), COUNT - 3, "request {request}");
        assert_eq!(distinct(&topic), ids[..3], "request {request}");
        topic.refused.lock().unwrap().clear();
        assert_eq!(bench.store.redrive(BUCKET, sequence(9), LIMIT).await.unwrap().messages, COUNT - 3);
        run(bench.store.clone(), &topic, 2).await.unwrap();
        assert_eq!(distinct(&topic), ids, "request {request}");
        if !ended {
            assert!(request > 10, "the quarantine was never under way");
            return;
        }
    }
}

#[tokio::test]
async fn a_redrive_that_ends_at_any_request_keeps_the_order_and_is_taken_up_again() {
    for request in 1.. {
        let bench = Bench::new().await;
        let ids = enqueue(&bench).await;
        let topic = Topic::default();
        topic.refused.lock().unwrap().insert(ids[3]);
        run(bench.store.clone(), &topic, 0).await.unwrap();
        topic.refused.lock().unwrap().clear();
        let late = bench.enqueue("21").await.id;

        let redriving = ends_before(&bench, request);
        let redrive = async move { redriving.redrive_key(BUCKET, b"21", LIMIT).await.unwrap() };
        let ended = tokio::spawn(redrive).await.is_err();
        // Whatever it left, a relay publishes all of the key, in order, or nothing.
        run(bench.store.clone(), &topic, 1).await.unwrap();
        let published = distinct(&topic);
        assert!(published == ids[..3] || published.starts_with(&ids), "request {request}: {published:?}");

        bench.store.redrive_key(BUCKET, b"21", LIMIT).await.unwrap();
        run(bench.store.clone(), &topic, 2).await.unwrap();
        let mut all = ids.clone();
        all.push(late);
        assert_eq!(distinct(&topic), all, "request {request}");
        assert!(sequences_in(&bench, QUARANTINE).await.is_empty());
        assert!(sequences_in(&bench, MESSAGES).await.is_empty());
        assert!(claim(&bench.store, "last", 1_000).await.parked.is_empty());
        if !ended {
            assert!(request > 5, "the redrive was never under way");
            return;
        }
    }
}

/// The first delivery of each message, in order.
fn distinct(topic: &Topic) -> Vec<MessageId> {
    let mut seen = HashSet::new();
    topic.published.lock().unwrap().iter().copied().filter(|id| seen.insert(*id)).collect()
}
