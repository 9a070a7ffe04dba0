//! One segment: a fresh database, fresh functions and topics of its own, under load while its rounds strike; then quiet,
//! and a verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_store_dynamodb::Writer;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::diary::Diary;
use super::failures::{against_invocations, against_messages, shorten};
use super::kept;
use super::leases;
use super::options::{CampaignOptions, Timing};
use super::outcomes::Causes;
use super::report::{Drain, Failure, Messages, SegmentReport};
use super::run::CampaignError;
use super::strike::Field;
use crate::environment::{Environment, EnvironmentOptions};
use crate::functions::FunctionBinaries;
use crate::kafka::{Broker, BrokerOptions};
use crate::shop::{Books, Load, OrderError, Readers, Shop, outbox_left};
use crate::stream::StreamFaults;

/// Orders in flight at once.
const CONCURRENCY: usize = 16;
/// Two, so that a batch is for more than one.
const TOPICS: usize = 2;
const PARTITIONS: u32 = 4;
/// A batch that a bucket fills after a short outage already.
const BATCH_SIZE: u32 = 20;
/// Each customer's every so manieth message has tens of kilobytes.
const LARGE_EVERY: u32 = 10;
/// One of so many customers has messages without a key.
const KEYLESS: u32 = 8;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// A lease is read a little after it was written, and by another clock's reckoning.
const LEASE_SLACK: Duration = Duration::from_secs(1);

/// What all segments share.
pub(super) struct Ground {
    pub(super) options: CampaignOptions,
    pub(super) broker: Broker,
    pub(super) binaries: FunctionBinaries,
}

/// What a segment is, besides the load.
pub(super) struct Plan {
    /// `rounds 26 to 50`, `broker-away for 300 s`.
    pub(super) name: String,
    pub(super) timing: Timing,
    pub(super) drain_bound: Duration,
    /// Orders a second.
    pub(super) rate: u32,
    /// What becomes of the stream's batches from the start.
    pub(super) stream_faults: StreamFaults,
}

/// Runs one segment. `faults` strikes while orders are being placed; what it returns is told when a verdict fails.
///
/// # Errors
/// What belongs to the campaign itself failed: there is no verdict.
pub(super) async fn run(
    ground: &Ground,
    plan: &Plan,
    faults: impl AsyncFnOnce(&Field<'_>, &mut Diary) -> Result<(), CampaignError>,
) -> Result<SegmentReport, CampaignError> {
    let run = Uuid::new_v4().simple().to_string();
    let own = |name: &str| format!("{name}-{}", run.get(..8).unwrap_or(&run));
    let options = &ground.options;
    let environment = Environment::start(EnvironmentOptions {
        kafka: BrokerOptions {
            // What is to be struck goes through the link, which is not this environment's; this program does not.
            bootstrap_servers: Some(functions_servers(&ground.broker).to_owned()),
            behind_link: false,
            ..options.environment.kafka.clone()
        },
        table: own("outbox"),
        parameters: parameters(options, plan.timing),
        sweep_interval: Some(plan.timing.sweep_interval),
        dynamodb_behind_link: true,
        stream_faults: plan.stream_faults,
        binaries: Some(ground.binaries.clone()),
        ..options.environment.clone()
    })
    .await?;
    let topics: Vec<Arc<str>> = (0..TOPICS).map(|topic| own(&format!("orders-{topic}")).into()).collect();
    for topic in &topics {
        ground.broker.create_topic(topic, PARTITIONS).await?;
    }
    let stage = Stage {
        readers: Readers::open(ground.broker.bootstrap_servers(), &topics).await?,
        shop: Shop {
            client: environment.client().clone(),
            writer: Writer::new(environment.client().clone(), environment.store_options().clone()),
            table: own("orders"),
            topics,
            load: load(options.customers, plan.rate),
        },
        causes: Causes::default(),
        environment,
        ground,
        plan,
    };
    let report = stage.run(faults).await;
    stage.environment.stop().await;
    report
}

fn functions_servers(broker: &Broker) -> &str {
    broker.linked_servers().unwrap_or_else(|| broker.bootstrap_servers())
}

fn parameters(options: &CampaignOptions, timing: Timing) -> BTreeMap<String, String> {
    let mut parameters = timing.parameters();
    parameters.insert("BatchSize".to_owned(), BATCH_SIZE.to_string());
    parameters.extend(options.environment.parameters.clone());
    parameters
}

fn load(customers: u32, rate: u32) -> Load {
    Load {
        customers,
        keyless: customers / KEYLESS,
        concurrency: CONCURRENCY,
        orders: None,
        interval: Some(Duration::from_secs(1) / rate.max(1)),
        large_every: LARGE_EVERY,
        stop: CancellationToken::new(),
    }
}

/// Everything of one segment, running.
struct Stage<'a> {
    environment: Environment,
    readers: Readers,
    shop: Shop,
    causes: Causes,
    ground: &'a Ground,
    plan: &'a Plan,
}

