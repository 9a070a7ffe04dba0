//! Brokers count connections: warm invocations open none, and idle sweeps none at all.

use crate::bench::{BOTH, Function, TIMEOUT};
use crate::network::Network;

const INVOCATIONS: usize = 10;

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
        // Requests at once need a connection each: after a few invocations there are as many as there ever will be.
        for _ in 0..5 {
            work().await;
        }
        let opened = || (network.kafka().opened(), network.dynamodb().opened());
        let warm = opened();
        assert!(warm.0 > 0 && warm.1 > 0);
        for _ in 0..INVOCATIONS {
            work().await;
        }
        assert_eq!(opened(), warm, "{function:?}: connections to brokers and to the table");
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
