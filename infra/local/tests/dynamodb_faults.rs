//! A DynamoDB that misbehaves when told to, as the SDK sees it.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest,
    ScalarAttributeType, WriteRequest,
};
use outbox_local::dynamodb::{Database, Fault, Rule};
use outbox_local::link::Mode;

const BOUND: Duration = Duration::from_secs(10);
const TABLE: &str = "faulty";
const PUT: &str = "PutItem";

/// A database with a table, and three clients of it.
struct Bench {
    database: Database,
    /// What checks: no fault meets it.
    plain: Client,
    /// What is tested, without retries.
    faulty: Client,
    /// What is tested, with the SDK's three attempts.
    retrying: Client,
}

async fn bench() -> Bench {
    let database = Database::start(None).await.unwrap();
    let plain = database.client().await;
    create_table(&plain, TABLE).await;
    let faulty = client(&database, database.faulty_endpoint(), 1, BOUND).await;
    let retrying = client(&database, database.faulty_endpoint(), 3, BOUND).await;
    Bench { database, plain, faulty, retrying }
}

async fn client(database: &Database, endpoint: &str, attempts: u32, attempt_bound: Duration) -> Client {
    let retries = RetryConfig::standard().with_max_attempts(attempts);
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(attempt_bound).build();
    let config = database.client_config(endpoint).await.timeout_config(timeouts);
    Client::from_conf(config.retry_config(retries.with_initial_backoff(Duration::from_millis(1))).build())
}

