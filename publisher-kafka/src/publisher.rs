//! The publisher: which client serves which call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox::{Clock, Message, Outcome, PublishError, PublishErrorKind, Publisher};

use crate::call::Call;
use crate::client::{Client, Visit};
use crate::config::KafkaConfig;
use crate::error::ClientError;
use crate::in_flight::InFlight;
use crate::trust::Trust;

/// When a publisher begins to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// When it is made: for whoever is about to publish, so that connecting goes on beside the first reads.
    AtOnce,
    /// At its first publish: for whoever often has nothing to publish, and need not trouble a broker then.
    AtFirstPublish,
}

/// Publishes to Kafka: at least once, in order per key.
///
/// Made once, outside the handler, and shared: calls run side by side on one client. Dropping it returns at once.
#[derive(Debug)]
pub struct KafkaPublisher {
    config: KafkaConfig,
    clock: Arc<dyn Clock>,
    in_flight: InFlight,
    /// The client that the next call gets. `None`: it makes one.
    current: Mutex<Option<Arc<Client>>>,
}

impl KafkaPublisher {
    /// A publisher. `clock` tells how long a client was unused or asleep.
    ///
    /// # Errors
    /// The client cannot be made from these settings, or lacks a feature they need. A broker that is away is no error.
    /// [`Connect::AtFirstPublish`] leaves what only the making of a client can tell to the first publish, whose messages
    /// then fail as [`PublishErrorKind::Misconfigured`].
    pub fn new(config: KafkaConfig, connect: Connect, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let publisher = Self { config, clock, in_flight: InFlight::default(), current: Mutex::new(None) };
        match connect {
            Connect::AtOnce => *publisher.current() = Some(publisher.make_client()?),
            Connect::AtFirstPublish => publisher.config.check()?,
        }
        Ok(publisher)
    }

    /// What it was made from.
    pub const fn config(&self) -> &KafkaConfig {
        &self.config
    }

    fn make_client(&self) -> Result<Arc<Client>, ClientError> {
        let client = Client::new(&self.config, Arc::clone(&self.clock), self.in_flight.clone());
        client.map(Arc::new)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for a call, which reached a broker a moment ago, or is new.
    async fn visit(&self, topic: &str, limit: Duration) -> Result<Visit, ClientError> {
        loop {
            let visit = self.visit_current()?;
            if visit.client().is_sound(topic, limit).await {
                return Ok(visit);
            }
            self.retire(visit.client());
        }
    }

    fn visit_current(&self) -> Result<Visit, ClientError> {
        let mut current = self.current();
        // One that failed for good sends nothing any more.
        let usable = |client: &Arc<Client>| client.trust() != Trust::Gone && client.fatal_error().is_none();
        let client = match current.take().filter(usable) {
            Some(client) => client,
            None => self.make_client()?,
        };
        *current = Some(Arc::clone(&client));
        Ok(Visit::new(client))
    }

    /// No further call gets this client.
    fn retire(&self, client: &Arc<Client>) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, client)) {
            *current = None;
        }
    }
}

impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: &[&Message], limit: Duration) -> Vec<Outcome> {
        let mut call = Call::new(&self.config, batch, limit);
        if !call.check() {
            return call.outcomes();
        }
        // A quarter at most: where a broker answers late, the records need the rest.
        let mut visit = match self.visit(call.topic(), limit / 4).await {
            Ok(visit) => visit,
            Err(error) => {
                let kind = PublishErrorKind::Misconfigured;
                call.fail_the_rest(&PublishError::new(kind, error.to_string()).because(error.source));
                return call.outcomes();
            }
        };
        let client = Arc::clone(visit.client());
        if let Some(reason) = call.send(&client).await {
            // What a purge leaves behind in an idempotent client is not to be reasoned about: the next call gets
            // another one.
            self.retire(&client);
            visit.give_up();
            call.take_back(&client, reason).await;
        } else if call.leaves_the_client_outdated() {
            self.retire(&client);
        }
        call.outcomes()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.count()
    }
}
