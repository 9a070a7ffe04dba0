//! A DynamoDB with an outbox, a broker, and functions to invoke.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use outbox::{BucketCount, Message, MessageIds, SystemClock};
use outbox_local::dynamodb::Database;
use outbox_local::functions::{FunctionBinaries, Profile};
use outbox_local::kafka::{Broker, BrokerOptions, Reader, Record};
use outbox_local::lambda::{FunctionSpec, LambdaHost, Outcome};
use outbox_store_dynamodb::{StoreOptions, Writer, table};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// What a function has here: enough for every limit of its own to show.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// One broker for the whole run: each test has topics of its own. It ends with this process.
static BROKER: OnceCell<Broker> = OnceCell::const_new();
static BINARIES: OnceCell<FunctionBinaries> = OnceCell::const_new();
/// Whether the database keeps its promises. Every test has an embedded one of its own, of the same make, or all have the
/// one that the environment names: one probe answers for all, and on one that fails no test runs.
static TRUSTED: OnceCell<()> = OnceCell::const_new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Stream,
    Scheduled,
}

pub(crate) const BOTH: [Function; 2] = [Function::Stream, Function::Scheduled];

/// The broker of all tests.
pub(crate) async fn broker() -> &'static Broker {
    BROKER
        .get_or_init(async || Broker::start(BrokerOptions::from_env().unwrap()).await.expect("a broker"))
        .await
}

pub(crate) struct Bench {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) writer: Writer,
    /// This test's own, as is the topic: a database and a broker from elsewhere keep those of earlier runs.
    pub(crate) table: String,
    pub(crate) topic: String,
    binaries: FunctionBinaries,
    variables: BTreeMap<String, String>,
    ids: MessageIds,
}

impl Bench {
    /// An outbox table and the broker.
    pub(crate) async fn new() -> Self {
        Self::beside(broker().await.bootstrap_servers()).await
    }

    /// The broker, and a database without a table.
    pub(crate) async fn without_table() -> Self {
        Self::without_table_at(broker().await.bootstrap_servers()).await
    }

    /// An outbox table, and brokers of somebody else's.
    pub(crate) async fn beside(servers: &str) -> Self {
        let bench = Self::without_table_at(servers).await;
        table::create(&bench.client, &StoreOptions::new(&bench.table), &SystemClock::new()).await.unwrap();
        bench
    }

    async fn without_table_at(servers: &str) -> Self {
        let binaries =
            BINARIES.get_or_init(async || FunctionBinaries::find_or_build(Profile::Dev).await.unwrap());
        let database = Database::from_env().await.unwrap();
        TRUSTED.get_or_init(async || database.check().await.unwrap()).await;
        let client = database.client().await;
        let ids = MessageIds::from_system();
        let (table, topic) = (format!("outbox-{}", ids.next_id()), format!("orders-{}", ids.next_id()));
        let mut variables = BTreeMap::from([
            ("OUTBOX_TABLE_NAME".to_owned(), table.clone()),
            ("KAFKA_BOOTSTRAP_SERVERS".to_owned(), servers.to_owned()),
        ]);
        variables.extend(database.environment());
        Self {
            writer: Writer::new(client.clone(), StoreOptions::new(&table)),
            binaries: binaries.await.clone(),
            database,
            client,
            table,
            topic,
            variables,
            ids,
        }
    }

