//! A fresh embedded DynamoDB with an outbox table for each test.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::AttributeValue;
use outbox::store::FetchRequest;
use outbox::{Bucket, Chance, LeaseTimes, Message, OutboxStore as _, RelayId, SystemClock, Ticks};
use outbox_store_dynamodb::{DynamoDbStore, Sequence, StoreOptions, Writer, client_timeouts, table};

pub(crate) const LIMIT: Duration = Duration::from_secs(5);
pub(crate) const NOW: Ticks = Ticks::from_raw(639_316_345_534_567_890);
pub(crate) const DURATION: Duration = Duration::from_secs(30);

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) store: DynamoDbStore,
    pub(crate) writer: Writer,
    endpoint: String,
    chance: Chance,
}

impl Bench {
    /// A database with an outbox table.
    pub(crate) async fn new() -> Self {
        let bench = Self::without_table(StoreOptions::new("outbox")).await;
        table::create(&bench.client, bench.store.options(), &SystemClock::new()).await.unwrap();
        bench
    }

    /// A database with nothing in it.
    pub(crate) async fn without_table(options: StoreOptions) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().unwrap()));
        Self::at(endpoint, options)
    }

    /// An address at which nobody listens.
    pub(crate) async fn unreachable() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        Self::at(endpoint, StoreOptions::new("outbox"))
    }

    /// Whatever is at an address.
    pub(crate) fn at(endpoint: String, options: StoreOptions) -> Self {
        let client = client(&endpoint, None);
        Self {
            store: store(&client, options.clone()),
            writer: Writer::new(client.clone(), options),
            client,
            endpoint,
            chance: Chance::seeded(7),
        }
    }

    /// A store of its own connection, whose requests `hook` sees before they are sent.
    pub(crate) fn hooked(&self, hook: Hook) -> DynamoDbStore {
        store(&client(&self.endpoint, Some(hook)), self.store.options().clone())
    }

    pub(crate) fn message(&self, key: &str) -> Message {
        Message::new(self.chance.message_id(NOW), "orders").with_key(key.to_owned()).with_value("v")
    }

    pub(crate) async fn enqueue(&self, key: &str) -> Message {
        let message = self.message(key);
        self.writer.enqueue(std::slice::from_ref(&message)).await.unwrap();
        message
    }

    pub(crate) async fn fetch(&self, bucket: Bucket, max: usize) -> outbox::store::Fetched<Sequence> {
        self.store.fetch(&fetch_request(bucket, max)).await.unwrap()
    }

    pub(crate) async fn put(&self, item: Item) {
        self.client.put_item().table_name("outbox").set_item(Some(item)).send().await.unwrap();
    }

    pub(crate) async fn item(&self, partition: &str, sort: &str) -> Option<Item> {
        let get = self.client.get_item().table_name("outbox").set_key(Some(key(partition, sort)));
        get.send().await.unwrap().item
    }
}

pub(crate) fn fetch_request(bucket: Bucket, max: usize) -> FetchRequest<'static, Sequence> {
    FetchRequest { bucket, max_messages: max, max_bytes: 4 << 20, removed_up_to: None, limit: LIMIT }
}

pub(crate) fn key(partition: &str, sort: &str) -> Item {
    [("PK", partition), ("SK", sort)]
        .map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())))
        .into()
}

pub(crate) fn relay(id: &str) -> RelayId {
    RelayId::new(id).unwrap()
}

pub(crate) fn at(seconds: u64) -> LeaseTimes {
    LeaseTimes { now: NOW.plus(Duration::from_secs(seconds)), duration: DURATION }
}

pub(crate) fn buckets(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<Bucket> {
    numbers.into_iter().map(Bucket::new).collect()
}

fn store(client: &Client, options: StoreOptions) -> DynamoDbStore {
    DynamoDbStore::new(client.clone(), options, Arc::new(SystemClock::new()), Chance::seeded(1))
}

fn client(endpoint: &str, hook: Option<Hook>) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(endpoint)
        .timeout_config(client_timeouts());
    Client::from_conf(match hook {
        Some(hook) => config.interceptor(hook).build(),
        None => config.build(),
    })
}

/// Counts requests, and does something just before the one with a given number (from 1) is sent.
#[derive(Clone)]
pub(crate) struct Hook {
    sent: Arc<AtomicUsize>,
    at: usize,
    action: Arc<dyn Fn() + Send + Sync>,
}

impl Hook {
    pub(crate) fn before(request: usize, action: impl Fn() + Send + Sync + 'static) -> Self {
        Self { sent: Arc::default(), at: request, action: Arc::new(action) }
    }

    pub(crate) fn counting() -> Self {
        Self::before(usize::MAX, || {})
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Intercept for Hook {
    fn name(&self) -> &'static str {
        "Hook"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.sent.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            (self.action)();
        }
        Ok(())
    }
}
