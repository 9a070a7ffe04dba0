//! Messages that the broker itself refuses: their key waits or is set aside, other keys go on, the function succeeds and
//! says why.

use std::sync::Arc;
use std::time::Duration;

use outbox::{Bucket, Chance, Message, SystemClock};
use outbox_local::lambda::LambdaHost;
use outbox_store_dynamodb::{DynamoDbStore, StoreOptions};

use crate::bench::{BOTH, Bench, Function, assert_no_failure, broker, ids, logged, neighbour_of};

/// A key in bucket 4.
const KEY: &str = "21";

/// A bench whose topic takes records of 2,000 bytes at most; none where the broker knows no limits.
async fn bench_with_a_small_topic() -> Option<Bench> {
    let bench = Bench::new().await;
    if !broker().await.kind().is_real() {
        println!("skipped: the mock cluster has no limits");
        return None;
    }
    broker().await.create_topic_with(&bench.topic, 1, &[("max.message.bytes", "2000")]).await.unwrap();
    Some(bench)
}

impl Bench {
    fn too_large(&self) -> Message {
        self.message(KEY).with_value(vec![b'v'; 4_000])
    }

    /// Invokes the function, which succeeds, and gives its host.
    async fn succeed(&self, function: Function) -> LambdaHost {
        let host = self.host(function);
        let outcome = host.invoke(&self.event(function, &[self.insert(4)])).await.unwrap();
        match function {
            Function::Stream => assert_no_failure(&outcome),
            Function::Scheduled => assert!(outcome.is_response(), "{outcome}"),
        }
        self.assert_released().await;
        host
    }

    /// The ids of the messages that wait in bucket 4, in order.
    async fn left(&self) -> Vec<String> {
        let items = self.items("OUTBOX#MESSAGES#4").await.into_values();
        items.map(|item| item["MessageId"].as_s().unwrap().clone()).collect()
    }

    fn assert_says_why(&self, host: &LambdaHost, refused: &Message) {
        let said = ["ERROR", &refused.id.to_string(), &self.topic, "MessageSizeTooLarge"];
        assert!(logged(host, &said), "{:#?}", host.logs());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_broker_refuses_holds_back_its_key_and_no_other() {
    for function in BOTH {
        let Some(bench) = bench_with_a_small_topic().await else { return };
        let (refused, behind) = (bench.too_large(), bench.message(KEY));
        let other = bench.message(&neighbour_of(KEY));
        bench.writer.enqueue(&[refused.clone(), behind.clone(), other.clone()]).await.unwrap();

        let host = bench.succeed(function).await;
        assert_eq!(ids(&bench.records().await), [other.id.to_string()]);
        assert_eq!(bench.left().await, [refused.id, behind.id].map(|id| id.to_string()));
        bench.assert_says_why(&host, &refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_which_nothing_can_be_published_is_no_outage() {
    for function in BOTH {
        let Some(bench) = bench_with_a_small_topic().await else { return };
        let (refused, behind) = (bench.too_large(), bench.message(KEY));
        bench.writer.enqueue(&[refused.clone(), behind.clone()]).await.unwrap();

        let host = bench.succeed(function).await;
        assert_eq!(bench.left().await, [refused.id, behind.id].map(|id| id.to_string()));
        assert!(bench.records().await.is_empty());
        bench.assert_says_why(&host, &refused);
    }
}

/// Set aside by one function, followed by what the other finds, sent back by somebody, and refused again.
#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_a_quarantine_what_the_broker_refuses_is_set_aside_and_its_key_follows() {
    const LIMIT: Duration = Duration::from_secs(10);
    let bucket = Bucket::new(4);
    for (first, second) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
        let Some(mut bench) = bench_with_a_small_topic().await else { return };
        bench.set("OUTBOX_POISON_POLICY", "quarantine");
        let (refused, behind) = (bench.too_large(), bench.message(KEY));
        let other = bench.message(&neighbour_of(KEY));
        bench.writer.enqueue(&[refused.clone(), behind.clone(), other.clone()]).await.unwrap();
        let host = bench.succeed(first).await;
        assert_eq!(ids(&bench.records().await), [other.id.to_string()]);
        assert!(bench.left().await.is_empty(), "nothing is left for a sweep to look at");
        bench.assert_says_why(&host, &refused);

        let later = bench.enqueue(KEY).await;
        bench.succeed(second).await;
        assert!(bench.left().await.is_empty());
        let clock = Arc::new(SystemClock::new());
        let options = StoreOptions::new(&bench.table);
        let store = DynamoDbStore::new(bench.client.clone(), options, clock, Chance::from_system());
        let aside = store.quarantined(bucket, None, 10, LIMIT).await.unwrap();
        let found: Vec<_> = aside.iter().map(|one| one.message.as_ref().unwrap().id).collect();
        assert_eq!(found, [refused.id, behind.id, later.id]);
        assert_eq!(aside.iter().map(|one| one.attempts).collect::<Vec<_>>(), [1, 0, 0]);
        assert!(aside[0].reason.as_ref().unwrap().contains(&bench.topic), "{aside:?}");

        let redriven = store.redrive(bucket, aside[1].sequence, LIMIT).await.unwrap();
        assert_eq!(redriven.messages, 3);
        bench.succeed(first).await;
        let again = store.quarantined(bucket, None, 10, LIMIT).await.unwrap();
        assert_eq!(again.iter().map(|one| one.attempts).collect::<Vec<_>>(), [2, 0, 0]);
        assert_eq!(bench.records().await.len(), 1, "what is behind it was not sent");
    }
}
