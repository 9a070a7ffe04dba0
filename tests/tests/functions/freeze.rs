//! A process that is frozen as its invocation returns has nothing left to send.

use std::time::{Duration, Instant};

use outbox::Message;
use outbox_local::lambda::LambdaHost;
use outbox_local::link::Mode;

use crate::bench::{Function, assert_no_failure};
use crate::network::{Network, assert_first_deliveries, freeze_duration, frozen_process};

/// The shortest timeout of a function that is supported.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a thawed process is given to send what it must not: a client that had something would connect again within
/// a second.
const AWAKE: Duration = Duration::from_secs(3);
/// More than all that a client says without records.
const SMALL_TALK: u64 = 2_000;

/// A warm process whose batch was under way when its network failed; frozen at its return.
struct Frozen {
    network: Network,
    host: LambdaHost,
    /// All that was ever enqueued, the last batch behind those that arrived.
    messages: Vec<Message>,
    arrived: usize,
}

impl Frozen {
    async fn in_an_outage(mode: Mode) -> Option<Self> {
        Self::with_last_batch(1_000, 5, mode).await
    }

    /// The last batch has values of this size, so many for each bucket.
    async fn with_last_batch(bytes: usize, rounds: usize, mode: Mode) -> Option<Self> {
        let network = Network::new().await?;
        let host = network.bench.host_with(Function::Stream, |spec| spec.with_timeout(TIMEOUT));
        let mut messages = Vec::new();
        let mut arrived = 0;
        // A client that was unused for two seconds would ask first, and hand over nothing: on a machine that is as slow as
        // that, once more.
        for attempt in 1.. {
            assert!(attempt < 10, "the machine is too slow");
            messages.extend(network.enqueue(1).await);
            assert_no_failure(&network.invoke(&host, Function::Stream).await.0);
            let returned = Instant::now();
            arrived = messages.len();
            messages.extend(network.enqueue_of(bytes, rounds).await);
            if returned.elapsed() < Duration::from_secs(1) {
                break;
            }
        }
        network.kafka().set(mode);
        let (outcome, took) = network.invoke(&host, Function::Stream).await;
        assert_no_failure(&outcome);
        assert!(took < TIMEOUT - Duration::from_millis(250), "it returned after {took:?}");
        frozen_process(&host);
        assert_eq!(network.waiting().await, messages.len() - arrived, "what was not acknowledged stays");
        Some(Self { network, host, messages, arrived })
    }

    /// Lets it go on without an event, after a while, with a network that is well again.
    async fn thaw(&self) {
        tokio::time::sleep(freeze_duration()).await;
        self.network.kafka().set(Mode::Pass);
        assert!(self.host.thaw(frozen_process(&self.host)).await);
        tokio::time::sleep(AWAKE).await;
    }

    /// The next event finds the same process, which delivers the rest; returns how many records came twice.
    async fn deliver_the_rest(&self) -> usize {
        let (outcome, _) = self.network.invoke(&self.host, Function::Stream).await;
        assert_no_failure(&outcome);
        assert_eq!(self.host.counters().cold_starts, 1);
        assert_eq!(self.network.waiting().await, 0);
        self.network.bench.assert_released().await;
        assert_first_deliveries(&self.network.records().await, &self.messages)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_arrives_after_a_thaw() {
    let Some(frozen) = Frozen::in_an_outage(Mode::Silent).await else { return };
    let swallowed = frozen.network.kafka().counters().swallowed;
    assert!(swallowed > SMALL_TALK, "no record was under way: {swallowed} bytes, {:#?}", frozen.host.logs());
    frozen.thaw().await;
    let arrived = frozen.network.records().await.len();
    assert_eq!(arrived, frozen.arrived, "records of the first life came after its end");
    assert_eq!(frozen.deliver_the_rest().await, 0, "each of them came once");
}

/// A network that takes nothing leaves what the process has written to the kernel, which does not sleep with it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_arrives_while_it_is_frozen() {
    // Larger than what a link's kernel takes, so that no request is complete before the network is well again.
    const BYTES: usize = 200_000;
    let Some(frozen) = Frozen::with_last_batch(BYTES, 1, Mode::Clog).await else { return };
    frozen.network.kafka().set(Mode::Pass);
    tokio::time::sleep(AWAKE).await;
    let arrived = frozen.network.records().await.len();
    assert_eq!(arrived, frozen.arrived, "the kernel sent what had been given up");
    frozen.thaw().await;
    assert_eq!(frozen.network.records().await.len(), frozen.arrived);
    assert_eq!(frozen.deliver_the_rest().await, 0, "each of them came once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_that_thaws_it_delivers_each_message_once() {
    let Some(frozen) = Frozen::in_an_outage(Mode::Silent).await else { return };
    tokio::time::sleep(freeze_duration()).await;
    frozen.network.kafka().set(Mode::Pass);
    assert_eq!(frozen.deliver_the_rest().await, 0);
}

/// What had left the process, no process can take back: a network that stalled delivers it later, in its order. It comes
/// again then, and nothing comes out of order for the first time.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_network_kept_comes_twice_and_in_order() {
    let Some(frozen) = Frozen::in_an_outage(Mode::Hold).await else { return };
    frozen.thaw().await;
    let late = frozen.network.records().await.len() - frozen.arrived;
    assert!(late > 0, "nothing was under way");
    assert_eq!(frozen.deliver_the_rest().await, late, "once from the network, once from the table");
}
