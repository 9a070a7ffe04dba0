//! The stream poller and the scheduler, against a real function process and a DynamoDB.

#![expect(
    clippy::unwrap_used,
    reason = "clippy knows only functions marked as tests, not the helpers beside them"
)]

mod lambda_support;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType,
};
use lambda_support::{BOUND, echo, start, until};
use outbox_local::dynamodb::Database;
use outbox_local::lambda::LambdaHost;
use outbox_local::schedule::{ScheduleRule, ScheduleSource, Scheduler};
use outbox_local::stream::{StreamFaults, StreamMapping, StreamPoller, latest_stream_arn};
use outbox_local::template::Template;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

const TABLE: &str = "poller-test";
const MESSAGES: &str = "OUTBOX#MESSAGES#3";

/// Every test has a database of its own, of the same make: one probe answers for all.
static TRUSTED: OnceCell<()> = OnceCell::const_new();

struct Streamed {
    database: Database,
    client: Client,
    stream_arn: String,
}

impl Streamed {
    async fn new() -> Self {
        let database = Database::start(None).await.unwrap();
        TRUSTED.get_or_init(async || database.check().await.unwrap()).await;
        let client = database.client().await;
        let key = |name: &str, kind| {
            let schema = KeySchemaElement::builder().attribute_name(name).key_type(kind);
            let attribute =
                AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
            (schema.build().unwrap(), attribute.build().unwrap())
        };
        let (hash, hash_attribute) = key("PK", KeyType::Hash);
        let (range, range_attribute) = key("SK", KeyType::Range);
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::KeysOnly)
            .build()
            .unwrap();
        client
            .create_table()
            .table_name(TABLE)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(hash)
            .key_schema(range)
            .attribute_definitions(hash_attribute)
            .attribute_definitions(range_attribute)
            .stream_specification(stream)
            .send()
            .await
            .unwrap();
        let stream_arn = latest_stream_arn(&client, TABLE).await.unwrap();
        Self { database, client, stream_arn }
    }

    async fn put(&self, partition_key: &str, sort_key: &str, value: &str) {
        self.client
            .put_item()
            .table_name(TABLE)
            .item("PK", AttributeValue::S(partition_key.to_owned()))
            .item("SK", AttributeValue::S(sort_key.to_owned()))
            .item("V", AttributeValue::S(value.to_owned()))
            .send()
            .await
            .unwrap();
    }

    async fn put_messages(&self, sort_keys: impl IntoIterator<Item = u32>) {
        for sort_key in sort_keys {
            self.put(MESSAGES, &sort_key.to_string(), "").await;
        }
    }

    async fn poll(&self, mapping: StreamMapping, function: &LambdaHost) -> StreamPoller {
        let client = self.database.streams_client().await;
        StreamPoller::start(client, &self.stream_arn, mapping, function.clone())
    }
}

/// The template's mapping, asked more often than Lambda asks.
fn mapping() -> StreamMapping {
    let template = Template::of_this_workspace().unwrap();
    let template = template.with_parameter("KafkaBootstrapServers", "unused:1").unwrap();
    let function = template.function("StreamRelayFunction").unwrap();
    let mut mapping = function.streams.into_values().next().unwrap();
    mapping.poll_interval = Duration::from_millis(20);
    mapping
}

/// The batches that the function has printed, once there are so many.
async fn batches(function: &LambdaHost, count: usize) -> Vec<String> {
    let lines = || -> Vec<String> {
        let logs = function.logs();
        let batch = |text: &str| text.strip_prefix("batch: ").map(str::to_owned);
        logs.iter().filter_map(|line| batch(&line.text)).collect()
    };
    until("the function has seen the batches", || (lines().len() >= count).then(lines)).await
}

#[tokio::test]
async fn only_message_inserts_arrive_and_in_order() {
    let table = Streamed::new().await;
    table.put("OUTBOX#COORDINATION", "LEASE#0000000003", "").await;
    table.put("OUTBOX#SEQUENCE#3", "SEQUENCE", "").await;
    table.put("CUSTOMER#1", "ORDER#1", "").await;
    let function = start(echo());
    let poller = table.poll(mapping(), &function).await;
    until("three records are read", || (poller.counters().records == 3).then_some(())).await;
    assert_eq!(poller.counters().filtered_out, 3);
    assert_eq!(function.counters().invocations, 0, "an event without records is not sent");

    table.put_messages(1..=5).await;
    table.put(MESSAGES, "2", "modified").await;
    let removal = table.client.delete_item().table_name(TABLE);
    let removal = removal.key("PK", AttributeValue::S(MESSAGES.to_owned()));
    removal.key("SK", AttributeValue::S("1".to_owned())).send().await.unwrap();
    table.put_messages([6]).await;
    until("all records are read", || (poller.counters().records == 11).then_some(())).await;
    timeout(BOUND, function.wait_until_idle()).await.unwrap();
    let seen = until("all messages are seen", || {
        let logs = function.logs();
        let batches = logs.iter().filter_map(|line| line.text.strip_prefix("batch: "));
        let seen: Vec<_> = batches.flat_map(|batch| batch.split(' ').map(str::to_owned)).collect();
        (seen.len() >= 6).then_some(seen)
    })
    .await;
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(poller.counters().filtered_out, 5);
    assert_eq!(poller.counters().failed_attempts, 0);
}

