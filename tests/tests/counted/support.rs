//! An embedded DynamoDB with an outbox table, a store whose requests are counted, and a publisher that does as it is
//! told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use outbox::store::{AcquireRequest, Acquired};
use outbox::{
    Bucket, BucketCount, Budget, Chance, Clock, LeaseTimes, Message, MessageId, OutboxStore as _, Outcome,
    Publisher, Relay, RelayId, RelayOptions, Ticks, TokioClock,
};
use outbox_local::dynamodb::{Database, Usage};
use outbox_store_dynamodb::{DynamoDbStore, StoreOptions, Writer, client_timeouts, table};

use crate::wire::Wire;

pub(crate) const LIMIT: Duration = Duration::from_secs(5);
pub(crate) const NOW: Ticks = Ticks::from_raw(639_316_345_534_567_890);
pub(crate) const DURATION: Duration = Duration::from_secs(30);
/// The default renewal interval: how often a relay takes part.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// The bucket of the key "21".
pub(crate) const BUCKET: Bucket = Bucket::new(4);

pub(crate) type Item = HashMap<String, AttributeValue>;

/// A database of its own, with a table of the default names.
pub(crate) struct Bench {
    database: Database,
    /// Whose requests nobody counts but the database's own meter.
    pub(crate) client: Client,
    /// What `store` sends goes through it.
    pub(crate) wire: Wire,
    pub(crate) store: DynamoDbStore,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) count: BucketCount,
    chance: Chance,
    writer: Writer,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with_buckets(8).await
    }

    /// A table without a stream: the embedded database slows down with the length of one.
    pub(crate) async fn with_buckets(buckets: u32) -> Self {
        let database = Database::start(None).await.unwrap();
        let client = database.client().await;
        let count = BucketCount::new(buckets).unwrap();
        let options = StoreOptions::new("outbox").with_bucket_count(count);
        let table = table::definition(&client, &options).unwrap().set_stream_specification(None);
        table.send().await.unwrap();
        let clock = Arc::new(TokioClock::starting_at(NOW));
        let chance = Chance::seeded(7);
        let writer = Writer::with(client.clone(), options.clone(), clock.clone(), chance.clone());
        let wire = Wire::new();
        let store = store(&database, options, &wire, &chance);
        Self { database, client, wire, store, clock, count, chance, writer }
    }

    /// What the database's meter has counted up to now, of everybody.
    pub(crate) fn usage(&self) -> Usage {
        self.database.usage().unwrap()
    }

    pub(crate) fn message(&self, key: &str) -> Message {
        Message::new(self.chance.message_id(self.clock.now_utc()), "orders")
            .with_key(key.to_owned())
            .with_value("v")
    }

    pub(crate) async fn enqueue(&self, key: &str) -> MessageId {
        let message = self.message(key);
        self.writer.enqueue(std::slice::from_ref(&message)).await.unwrap();
        message.id
    }

    pub(crate) async fn enqueue_many(&self, key: &str, count: usize) {
        let messages: Vec<_> = (0..count).map(|_| self.message(key)).collect();
        self.enqueue_all(&messages).await;
    }

    pub(crate) async fn enqueue_all(&self, messages: &[Message]) {
        for some in messages.chunks(25) {
            self.writer.enqueue(some).await.unwrap();
        }
    }

    /// A relay over the counted store, on the bench's clock.
    pub(crate) fn relay(&self, publisher: &Fake) -> Relay<DynamoDbStore, Fake> {
        self.relay_with(publisher, RelayOptions::default())
    }

    pub(crate) fn relay_with<P: Publisher + Clone>(
        &self,
        publisher: &P,
        mut options: RelayOptions,
    ) -> Relay<DynamoDbStore, P> {
        options.bucket_count = self.count;
        Relay::new(self.store.clone(), publisher.clone(), options, self.clock.clone(), self.chance.clone())
            .unwrap()
    }

    pub(crate) fn relay_id(&self) -> RelayId {
        self.chance.relay_id("test", self.clock.now_utc())
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::new(self.clock.clone(), Duration::from_secs(60))
    }

    /// A hinted run of the key "21"'s bucket, under an id of its own.
    pub(crate) async fn hinted(&self, publisher: &Fake) -> outbox::RunReport {
        self.relay(publisher).hinted(&self.relay_id(), &[BUCKET].into(), &self.budget()).await
    }

    /// One acquisition round of everything.
    pub(crate) async fn acquire(&self, id: &str, times: LeaseTimes) -> Acquired {
        let (id, wanted) = (relay(id), self.count.buckets().collect());
        self.try_acquire(&id, times, &wanted, &BTreeSet::new()).await.unwrap()
    }

    pub(crate) async fn try_acquire(
        &self,
        relay: &RelayId,
        times: LeaseTimes,
        wanted: &BTreeSet<Bucket>,
        busy: &BTreeSet<Bucket>,
    ) -> Result<Acquired, outbox::StoreError> {
        let previous = BTreeSet::new();
        let (bucket_count, limit) = (self.count, Duration::from_mins(1));
        let request = AcquireRequest { relay, bucket_count, times, wanted, previous: &previous, busy, limit };
        self.store.acquire(&request).await
    }

    /// One round of several relays at once, a millisecond apart by their clocks.
    pub(crate) async fn round(&self, ids: &[String], now: Ticks) -> BTreeMap<String, Acquired> {
        let rounds = ids.iter().zip(0..).map(|(id, nth)| {
            let times = LeaseTimes { now: now.plus(Duration::from_millis(nth)), duration: DURATION };
            self.acquire(id, times).map(move |acquired| (id.clone(), acquired))
        });
        join_all(rounds).await.into_iter().collect()
    }

    pub(crate) async fn item(&self, partition: &str, sort: &str) -> Option<Item> {
        let get = self.client.get_item().table_name("outbox").set_key(Some(key(partition, sort)));
        get.send().await.unwrap().item
    }

    /// Who the lease of a bucket names.
    pub(crate) async fn owner(&self, bucket: Bucket) -> Option<String> {
        let lease = self.item("OUTBOX#COORDINATION", &format!("LEASE#{:010}", bucket.number())).await;
        lease.and_then(|lease| Some(lease.get("Owner")?.as_s().unwrap().clone()))
    }

    /// The items of a partition.
    pub(crate) async fn partition(&self, partition: &str) -> Vec<Item> {
        let query = self.client.query().table_name("outbox").key_condition_expression("PK = :p");
        let query = query.expression_attribute_values(":p", AttributeValue::S(partition.to_owned()));
        query.into_paginator().items().send().collect::<Result<_, _>>().await.unwrap()
    }

    /// The messages of the key "21"'s bucket.
    pub(crate) async fn waiting(&self) -> usize {
        self.partition("OUTBOX#MESSAGES#4").await.len()
    }

    /// Takes a message of the key "21"'s bucket away, as if its transaction had reserved its number and was not yet
    /// committed. Returns what commits it.
    pub(crate) async fn uncommit(
        &self,
        sequence: u32,
    ) -> impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static {
        let key = key("OUTBOX#MESSAGES#4", &format!("{sequence:019}"));
        let delete = self.client.delete_item().table_name("outbox").set_key(Some(key));
        let deleted =
            delete.return_values(aws_sdk_dynamodb::types::ReturnValue::AllOld).send().await.unwrap();
        let put = self.client.put_item().table_name("outbox").set_item(deleted.attributes);
        move || {
            async move {
                put.send().await.unwrap();
            }
            .boxed()
        }
    }
}

