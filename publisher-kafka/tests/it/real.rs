//! A real broker, where there is one: the mock cluster where there is none and none is required.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outbox::{BucketCount, Header, PublishErrorKind, Publisher};
use outbox_local::kafka::{Broker, BrokerOptions, Reader};

use crate::support::{
    PLENTY, assert_all_acknowledged, assert_first_deliveries_in_order, broker, chain,
    create_topic_that_takes, failure, kinds, messages, publish, publisher, read, real_broker, topic,
};

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_records_arrive_in_order_byte_for_byte_and_where_java_puts_them() {
    const PARTITIONS: u32 = 6;
    let broker = broker().await;
    let topic = topic("orders");
    broker.create_topic(&topic, PARTITIONS).await.unwrap();
    let publisher = publisher(broker.bootstrap_servers());

    let mut batch = messages(&topic, 10_000, 97);
    let start = Instant::now();
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    println!("10,000 records acknowledged in {:?}", start.elapsed());
    assert_eq!(publisher.in_flight(), 0);

    let mut odd = messages(&topic, 10_006, 97).split_off(10_000);
    odd[0].key = Some(Vec::new().into());
    odd[1].key = Some(vec![0, 255, 10, 13].into());
    odd[1].value = None;
    odd[1].headers = vec![Header::new("why", "deleted"), Header::null("by")];
    odd[2].key = None;
    odd[2].value = Some(Vec::new().into());
    odd[3].value = Some(vec![255, 0, 254].into());
    odd[3].headers = vec![
        Header::new("b", vec![0, 255]),
        Header::null("a"),
        Header::new("x-outbox-message-id", "forged"),
        Header::new("b", ""),
    ];
    odd[4].partition = Some(5);
    odd[5].key = Some("ключ".into());
    assert_all_acknowledged(&publish(&publisher, &odd, PLENTY).await);

    let reader = Reader::open(broker.bootstrap_servers(), &topic).await.unwrap();
    let mut records = read(&reader, 10_006).await;
    assert_eq!(records.len(), 10_006, "no duplicates");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let by_id: BTreeMap<String, usize> = records
        .iter()
        .enumerate()
        .map(|(at, record)| (record.header_text("x-outbox-message-id").unwrap().to_owned(), at))
        .collect();
    batch.extend(odd);
    for message in &batch {
        let record = &records[by_id[&message.id.to_string()]];
        assert_eq!(record.key.as_deref(), message.key.as_deref());
        assert_eq!(record.value.as_deref(), message.value.as_deref());
        let mut headers: Vec<_> = message
            .headers
            .iter()
            .map(|header| (header.key.clone(), header.value.as_ref().map(|value| value.to_vec())))
            .collect();
        headers.retain(|(key, _)| key != "x-outbox-message-id");
        headers.push(("x-outbox-message-id".to_owned(), Some(message.id.to_string().into_bytes())));
        assert_eq!(record.headers, headers);
        // The publish time, not the message's.
        let age = i64::try_from(now.as_millis()).unwrap() - record.timestamp_ms.unwrap();
        assert!((0..60_000).contains(&age), "{age} ms old");
        // Java: toPositive(murmur2(key)) % partitions, which is how a bucket is found, too.
        if let (Some(key), None) = (&message.key, message.partition) {
            let expected = BucketCount::new(PARTITIONS).unwrap().of_key(key).number();
            assert_eq!(u32::try_from(record.partition).unwrap(), expected);
        }
        if let Some(partition) = message.partition {
            assert_eq!(record.partition, partition);
        }
    }
    let odd: Vec<String> = batch[10_000..].iter().map(|message| message.id.to_string()).collect();
    records.retain(|record| !odd.iter().any(|id| record.header_text("x-outbox-message-id") == Some(id)));
    assert_first_deliveries_in_order(&records);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_freezes_and_then_is_killed_loses_and_reorders_nothing() {
    // One of our own, also where there is an external one: it is to be killed.
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    let broker = Broker::start(options).await.unwrap();
    if !broker.kind().is_real() {
        println!("skipped: {}", broker.kind());
        return;
    }
    let topic = topic("orders");
    broker.create_topic(&topic, 3).await.unwrap();
    let publisher = publisher(broker.bootstrap_servers());
    let batch = messages(&topic, 3_000, 11);
    assert_all_acknowledged(&publish(&publisher, &batch[..1_000], PLENTY).await);

    broker.freeze(true).await.unwrap();
    let start = Instant::now();
    let limit = Duration::from_secs(3);
    let outcomes = publish(&publisher, &batch[1_000..], limit).await;
    assert!(start.elapsed() <= limit + Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(kinds(&outcomes).iter().all(|kind| *kind == Some(PublishErrorKind::MayHaveHappened)));
    broker.freeze(false).await.unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch[1_000..2_000], PLENTY).await);

    broker.kill().await.unwrap();
    let outcomes = publish(&publisher, &batch[2_000..], limit).await;
    assert!(kinds(&outcomes).iter().all(Option::is_some));
    broker.restart().await.unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch[2_000..], PLENTY).await);
    assert_eq!(publisher.in_flight(), 0);

    let reader = Reader::open(broker.bootstrap_servers(), &topic).await.unwrap();
    let records = read(&reader, 3_000).await;
    println!("{} duplicates", records.len() - 3_000);
    assert_first_deliveries_in_order(&records);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_over_the_topics_limit_fails_alone() {
    let Some(broker) = real_broker("limits").await else { return };
    let topic = topic("small");
    create_topic_that_takes(&broker, &topic, 2_000).await;
    let publisher = publisher(broker.bootstrap_servers());

    let mut batch = messages(&topic, 21, 21);
    batch[10].value = Some(vec![0; 3_000].into());
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    let mut expected = vec![None; 21];
    expected[10] = Some(PublishErrorKind::Rejected);
    assert_eq!(kinds(&outcomes), expected);
    let text = chain(failure(&outcomes[10]));
    assert!(text.contains("MessageSizeTooLarge"), "{text}");

    let reader = Reader::open(broker.bootstrap_servers(), &topic).await.unwrap();
    assert_eq!(read(&reader, 20).await.len(), 20, "no duplicates");
}
