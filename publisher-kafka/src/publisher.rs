//! The publisher: which client serves which call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use outbox::{Chain, Clock, Message, Outcome, PublishError, PublishErrorKind, Publisher};

use rdkafka::config::ClientConfig;

use crate::auth::Auth;
use crate::ca::{CaError, Roots};
use crate::cache::{Cache, Held, OBTAIN_TIMEOUT, Purpose};
use crate::call::{Call, GiveUp};
use crate::client::{Client, Visit};
use crate::config::{KafkaConfig, PROBE_TIMEOUT, asking};
use crate::credentials::{CredentialError, CredentialSource};
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::replaced::{Counts, Replaced};
use crate::start::StartError;
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
    /// What the brokers' certificates are checked with; `None`: nothing is encrypted.
    roots: Option<Roots>,
    /// What it proves with who it is; `None`: it does not.
    credentials: Option<Arc<Cache>>,
    /// The client that the next call gets. `None`: it makes one.
    current: Mutex<Option<Arc<Client>>>,
}

/// Why a call has no client.
#[derive(Debug)]
enum NoClient {
    /// It cannot be made.
    Settings(StartError),
    /// There is nothing to prove with who it is.
    Credentials(CredentialError),
}

impl KafkaPublisher {
    /// A publisher that shows no credentials. `clock` tells how long a client was unused or asleep.
    ///
    /// # Errors
    /// The client cannot be made from these settings, or lacks a feature they need; the settings want credentials; there
    /// are no certificates to check the brokers' with. A broker that is away is no error.
    /// [`Connect::AtFirstPublish`] leaves what only the making of a client can tell to the first publish, whose messages
    /// then fail as [`PublishErrorKind::Misconfigured`].
    pub fn new(config: KafkaConfig, connect: Connect, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        if config.auth().needs_credentials() {
            return Err(StartError::NoCredentials { auth: config.auth().name() });
        }
        let publisher = Self::unconnected(config, None, clock)?;
        if connect == Connect::AtOnce {
            *publisher.current() = Some(publisher.make_client(None)?);
        }
        Ok(publisher)
    }

    /// A publisher that shows credentials, of the kind that its settings want. With [`Connect::AtOnce`] it waits for the
    /// first of them, five seconds at most.
    ///
    /// # Errors
    /// As [`Self::new`]. A credential that cannot be had is none: the log says which step failed, and the first publish
    /// tries again. What is in the way may be gone by then, and a process that kept the error would never find out.
    pub async fn with_credentials(
        config: KafkaConfig,
        source: Arc<dyn CredentialSource>,
        connect: Connect,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let cache = Arc::new(Cache::new(source, Arc::clone(&clock)));
        let publisher = Self::unconnected(config, Some(cache), clock)?;
        if connect == Connect::AtOnce {
            match publisher.credential(OBTAIN_TIMEOUT).await {
                Ok(held) => *publisher.current() = Some(publisher.make_client(held)?),
                Err(error) => tracing::error!(
                    error = %Chain(&error),
                    "there are no credentials for Kafka: the first publish tries again"
                ),
            }
        }
        Ok(publisher)
    }

    fn unconnected(
        config: KafkaConfig,
        credentials: Option<Arc<Cache>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let roots = match config.auth() {
            Auth::Plaintext => None,
            Auth::Tls | Auth::Scram { .. } | Auth::Iam { .. } => Some(config.ca().find()?),
        };
        config.check(roots.as_ref())?;
        Ok(Self {
            config,
            limits: Limits::new(Arc::clone(&clock)),
            clock,
            in_flight: InFlight::default(),
            replaced: Counts::default(),
            roots,
            credentials,
            current: Mutex::new(None),
        })
    }

    /// What it was made from.
    pub const fn config(&self) -> &KafkaConfig {
        &self.config
    }

    /// How often it has replaced its Kafka client for this reason.
    pub fn replaced(&self, reason: Replaced) -> u64 {
        self.replaced.of(reason)
    }

