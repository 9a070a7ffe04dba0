//! A bench whose functions reach the brokers and the table over links of their own, and processes that are frozen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outbox::Message;
use outbox::settings::parse_duration;
use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader, Record};
use outbox_local::lambda::{LambdaHost, Outcome};
use outbox_local::link::{Link, Mode};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::bench::{Bench, Function, ids, keys};

/// How long a process is frozen, or given to send what it must not: a few seconds, or what `OUTBOX_TEST_FREEZE` says
/// (`15m`), for a run by hand.
pub(crate) fn freeze_duration() -> Duration {
    let Ok(value) = std::env::var("OUTBOX_TEST_FREEZE") else {
        return Duration::from_secs(4);
    };
    parse_duration(&value).unwrap_or_else(|| panic!("OUTBOX_TEST_FREEZE={value:?}: such as 15m"))
}

/// One broker behind a link for the whole run, for one test at a time: what a link does, it does to all its clients.
static BROKER: OnceCell<Option<Mutex<Broker>>> = OnceCell::const_new();

pub(crate) struct Network {
    pub(crate) bench: Bench,
    broker: MutexGuard<'static, Broker>,
}

impl Network {
    /// `None`, said aloud: there is no broker of our own, or no database that a link can be put before.
    pub(crate) async fn new() -> Option<Self> {
        let start = async || {
            let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
            match Broker::start(BrokerOptions { behind_link: true, ..options }).await {
                Err(BrokerError::NoLink { kind }) => {
                    println!("skipped: {kind}");
                    None
                }
                started => Some(Mutex::new(started.expect("a broker"))),
            }
        };
        let broker = BROKER.get_or_init(start).await.as_ref()?.lock().await;
        let mut bench = Bench::beside(broker.linked_servers().unwrap()).await;
        let Some(endpoint) = bench.database.linked_endpoint().map(str::to_owned) else {
            println!("skipped: no link can be put before {}", bench.database.kind());
            return None;
        };
        bench.set("AWS_ENDPOINT_URL_DYNAMODB", &endpoint);
        // A test that failed may have left it as it was.
        broker.link().unwrap().set(Mode::Pass);
        broker.create_topic(&bench.topic, 1).await.unwrap();
        Some(Self { bench, broker })
    }

    /// Between the functions and the broker.
    pub(crate) fn kafka(&self) -> &Link {
        self.broker.link().unwrap()
    }

    /// Between the functions and the table.
    pub(crate) fn dynamodb(&self) -> &Link {
        self.bench.database.link().unwrap()
    }

    /// A message for each bucket, `rounds` times over; each of 1 KB, far more than what clients and brokers say besides.
    pub(crate) async fn enqueue(&self, rounds: usize) -> Vec<Message> {
        self.enqueue_of(1_000, rounds).await
    }

    /// The same with values of this size.
    pub(crate) async fn enqueue_of(&self, bytes: usize, rounds: usize) -> Vec<Message> {
        let keys = keys();
        let keys = keys.iter().cycle().take(keys.len() * rounds);
        let messages: Vec<Message> =
            keys.map(|key| self.bench.message(key).with_value("v".repeat(bytes))).collect();
        // A transaction takes 100 items, and 4 MB.
        for some in messages.chunks(100.min(3_000_000 / bytes)) {
            self.bench.writer.enqueue(some).await.unwrap();
        }
        messages
    }

    /// Invokes a function for all buckets, and says how long that took.
    pub(crate) async fn invoke(&self, host: &LambdaHost, function: Function) -> (Outcome, Duration) {
        let records: Vec<_> = (0..8).map(|bucket| self.bench.insert(bucket)).collect();
        let started = Instant::now();
        let outcome = host.invoke(&self.bench.event(function, &records)).await.unwrap();
        (outcome, started.elapsed())
    }

    /// Everything in the topic.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let reader = Reader::open(self.broker.bootstrap_servers(), &self.bench.topic).await.unwrap();
        reader.rest().await.unwrap()
    }

    /// How many messages wait in the table.
    pub(crate) async fn waiting(&self) -> usize {
        let mut waiting = 0;
        for bucket in 0..8 {
            waiting += self.bench.waiting(bucket).await;
        }
        waiting
    }
}

/// The one process of a host, which is frozen.
pub(crate) fn frozen_process(host: &LambdaHost) -> u32 {
    let processes = host.processes();
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert!(processes[0].frozen, "{processes:?}");
    processes[0].pid
}

/// Checks that every message is there, and that those of a key came in order for the first time; returns how many
/// records were more than that.
pub(crate) fn assert_first_deliveries(records: &[Record], messages: &[Message]) -> usize {
    let ids = ids(records);
    let mut of_keys: BTreeMap<&[u8], usize> = BTreeMap::new();
    for message in messages {
        let id = message.id.to_string();
        let first = ids.iter().position(|one| *one == id);
        let first = first.unwrap_or_else(|| panic!("message {id} is lost"));
        if let Some(before) = of_keys.insert(message.key.as_deref().unwrap(), first) {
            assert!(before < first, "message {id} came before an earlier one of its key");
        }
    }
    records.len() - messages.len()
}
