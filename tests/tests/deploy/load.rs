//! A writer that goes on while something is done to the stack, and what must have come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::{Message, MessageIds};
use outbox_local::kafka::Record;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Ground, TOPIC};

/// Between two transactions: what MiniStack keeps up with, with a few functions beside.
const PACE: Duration = Duration::from_millis(100);
const KEYS: usize = 10;

/// A writer at work, until it is stopped.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    written: watch::Receiver<usize>,
    task: JoinHandle<Vec<Message>>,
}

impl Load {
    pub(crate) fn start(ground: &Ground) -> Self {
        let (writer, ids) = (ground.writer(), MessageIds::from_system());
        let ((stop, stopped), (tell, written)) = (watch::channel(false), watch::channel(0));
        let task = tokio::spawn(async move {
            let (mut messages, mut pace) = (Vec::new(), tokio::time::interval(PACE));
            while !*stopped.borrow() {
                pace.tick().await;
                let number: usize = messages.len();
                let message = Message::new(ids.next_id(), TOPIC)
                    .with_key(format!("customer-{}", number % KEYS))
                    .with_value(number.to_string());
                writer.enqueue(std::slice::from_ref(&message)).await.unwrap();
                messages.push(message);
                tell.send_replace(messages.len());
            }
            messages
        });
        Self { stop, written, task }
    }

    /// Returns when so many more were written than now.
    pub(crate) async fn goes_on_for(&mut self, more: usize) {
        let before = *self.written.borrow();
        self.written.wait_for(|written| *written >= before + more).await.expect("it is writing");
    }

    /// What it wrote, in order.
    pub(crate) async fn end(self) -> Vec<Message> {
        self.stop.send_replace(true);
        self.task.await.unwrap()
    }
}

/// None is lost, and the first record of each is in the order of its key. A function that was replaced while it was at
/// work may have left some to be published again.
pub(crate) fn assert_complete_and_in_order(records: &[Record], written: &[Message]) {
    let mut first: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records {
        let id = record.header_text("x-outbox-message-id").expect("every record carries its message's id");
        let at = first.entry(id).or_insert(record);
        if (record.partition, record.offset) < (at.partition, at.offset) {
            *at = record;
        }
    }
    let lost: Vec<usize> =
        (0..written.len()).filter(|at| !first.contains_key(written[*at].id.to_string().as_str())).collect();
    assert!(lost.is_empty(), "of {} messages, {} are lost: {lost:?}", written.len(), lost.len());
    let mut last: BTreeMap<&[u8], i64> = BTreeMap::new();
    for message in written {
        let id = message.id.to_string();
        let record = first[id.as_str()];
        assert_eq!(record.value.as_deref(), message.value.as_deref());
        let before = last.insert(message.key.as_deref().unwrap(), record.offset);
        assert!(before < Some(record.offset), "{id} overtook an earlier one of its key");
    }
    eprintln!("{} written, {} duplicates", written.len(), records.len() - written.len());
}
