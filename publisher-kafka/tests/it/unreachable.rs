//! No broker at the address: an error that says so, long before the limit.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use outbox::{PublishErrorKind, Publisher};

use crate::support::{chain, failure, messages, publish, publisher};

const LIMIT: Duration = Duration::from_secs(20);
const WELL_BEFORE: Duration = Duration::from_secs(7);

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_named_with_the_clients_own_words() {
    let publisher = publisher("127.0.0.1:1");
    let batch = messages("orders", 20, 5);
    // The second time the client is another one: it has words of its own.
    for _ in 0..2 {
        let start = Instant::now();
        let outcomes = publish(&publisher, &batch, LIMIT).await;
        assert!(start.elapsed() < WELL_BEFORE, "{:?}", start.elapsed());
        for outcome in &outcomes {
            let error = failure(outcome);
            // No broker was ever met: nothing can have been stored.
            assert_eq!(error.kind(), PublishErrorKind::Unavailable);
            let text = chain(error);
            for part in [
                "127.0.0.1:1 (KAFKA_BOOTSTRAP_SERVERS)",
                "Connect to ipv4#127.0.0.1:1 failed: Connection refused",
                "\"orders\"",
            ] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
            assert!(!text.contains("key-"), "{text}");
        }
        assert_eq!(publisher.in_flight(), 0);
    }
    let start = Instant::now();
    drop(publisher);
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_accepts_and_never_answers_is_named() {
    // The kernel accepts on its behalf.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let publisher = publisher(&address);
    let start = Instant::now();
    let outcomes = publish(&publisher, &messages("orders", 3, 1), LIMIT).await;
    assert!(start.elapsed() < WELL_BEFORE, "{:?}", start.elapsed());
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind(), PublishErrorKind::Unavailable);
    let text = chain(error);
    assert!(text.contains(&address), "{text}");
    assert!(text.contains("Connection setup timed out"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_is_named() {
    let publisher = publisher("broker.invalid:9092");
    let start = Instant::now();
    let outcomes = publish(&publisher, &messages("orders", 1, 1), LIMIT).await;
    // A resolver may take its time, but never the limit.
    assert!(start.elapsed() < LIMIT - Duration::from_secs(2), "{:?}", start.elapsed());
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("broker.invalid:9092") && text.contains("resolve"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_limit_is_kept() {
    let publisher = publisher("127.0.0.1:1");
    let limit = Duration::from_secs(2);
    let start = Instant::now();
    let outcomes = publish(&publisher, &messages("orders", 20, 5), limit).await;
    assert!(start.elapsed() <= limit, "{:?}", start.elapsed());
    for outcome in &outcomes {
        let text = chain(failure(outcome));
        assert!(text.contains("Connection refused"), "{text}");
    }
}
