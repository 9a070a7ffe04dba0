//! Failures that a mock cluster produces on demand.

use std::cell::Cell;
use std::time::{Duration, Instant};

use outbox::{Message, PublishErrorKind, Publisher};
use outbox_local::kafka::Reader;
use outbox_publisher_kafka::Replaced;
use outbox_publisher_kafka::config::{BATCH_BYTES, MAX_RECORD_BYTES};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Code};

use crate::support::{
    PLENTY, assert_all_acknowledged, assert_first_deliveries_in_order, chain, failure, kinds, messages,
    publish, publisher, read,
};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(brokers: i32, partitions: i32) -> Cluster {
    let cluster = MockCluster::new(brokers).unwrap();
    cluster.create_topic("orders", partitions, 1).unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_longer_than_the_limit_and_then_everything_in_order() {
    let cluster = cluster(1, 4);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 200, 5);
    assert_all_acknowledged(&publish(&publisher, &batch[..50], PLENTY).await);

    cluster.broker_down(1).unwrap();
    let limit = Duration::from_secs(3);
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch[50..], limit).await;
    assert!(start.elapsed() <= limit + Duration::from_millis(200), "{:?}", start.elapsed());
    for kind in kinds(&outcomes) {
        assert_eq!(kind, Some(PublishErrorKind::MayHaveHappened));
    }
    assert_eq!(publisher.in_flight(), 0);
    assert_eq!(publisher.replaced(Replaced::GivenUp), 1);

    cluster.broker_up(1).unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch[50..], PLENTY).await);
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    assert_first_deliveries_in_order(&read(&reader, 200).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_went_away_is_given_up_before_the_limit() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 10, 1);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    cluster.broker_down(1).unwrap();
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("can be reached"), "{text}");
    assert_eq!(publisher.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_broker_is_not_waited_for_past_the_limit() {
    let cluster = cluster(1, 2);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 100, 10);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    cluster.broker_round_trip_time(1, Duration::from_secs(4)).unwrap();
    let limit = Duration::from_secs(2);
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch, limit).await;
    assert!(start.elapsed() <= limit + Duration::from_millis(200), "{:?}", start.elapsed());
    for kind in kinds(&outcomes) {
        assert_eq!(kind, Some(PublishErrorKind::MayHaveHappened));
    }
    assert_eq!(publisher.in_flight(), 0);
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_partition_does_not_fail_the_calls_beside_it() {
    let cluster = cluster(2, 1);
    cluster.create_topic("stuck", 1, 1).unwrap();
    cluster.partition_leader("orders", 0, Some(1)).unwrap();
    cluster.partition_leader("stuck", 0, Some(2)).unwrap();
    let publisher = publisher(&cluster.bootstrap_servers());
    let (stuck, well) = (messages("stuck", 10, 1), messages("orders", 100, 10));
    // The client gets to know both topics while every broker answers.
    for batch in [&stuck, &well] {
        assert_all_acknowledged(&publish(&publisher, batch, PLENTY).await);
    }
    cluster.broker_round_trip_time(2, Duration::from_secs(10)).unwrap();
    let given_up = Cell::new(false);
    let stuck = async {
        let outcomes = publish(&publisher, &stuck, Duration::from_secs(4)).await;
        cluster.broker_round_trip_time(2, Duration::ZERO).unwrap();
        given_up.set(true);
        outcomes
    };
    let well = async {
        let mut rounds = 0;
        while !given_up.get() {
            assert_all_acknowledged(&publish(&publisher, &well, PLENTY).await);
            rounds += 1;
        }
        rounds
    };
    let (outcomes, rounds) = tokio::join!(stuck, well);
    assert!(kinds(&outcomes).iter().all(|kind| *kind == Some(PublishErrorKind::MayHaveHappened)));
    assert!(rounds > 10, "{rounds} calls went by");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_waited_for_in_order() {
    let cluster = cluster(1, 4);
    let publisher = publisher(&cluster.bootstrap_servers());
    const QUEUE: usize = 100_000;
    let batch = messages("orders", QUEUE + 10_000, 50);
    cluster.broker_round_trip_time(1, Duration::from_secs(1)).unwrap();
    let full = async {
        let deadline = Instant::now() + PLENTY;
        while publisher.in_flight() < QUEUE {
            assert!(Instant::now() < deadline, "the queue was never full");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    };
    let (outcomes, ()) = tokio::join!(publish(&publisher, &batch, PLENTY), full);
    assert_all_acknowledged(&outcomes);
    assert_eq!(publisher.in_flight(), 0);
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    assert_first_deliveries_in_order(&read(&reader, batch.len()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_is_sent_again_one_by_one() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 20, 3);
    cluster.request_errors(Api::Produce, &[Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    let records = read(&reader, 20).await;
    assert_first_deliveries_in_order(&records);
    assert_eq!(records.len(), 20, "no duplicates");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_refused_alone_is_rejected_and_its_key_waits() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 6, 2);
    // The batch, and then the first record alone.
    let refused = Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(Api::Produce, &[refused, refused]);
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    let (rejected, behind) = (Some(PublishErrorKind::Rejected), Some(PublishErrorKind::Unavailable));
    assert_eq!(kinds(&outcomes), [rejected, None, behind, None, behind, None]);
    let text = chain(failure(&outcomes[2]));
    assert!(text.contains(&format!("waits behind message {}", batch[0].id)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_known_is_refused_before_anything_is_sent() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let mut batch = messages("orders", 8, 4);
    batch[0].topic = "no topic".to_owned();
    batch[1].value = Some(vec![0; MAX_RECORD_BYTES].into());
    batch[2].partition = Some(-1);
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    let (rejected, behind) = (Some(PublishErrorKind::Rejected), Some(PublishErrorKind::Unavailable));
    assert_eq!(kinds(&outcomes), [rejected, rejected, rejected, None, behind, behind, behind, None]);
    let text = chain(failure(&outcomes[1]));
    assert!(text.contains(&MAX_RECORD_BYTES.to_string()), "{text}");
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    assert_eq!(read(&reader, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_record_that_passes_the_check_is_sent() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let mut batch = messages("orders", 3, 3);
    // Overheads of the record and of its id header are a little over 100 bytes.
    batch[1].value = Some(vec![0; MAX_RECORD_BYTES - 200].into());
    batch[2].value = Some(vec![0; BATCH_BYTES + 1].into());
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_allowed_stops_its_own_messages() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 3, 1);
    cluster.request_errors(Api::Produce, &[Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    assert_eq!(kinds(&outcomes), vec![Some(PublishErrorKind::Rejected); 3]);
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("TopicAuthorizationFailed") && text.contains("Write on it"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_to_write_idempotently_is_a_misconfiguration() {
    let cluster = cluster(1, 1);
    cluster.request_errors(Api::InitProducerId, &[Code::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED]);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 3, 1);
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(kinds(&outcomes), vec![Some(PublishErrorKind::Misconfigured); 3]);
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("ClusterAuthorizationFailed") && text.contains("IdempotentWrite"), "{text}");
    // The next call has a new client.
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_fails_for_good_is_replaced() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    let batch = messages("orders", 50, 5);
    cluster.request_errors(Api::Produce, &[Code::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    assert!(
        kinds(&outcomes).iter().all(|kind| *kind == Some(PublishErrorKind::MayHaveHappened)),
        "{outcomes:?}"
    );
    assert_eq!(publisher.in_flight(), 0);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    assert_eq!(Replaced::ALL.map(|reason| publisher.replaced(reason)), [0, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_errors_of_a_broker_are_not_seen() {
    let cluster = cluster(1, 1);
    let publisher = publisher(&cluster.bootstrap_servers());
    cluster.request_errors(
        Api::Produce,
        &[
            Code::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Code::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            Code::RD_KAFKA_RESP_ERR__TRANSPORT,
            Code::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    let batch = messages("orders", 500, 7);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    let reader = Reader::open(&cluster.bootstrap_servers(), "orders").await.unwrap();
    assert_first_deliveries_in_order(&read(&reader, 500).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_or_partition_that_is_not_there_yet_is_to_be_tried_again() {
    let cluster = cluster(1, 2);
    cluster.topic_error("later", Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let publisher = publisher(&cluster.bootstrap_servers());
    let mut batch: Vec<Message> = messages("orders", 4, 4);
    batch[0].topic = "later".to_owned();
    batch[1].partition = Some(2);
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let later = Some(PublishErrorKind::TopicUnavailable);
    assert_eq!(kinds(&outcomes), [later, later, None, None]);
    assert_eq!(publisher.replaced(Replaced::Outdated), 1, "it remembers that the topic is not there");

    cluster.topic_error("later", Code::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch[..1], PLENTY).await);
}
