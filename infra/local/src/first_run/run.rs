//! One run, from the first order to the report.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use outbox::MessageId;
use outbox_store_dynamodb::Writer;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::orders::{OrderError, Shop};
use super::outbox_left;
use super::report::Report;
use super::verdict::{Delivery, PlacedOrder, judge};
use crate::environment::{Environment, EnvironmentError, EnvironmentOptions};
use crate::kafka::{ClientError, Reader, Record};

/// The functions' default for `OUTBOX_MESSAGE_ID_HEADER`.
const ID_HEADER: &str = "x-outbox-message-id";
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What to place, where. [`Default`] is the run that the README promises.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What to start.
    pub environment: EnvironmentOptions,
    /// How many orders.
    pub orders: u32,
    /// Of how many customers.
    pub customers: u32,
    /// How many orders are in flight at once, each of another customer.
    pub concurrency: usize,
    /// The topic, which is created unless it is there.
    pub topic: String,
    /// The topic's partitions.
    pub partitions: u32,
    /// The business items' table, which is created.
    pub orders_table: String,
    /// How long nothing new may arrive, with orders outstanding, before the run gives up waiting and reports
    /// them as lost.
    pub patience: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            environment: EnvironmentOptions::default(),
            orders: 1_000,
            customers: 50,
            concurrency: 16,
            topic: "orders".to_owned(),
            partitions: 6,
            orders_table: "orders".to_owned(),
            // Longer than a crashed owner's lease and one sweep interval together.
            patience: Duration::from_secs(120),
        }
    }
}

