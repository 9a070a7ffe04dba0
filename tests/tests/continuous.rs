//! The example of a long-lived relay, as a real process: it publishes, is told to stop, and hands over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use outbox::{Message, MessageIds, SystemClock};
use outbox_local::dynamodb::Database;
use outbox_local::guarded::{self, Guarded};
use outbox_local::kafka::{Broker, BrokerOptions, Reader};
use outbox_store_dynamodb::{StoreOptions, Writer, table};

/// How long anything here may take.
const BOUND: Duration = Duration::from_secs(30);

/// The example, which cargo builds with the whole workspace's tests, and not with this one alone.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/continuous-relay");
    assert!(built.is_file(), "{built:?} is missing: cargo build -p outbox-functions --examples");
    built
}

async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < BOUND, "not within {BOUND:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_lived_relay_publishes_and_hands_over_when_it_is_terminated() {
    let (broker, database) =
        tokio::join!(Broker::start(BrokerOptions::from_env().unwrap()), Database::start(None));
    let (broker, database) = (broker.unwrap(), database.unwrap());
    let client = database.client().await;
    let options = StoreOptions::new("outbox");
    table::create(&client, &options, &SystemClock::new()).await.unwrap();

    let mut command = guarded::command(example(), None);
    command.env("OUTBOX_TABLE_NAME", "outbox").env("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers());
    command.envs(database.environment()).stdout(Stdio::null());
    let mut relay = Guarded::spawn(command).unwrap();

    let ids = MessageIds::from_system();
    let topic = format!("continuous-{}", ids.next_id());
    let writer = Writer::new(client.clone(), options);
    let sent: Vec<Message> =
        (0..50).map(|n| Message::new(ids.next_id(), &topic).with_key(format!("k{}", n % 5))).collect();
    writer.enqueue(&sent).await.unwrap();
    let waiting = async || client.scan().table_name("outbox").send().await.unwrap().items.unwrap();
    let is_message = |item: &std::collections::HashMap<_, _>| item.contains_key("MessageId");
    until("everything published", || async { !waiting().await.iter().any(is_message) }).await;
    let records = Reader::open(broker.bootstrap_servers(), &topic).await.unwrap().rest().await.unwrap();
    assert_eq!(records.len(), 50);

    relay.signal(Signal::SIGTERM).unwrap();
    let status = relay.wait(BOUND).await.unwrap().expect("it does not stop");
    assert!(status.success(), "{status}");
    for item in waiting().await {
        assert!(!item.contains_key("Owner"), "a lease was not handed over");
    }
}
