//! A process that was frozen finds its connections and its credentials dead, and serves its first event in time.

use std::time::Duration;

use outbox_local::lambda::LambdaHost;

use crate::bench::{BOTH, Function};
use crate::credentials::Credentials;
use crate::network::{Network, assert_first_deliveries, freeze_duration};

/// What the first invocation after a freeze may take: an attempt that DynamoDB does not answer (2.5 s) and the pause
/// after it (0.1 s), a client of Kafka that is asked and does not answer (1 s), and what a cold run takes besides (a
/// second, and as much again where the machine is busy with other tests). Both are found dead once, however many
/// connections there were.
const FIRST: Duration = Duration::from_millis(2500 + 100 + 1000 + 2000);

/// A process that has worked lately.
async fn warm(network: &Network, function: Function, timeout: Duration) -> LambdaHost {
    let host = network.bench.host_with(function, |spec| spec.with_timeout(timeout));
    network.enqueue(2).await;
    let (outcome, _) = network.invoke(&host, function).await;
    assert!(outcome.is_response(), "{outcome}");
    assert_eq!(network.waiting().await, 0, "{:#?}", host.logs());
    host
}

/// Freezes a warm process, strands every connection it has, and gives it work.
async fn freeze_and_strand(timeout: Duration) {
    for function in BOTH {
        let Some(network) = Network::new().await else { return };
        let host = warm(&network, function, timeout).await;
        tokio::time::sleep(freeze_duration()).await;
        let messages = network.enqueue(5).await;
        network.kafka().strand();
        network.dynamodb().strand();

        let (outcome, took) = network.invoke(&host, function).await;
        println!("{function:?}, timeout {timeout:?}: {took:?} after a freeze of {:?}", freeze_duration());
        assert!(outcome.is_response(), "{outcome}");
        assert_eq!(network.waiting().await, 0, "{:#?}", host.logs());
        assert!(took < FIRST, "{took:?}: {:#?}", host.logs());
        assert_eq!(host.counters().cold_starts, 1);
        network.bench.assert_released().await;
        let records = network.records().await;
        assert_eq!(assert_first_deliveries(&records[16..], &messages), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stranded_connections_cost_a_function_of_ten_seconds_little() {
    freeze_and_strand(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stranded_connections_cost_a_function_of_a_minute_no_more() {
    freeze_and_strand(Duration::from_secs(60)).await;
}

/// Credentials of a container run out while it sleeps, and the connection they came over is dead.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_ran_out_are_replaced_before_the_first_request() {
    let Some(mut network) = Network::new().await else { return };
    // The SDK takes new ones at a random moment of the last ten seconds, so that processes do not all ask at once.
    let lifetime = Duration::from_secs(10) + Duration::from_secs(3);
    let credentials = Credentials::start(&network, lifetime).await;
    for (name, value) in credentials.environment() {
        network.bench.set(name, &value);
    }
    let function = Function::Stream;
    let host = warm(&network, function, Duration::from_secs(10)).await;
    let (used, given) = (credentials.used(), credentials.given());
    assert_eq!(used, given, "{:#?}", host.logs());
    // One, unless the machine is so slow that they were about to end.
    let before = given.len();

    tokio::time::sleep(freeze_duration().max(lifetime)).await;
    network.enqueue(5).await;
    credentials.strand();
    let (outcome, took) = network.invoke(&host, function).await;
    println!("{took:?} with new credentials");
    assert!(outcome.is_response(), "{outcome}");
    assert_eq!(network.waiting().await, 0, "{:#?}", host.logs());
    assert!(took < FIRST, "{took:?}: {:#?}", host.logs());
    let fresh = credentials.used().split_off(before);
    assert_eq!(fresh, credentials.given()[before..], "the first request was signed with new ones");
    assert_eq!(fresh.len(), 1);
}
