//! Messages that the broker itself refuses: their key waits or is set aside, other keys go on, the function succeeds and
//! says why.

use std::sync::Arc;
use std::time::Duration;

use outbox::{Bucket, Chance, Header, Message, SystemClock};
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

/// The trace that a message was enqueued with is found from either end: on the record, and in the line that tells why
/// there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_leads_to_the_record_and_to_the_line_of_what_was_refused() {
    const TRACES: [&str; 2] = ["0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"];
    let Some(bench) = bench_with_a_small_topic().await else { return };
    let parent = |trace| format!("00-{trace}-b7ad6b7169203331-01");
    let traced = |message: Message, trace| {
        let message = message.with_header(Header::new("traceparent", parent(trace)));
        message.with_header(Header::new("baggage", "user=secret"))
    };
    let refused = traced(bench.too_large(), TRACES[0]);
    let sent = traced(bench.message(&neighbour_of(KEY)), TRACES[1]);
    bench.writer.enqueue(&[refused.clone(), sent.clone()]).await.unwrap();
    let host = bench.succeed(Function::Stream).await;

    let records = bench.records().await;
    assert_eq!(ids(&records), [sent.id.to_string()]);
    assert_eq!(records[0].header_text("traceparent"), Some(parent(TRACES[1]).as_str()));
    assert_eq!(records[0].header_text("baggage"), Some("user=secret"));

    let logs = host.logs();
    let line = logs.iter().find(|line| line.text.contains("can never be published")).expect("a line");
    let line: serde_json::Value = serde_json::from_str(&line.text).unwrap();
    for (name, value) in [
        ("message_id", refused.id.to_string()),
        ("topic", bench.topic.clone()),
        ("trace_id", TRACES[0].to_owned()),
        ("bucket", "4".to_owned()),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["span"]["requestId"], host.records()[0].request_id.as_str(), "{line}");
    assert!(logs.iter().all(|line| !line.text.contains("secret") && !line.text.contains("b7ad6b7169203331")));
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
