//! One run, from the first order to the report.

use std::time::{Duration, Instant};

use outbox_store_dynamodb::Writer;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::report::Report;
use crate::environment::{Environment, EnvironmentError, EnvironmentOptions};
use crate::kafka::ClientError;
use crate::shop::{Books, Load, OrderError, Readers, Shop, outbox_left};

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

impl Progress {
    fn of(books: &Books, orders: u32) -> Self {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { placed: count(books.placed()), arrived: count(books.arrived()), orders }
    }

    fn is_complete(self) -> bool {
        self.arrived >= self.orders
    }
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

async fn relay(
    options: &RunOptions,
    environment: &Environment,
    observer: &mut dyn Observer,
) -> Result<Report, RunError> {
    environment.broker().create_topic(&options.topic, options.partitions).await?;
    let topics = [options.topic.as_str().into()];
    let readers = Readers::open(environment.broker().bootstrap_servers(), &topics).await?;
    let client = environment.client().clone();
    let shop = Shop {
        writer: Writer::new(client.clone(), environment.store_options().clone()),
        client,
        table: options.orders_table.clone(),
        topics: topics.to_vec(),
        load: Load {
            orders: Some(options.orders),
            customers: options.customers,
            concurrency: options.concurrency,
            ..Load::default()
        },
    };
    shop.create_table().await?;

    let usage_before = environment.database().usage();
    let start = Instant::now();
    let mut books = Books::new(start);
    let (sender, mut committed) = mpsc::channel(options.concurrency.max(1));
    let mut placing = std::pin::pin!(shop.place_all(sender));
    let mut placing_done = false;
    let mut placing_time = Duration::ZERO;
    let progress = |books: &Books| Progress::of(books, options.orders);
    while !progress(&books).is_complete() {
        let left = (books.last_arrival().max(start + placing_time) + options.patience)
            .saturating_duration_since(Instant::now());
        tokio::select! {
            result = &mut placing, if !placing_done => {
                result?;
                placing_done = true;
            }
            Some(order) = committed.recv() => {
                placing_time = start.elapsed();
                books.place(order);
                observer.progressed(progress(&books), environment);
            }
            record = readers.next() => {
                let (topic, record) = record?;
                books.deliver(topic, record);
                observer.progressed(progress(&books), environment);
            }
            // While orders are being placed, their own bounds apply.
            () = tokio::time::sleep(left), if placing_done => break,
        }
    }
    let relaying = books.last_arrival().saturating_duration_since(start);

    // Whoever has lost patience with the orders has none left for this.
    let patience = if progress(&books).is_complete() { options.patience } else { Duration::ZERO };
    let left = await_empty(environment, &readers, &mut books, patience).await?;
    books.deliver_rest(&readers).await?;
    Ok(Report {
        verdict: books.verdict(),
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
    readers: &Readers,
    books: &mut Books,
    patience: Duration,
) -> Result<u64, RunError> {
    let deadline = Instant::now() + patience;
    loop {
        let left = outbox_left(environment.client(), environment.store_options()).await?;
        if left == 0 || Instant::now() >= deadline {
            return Ok(left);
        }
        let look_again = Instant::now() + LOOK_INTERVAL;
        while let Ok(record) =
            timeout(look_again.saturating_duration_since(Instant::now()), readers.next()).await
        {
            let (topic, record) = record?;
            books.deliver(topic, record);
        }
    }
}