async fn create_table(client: &Client, name: &str) {
    let attribute =
        AttributeDefinition::builder().attribute_name("PK").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("PK").key_type(KeyType::Hash);
    let create = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(attribute.build().unwrap()).key_schema(key.build().unwrap());
    create.send().await.unwrap();
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn put(client: &Client, key: &str) -> Result<PutItemOutput, SdkError<PutItemError>> {
    client.put_item().table_name(TABLE).item("PK", text(key)).send().await
}

impl Bench {
    async fn is_there(&self, key: &str) -> bool {
        let get = self.plain.get_item().table_name(TABLE).key("PK", text(key)).consistent_read(true);
        get.send().await.unwrap().item.is_some()
    }

    async fn until_there(&self, key: &str) {
        let deadline = Instant::now() + BOUND;
        while !self.is_there(key).await {
            assert!(Instant::now() < deadline, "{key} did not arrive");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn faults(&self) -> &outbox_local::dynamodb::Faults {
        self.database.faults().unwrap()
    }
}

/// A 400 that is not throttling is not tried again.
#[tokio::test]
async fn the_sdk_takes_it_for_throttling_and_tries_again() {
    let bench = bench().await;
    for (fault, code) in [
        (Fault::Throttle, "ThrottlingException"),
        (Fault::ThrottleProvisioned, "ProvisionedThroughputExceededException"),
        (Fault::InternalError, "InternalServerError"),
    ] {
        let rule = bench.faults().set(Rule::new(fault));
        let before = bench.database.faulty_usage().unwrap();
        let error = put(&bench.retrying, "refused").await.unwrap_err();
        assert_eq!(error.code(), Some(code));
        let error = error.into_service_error();
        assert!(
            error.is_throttling_exception()
                || error.is_provisioned_throughput_exceeded_exception()
                || error.is_internal_server_error(),
            "{error:?}"
        );
        assert_eq!((rule.matched(), rule.injected()), (3, 3), "{code}");
        let used = bench.database.faulty_usage().unwrap().since(&before).operations[PUT];
        assert_eq!((used.requests, used.refused, used.units), (3, 3, 0.0), "{code}");
        // Ours are in peace all the while.
        put(&bench.plain, "in peace").await.unwrap();
        assert!(!bench.is_there("refused").await);
    }
    bench.faults().clear();
    put(&bench.faulty, "refused").await.unwrap();
    assert_eq!(bench.faults().injected().of_operation(Fault::Throttle, PUT), 3);
    assert_eq!(bench.faults().injected().total(), 9);
}

#[tokio::test]
async fn a_lost_request_is_not_carried_out_and_a_lost_reply_is() {
    let bench = bench().await;
    for (fault, key, is_there) in [(Fault::LoseRequest, "request", false), (Fault::LoseReply, "reply", true)]
    {
        let rule = bench.faults().set(Rule::new(fault));
        let error = put(&bench.faulty, key).await.unwrap_err();
        assert!(matches!(error, SdkError::DispatchFailure(_)), "{error:?}");
        assert_eq!(bench.is_there(key).await, is_there, "{key}");
        assert_eq!(rule.injected(), 1);
        // A connection that breaks is a reason to try again.
        put(&bench.retrying, key).await.unwrap_err();
        assert_eq!(rule.injected(), 4, "{key}");
    }
}

#[tokio::test]
async fn what_hangs_goes_on_when_the_fault_ends_unless_its_client_has_gone() {
    let bench = bench().await;
    let hanging = bench.faults().set(Rule::new(Fault::Hang).with_operations([PUT]));
    let impatient =
        client(&bench.database, bench.database.faulty_endpoint(), 1, Duration::from_millis(200)).await;
    let error = put(&impatient, "gone").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");

    let waiting = tokio::spawn({
        let client = bench.faulty.clone();
        async move { put(&client, "waited").await }
    });
    let deadline = Instant::now() + BOUND;
    while hanging.injected() < 2 {
        assert!(Instant::now() < deadline, "it did not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!bench.is_there("waited").await && !waiting.is_finished());
    // Another rule is not this one, so it ends the hanging too.
    bench.faults().set(Rule::new(Fault::Throttle).with_operations(["Query"]));
    waiting.await.unwrap().unwrap();
    assert!(bench.is_there("waited").await);
    assert!(!bench.is_there("gone").await);
}

#[tokio::test]
async fn a_late_request_lands_after_its_client_has_given_up() {
    let bench = bench().await;
    let late = Duration::from_millis(700);
    bench.faults().set(Rule::new(Fault::Late(late)));
    let impatient =
        client(&bench.database, bench.database.faulty_endpoint(), 1, Duration::from_millis(200)).await;
    let start = Instant::now();
    let error = put(&impatient, "late").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    let there_early = bench.is_there("late").await;
    assert!(!there_early || start.elapsed() >= late);
    drop(impatient);
    bench.faults().clear();
    bench.until_there("late").await;
    assert!(start.elapsed() >= late, "{:?}", start.elapsed());

    bench.faults().set(Rule::new(Fault::Late(late)));
    let start = Instant::now();
    put(&bench.faulty, "patient").await.unwrap();
    assert!(start.elapsed() >= late);
}

#[tokio::test]
async fn a_batch_is_left_in_part_or_as_a_whole() {
    let bench = bench().await;
    let write = |key: &str| {
        let put = PutRequest::builder().item("PK", text(key)).build().unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    for (left, seed) in [(1.0, 0), (0.5, 1), (0.5, 2), (0.0, 0)] {
        let rule = bench.faults().set(Rule::new(Fault::Unprocessed(left)).with_seed(seed));
        let keys: Vec<_> = (0..25).map(|n| format!("{left}-{seed}-{n}")).collect();
        let writes: Vec<_> = keys.iter().map(|key| write(key)).collect();
        let batch = bench.faulty.batch_write_item().request_items(TABLE, writes);
        let answer = batch.send().await.unwrap();
        let unprocessed = answer.unprocessed_items.unwrap_or_default().remove(TABLE).unwrap_or_default();
        for key in &keys {
            assert_eq!(bench.is_there(key).await, !unprocessed.contains(&write(key)), "{key}");
        }
        match left {
            1.0 => assert_eq!(unprocessed.len(), 25),
            0.0 => assert_eq!(unprocessed.len(), 0),
            _ => assert!((5..20).contains(&unprocessed.len()), "{}", unprocessed.len()),
        }
        assert_eq!(rule.injected(), 1);
    }
    // It is nothing that could happen to a put.
    put(&bench.faulty, "whole").await.unwrap();
}

#[tokio::test]
async fn only_the_table_and_the_share_that_were_named_are_met() {
    let bench = bench().await;
    create_table(&bench.plain, "other").await;
    let rule = bench.faults().set(Rule::new(Fault::Throttle).with_table(TABLE).with_share(0.5).with_seed(3));
    let mut refused = 0;
    for n in 0..40 {
        bench.faulty.put_item().table_name("other").item("PK", text("x")).send().await.unwrap();
        refused += u64::from(put(&bench.faulty, &n.to_string()).await.is_err());
    }
    assert_eq!((rule.matched(), rule.injected()), (40, refused));
    assert!((8..32).contains(&refused), "{refused}");
}

#[tokio::test]
async fn the_link_is_in_front_of_the_faulty_door_alone() {
    let bench = bench().await;
    let link = bench.database.link().unwrap();
    let linked = bench.database.linked_endpoint().unwrap().to_owned();
    let client = client(&bench.database, &linked, 1, Duration::from_millis(500)).await;
    put(&client, "through").await.unwrap();
    put(&client, "again").await.unwrap();
    assert_eq!(link.opened(), 1, "a pool keeps its connection");
    assert_eq!(bench.database.faulty_usage().unwrap().operations[PUT].requests, 2);

    // What a thaw finds: a pooled connection that nobody answers on.
    link.strand();
    let error = put(&client, "lost").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    put(&client, "on a new one").await.unwrap();
    assert_eq!((link.opened(), bench.is_there("lost").await), (2, false));

    link.set(Mode::Silent);
    put(&client, "nothing").await.unwrap_err();
    put(&bench.faulty, "beside").await.unwrap();
    link.set(Mode::Pass);
    let rule = bench.faults().set(Rule::new(Fault::Throttle));
    assert_eq!(put(&client, "both").await.unwrap_err().code(), Some("ThrottlingException"));
    assert_eq!(rule.injected(), 1);
    assert_eq!(bench.database.usage().unwrap().operations["CreateTable"].requests, 1);
}
