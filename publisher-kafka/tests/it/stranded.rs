//! Connections that died while nobody used them, or while a publish was under way, on a real broker behind a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::{PublishErrorKind, Publisher, Ticks, TokioClock};
use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader};
use outbox_local::link::{Link, Mode};
use outbox_publisher_kafka::KafkaPublisher;

use crate::support::{
    PLENTY, assert_all_acknowledged, assert_first_deliveries_in_order, kinds, messages, publish, publisher_by,
};

/// What a publish of a function with the shortest timeout, 10 s, has after an attempt at DynamoDB was lost.
const LIMIT: Duration = Duration::from_millis(3_500);

/// A publisher that has published through the link, and its clock.
struct Bench {
    broker: Broker,
    clock: Arc<TokioClock>,
    publisher: Arc<KafkaPublisher>,
}

impl Bench {
    async fn new() -> Option<Self> {
        let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
        let broker = match Broker::start(BrokerOptions { behind_link: true, ..options }).await {
            Err(BrokerError::NoLink { kind }) => {
                println!("skipped: {kind}");
                return None;
            }
            started => started.unwrap(),
        };
        broker.create_topic("orders", 3).await.unwrap();
        let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_316_345_534_567_890)));
        let publisher = Arc::new(publisher_by(clock.clone(), broker.linked_servers().unwrap()));
        assert_all_acknowledged(&publish(&publisher, &messages("orders", 50, 50), PLENTY).await);
        Some(Self { broker, clock, publisher })
    }

    fn link(&self) -> &Link {
        self.broker.link().unwrap()
    }

    fn opened(&self) -> u64 {
        self.link().opened()
    }

    /// A freeze that stops the monotonic clock.
    fn sleep(&self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000);
    }

    /// Eight calls at once, as from as many buckets; how long the last took.
    async fn eight_calls(&self, limit: Duration) -> Duration {
        let started = Instant::now();
        let calls: Vec<_> = (0..8)
            .map(|bucket| {
                let publisher = Arc::clone(&self.publisher);
                let mut batch = messages("orders", 20, 1);
                for message in &mut batch {
                    message.key = Some(format!("key of bucket {bucket}").into());
                }
                tokio::spawn(async move { publish(&publisher, &batch, limit).await })
            })
            .collect();
        for call in calls {
            assert_all_acknowledged(&call.await.unwrap());
        }
        started.elapsed()
    }

    /// Everything that was acknowledged is there, once, `rounds` times eight calls of it.
    async fn assert_all_arrived_in_order(&self, rounds: usize) {
        let reader = Reader::open(self.broker.bootstrap_servers(), "orders").await.unwrap();
        let records = reader.rest().await.unwrap();
        assert_eq!(records.len(), 50 + rounds * 160);
        assert_first_deliveries_in_order(&records);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_connections_are_found_by_one_question() {
    let Some(bench) = Bench::new().await else { return };
    bench.sleep(30);
    bench.link().strand();
    let took = bench.eight_calls(LIMIT).await;
    // A second for the answer that does not come, at most a quarter of the limit.
    assert!(took > LIMIT / 5, "{took:?}: they were dead");
    assert!(took < LIMIT - Duration::from_secs(1), "{took:?}");
    bench.assert_all_arrived_in_order(1).await;
    assert_eq!(bench.publisher.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_slept_long_is_replaced() {
    let Some(bench) = Bench::new().await else { return };
    bench.sleep(900);
    bench.link().strand();
    let before = bench.opened();
    let took = bench.eight_calls(PLENTY).await;
    assert!(took < Duration::from_secs(5), "{took:?}: the connections were dead, and were used");
    assert!(bench.opened() > before);
    bench.assert_all_arrived_in_order(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_live_are_kept() {
    let Some(bench) = Bench::new().await else { return };
    let before = bench.opened();
    for _ in 0..3 {
        bench.sleep(50);
        bench.eight_calls(PLENTY).await;
    }
    assert_eq!(bench.opened(), before, "asking opens none, and the answer was there");
    // Naps add up: together they are as long as a connection may sleep.
    bench.sleep(50);
    bench.eight_calls(PLENTY).await;
    assert!(bench.opened() > before);
    bench.assert_all_arrived_in_order(4).await;
}

/// A network that takes nothing leaves what the client has written in the kernel's send buffer, where no purge reaches it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_leaves_the_kernel_too() {
    let Some(bench) = Bench::new().await else { return };
    let mut batch = messages("orders", 20, 1);
    for message in &mut batch {
        message.key = Some("one key".into());
    }
    let mut large = batch.clone();
    for message in &mut large {
        // Larger than what the link's kernel takes, so that no request is complete while the network takes nothing.
        message.value = Some(vec![b'0'; 200_000].into());
    }
    bench.link().set(Mode::Clog);
    let outcomes = publish(&bench.publisher, &large, Duration::from_secs(3)).await;
    assert!(kinds(&outcomes).iter().all(|kind| *kind == Some(PublishErrorKind::MayHaveHappened)));
    bench.link().set(Mode::Pass);

    // What the network kept would be there before what is published over a new connection now, or soon after.
    assert_all_acknowledged(&publish(&bench.publisher, &batch, PLENTY).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let reader = Reader::open(bench.broker.bootstrap_servers(), "orders").await.unwrap();
    let records = reader.rest().await.unwrap();
    let late = records.iter().filter(|record| record.value.as_ref().is_some_and(|value| value.len() > 1_000));
    assert_eq!(late.count(), 0, "the kernel sent what had been given up");
    assert_eq!(records.len(), 50 + 20);
    assert_eq!(bench.publisher.in_flight(), 0);
}
