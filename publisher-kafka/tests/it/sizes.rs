//! Records that their topic does not take: found before anything of their key is sent, and counted as brokers count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::{PublishErrorKind, Publisher, Ticks, TokioClock};
use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader};
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::mocking::MockCluster;

use crate::support::{
    PLENTY, admin, assert_all_acknowledged, chain, create_topic_that_takes, failure, kinds, messages,
    publish, publisher, publisher_by, real_broker, topic, value_for,
};

const REJECTED: Option<PublishErrorKind> = Some(PublishErrorKind::Rejected);
const BEHIND: Option<PublishErrorKind> = Some(PublishErrorKind::Unavailable);

#[tokio::test(flavor = "multi_thread")]
async fn a_record_over_its_topics_limit_is_found_before_anything_of_its_key_is_sent() {
    const LIMIT: usize = 100_000;
    let Some(broker) = real_broker("limits").await else { return };
    let topic = topic("small");
    create_topic_that_takes(&broker, &topic, LIMIT).await;
    let publisher = publisher(broker.bootstrap_servers());
    // Rows 1, 2, 3 of a key, of which the first is too large by a byte; another key's that is exactly at the limit.
    let mut batch = messages(&topic, 6, 2);
    batch[0].value = Some(value_for(LIMIT + 1).into());
    batch[1].value = Some(value_for(LIMIT).into());
    let start = Instant::now();
    let outcomes = publish(&publisher, &batch, PLENTY).await;
    println!("the first publish, with its question, took {:?}", start.elapsed());
    assert_eq!(kinds(&outcomes), [REJECTED, None, BEHIND, None, BEHIND, None]);
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("takes 100001 bytes, more than the 100000") && text.contains(&topic), "{text}");
    let reader = Reader::open(broker.bootstrap_servers(), &topic).await.unwrap();
    let records = reader.rest().await.unwrap();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.key.as_deref() == Some(b"key-1")));
}

/// Brokers count as we do, to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_takes_what_is_at_the_limit_and_refuses_a_byte_more() {
    // Below what is asked about: it is the broker that refuses.
    const LIMIT: usize = 20_000;
    let Some(broker) = real_broker("limits").await else { return };
    let topic = topic("small");
    create_topic_that_takes(&broker, &topic, LIMIT).await;
    let publisher = publisher(broker.bootstrap_servers());
    for (bytes, kind, found_by) in [
        (LIMIT, None, ""),
        (LIMIT + 1, REJECTED, "MessageSizeTooLarge"),
        // The refusal was a lesson: its limit is known now.
        (LIMIT + 1, REJECTED, "max.message.bytes"),
        (LIMIT, None, ""),
    ] {
        let mut batch = messages(&topic, 1, 1);
        batch[0].value = Some(value_for(bytes).into());
        let outcomes = publish(&publisher, &batch, PLENTY).await;
        assert_eq!(kinds(&outcomes), [kind], "{bytes}");
        if kind.is_some() {
            let text = chain(failure(&outcomes[0]));
            assert!(text.contains(found_by), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_asked_for_once_and_a_raised_limit_is_seen() {
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    let broker = match Broker::start(BrokerOptions { behind_link: true, ..options }).await {
        Err(BrokerError::NoLink { kind }) => {
            println!("skipped: {kind}");
            return;
        }
        started => started.unwrap(),
    };
    create_topic_that_takes(&broker, "small", 100_000).await;
    let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_316_345_534_567_890)));
    let publisher = publisher_by(clock.clone(), broker.linked_servers().unwrap());
    let opened = || broker.link().unwrap().opened();
    let mut batch = messages("small", 1, 1);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    let small = opened();
    batch[0].value = Some(value_for(90_000).into());
    let start = Instant::now();
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    println!("a publish that asked took {:?}", start.elapsed());
    let asked = opened();
    assert!(asked > small, "a small record asks nobody, a large one does");
    for _ in 0..5 {
        assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    }
    assert_eq!(opened(), asked, "the answer is remembered");

    batch[0].value = Some(value_for(150_000).into());
    assert_eq!(kinds(&publish(&publisher, &batch, PLENTY).await), [REJECTED]);
    let raised = AlterConfig {
        specifier: ResourceSpecifier::Topic("small"),
        entries: HashMap::from([("max.message.bytes", "200000")]),
    };
    let altered = admin(broker.bootstrap_servers()).alter_configs([&raised], &AdminOptions::new()).await;
    altered.unwrap().remove(0).unwrap();
    clock.step_wall(6_000);
    let deadline = Instant::now() + PLENTY;
    // A broker takes a moment to go by it.
    while kinds(&publish(&publisher, &batch, PLENTY).await) != [None] {
        assert!(Instant::now() < deadline, "the raised limit was never seen");
        clock.step_wall(6_000);
    }
    assert_eq!(publisher.in_flight(), 0);
}

/// The mock cluster knows no such question, and a slow one does not answer it in time: the records go all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_cannot_be_read_costs_the_check_alone() {
    for round_trip in [Duration::ZERO, Duration::from_millis(700)] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let publisher = publisher(&cluster.bootstrap_servers());
        assert_all_acknowledged(&publish(&publisher, &messages("orders", 1, 1), PLENTY).await);
        cluster.broker_round_trip_time(1, round_trip).unwrap();
        let mut batch = messages("orders", 2, 1);
        batch[0].value = Some(vec![0; 200_000].into());
        let mut took = Vec::new();
        for _ in 0..2 {
            let start = Instant::now();
            assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
            took.push(start.elapsed());
        }
        println!("with round trips of {round_trip:?}: {took:?}");
        assert!(took[0] < Duration::from_millis(1_500) + 4 * round_trip, "{took:?}");
        assert!(took[1] < Duration::from_millis(500) + 3 * round_trip, "asked again: {took:?}");
        assert_eq!(publisher.in_flight(), 0);
    }
}
