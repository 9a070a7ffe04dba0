//! What has been placed and what has come of it so far.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use futures::future::select_all;
use outbox::MessageId;
use tokio::sync::mpsc;

use super::verdict::{Delivery, PlacedOrder, Verdict, judge};
use crate::kafka::{ClientError, Reader, Record};

/// The functions' default for `OUTBOX_MESSAGE_ID_HEADER`.
const ID_HEADER: &str = "x-outbox-message-id";

/// A reader for each topic.
pub(crate) struct Readers(Vec<(Arc<str>, Reader)>);

impl Readers {
    /// Waits for the topics to exist (bounded), then starts at their beginnings.
    pub(crate) async fn open(servers: &str, topics: &[Arc<str>]) -> Result<Self, ClientError> {
        let mut readers = Vec::new();
        for topic in topics {
            readers.push((Arc::clone(topic), Reader::open(servers, topic).await?));
        }
        Ok(Self(readers))
    }

    /// The next record of any topic; waits for one as long as it takes. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Result<(Arc<str>, Record), ClientError> {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let next = self
            .0
            .iter()
            .map(|(topic, reader)| Box::pin(async move { Ok((Arc::clone(topic), reader.next().await?)) }));
        select_all(next).await.0
    }
}

/// The orders that were committed and the records that were consumed.
#[derive(Debug)]
pub(crate) struct Books {
    placed: Vec<PlacedOrder>,
    deliveries: Vec<Delivery>,
    arrived: HashSet<MessageId>,
    /// Committed, and not arrived yet.
    waiting: HashSet<MessageId>,
    last_arrival: Instant,
}

impl Books {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            placed: Vec::new(),
            deliveries: Vec::new(),
            arrived: HashSet::new(),
            waiting: HashSet::new(),
            last_arrival: start,
        }
    }

    pub(crate) fn place(&mut self, order: PlacedOrder) {
        // The consumer may have it before the writer has heard of its own commit.
        if !self.arrived.contains(&order.message) {
            self.waiting.insert(order.message);
        }
        self.placed.push(order);
    }

    pub(crate) fn deliver(&mut self, topic: Arc<str>, record: Record) {
        let message = record.header_text(ID_HEADER).and_then(MessageId::parse);
        if let Some(id) = message
            && self.arrived.insert(id)
        {
            self.waiting.remove(&id);
            self.last_arrival = record.received;
        }
        let Record { partition, offset, key, value, received, .. } = record;
        self.deliveries.push(Delivery { message, topic, partition, offset, key, value, received });
    }

    /// Notes what is committed and what is consumed, for as long as it is polled. Dropping the future loses nothing.
    pub(crate) async fn follow(
        &mut self,
        readers: &Readers,
        committed: &mut mpsc::Receiver<PlacedOrder>,
    ) -> Result<Infallible, ClientError> {
        loop {
            tokio::select! {
                Some(order) = committed.recv() => self.place(order),
                record = readers.next() => {
                    let (topic, record) = record?;
                    self.deliver(topic, record);
                }
            }
        }
    }

    /// Notes what is in the topics now and has not been read yet.
    pub(crate) async fn deliver_rest(&mut self, readers: &Readers) -> Result<(), ClientError> {
        for (topic, reader) in &readers.0 {
            for record in reader.rest().await? {
                self.deliver(Arc::clone(topic), record);
            }
        }
        Ok(())
    }

    /// Orders that are committed.
    pub(crate) fn placed(&self) -> usize {
        self.placed.len()
    }

    /// Committed orders that have arrived, each counted once.
    pub(crate) fn arrived(&self) -> usize {
        self.placed.len() - self.waiting.len()
    }

    /// When a message arrived that had not before; when it all began, if none has.
    pub(crate) fn last_arrival(&self) -> Instant {
        self.last_arrival
    }

    /// The committed orders, in the order in which that was heard of.
    pub(crate) fn orders(&self) -> &[PlacedOrder] {
        &self.placed
    }

    /// The records, those of one topic and partition in its order.
    pub(crate) fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    pub(crate) fn verdict(&self) -> Verdict {
        judge(&self.placed, &self.deliveries)
    }
}