impl Stage<'_> {
    async fn run(
        &self,
        faults: impl AsyncFnOnce(&Field<'_>, &mut Diary) -> Result<(), CampaignError>,
    ) -> Result<SegmentReport, CampaignError> {
        self.shop.create_table().await?;
        let begun = Instant::now();
        let mut books = Books::new(begun);
        let mut diary = Diary::default();
        let field = Field {
            environment: &self.environment,
            broker: &self.ground.broker,
            timing: self.plan.timing,
            causes: &self.causes,
        };
        self.under_load(&mut books, faults(&field, &mut diary)).await?;
        let drain = self.drain(&mut books).await?;
        let mut failures = Vec::new();
        if drain.left > 0 {
            let bound = self.plan.drain_bound.as_secs();
            failures
                .push(format!("{} messages were left in the outbox after {bound} s of quiet", drain.left));
        }
        self.quiet(&mut failures).await?;
        books.deliver_rest(&self.readers).await?;
        let verdict = books.verdict();
        against_messages(&verdict, &books, &diary, &mut failures);
        let outcomes = against_invocations(&self.environment, &self.causes, &diary, &mut failures);
        shorten(&mut failures);
        let kept = match failures.is_empty() {
            true => None,
            false => kept::keep(
                &self.ground.options.keep,
                &self.plan.name,
                &diary,
                &failures,
                &verdict,
                &books,
                &self.environment,
            ),
        };
        Ok(SegmentReport {
            name: self.plan.name.clone(),
            messages: Messages::of(&verdict),
            outcomes,
            drain,
            failures: failures
                .into_iter()
                .map(|what| Failure { segment: self.plan.name.clone(), what })
                .collect(),
            took: begun.elapsed(),
            kept,
        })
    }

    /// Places orders for as long as the faults go on, and finishes those that are being placed.
    async fn under_load(
        &self,
        books: &mut Books,
        faults: impl Future<Output = Result<(), CampaignError>>,
    ) -> Result<(), CampaignError> {
        let (sender, mut committed) = mpsc::channel(CONCURRENCY);
        let mut placing = std::pin::pin!(self.shop.place_all(sender));
        tokio::select! {
            // Nobody has stopped it, so it has failed.
            ended = &mut placing => return Err(ended.err().unwrap_or(OrderError::Ended).into()),
            never = books.follow(&self.readers, &mut committed) => match never? {},
            done = faults => done?,
        }
        self.shop.load.stop.cancel();
        tokio::select! {
            ended = &mut placing => ended?,
            never = books.follow(&self.readers, &mut committed) => match never? {},
        }
        while let Ok(order) = committed.try_recv() {
            books.place(order);
        }
        Ok(())
    }

    /// Waits until the outbox is empty, within the bound.
    async fn drain(&self, books: &mut Books) -> Result<Drain, CampaignError> {
        let begun = Instant::now();
        loop {
            let left = outbox_left(self.environment.client(), self.environment.store_options()).await?;
            let took = begun.elapsed();
            if left == 0 || took >= self.plan.drain_bound {
                return Ok(Drain { took, left });
            }
            let (_nobody, mut committed) = mpsc::channel(1);
            if let Ok(never) = timeout(LOOK_INTERVAL, books.follow(&self.readers, &mut committed)).await {
                match never? {}
            }
        }
    }

    /// Waits until no invocation is running, and then, for as long as a lease lasts, until no bucket is held.
    async fn quiet(&self, failures: &mut Vec<String>) -> Result<(), CampaignError> {
        let (stream, scheduled) = (self.environment.stream_relay(), self.environment.scheduled_relay());
        let idle = async { tokio::join!(stream.wait_until_idle(), scheduled.wait_until_idle()) };
        let bound = self.plan.timing.function_timeout + self.plan.timing.lease_duration;
        if timeout(bound, idle).await.is_err() {
            failures.push(format!("an invocation was still running after {} s of quiet", bound.as_secs()));
        }
        let lease = self.plan.timing.lease_duration;
        let deadline = Instant::now() + lease + LEASE_SLACK;
        loop {
            let held = leases::held(self.environment.client(), self.environment.store_options()).await?;
            if let Some(held) = held.iter().find(|held| held.left > lease + LEASE_SLACK) {
                failures.push(format!("{held} is valid for {} ms", held.left.as_millis()));
                return Ok(());
            }
            let valid: Vec<_> = held.iter().filter(|held| !held.left.is_zero()).collect();
            if valid.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                failures.extend(valid.iter().map(|held| format!("{held} is held by nobody who runs")));
                return Ok(());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}