    /// Sets a variable of the functions; empty: not set.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn host(&self, function: Function) -> LambdaHost {
        self.host_with(function, |spec| spec)
    }

    /// A host whose spec is changed first.
    pub(crate) fn host_with(
        &self,
        function: Function,
        change: impl FnOnce(FunctionSpec) -> FunctionSpec,
    ) -> LambdaHost {
        let (name, binary) = match function {
            Function::Stream => ("stream-relay", &self.binaries.stream_relay),
            Function::Scheduled => ("scheduled-relay", &self.binaries.scheduled_relay),
        };
        let set = self.variables.iter().filter(|(_, value)| !value.is_empty());
        let spec = FunctionSpec::new(name, binary).with_variables(set.map(|(n, v)| (n.clone(), v.clone())));
        LambdaHost::start(change(spec.with_timeout(TIMEOUT).with_freeze_when_idle(true))).unwrap()
    }

    /// What invokes a function: the stream's the given records, the schedule's a tick.
    pub(crate) fn event(&self, function: Function, records: &[Value]) -> Value {
        match function {
            Function::Stream => json!({ "Records": records }),
            Function::Scheduled => json!({}),
        }
    }

    /// Invokes a new process of a function once.
    pub(crate) async fn invoke(&self, function: Function, records: &[Value]) -> Outcome {
        self.host(function).invoke(&self.event(function, records)).await.unwrap()
    }

    pub(crate) fn message(&self, key: &str) -> Message {
        Message::new(self.ids.next_id(), &self.topic).with_key(key.to_owned()).with_value("v")
    }

    pub(crate) async fn enqueue(&self, key: &str) -> Message {
        let message = self.message(key);
        self.writer.enqueue(std::slice::from_ref(&message)).await.unwrap();
        message
    }

    pub(crate) async fn put(&self, item: HashMap<String, AttributeValue>) {
        self.client.put_item().table_name(&self.table).set_item(Some(item)).send().await.unwrap();
    }

    /// The items of one partition, by sort key.
    pub(crate) async fn items(&self, partition: &str) -> BTreeMap<String, HashMap<String, AttributeValue>> {
        let query = self.client.query().table_name(&self.table).key_condition_expression("PK = :partition");
        let query = query.expression_attribute_values(":partition", AttributeValue::S(partition.to_owned()));
        let items = query.send().await.unwrap().items.unwrap();
        items.into_iter().map(|item| (item["SK"].as_s().unwrap().clone(), item)).collect()
    }

    pub(crate) async fn waiting(&self, bucket: u32) -> usize {
        self.items(&format!("OUTBOX#MESSAGES#{bucket}")).await.len()
    }

    /// Somebody had a bucket, nobody owns one, and every relay that announced itself has stopped.
    pub(crate) async fn assert_released(&self) {
        let items = self.items("OUTBOX#COORDINATION").await;
        assert!(items.keys().any(|sort| sort.starts_with("LEASE#")), "no bucket was ever leased");
        for (sort, item) in items {
            assert!(!item.contains_key("Owner"), "{sort} is still owned");
            assert!(
                !sort.starts_with("RELAY#") || item.contains_key("StoppedAtUtc"),
                "{sort} has not stopped"
            );
        }
    }

    /// A record of the table's stream, as Lambda gets it.
    pub(crate) fn record(&self, event: &str, partition: &str, sort: &str) -> Value {
        let table = &self.table;
        let stream =
            format!("arn:aws:dynamodb:us-east-1:000000000000:table/{table}/stream/2026-11-30T00:00:00.000");
        json!({
            "eventID": "7de3041dd709b024af6f29e4fa13d34c", "eventName": event, "eventVersion": "1.1",
            "eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "eventSourceARN": stream,
            "dynamodb": {
                "ApproximateCreationDateTime": 1_796_037_753,
                "Keys": {"PK": {"S": partition}, "SK": {"S": sort}},
                "SequenceNumber": "111", "SizeBytes": 60, "StreamViewType": "KEYS_ONLY"
            }
        })
    }

    /// The record of a message put into a bucket.
    pub(crate) fn insert(&self, bucket: u32) -> Value {
        self.record("INSERT", &format!("OUTBOX#MESSAGES#{bucket}"), "0000000000000000001")
    }

    /// The records in the topic, in the order of one partition.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let servers = &self.variables["KAFKA_BOOTSTRAP_SERVERS"];
        Reader::open(servers, &self.topic).await.unwrap().rest().await.unwrap()
    }
}

/// A key of each bucket, in bucket order.
pub(crate) fn keys() -> Vec<String> {
    let of = |bucket| {
        let mut keys = (0..).map(|n: u32| format!("key-{n}"));
        keys.find(|key| BucketCount::DEFAULT.of_key(key.as_bytes()) == bucket).unwrap()
    };
    BucketCount::DEFAULT.buckets().map(of).collect()
}

/// Another key that lives in the same bucket.
pub(crate) fn neighbour_of(key: &str) -> String {
    let bucket = |key: &str| BucketCount::DEFAULT.of_key(key.as_bytes());
    let mut others = (0..).map(|n: u32| format!("other-{n}"));
    others.find(|other| bucket(other) == bucket(key)).unwrap()
}

/// Whether a function has printed a line with all these texts.
pub(crate) fn logged(host: &LambdaHost, texts: &[&str]) -> bool {
    host.logs().iter().any(|line| texts.iter().all(|text| line.text.contains(text)))
}

/// The type and the text of a function error.
pub(crate) fn function_error(outcome: &Outcome) -> (&str, &str) {
    match outcome {
        Outcome::FunctionError { error_type, message } => (error_type, message),
        other => panic!("not a function error: {other}"),
    }
}

/// That the stream function asked for no record again.
pub(crate) fn assert_no_failure(outcome: &Outcome) {
    assert_eq!(outcome.response(), Some(&json!({ "batchItemFailures": [] })), "{outcome}");
}

pub(crate) fn ids(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.header_text("x-outbox-message-id").unwrap().to_owned()).collect()
}
