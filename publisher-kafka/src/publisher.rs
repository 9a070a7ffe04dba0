//! The publisher: which client serves which call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox::{Message, Outcome, PublishError, PublishErrorKind, Publisher};

use crate::call::Call;
use crate::client::{Client, Visit};
use crate::config::{KafkaConfig, MAX_IDLE};
use crate::error::ClientError;

/// Publishes to Kafka: at least once, in order per key.
///
/// Made once, outside the handler, and shared: calls run side by side on one client. Dropping it returns at once.
#[derive(Debug)]
pub struct KafkaPublisher {
    config: KafkaConfig,
    /// The client that the next call gets. `None`: it makes one.
    current: Mutex<Option<Arc<Client>>>,
}

impl KafkaPublisher {
    /// Makes the first client, which begins to connect at once.
    ///
    /// # Errors
    /// The client cannot be made from these settings, or lacks a feature they need. A broker that is away is no error.
    pub fn new(config: KafkaConfig) -> Result<Self, ClientError> {
        let first = Arc::new(Client::new(&config)?);
        Ok(Self { config, current: Mutex::new(Some(first)) })
    }

    /// What it was made from.
    pub const fn config(&self) -> &KafkaConfig {
        &self.config
    }

    /// How many records are queued, in flight, or not yet accounted for: none, shortly after the last call has
    /// returned.
    pub fn outstanding(&self) -> i32 {
        self.current().as_ref().map_or(0, |client| client.outstanding())
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for a call.
    fn visit(&self) -> Result<Visit, ClientError> {
        let mut current = self.current();
        // One that was idle too long has dead connections; one that failed for good sends nothing any more.
        let usable = |client: &Arc<Client>| client.idle() < MAX_IDLE && client.fatal_error().is_none();
        let client = match current.take().filter(usable) {
            Some(client) => client,
            None => Arc::new(Client::new(&self.config)?),
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
        let mut visit = match self.visit() {
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
}
