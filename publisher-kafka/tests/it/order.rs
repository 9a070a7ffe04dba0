//! What order holds when a broker refuses a record, with and without the strict setting.

use std::time::Instant;

use outbox::{Message, PublishErrorKind, Publisher};
use outbox_local::kafka::Reader;
use outbox_publisher_kafka::config::BATCH_BYTES;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Code};

use crate::support::{
    PLENTY, assert_all_acknowledged, assert_first_deliveries_in_order, broker, create_topic_that_takes,
    kinds, messages, publish, publisher, read, real_broker, strict_publisher, topic,
};

const REJECTED: Option<PublishErrorKind> = Some(PublishErrorKind::Rejected);
const BEHIND: Option<PublishErrorKind> = Some(PublishErrorKind::Unavailable);

/// A record that no other shares a batch with.
fn fill(message: &mut Message) {
    message.value = Some(vec![b'0'; BATCH_BYTES + 1].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn strictly_nothing_of_a_key_is_stored_behind_a_refused_record() {
    for strict in [false, true] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let address = cluster.bootstrap_servers();
        let publisher = if strict { strict_publisher(&address) } else { publisher(&address) };
        // Three of a key, each in a batch of its own, and one of another key behind them.
        let mut batch = messages("orders", 4, 1);
        batch[3].key = Some("another".into());
        batch[..3].iter_mut().for_each(fill);
        cluster.request_errors(Api::Produce, &[Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
        let outcomes = publish(&publisher, &batch, PLENTY).await;
        let expected = if strict {
            [REJECTED, BEHIND, BEHIND, None]
        } else {
            // They were under way by then: consumers will see 2, 3, 1.
            [REJECTED, None, None, None]
        };
        assert_eq!(kinds(&outcomes), expected, "strict: {strict}");
        assert_eq!(publisher.in_flight(), 0);
        let reader = Reader::open(&address, "orders").await.unwrap();
        assert_eq!(reader.rest().await.unwrap().len(), if strict { 1 } else { 3 }, "strict: {strict}");
    }
}

/// Batches that the topic refuses, and one behind them that it takes, on a real broker.
#[tokio::test(flavor = "multi_thread")]
async fn strictly_a_real_broker_stores_nothing_of_a_key_behind_a_refused_record() {
    let Some(broker) = real_broker("limits").await else { return };
    for strict in [false, true] {
        let topic = topic("small");
        // Below what is asked about, so that only a refusal tells.
        create_topic_that_takes(&broker, &topic, 60_000).await;
        let servers = broker.bootstrap_servers();
        let publisher = if strict { strict_publisher(servers) } else { publisher(servers) };
        let mut batch = messages(&topic, 40, 1);
        batch[0].value = Some(vec![b'0'; 62_000].into());
        for message in &mut batch[1..] {
            message.value = Some(vec![b'0'; 3_000].into());
        }
        let mut another = messages(&topic, 1, 1);
        another[0].key = Some("another".into());
        batch.extend(another);
        let outcomes = kinds(&publish(&publisher, &batch, PLENTY).await);
        assert_eq!((outcomes[0], outcomes[40]), (REJECTED, None));
        let reader = Reader::open(servers, &topic).await.unwrap();
        let stored = reader.rest().await.unwrap().len() - 1;
        println!("strict: {strict}: {stored} records of the key stored behind the refused one");
        if strict {
            assert_eq!(outcomes[1..40], [BEHIND; 39]);
            assert_eq!(stored, 0);
        }
        // By now the limit is known: nothing of the key is sent, strict or not.
        let outcomes = kinds(&publish(&publisher, &batch[..40], PLENTY).await);
        assert_eq!((outcomes[0], &outcomes[1..]), (REJECTED, &[BEHIND; 39][..]));
        assert_eq!(publisher.in_flight(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_order_delivers_everything_and_costs_what_is_printed() {
    let broker = broker().await;
    for strict in [false, true] {
        let topic = topic("orders");
        broker.create_topic(&topic, 6).await.unwrap();
        let servers = broker.bootstrap_servers();
        let publisher = if strict { strict_publisher(servers) } else { publisher(servers) };
        assert_all_acknowledged(&publish(&publisher, &messages(&topic, 1, 1), PLENTY).await);
        let mut took = Vec::new();
        for keys in [500, 50, 5] {
            let batch = messages(&topic, 500, keys);
            let start = Instant::now();
            assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
            took.push(format!("{keys} keys in {:?}", start.elapsed()));
        }
        println!("strict: {strict}: 500 records of {}", took.join(", "));
        let reader = Reader::open(servers, &topic).await.unwrap();
        let records = read(&reader, 500).await;
        assert_first_deliveries_in_order(&records);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_order_survives_an_outage() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 4, 1).unwrap();
    let publisher = strict_publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 200, 5);
    cluster.request_errors(
        Api::Produce,
        &[
            Code::RD_KAFKA_RESP_ERR__TRANSPORT,
            Code::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Code::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    assert_first_deliveries_in_order(&read(&reader, 200).await);
}