    fn make_client(&self, credential: Option<Held>) -> Result<Arc<Client>, StartError> {
        let credentials = self.credentials.clone().zip(credential);
        let (clock, in_flight) = (Arc::clone(&self.clock), self.in_flight.clone());
        let client = Client::new(&self.config, self.roots.as_ref(), credentials, clock, in_flight);
        match client {
            Ok(client) => Ok(Arc::new(client)),
            // What it says of them is all that tells.
            Err(error) if error.source.to_string().contains("ssl.ca.") => {
                let what = self.config.ca().described();
                Err(CaError::NotTaken { what, source: error.source }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What a client that is made now connects with, and what one that is there is given when it asks: new, whatever has
    /// happened since the last call. `None`: it needs nothing.
    async fn credential(&self, limit: Duration) -> Result<Option<Held>, CredentialError> {
        let Some(cache) = &self.credentials else {
            return Ok(None);
        };
        let has_client = self.current().as_ref().is_some_and(Self::is_usable);
        let purpose = if has_client { Purpose::KeepClient } else { Purpose::NewClient };
        let held = cache.get(purpose, limit).await?;
        if held.credential.suits(self.config.auth()) {
            Ok(Some(held))
        } else {
            let auth = self.config.auth().name();
            Err(CredentialError::misconfigured(format!("the credential is of no use for KAFKA_AUTH={auth}")))
        }
    }

    /// The settings of a client that asks brokers about topics. Its credentials are new: those of the client that
    /// publishes may have been rotated since. `None`: there are none.
    async fn asking(&self, limit: Duration) -> Option<ClientConfig> {
        let credential = match &self.credentials {
            None => None,
            Some(cache) => Some(cache.get(Purpose::NewClient, limit).await.ok()?.credential),
        };
        asking(self.config.client_config(self.roots.as_ref(), credential.as_deref()))
    }

    fn is_usable(client: &Arc<Client>) -> bool {
        Self::usable(client).is_ok()
    }

    /// Whether a further call may use it, or why not. One that failed for good sends nothing any more.
    fn usable(client: &Client) -> Result<(), Replaced> {
        match (client.fatal_error(), client.trust()) {
            (Some(_), _) => Err(Replaced::Fatal),
            (None, Trust::Gone) => Err(Replaced::Stale),
            (None, Trust::Sound | Trust::Unproven) if client.can_connect() => Ok(()),
            (None, Trust::Sound | Trust::Unproven) => Err(Replaced::Stale),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for a call, which reached a broker a moment ago, or is new.
    async fn visit(&self, topic: &str, limit: Duration) -> Result<Visit, NoClient> {
        let began = Instant::now();
        loop {
            // Half at most: the records need the rest, and a signature takes no time, a secret two round trips.
            let left = limit.saturating_sub(began.elapsed());
            let credential = self.credential(left / 2).await.map_err(NoClient::Credentials)?;
            let visit = self.visit_current(credential).map_err(NoClient::Settings)?;
            // A quarter at most: where a broker answers late, the records need the rest.
            if visit.client().is_sound(topic, limit / 4).await {
                return Ok(visit);
            }
            self.retire(visit.client(), Replaced::Stale);
        }
    }

    fn visit_current(&self, credential: Option<Held>) -> Result<Visit, StartError> {
        let mut current = self.current();
        let client = match current.take().map(|client| (Self::usable(&client), client)) {
            Some((Ok(()), client)) => client,
            replaced => {
                if let Some((Err(reason), _)) = replaced {
                    self.replaced.add(reason);
                }
                self.make_client(credential)?
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

impl From<NoClient> for PublishError {
    fn from(error: NoClient) -> Self {
        match error {
            NoClient::Settings(error) => {
                Self::new(PublishErrorKind::Misconfigured, "there is no Kafka client").because(error)
            }
            NoClient::Credentials(error) => {
                let kind = match error.is_misconfiguration() {
                    true => PublishErrorKind::Misconfigured,
                    false => PublishErrorKind::Unavailable,
                };
                Self::new(kind, "the publisher cannot prove to Kafka who it is").because(error)
            }
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
        let mut visit = match self.visit(call.topic(), limit).await {
            Ok(visit) => visit,
            Err(error) => {
                call.fail_the_rest(&error.into());
                return call.outcomes();
            }
        };
        let client = Arc::clone(visit.client());
        if self.config.can_ask() {
            let largest = call.largest_of_topics();
            let limit = PROBE_TIMEOUT.min(limit / 8);
            self.limits.learn(|limit| self.asking(limit).boxed(), &largest, limit).await;
        }
        call.heed(&self.limits);
        if let Some(reason) = call.send(&client).await {
            // What a purge leaves behind in an idempotent client is not to be reasoned about: the next call gets
            // another one.
            let fatal = reason == GiveUp::Fatal;
            // First, so that no other call makes its client of what was refused.
            if let (Some(cache), Some(held)) = (&self.credentials, client.refused_credential())
                && !cache.refused(&held)
            {
                call.showed_something_old();
            }
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

    fn replaced_clients(&self) -> u64 {
        Replaced::ALL.iter().map(|reason| self.replaced.of(*reason)).sum()
    }
}