impl RunOptions {
    /// The defaults in this environment, with tables and a topic that no other run has: a database and a broker
    /// that outlive the run can be used again and again.
    pub fn in_environment(environment: EnvironmentOptions) -> Self {
        let run = Uuid::new_v4().simple().to_string();
        let own = |name: &str| format!("{name}-{}", run.get(..8).unwrap_or(&run));
        Self {
            environment: EnvironmentOptions { table: own("outbox"), ..environment },
            topic: own("orders"),
            orders_table: own("orders"),
            ..Self::default()
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Orders that are committed.
    pub placed: u32,
    /// Orders that have arrived, each counted once.
    pub arrived: u32,
    /// Orders in all.
    pub orders: u32,
}

/// Watches a run, and may interfere with it.
pub trait Observer {
    /// Everything is up; no order is placed yet.
    fn started(&mut self, environment: &Environment) {
        let _ = environment;
    }

    /// An order was committed, or has arrived. Called on the run's own task: it must not block.
    fn progressed(&mut self, progress: Progress, environment: &Environment) {
        let _ = (progress, environment);
    }

    /// The run is over, and everything is still up.
    fn ended(&mut self, report: &Report, environment: &Environment) {
        let _ = (report, environment);
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Why there is no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The environment did not start.
    #[error("the local environment did not start")]
    Environment(#[from] EnvironmentError),
    /// An order could not be placed.
    #[error("placing orders failed")]
    Order(#[from] OrderError),
    /// The topic could not be created or read.
    #[error("reading the topic failed")]
    Consumer(#[from] ClientError),
}

/// Starts the environment, places the orders, consumes them, and says what held. Everything is ended before it
/// returns.
///
/// Lost and disordered orders are no error here: the report has them.
///
/// Dropping the future ends everything at once.
pub async fn run(options: RunOptions, observer: &mut dyn Observer) -> Result<Report, RunError> {
    let environment = Environment::start(options.environment.clone()).await?;
    observer.started(&environment);
    let report = relay(&options, &environment, observer).await;
    if let Ok(report) = &report {
        observer.ended(report, &environment);
    }
    environment.stop().await;
    report
}

/// What has come of the orders so far.
struct Books {
    placed: Vec<PlacedOrder>,
    deliveries: Vec<Delivery>,
    arrived: HashSet<MessageId>,
    /// Committed, and not arrived yet.
    waiting: HashSet<MessageId>,
    last_arrival: Instant,
    orders: u32,
}

impl Books {
    fn place(&mut self, order: PlacedOrder) {
        // The consumer may have it before the writer has heard of its own commit.
        if !self.arrived.contains(&order.message) {
            self.waiting.insert(order.message);
        }
        self.placed.push(order);
    }

    fn deliver(&mut self, record: Record) {
        let message = record.header_text(ID_HEADER).and_then(MessageId::parse);
        if let Some(id) = message
            && self.arrived.insert(id)
        {
            self.waiting.remove(&id);
            self.last_arrival = record.received;
        }
        let Record { partition, key, value, received, .. } = record;
        self.deliveries.push(Delivery { message, partition, key, value, received });
    }

    fn progress(&self) -> Progress {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let arrived = self.placed.len() - self.waiting.len();
        Progress { placed: count(self.placed.len()), arrived: count(arrived), orders: self.orders }
    }

    fn complete(&self) -> bool {
        self.progress().arrived >= self.orders
    }
}

async fn relay(
    options: &RunOptions,
    environment: &Environment,
    observer: &mut dyn Observer,
) -> Result<Report, RunError> {
    environment.broker().create_topic(&options.topic, options.partitions).await?;
    let reader = Reader::open(environment.broker().bootstrap_servers(), &options.topic).await?;
    let client = environment.client().clone();
    let shop = Shop {
        writer: Writer::new(client.clone(), environment.store_options().clone()),
        client,
        table: options.orders_table.clone(),
        topic: options.topic.clone(),
        orders: options.orders,
        customers: options.customers,
        concurrency: options.concurrency,
    };
    shop.create_table().await?;

    let usage_before = environment.database().usage();
    let start = Instant::now();
    let mut books = Books {
        placed: Vec::new(),
        deliveries: Vec::new(),
        arrived: HashSet::new(),
        waiting: HashSet::new(),
        last_arrival: start,
        orders: options.orders,
    };
    let (sender, mut committed) = mpsc::channel(options.concurrency.max(1));
    let mut placing = std::pin::pin!(shop.place_all(sender));
    let mut placing_done = false;
    let mut placing_time = Duration::ZERO;
    while !books.complete() {
        let left = (books.last_arrival.max(start + placing_time) + options.patience)
            .saturating_duration_since(Instant::now());
        tokio::select! {
            result = &mut placing, if !placing_done => {
                result?;
                placing_done = true;
            }
            Some(order) = committed.recv() => {
                placing_time = start.elapsed();
                books.place(order);
                observer.progressed(books.progress(), environment);
            }
            record = reader.next() => {
                books.deliver(record?);
                observer.progressed(books.progress(), environment);
            }
            // While orders are being placed, their own bounds apply.
            () = tokio::time::sleep(left), if placing_done => break,
        }
    }
    let relaying = books.last_arrival.saturating_duration_since(start);

    // Whoever has lost patience with the orders has none left for this.
    let patience = if books.complete() { options.patience } else { Duration::ZERO };
    let left = await_empty(environment, &reader, &mut books, patience).await?;
    for record in reader.rest().await? {
        books.deliver(record);
    }
    Ok(Report {
        verdict: judge(&books.placed, &books.deliveries),
        customers: options.customers,
        placing: placing_time,
        relaying,
        left,
        usage: environment.database().usage().zip(usage_before).map(|(now, before)| now.since(&before)),
        broker: environment.broker().kind().to_string(),
        database: environment.database().kind().to_string(),
        stream_relay: environment.stream_relay().counters(),
        scheduled_relay: environment.scheduled_relay().counters(),
    })
}

/// Waits until the outbox is empty and says how much it still holds when the patience is over. What arrives
/// meanwhile are duplicates: that they come is no fault, and they are counted.
async fn await_empty(
    environment: &Environment,
    reader: &Reader,
    books: &mut Books,
    patience: Duration,
) -> Result<u64, RunError> {
    let deadline = Instant::now() + patience;
    loop {
        let left = outbox_left::count(environment.client(), environment.store_options()).await?;
        if left == 0 || Instant::now() >= deadline {
            return Ok(left);
        }
        let look_again = Instant::now() + LOOK_INTERVAL;
        while let Ok(record) =
            timeout(look_again.saturating_duration_since(Instant::now()), reader.next()).await
        {
            books.deliver(record?);
        }
    }
}
