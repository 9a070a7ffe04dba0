//! A message that can never be published, at the head of one bucket, beside a bucket that is well.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Message, MessageId, Outcome, PublishError, PublishErrorKind, Publisher, RelayOptions};

use crate::kind::Kind;
use crate::support::Bench;
use crate::wire::Counts;

/// The well one, which is bucket 4, and the poisoned one.
const KEYS: [&str; 2] = ["21", "3"];
const WAITING: usize = 5_000;

/// Refuses one message, and notes how many each call had.
#[derive(Clone)]
struct Refusing {
    refused: Option<MessageId>,
    calls: Arc<Mutex<Vec<usize>>>,
}

impl Publisher for Refusing {
    async fn publish(&self, batch: &[&Message], _: Duration) -> Vec<Outcome> {
        self.calls.lock().unwrap().push(batch.len());
        let refusal = || Outcome::Failed(PublishError::new(PublishErrorKind::Rejected, "too large"));
        let outcome = |message: &&Message| match Some(message.id) == self.refused {
            true => refusal(),
            false => Outcome::Acknowledged,
        };
        batch.iter().map(outcome).collect()
    }
}

/// Drains all that waits in the well bucket, and tells what that took of DynamoDB and of Kafka.
async fn drain(poisoned: bool) -> (Counts, Vec<usize>) {
    let bench = Bench::new().await;
    let [well, other] = KEYS.map(|key| bench.message(key).bucket(bench.count));
    assert_ne!(well, other);
    let mut refused = None;
    if poisoned {
        refused = Some(bench.enqueue(KEYS[1]).await);
        for _ in 0..10 {
            bench.enqueue(KEYS[1]).await;
        }
    }
    bench.enqueue_many(KEYS[0], WAITING).await;
    let publisher = Refusing { refused, calls: Arc::default() };
    let relay = bench.relay_with(&publisher, RelayOptions::default());
    let before = bench.wire.counts();
    let report = relay.sweep(&bench.relay_id(), &bench.budget()).await;
    assert_eq!(report.deleted(), WAITING as u64, "{report:?}");
    let calls = publisher.calls.lock().unwrap().clone();
    (bench.wire.counts().since(&before), calls)
}

/// The bucket beside it makes as many requests and publishes as without, and the poisoned one a handful.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_costs_a_handful_of_requests_and_the_bucket_beside_it_nothing() {
    let (well, calls) = drain(false).await;
    let (both, calls_with_poison) = drain(true).await;
    eprintln!("{WAITING} messages:\n{well}\nand with poison in another bucket:\n{both}");
    assert_eq!(calls, [500; 10]);
    // One more, of the poisoned bucket: the eleven of its key.
    let mut rest = calls_with_poison;
    rest.remove(rest.iter().position(|size| *size == 11).expect("the poisoned bucket was published once"));
    assert_eq!(rest, calls);
    assert_eq!(both.of(Kind::Delete), well.of(Kind::Delete));
    // A lease that is taken and freed, the attempt that is counted, and a few looks at the bucket.
    assert!(both.requests() <= well.requests() + 8, "{both}");
    assert_eq!((well.refused(), both.refused()), (0, 0), "{both}");
}
