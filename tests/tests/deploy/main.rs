//! The stack as users deploy it: `sam build` and `sam deploy` of `template.yaml`, onto MiniStack. Its table, stream
//! mapping, filter and schedule wake the real functions, which publish to a real broker; and what becomes of messages
//! while it is updated, rolled back and deleted.
//!
//! Needs what `infra/tools/venv` and `infra/deploy/build` make, and fails without: `tests/run` makes both first. To
//! leave it out, say so: `LOCAL_SKIP_DEPLOY=1`.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what must hold by panicking"
)]

mod lifecycle;
mod load;
mod messages;
mod ministack;

use std::io::Write as _;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use outbox::{Message, MessageIds};
use outbox_local::dynamodb::{Database, check_parts};
use outbox_local::kafka::{Broker, BrokerOptions, Reader, Require};
use outbox_store_dynamodb::{StoreOptions, Writer};

use messages::{
    CUSTOMERS, ORDERS_EACH, compare, count, enqueue_backlog, enqueue_oddities, place_orders, read,
    wait_until_outbox_is_empty,
};
use ministack::{Deployed, MiniStack};

const SKIP: &str = "LOCAL_SKIP_DEPLOY";
const STACK: &str = "outbox-deploy-test";
const TABLE: &str = "orders";
const TOPIC: &str = "order-events";
/// From the last commit to the last record read. Cold starts included.
const DELIVERY_BOUND: Duration = Duration::from_secs(60);
/// The schedule's shortest interval is a minute.
const SWEEP_BOUND: Duration = Duration::from_secs(120);

/// What the stack stands on, and what is seen of it.
struct Ground {
    ministack: MiniStack,
    broker: Broker,
    /// The way to `client`'s table.
    _database: Database,
    client: Client,
    options: StoreOptions,
    reader: Reader,
}

impl Ground {
    /// Everything there, and the stack created: only the stream can deliver, for the schedule is a day away.
    async fn create() -> Self {
        let options = BrokerOptions { require: Require::Real, ..BrokerOptions::from_env().unwrap() };
        let broker = Broker::start(options).await.unwrap();
        broker.create_topic(TOPIC, 3).await.unwrap();
        let ministack = MiniStack::start().await;
        let day = parameters(&ministack, &broker, &[("ScheduleExpression", "rate(1 day)")]);
        ministack.deploy(STACK, &day, None).await.succeeded();

        let database = Database::start(Some(ministack.url().to_owned())).await.unwrap();
        let client = database.client().await;
        check_parts(&client, &database.streams_client().await).await.unwrap();
        let reader = Reader::open(broker.bootstrap_servers(), TOPIC).await.unwrap();
        Self { ministack, broker, _database: database, client, options: StoreOptions::new(TABLE), reader }
    }

    /// Updates the stack: these parameters are all that it has beside where things are.
    async fn deploy(&self, others: &[(&str, &str)]) -> Deployed {
        self.ministack.deploy(STACK, &parameters(&self.ministack, &self.broker, others), None).await
    }

    fn writer(&self) -> Writer {
        Writer::new(self.client.clone(), self.options.clone())
    }

    async fn wait_until_empty(&self) {
        wait_until_outbox_is_empty(&self.client, &self.options).await;
    }
}

fn parameters(ministack: &MiniStack, broker: &Broker, others: &[(&str, &str)]) -> Vec<(String, String)> {
    let places = [
        ("TableName", TABLE),
        ("KafkaBootstrapServers", broker.bootstrap_servers()),
        ("DynamoDbEndpoint", ministack.url()),
        ("LambdaEndpoint", ministack.url()),
    ];
    places.iter().chain(others).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_deployed_onto_ministack_delivers_whatever_is_done_to_it() {
    if std::env::var_os(SKIP).is_some_and(|value| value == "1") {
        // Not by macro: those are shown for tests that fail.
        writeln!(std::io::stderr(), "skipped, because {SKIP}=1: the deployment onto MiniStack").unwrap();
        return;
    }
    let ground = Ground::create().await;
    what_the_stream_names_is_delivered(&ground).await;
    lifecycle::an_update_loses_nothing(&ground).await;
    lifecycle::an_update_that_fails_is_rolled_back_and_loses_nothing(&ground).await;
    what_only_the_schedule_can_see_is_delivered(&ground).await;
    a_backlog_is_gone_on_with_at_once(&ground).await;
    lifecycle::a_stack_that_is_deleted_leaves_its_messages_to_another(&ground).await;
}

async fn what_the_stream_names_is_delivered(ground: &Ground) {
    let Ground { client, options, reader, .. } = ground;
    let mut expected = place_orders(client, options).await;
    expected.extend(enqueue_oddities(client, options).await);
    let records = read(reader, expected.len(), DELIVERY_BOUND).await;
    compare(&records, &expected);
    ground.wait_until_empty().await;
    assert_eq!(count(client, "ORDERS").await, CUSTOMERS * ORDERS_EACH, "business items are left alone");
}

async fn what_only_the_schedule_can_see_is_delivered(ground: &Ground) {
    ground.ministack.switch_streams_off().await;
    ground.deploy(&[("ScheduleExpression", "rate(1 minute)")]).await.succeeded();
    let message = Message::new(MessageIds::from_system().next_id(), TOPIC).with_value("swept");
    ground.writer().enqueue(std::slice::from_ref(&message)).await.unwrap();
    let records = read(&ground.reader, 1, SWEEP_BOUND).await;
    compare(&records, &[message]);
    ground.wait_until_empty().await;
    assert!(ground.reader.rest().await.unwrap().is_empty(), "nothing is published twice");
}

/// One that takes many sweeps, of 4 s each with a timeout of 10 s: by the schedule alone it would take minutes.
async fn a_backlog_is_gone_on_with_at_once(ground: &Ground) {
    let slow =
        [("ScheduleExpression", "rate(1 minute)"), ("FunctionTimeoutSeconds", "10"), ("BatchSize", "1")];
    ground.deploy(&slow).await.succeeded();
    let backlog = enqueue_backlog(&ground.client, &ground.options).await;
    let records = read(&ground.reader, backlog.len(), SWEEP_BOUND).await;
    compare(&records, &backlog);
    ground.wait_until_empty().await;
}
