//! A client that keeps records to itself: the call waits for them, whatever its limit.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use outbox::{PublishErrorKind, Publisher};
use rdkafka::mocking::MockCluster;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::support::{PLENTY, assert_all_acknowledged, kinds, messages, publish, publisher};

/// The client's own thread reports deliveries, and says what the client logs: one that is stuck in the log reports
/// nothing. Stands in for a thread of the client's that resolves a name, which no test can hold up.
#[derive(Debug, Default)]
struct Gate {
    /// The address whose lines are held up, while they are.
    shut_for: Mutex<Option<String>>,
    opened: Condvar,
    said: Mutex<Vec<String>>,
}

impl Gate {
    fn shut(&self, address: &str) {
        *self.shut_for.lock().unwrap() = Some(address.to_owned());
    }

    fn open(&self) {
        *self.shut_for.lock().unwrap() = None;
        self.opened.notify_all();
    }

    fn said(&self, text: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{value:?} ");
    }
}

struct Listener(Arc<Gate>);

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if event.metadata().target() == "librdkafka" {
            let held = |address: &mut Option<String>| {
                address.as_ref().is_some_and(|address| text.0.contains(address.as_str()))
            };
            let shut = self.0.shut_for.lock().unwrap();
            drop(self.0.opened.wait_while(shut, held).unwrap());
        } else {
            self.0.said.lock().unwrap().push(text.0);
        }
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PLENTY;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A call that left records to the client would be followed by a freeze, and the client could send them after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_does_not_return_while_the_client_has_records_of_it() {
    let gate = Arc::new(Gate::default());
    let listener = Listener(Arc::clone(&gate));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(listener)).unwrap();

    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let address = cluster.bootstrap_servers();
    let publisher = Arc::new(publisher(&address));
    let batch = messages("orders", 20, 4);
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);

    cluster.broker_round_trip_time(1, Duration::from_secs(60)).unwrap();
    let limit = Duration::from_secs(1);
    let call = tokio::spawn({
        let (publisher, batch) = (Arc::clone(&publisher), batch.clone());
        async move { publish(&publisher, &batch, limit).await }
    });
    until("sending", || publisher.in_flight() == batch.len()).await;
    gate.shut(&address);
    cluster.broker_down(1).unwrap();

    // Long past the limit, it says so again and again, and waits. By then the client is replaced, and counts still.
    until("a complaint", || gate.said("does not give records back") >= 2).await;
    assert!(!call.is_finished(), "it returned with records under way");
    assert_eq!(publisher.in_flight(), batch.len());

    gate.open();
    let outcomes = tokio::time::timeout(PLENTY, call).await.unwrap().unwrap();
    assert_eq!(publisher.in_flight(), 0);
    assert_eq!(kinds(&outcomes), vec![Some(PublishErrorKind::MayHaveHappened); batch.len()]);
    cluster.broker_up(1).unwrap();
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
}
