//! Brokers count connections: warm invocations open none, and idle sweeps none at all.

use crate::bench::{BOTH, Function, TIMEOUT};
use crate::network::Network;

const INVOCATIONS: usize = 10;
/// The most requests that a function makes at once here: two for each of eight buckets.
const AT_ONCE: u64 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn warm_invocations_open_no_connection() {
    for function in BOTH {
        let Some(network) = Network::new().await else { return };
        let host = network.bench.host_with(function, |spec| spec.with_timeout(TIMEOUT));
        let work = async || {
            network.enqueue(2).await;
            let (outcome, _) = network.invoke(&host, function).await;
            assert!(outcome.is_response(), "{outcome}");
            assert_eq!(network.waiting().await, 0);
        };
        for _ in 0..5 {
            work().await;
        }
        let warm = network.kafka().opened();
        assert!(warm > 0);
        for _ in 0..INVOCATIONS {
            work().await;
        }
        assert_eq!(network.kafka().opened(), warm, "{function:?}: connections to brokers");
        // Requests at once need a connection each, and how many there are at once is the machine's to say: but no more
        // than there can be, in all invocations together.
        let opened = network.dynamodb().opened();
        assert!((1..=AT_ONCE).contains(&opened), "{function:?}: {opened} connections to the table");
        assert_eq!(host.counters().cold_starts, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sweep_connects_to_no_broker() {
    let Some(network) = Network::new().await else { return };
    let host = network.bench.host_with(Function::Scheduled, |spec| spec.with_timeout(TIMEOUT));
    let before = network.kafka().opened();
    let tick = async || {
        let (outcome, _) = network.invoke(&host, Function::Scheduled).await;
        assert!(outcome.is_response(), "{outcome}");
    };
    for _ in 0..3 {
        tick().await;
    }
    assert_eq!(network.kafka().opened(), before, "idle sweeps of a process that never published");

    network.enqueue(1).await;
    tick().await;
    assert_eq!(network.waiting().await, 0);
    let published = network.kafka().opened();
    assert!(published > before);
    for _ in 0..3 {
        tick().await;
    }
    assert_eq!(network.kafka().opened(), published, "idle sweeps of one that did");
    assert_eq!(host.counters().cold_starts, 1);
}
