//! A broker behind a link: its clients' network breaks, and nobody else's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests state what must hold by panicking")]

use std::time::{Duration, Instant};

use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader};
use outbox_local::link::Mode;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

const BOUND: Duration = Duration::from_secs(30);
/// How long a record may take while the network is broken.
const BROKEN_BOUND: Duration = Duration::from_millis(1_500);

/// A broker behind a link, or `None` where there is none of our own and none is required.
async fn started_here() -> Option<Broker> {
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    match Broker::start(BrokerOptions { behind_link: true, ..options }).await {
        Err(BrokerError::NoLink { kind }) => {
            println!("skipped: {kind}");
            None
        }
        started => Some(started.unwrap()),
    }
}

fn producer(servers: &str) -> FutureProducer {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("reconnect.backoff.max.ms", "100")
        // What a client notices a dead connection by.
        .set("socket.timeout.ms", "1000")
        .create()
        .unwrap()
}

async fn send(producer: &FutureProducer, value: &str) {
    let record = FutureRecord::to("orders").key("key").payload(value);
    tokio::time::timeout(BOUND, producer.send(record, BOUND)).await.expect("in time").unwrap();
}

async fn values(broker: &Broker) -> Vec<String> {
    let reader = Reader::open(broker.bootstrap_servers(), "orders").await.unwrap();
    let records = reader.rest().await.unwrap();
    records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn its_clients_use_the_link_alone() {
    let Some(broker) = started_here().await else {
        return;
    };
    let (link, linked) = (broker.link().unwrap(), broker.linked_servers().unwrap().to_owned());
    broker.create_topic("orders", 1).await.unwrap();
    assert_eq!(link.opened(), 0, "our own clients do not go through it");

    let producer = producer(&linked);
    send(&producer, "through").await;
    let metadata = producer.client().fetch_metadata(Some("orders"), BOUND).unwrap();
    let advertised: Vec<_> =
        metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port())).collect();
    assert_eq!(advertised, [linked.as_str()]);
    let carried = link.counters();
    assert!(carried.opened > 0 && carried.to_target > 0 && carried.to_client > 0, "{carried:?}");

    // The link is there before and after the broker, at one address.
    broker.kill().await.unwrap();
    producer.client().fetch_metadata(Some("orders"), Duration::from_millis(500)).unwrap_err();
    broker.restart().await.unwrap();
    assert_eq!(broker.linked_servers(), Some(linked.as_str()));
    send(&producer, "after a kill").await;
    assert_eq!(values(&broker).await, ["through", "after a kill"]);
}

#[tokio::test]
async fn a_dead_network_is_its_clients_alone() {
    let Some(broker) = started_here().await else {
        return;
    };
    let link = broker.link().unwrap();
    broker.create_topic("orders", 1).await.unwrap();
    let (linked, direct) = (producer(broker.linked_servers().unwrap()), producer(broker.bootstrap_servers()));
    send(&linked, "before").await;

    link.set(Mode::Silent);
    let waiting = {
        let linked = linked.clone();
        tokio::spawn(async move { send(&linked, "once it is back").await })
    };
    send(&direct, "beside").await;
    assert_eq!(values(&broker).await, ["before", "beside"]);
    assert!(!waiting.is_finished());
    link.set(Mode::Pass);
    waiting.await.unwrap();

    // What it had is forgotten: it has to find that out and connect again.
    let opened = link.opened();
    link.strand();
    let start = Instant::now();
    send(&linked, "again").await;
    assert!(start.elapsed() > BROKEN_BOUND / 2, "{:?}", start.elapsed());
    assert!(link.opened() > opened);

    link.set(Mode::Refuse);
    linked.client().fetch_metadata(Some("orders"), Duration::from_millis(500)).unwrap_err();
    link.set(Mode::Pass);
    link.set(Mode::Delay(Duration::from_millis(100)));
    let start = Instant::now();
    send(&linked, "late").await;
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    let expected = ["before", "beside", "once it is back", "again", "late"];
    assert_eq!(values(&broker).await, expected);
}

#[tokio::test]
async fn a_broker_that_was_not_started_here_has_no_link() {
    let options = BrokerOptions {
        bootstrap_servers: Some("127.0.0.1:1".to_owned()),
        behind_link: true,
        ..BrokerOptions::default()
    };
    let error = Broker::start(options).await.unwrap_err();
    assert!(matches!(error, BrokerError::NoLink { .. }), "{error:?}");
    assert!(error.to_string().contains("external, at 127.0.0.1:1"), "{error}");
}
