//! The publisher: which client serves which call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox::{Clock, Message, Outcome, PublishError, PublishErrorKind, Publisher};

use crate::call::{Call, GiveUp};
use crate::client::{Client, Visit};
use crate::config::{KafkaConfig, PROBE_TIMEOUT};
use crate::error::ClientError;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::replaced::{Counts, Replaced};
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
    limits: Limits,
    replaced: Counts,
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
        let publisher = Self {
            config,
            limits: Limits::new(Arc::clone(&clock)),
            clock,
            in_flight: InFlight::default(),
            replaced: Counts::default(),
            current: Mutex::new(None),
        };
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

    /// How often it has replaced its Kafka client for this reason.
    pub fn replaced(&self, reason: Replaced) -> u64 {
        self.replaced.of(reason)
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
            self.retire(visit.client(), Replaced::Stale);
        }
    }

    fn visit_current(&self) -> Result<Visit, ClientError> {
        let mut current = self.current();
        // One that failed for good sends nothing any more.
        let usable = |client: &Client| match (client.fatal_error(), client.trust()) {
            (Some(_), _) => Err(Replaced::Fatal),
            (None, Trust::Gone) => Err(Replaced::Stale),
            (None, Trust::Sound | Trust::Unproven) => Ok(()),
        };
        let client = match current.take().map(|client| (usable(&client), client)) {
            Some((Ok(()), client)) => client,
            replaced => {
                if let Some((Err(reason), _)) = replaced {
                    self.replaced.add(reason);
                }
                self.make_client()?
            }
        };
        *current = Some(Arc::clone(&client));
        Ok(Visit::new(client))
    }

    /// No further call gets this client.
    fn retire(&self, client: &Arc<Client>, reason: Replaced) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, client)) {
            *current = None;
            self.replaced.add(reason);
        }
    }
}

impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: &[&Message], limit: Duration) -> Vec<Outcome> {
        let mut call = Call::new(&self.config, batch, limit);
        call.check();
        if !call.has_work() {
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
        if let Some(asking) = client.asking() {
            let largest = call.largest_of_topics();
            self.limits.learn(asking, &largest, PROBE_TIMEOUT.min(limit / 4)).await;
        }
        call.heed(&self.limits);
        if let Some(reason) = call.send(&client).await {
            // What a purge leaves behind in an idempotent client is not to be reasoned about: the next call gets
            // another one.
            let fatal = reason == GiveUp::Fatal;
            self.retire(&client, if fatal { Replaced::Fatal } else { Replaced::GivenUp });
            visit.give_up();
            call.take_back(&client, reason).await;
        } else if call.leaves_the_client_outdated() {
            let fatal = client.fatal_error().is_some();
            self.retire(&client, if fatal { Replaced::Fatal } else { Replaced::Outdated });
        }
        for topic in call.topics_that_refused_a_size() {
            self.limits.refused(topic);
        }
        call.outcomes()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.count()
    }
}
