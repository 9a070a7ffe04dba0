//! The local broker, started for real: what is written is read back, also across stops and kills.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests state what must hold by panicking")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader, Record};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

const BOUND: Duration = Duration::from_secs(30);

/// A broker that can be stopped, or `None` where there is none and none is required.
async fn started_here() -> Option<Broker> {
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    let start = Instant::now();
    let broker = Broker::start(options).await.unwrap();
    println!("broker: {} at {} after {:?}", broker.kind(), broker.bootstrap_servers(), start.elapsed());
    broker.kind().is_real().then_some(broker)
}

fn producer(broker: &Broker) -> FutureProducer {
    ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap_servers())
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("reconnect.backoff.max.ms", "250")
        .create()
        .unwrap()
}

async fn send(producer: &FutureProducer, topic: &str, value: &str) -> Result<(), String> {
    let headers = OwnedHeaders::new()
        .insert(Header { key: "kind", value: Some("test") })
        .insert(Header { key: "nothing", value: None::<&[u8]> });
    let record = FutureRecord::to(topic).key("key").payload(value).headers(headers);
    producer.send(record, BOUND).await.map(drop).map_err(|(error, _)| error.to_string())
}

async fn next(reader: &Reader) -> Record {
    tokio::time::timeout(BOUND, reader.next()).await.expect("a record in time").unwrap()
}

#[tokio::test]
async fn what_is_written_is_read_back_from_the_beginning() {
    let Some(broker) = started_here().await else {
        return;
    };
    broker.create_topic("orders", 3).await.unwrap();
    // A topic that is there already is no error.
    broker.create_topic("orders", 3).await.unwrap();
    send(&producer(&broker), "orders", "first").await.unwrap();

    let reader = Reader::open(broker.bootstrap_servers(), "orders").await.unwrap();
    let record = next(&reader).await;
    assert_eq!(record.key.as_deref(), Some(b"key".as_slice()));
    assert_eq!(record.value.as_deref(), Some(b"first".as_slice()));
    assert_eq!(record.header_text("kind"), Some("test"));
    assert_eq!(record.headers[1], ("nothing".to_owned(), None));
    assert!((0..3).contains(&record.partition));
    assert_eq!(record.offset, 0);
    assert!(record.timestamp_ms.is_some());
}

#[tokio::test]
async fn a_broker_comes_back_on_its_port_with_its_data() {
    let Some(broker) = started_here().await else {
        return;
    };
    let address = broker.bootstrap_servers().to_owned();
    broker.create_topic("orders", 1).await.unwrap();
    let producer = producer(&broker);
    let reader = Reader::open(&address, "orders").await.unwrap();
    send(&producer, "orders", "before").await.unwrap();
    assert_eq!(next(&reader).await.value.as_deref(), Some(b"before".as_slice()));

    broker.stop().await.unwrap();
    producer.client().fetch_metadata(Some("orders"), Duration::from_millis(500)).unwrap_err();
    broker.restart().await.unwrap();
    send(&producer, "orders", "after a stop").await.unwrap();

    broker.kill().await.unwrap();
    let start = Instant::now();
    broker.restart().await.unwrap();
    println!("restarted after a kill in {:?}", start.elapsed());
    send(&producer, "orders", "after a kill").await.unwrap();

    assert_eq!(broker.bootstrap_servers(), address);
    assert_eq!(next(&reader).await.value.as_deref(), Some(b"after a stop".as_slice()));
    assert_eq!(next(&reader).await.value.as_deref(), Some(b"after a kill".as_slice()));
}