#[tokio::test]
async fn a_batch_goes_on_from_the_record_that_failed() {
    let table = Streamed::new().await;
    table.put_messages(1..=4).await;
    let function = start(echo().with_variable("FAIL", "3").with_variable("FAIL_TIMES", "2"));
    let poller = table.poll(mapping(), &function).await;
    assert_eq!(batches(&function, 3).await, ["1 2 3 4", "3 4", "3 4"]);
    until("the batch is done", || (poller.counters().batches == 1).then_some(())).await;
    assert_eq!(poller.counters().failed_attempts, 2);
    assert_eq!(poller.counters().given_up, 0);
}

#[tokio::test]
async fn a_batch_that_keeps_failing_is_given_up_and_the_next_one_sent() {
    let table = Streamed::new().await;
    table.put_messages(1..=2).await;
    let function = start(echo().with_variable("FAIL", "1").with_variable("FAIL_TIMES", "99"));
    let mapping = StreamMapping { maximum_retry_attempts: Some(1), batch_size: 2, ..mapping() };
    let poller = table.poll(mapping, &function).await;
    until("the batch is given up", || (poller.counters().given_up == 2).then_some(())).await;
    table.put_messages(3..=4).await;
    assert_eq!(batches(&function, 3).await[..2], ["1 2", "1 2"]);
    assert!(batches(&function, 3).await[2].starts_with('3'));
}

#[tokio::test]
async fn a_killed_function_gets_its_batch_again() {
    let table = Streamed::new().await;
    let function = start(echo().with_variable("HANG", "1"));
    let poller = table.poll(mapping(), &function).await;
    table.put_messages([1]).await;
    assert_eq!(batches(&function, 1).await, ["1"]);
    assert_eq!(function.kill_all().await, 1);
    assert_eq!(batches(&function, 2).await, ["1", "1"]);
    assert_eq!((function.counters().crashes, function.counters().cold_starts), (1, 2));
    let counters = poller.counters();
    assert_eq!((counters.failed_attempts, counters.batches, counters.given_up), (1, 0, 0));
}

#[tokio::test]
async fn a_window_gathers_and_the_batch_size_bounds() {
    let table = Streamed::new().await;
    let function = start(echo());
    let window = StreamMapping { batching_window: Duration::from_secs(1), batch_size: 4, ..mapping() };
    table.put_messages(1..=6).await;
    let begun = Instant::now();
    let _poller = table.poll(window.clone(), &function).await;
    assert_eq!(batches(&function, 2).await, ["1 2 3 4", "5 6"]);
    assert!(begun.elapsed() >= window.batching_window, "less than a batch waits for more");
}

#[tokio::test]
async fn the_schedule_overlaps_and_stops_when_dropped() {
    let function = start(echo());
    let rule = ScheduleRule {
        name: "sweep".to_owned(),
        source: ScheduleSource::Scheduler,
        expression: "rate(1 minute)".to_owned(),
        input: Some(r#"{"do": "sleep", "value": 300}"#.to_owned()),
    };
    let scheduler = Scheduler::start(rule, Some(Duration::from_millis(50)), function.clone()).unwrap();
    until("two events run at once", || (function.processes().len() >= 2).then_some(())).await;
    until("events are done", || (function.counters().invocations >= 3).then_some(())).await;
    drop(scheduler);
    timeout(BOUND, function.wait_until_idle()).await.unwrap();
    let done = function.counters().invocations;
    // Two intervals and more: nothing comes after the drop.
    let more = timeout(Duration::from_millis(200), async {
        until("another event", || (function.counters().invocations > done).then_some(())).await;
    });
    assert!(more.await.is_err());
    assert!(function.records().iter().all(|record| record.outcome.is_response()));
}

/// One message a batch, all of them there before the poller starts.
async fn with_faults(faults: StreamFaults) -> (Streamed, LambdaHost, StreamPoller) {
    let table = Streamed::new().await;
    table.put_messages(1..=4).await;
    let function = start(echo());
    let mapping = StreamMapping { batch_size: 1, from_horizon: true, ..mapping() };
    let poller = table.poll(mapping, &function).await;
    poller.set_faults(faults);
    (table, function, poller)
}

#[tokio::test]
async fn dropped_batches_never_arrive_and_later_ones_do() {
    let (table, function, poller) = with_faults(StreamFaults { drop: 1.0, ..StreamFaults::default() }).await;
    until("all are dropped", || (poller.counters().dropped == 4).then_some(())).await;
    poller.set_faults(StreamFaults::default());
    table.put_messages([5]).await;
    until("the fifth is done", || (poller.counters().batches == 1).then_some(())).await;
    assert_eq!(batches(&function, 1).await, ["5"]);
    assert_eq!((poller.counters().records, poller.counters().given_up), (5, 0));
}

#[tokio::test]
async fn duplicated_batches_arrive_twice() {
    let (_table, function, poller) =
        with_faults(StreamFaults { duplicate: 1.0, ..StreamFaults::default() }).await;
    assert_eq!(batches(&function, 8).await, ["1", "1", "2", "2", "3", "3", "4", "4"]);
    until("all are done", || (poller.counters().batches == 8).then_some(())).await;
    assert_eq!(poller.counters().duplicated, 4);
}

#[tokio::test]
async fn reordered_batches_arrive_after_the_next_one_or_when_there_is_none() {
    let (table, function, poller) =
        with_faults(StreamFaults { reorder: 1.0, ..StreamFaults::default() }).await;
    assert_eq!(batches(&function, 4).await, ["2", "1", "4", "3"]);
    table.put_messages([5]).await;
    assert_eq!(batches(&function, 5).await.last().unwrap(), "5");
    assert_eq!((poller.counters().reordered, poller.counters().dropped), (5, 0));
}
