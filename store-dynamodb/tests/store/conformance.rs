//! The conformance suite of `outbox` over this store: each scenario under a key prefix of its own, in one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::StreamSpecification;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use outbox::conformance::{self, BUCKET_COUNT, Harness, HarnessError, SCENARIOS};
use outbox::{Bucket, Chance, Message, SystemClock};
use outbox_store_dynamodb::{DynamoDbStore, StoreOptions, Writer};

use crate::support::{Bench, key};

struct Table {
    bench: Bench,
    scenarios: AtomicUsize,
    /// How many replies have been lost.
    lost: Arc<AtomicUsize>,
}

impl Table {
    async fn new() -> Self {
        let bench = Bench::new().await;
        // Nobody reads the stream here, and the embedded database looks through all of it at every write.
        let off = StreamSpecification::builder().stream_enabled(false).build().unwrap();
        bench.client.update_table().table_name("outbox").stream_specification(off).send().await.unwrap();
        Self { bench, scenarios: AtomicUsize::new(0), lost: Arc::default() }
    }

    fn store(client: Client, options: StoreOptions) -> DynamoDbStore {
        DynamoDbStore::new(client, options, Arc::new(SystemClock::new()), Chance::seeded(1))
    }
}

impl Harness for Table {
    type Store = DynamoDbStore;

    async fn fresh(&self) -> Result<DynamoDbStore, HarnessError> {
        let number = self.scenarios.fetch_add(1, Ordering::SeqCst);
        let options =
            StoreOptions::new("outbox").with_key_prefix(format!("S{number}")).with_bucket_count(BUCKET_COUNT);
        Ok(Self::store(self.bench.client.clone(), options))
    }

    async fn put(&self, store: &DynamoDbStore, _: Bucket, message: Message) -> Result<(), HarnessError> {
        let writer = Writer::new(self.bench.client.clone(), store.options().clone());
        Ok(writer.enqueue(&[message]).await?)
    }

    async fn losing_a_reply(&self, store: &DynamoDbStore, write: usize) -> Option<DynamoDbStore> {
        let config = self.bench.client.config().to_builder().interceptor(LostReply {
            write,
            replies: Arc::default(),
            lost: Arc::clone(&self.lost),
        });
        Some(Self::store(Client::from_conf(config.build()), store.options().clone()))
    }

    async fn unreachable(&self) -> Option<DynamoDbStore> {
        let bench = Bench::unreachable().await;
        // That it tries again first is another test's matter.
        let config = bench.client.config().to_builder().retry_config(RetryConfig::disabled());
        Some(Self::store(Client::from_conf(config.build()), bench.store.options().clone()))
    }

    async fn heartbeats(&self, store: &DynamoDbStore) -> Option<usize> {
        let query = self.bench.client.query().table_name("outbox");
        let query = query.key_condition_expression("PK = :p AND begins_with(SK, :r)");
        let from = key(&format!("{}#COORDINATION", store.options().key_prefix()), "RELAY#");
        let query = query
            .expression_attribute_values(":p", from["PK"].clone())
            .expression_attribute_values(":r", from["SK"].clone());
        usize::try_from(query.send().await.ok()?.count()).ok()
    }
}

/// Loses the reply of one write that was carried out: the SDK sees a failing server, and sends the write again.
#[derive(Clone, Debug)]
struct LostReply {
    write: usize,
    replies: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Intercept for LostReply {
    fn name(&self) -> &'static str {
        "LostReply"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let operation = config.load::<Metadata>().map(Metadata::name).unwrap_or_default();
        let is_write = ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"].contains(&operation);
        if is_write && self.replies.fetch_add(1, Ordering::SeqCst) + 1 == self.write {
            self.lost.fetch_add(1, Ordering::SeqCst);
            let response = context.response_mut();
            *response.status_mut() = StatusCode::try_from(500)?;
            *response.body_mut() = SdkBody::from("{}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_contract() {
    let table = Table::new().await;
    let report = conformance::run_all(&table).await;
    println!("{report}");
    // All of it: nothing is skipped.
    assert_eq!(report.passed().collect::<Vec<_>>(), SCENARIOS, "{report}");
    // One of a claim, a renewal, a release and a delete, two of a stop, three of an acquisition.
    assert_eq!(table.lost.load(Ordering::SeqCst), 9);
}
