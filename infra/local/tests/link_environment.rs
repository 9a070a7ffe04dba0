//! The whole environment with a broken network between the functions and what they talk to, and without a stream.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use outbox_local::dynamodb::{Fault, Injected, Rule};
use outbox_local::environment::{Environment, EnvironmentError, EnvironmentOptions};
use outbox_local::first_run::{Observer, Progress, Report, RunOptions, Silent, run};
use outbox_local::kafka::BrokerError;
use outbox_local::link::{LinkCounters, Mode};
use outbox_local::stream::{StreamCounters, StreamFaults};
use tokio::sync::Mutex;

const ORDERS: u32 = 600;
/// Moments at which something breaks or is mended, spread over the orders.
const STEPS: u32 = 7;

/// Each run has processes of its own, and the machine two cores.
static ONE_RUN_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Leases that lapse soon: a function whose network is gone cannot free them.
fn short_leases() -> EnvironmentOptions {
    EnvironmentOptions {
        parameters: BTreeMap::from([
            ("LeaseDuration".to_owned(), "3s".to_owned()),
            ("LeaseRenewInterval".to_owned(), "1s".to_owned()),
        ]),
        sweep_interval: Some(Duration::from_secs(1)),
        ..EnvironmentOptions::from_env().unwrap()
    }
}

/// Breaks something at each step, and mends what does not mend itself.
#[derive(Default)]
struct Breaker {
    steps: u32,
    links: Option<[LinkCounters; 2]>,
    injected: Injected,
}

impl Observer for Breaker {
    fn progressed(&mut self, progress: Progress, environment: &Environment) {
        let faults = environment.dynamodb_faults().unwrap();
        let met = |fault| faults.injected().of(fault) > 0;
        let due = progress.orders * (self.steps + 1) / (STEPS + 1);
        let ready = match self.steps {
            5 => met(Fault::Throttle),
            6 => met(Fault::LoseReply),
            _ => true,
        };
        if self.steps == STEPS || progress.placed < due || !ready {
            return;
        }
        self.steps += 1;
        let (dynamodb, kafka) = (environment.dynamodb_link().unwrap(), environment.kafka_link().unwrap());
        match self.steps {
            1 => dynamodb.strand(),
            // Nothing arrives meanwhile: this ends with the orders that are placed.
            2 => dynamodb.set(Mode::Hold),
            3 => {
                dynamodb.set(Mode::Pass);
                kafka.set(Mode::Delay(Duration::from_millis(50)));
            }
            4 => kafka.strand(),
            5 => drop(faults.set(Rule::new(Fault::Throttle).with_share(0.2).with_seed(1))),
            6 => drop(faults.set(Rule::new(Fault::LoseReply).with_share(0.2).with_seed(2))),
            _ => {
                faults.clear();
                dynamodb.reset();
                kafka.reset();
            }
        }
    }

    fn ended(&mut self, _: &Report, environment: &Environment) {
        let links = [environment.dynamodb_link().unwrap(), environment.kafka_link().unwrap()];
        self.links = Some(links.map(|link| link.counters()));
        self.injected = environment.dynamodb_faults().unwrap().injected();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_breaks_loses_nothing_and_keeps_the_order() {
    let _alone = ONE_RUN_AT_A_TIME.lock().await;
    let mut environment = short_leases().with_links();
    // More requests, and so more of them that meet something.
    environment.parameters.insert("BatchSize".to_owned(), "20".to_owned());
    if environment.kafka.bootstrap_servers.is_some() {
        println!("skipped: an external broker cannot be behind a link");
        return;
    }
    let options = RunOptions { orders: ORDERS, ..RunOptions::in_environment(environment) };
    let mut breaker = Breaker::default();
    let report = run(options, &mut breaker).await.unwrap();
    let [dynamodb, kafka] = breaker.links.unwrap();
    println!("{report}\n{}\nDynamoDB {dynamodb:?}\nKafka {kafka:?}", breaker.injected);
    assert!(report.holds());
    assert_eq!((report.verdict.placed, breaker.steps), (ORDERS as usize, STEPS));
    // What was not met was not tested.
    assert!(dynamodb.forgotten > 0 && kafka.forgotten > 0);
    assert!(breaker.injected.of(Fault::Throttle) > 0 && breaker.injected.of(Fault::LoseReply) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_stream_the_schedule_delivers_everything() {
    let _alone = ONE_RUN_AT_A_TIME.lock().await;
    let environment = EnvironmentOptions { with_stream: false, ..short_leases() };
    let options = RunOptions { orders: 200, ..RunOptions::in_environment(environment) };
    let report = run(options, &mut Silent).await.unwrap();
    println!("{report}");
    assert!(report.holds());
    assert_eq!((report.verdict.placed, report.verdict.records), (200, 200));
    assert_eq!(report.stream_relay.invocations, 0);
}

/// Counts what the stream did.
#[derive(Default)]
struct Counter(Option<StreamCounters>);

impl Observer for Counter {
    fn ended(&mut self, _: &Report, environment: &Environment) {
        assert!(environment.dynamodb_link().is_none() && environment.kafka_link().is_none());
        self.0 = environment.poller().map(|poller| poller.counters());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_misbehaves_costs_latency_alone() {
    let _alone = ONE_RUN_AT_A_TIME.lock().await;
    // This seed draws each of them among the first three batches.
    let stream_faults = StreamFaults { drop: 0.3, duplicate: 0.3, reorder: 0.3, seed: 29 };
    let mut environment = EnvironmentOptions { stream_faults, ..short_leases() };
    // A batch drains what is there: small ones, for enough of them.
    environment.parameters.insert("StreamBatchSize".to_owned(), "10".to_owned());
    let options = RunOptions { orders: ORDERS, ..RunOptions::in_environment(environment) };
    let mut counter = Counter::default();
    let report = run(options, &mut counter).await.unwrap();
    println!("{report}\n{:?}", counter.0);
    assert!(report.holds());
    assert_eq!((report.verdict.placed, report.verdict.duplicates), (ORDERS as usize, 0));
    let stream = counter.0.unwrap();
    assert!(stream.dropped > 0 && stream.duplicated > 0 && stream.reordered > 0, "{stream:?}");
}

#[tokio::test]
async fn an_external_broker_cannot_be_behind_a_link() {
    let mut external = EnvironmentOptions::default().with_links();
    external.kafka.bootstrap_servers = Some("127.0.0.1:1".to_owned());
    let error = Environment::start(external).await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Broker(BrokerError::NoLink { .. })), "{error:?}");
}