fn store(database: &Database, options: StoreOptions, wire: &Wire, chance: &Chance) -> DynamoDbStore {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(database.endpoint())
        .timeout_config(client_timeouts())
        .http_client(wire.clone());
    let clock = Arc::new(outbox::SystemClock::new());
    DynamoDbStore::new(Client::from_conf(config.build()), options, clock, chance.clone())
}

/// Notes what it is given, in order, and does something before it answers for the whole batch.
#[derive(Clone)]
pub(crate) struct Fake {
    published: Arc<Mutex<Vec<MessageId>>>,
    during: Arc<dyn Fn() -> BoxFuture<'static, Outcome> + Send + Sync>,
}

impl Fake {
    /// Acknowledges everything at once.
    pub(crate) fn instant() -> Self {
        Self::during(|| std::future::ready(Outcome::Acknowledged).boxed())
    }

    /// What it does while it publishes, and how that ends.
    pub(crate) fn during(during: impl Fn() -> BoxFuture<'static, Outcome> + Send + Sync + 'static) -> Self {
        Self { published: Arc::default(), during: Arc::new(during) }
    }

    pub(crate) fn published(&self) -> Vec<MessageId> {
        self.published.lock().unwrap().clone()
    }
}

impl Publisher for Fake {
    async fn publish(&self, batch: &[&Message], _: Duration) -> Vec<Outcome> {
        self.published.lock().unwrap().extend(batch.iter().map(|message| message.id));
        let outcome = (self.during)().await;
        vec![outcome; batch.len()]
    }
}

pub(crate) fn key(partition: &str, sort: &str) -> Item {
    [("PK", partition), ("SK", sort)]
        .map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())))
        .into()
}

pub(crate) fn relay(id: &str) -> RelayId {
    RelayId::new(id).unwrap()
}

/// The times of a lease asked for so many seconds after [`NOW`].
pub(crate) fn at(seconds: u64) -> LeaseTimes {
    LeaseTimes { now: NOW.plus(Duration::from_secs(seconds)), duration: DURATION }
}

pub(crate) fn numbers(acquired: &Acquired) -> BTreeSet<u32> {
    acquired.leases.iter().map(|lease| lease.bucket.number()).collect()
}

/// Waits for something that another task brings about, with a bound.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 30 s: {what}");
}