/// What the broker acknowledged before it was killed is in its files, or at least in the system's.
#[tokio::test]
async fn acknowledged_records_survive_kills_under_load() {
    let Some(broker) = started_here().await else {
        return;
    };
    broker.create_topic("orders", 3).await.unwrap();
    let producer = producer(&broker);
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let load = (0..4).map(|part| {
        let (producer, acknowledged, stop) = (producer.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        tokio::spawn(async move {
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let value = format!("{part}-{number}");
                if send(&producer, "orders", &value).await.is_ok() {
                    acknowledged.lock().unwrap().insert(value);
                }
            }
        })
    });
    let load: Vec<_> = load.collect();
    for round in 1..=3 {
        let before = acknowledged.lock().unwrap().len();
        let start = Instant::now();
        while acknowledged.lock().unwrap().len() < before + 200 {
            assert!(start.elapsed() < BOUND, "round {round}: no load");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        broker.kill().await.unwrap();
        broker.restart().await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for part in load {
        part.await.unwrap();
    }

    let reader = Reader::open(broker.bootstrap_servers(), "orders").await.unwrap();
    let values = reader.rest().await.unwrap().into_iter().map(|record| record.value.unwrap());
    let found: BTreeSet<_> = values.map(|value| String::from_utf8(value).unwrap()).collect();
    let acknowledged = acknowledged.lock().unwrap();
    println!("{} acknowledged, {} found after three kills", acknowledged.len(), found.len());
    assert_eq!(acknowledged.difference(&found).count(), 0);
}

#[tokio::test]
async fn a_frozen_broker_answers_nothing_until_it_is_thawed() {
    let Some(broker) = started_here().await else {
        return;
    };
    broker.create_topic("orders", 1).await.unwrap();
    let producer = producer(&broker);
    // A client that has never met the broker could be without an answer for reasons of its own.
    send(&producer, "orders", "before").await.unwrap();
    producer.client().fetch_metadata(Some("orders"), BOUND).unwrap();
    broker.freeze(true).await.unwrap();
    producer.client().fetch_metadata(Some("orders"), Duration::from_millis(500)).unwrap_err();
    broker.freeze(false).await.unwrap();
    send(&producer, "orders", "thawed").await.unwrap();
}

#[tokio::test]
async fn an_external_broker_is_used_as_it_is() {
    let Some(broker) = started_here().await else {
        return;
    };
    let options = BrokerOptions {
        bootstrap_servers: Some(broker.bootstrap_servers().to_owned()),
        ..BrokerOptions::default()
    };
    let external = Broker::start(options).await.unwrap();
    assert_eq!(external.bootstrap_servers(), broker.bootstrap_servers());
    assert_eq!(external.kind().to_string(), format!("external, at {}", broker.bootstrap_servers()));
    assert!(matches!(external.stop().await, Err(BrokerError::NotOurs { .. })));
}

#[tokio::test]
async fn an_external_address_without_a_broker_is_named() {
    let options = BrokerOptions {
        bootstrap_servers: Some("127.0.0.1:1".to_owned()),
        external_bound: Duration::from_secs(1),
        ..BrokerOptions::default()
    };
    let error = Broker::start(options).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("KAFKA_BOOTSTRAP_SERVERS"), "{error}");
}

/// The end of the topic is told once for every time that it is reached, and nobody asked for that.
#[tokio::test]
async fn what_came_after_an_end_was_reached_is_in_the_rest() {
    let Some(broker) = started_here().await else {
        return;
    };
    broker.create_topic("orders", 1).await.unwrap();
    let (producer, reader) =
        (producer(&broker), Reader::open(broker.bootstrap_servers(), "orders").await.unwrap());
    for round in 0..3 {
        send(&producer, "orders", &format!("{round} before")).await.unwrap();
        assert_eq!(next(&reader).await.value.unwrap(), format!("{round} before").as_bytes());
        // A broker says that nothing has come half a second after the last that did. Nothing shows that it has said so.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for after in ["after", "last"] {
            send(&producer, "orders", &format!("{round} {after}")).await.unwrap();
        }
        let rest = reader.rest().await.unwrap().into_iter().map(|record| record.value.unwrap());
        let expected = ["after", "last"].map(|after| format!("{round} {after}").into_bytes());
        assert_eq!(rest.collect::<Vec<_>>(), expected);
    }
}
