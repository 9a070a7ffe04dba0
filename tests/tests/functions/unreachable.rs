//! Brokers and tables that cannot be reached: a named error before the deadline, rows kept, leases released.

use std::time::{Duration, Instant};

use outbox_local::lambda::{LambdaHost, Outcome};
use tokio::net::TcpListener;

use crate::bench::{Bench, Function, TIMEOUT, assert_no_failure, function_error, logged};

/// An address at which nobody listens: taken, and given up again.
async fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// An address that accepts connections and never says a word.
async fn silent_port() -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    (address, accepting)
}

/// Invokes and checks that the function ended by itself, with time to spare.
async fn in_time(bench: &Bench, host: &LambdaHost, function: Function) -> Outcome {
    let started = Instant::now();
    let outcome = host.invoke(&bench.event(function, &[bench.insert(4)])).await.unwrap();
    assert!(started.elapsed() < TIMEOUT - Duration::from_secs(1), "{:?}: {outcome}", started.elapsed());
    outcome
}

async fn broker_at(address: &str, said: &str) {
    let mut bench = Bench::new().await;
    bench.enqueue("21").await;
    bench.set("KAFKA_BOOTSTRAP_SERVERS", address);

    let host = bench.host(Function::Stream);
    assert_no_failure(&in_time(&bench, &host, Function::Stream).await);
    assert!(logged(&host, &[address, said, "a bucket was not drained"]), "{:#?}", host.logs());
    bench.assert_released().await;

    let host = bench.host(Function::Scheduled);
    let outcome = in_time(&bench, &host, Function::Scheduled).await;
    // A success, for the next sweep tries again; it says why all the same, and so does the log.
    let answer = outcome.response().unwrap_or_else(|| panic!("no answer: {outcome}"));
    let why = answer["unavailable"].as_str().unwrap();
    assert!(why.contains(address) && why.contains(said), "{answer}");
    assert!(logged(&host, &[address, said, "got nothing through"]), "{:#?}", host.logs());
    bench.assert_released().await;
    assert_eq!(bench.waiting(4).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_at_the_address() {
    broker_at(&closed_port().await, "Connection refused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_accepts_and_says_nothing() {
    let (address, accepting) = silent_port().await;
    broker_at(&address, "timed out in state").await;
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_reached() {
    let (silent, accepting) = silent_port().await;
    for address in [closed_port().await, silent] {
        let mut bench = Bench::new().await;
        bench.set("AWS_ENDPOINT_URL_DYNAMODB", &format!("http://{address}"));
        let host = bench.host(Function::Stream);
        assert_no_failure(&in_time(&bench, &host, Function::Stream).await);
        assert!(logged(&host, &[&bench.table, "claim failed"]), "{:#?}", host.logs());
        let host = bench.host(Function::Scheduled);
        let outcome = in_time(&bench, &host, Function::Scheduled).await;
        let (error_type, message) = function_error(&outcome);
        assert_eq!(error_type, "Outbox.Unavailable");
        assert!(message.contains(&format!("table {:?}", bench.table)), "{message}");
    }
    accepting.abort();
}
