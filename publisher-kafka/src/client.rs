//! One librdkafka client, from its making to its end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use outbox::lease_age::Moment;
use outbox::{Clock, Message};
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer, PurgeConfig, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

use crate::blame::Step;
use crate::ca::Roots;
use crate::cache::{Cache, Held};
use crate::config::{KafkaConfig, PROBE_TIMEOUT};
use crate::context::{Context, Ticket};
use crate::error::ClientError;
use crate::in_flight::InFlight;
use crate::record::record;
use crate::trust::{Trust, trust};

/// How long the thread that ends a client waits for its last reports.
const END_BOUND: Duration = Duration::from_secs(60);
const END_POLL: Duration = Duration::from_millis(50);

/// A librdkafka client. It is never ended while a record of it is outstanding, and ending it never blocks the caller.
pub(crate) struct Client {
    /// `None` only while it is dropped.
    producer: Option<ThreadedProducer<Context>>,
    id_header: String,
    /// Whether everything was taken back. Sends hold it for reading: once a purge has begun nothing is sent any more,
    /// or a later record of a key could go while an earlier one was taken back.
    purged: RwLock<bool>,
    in_flight: InFlight,
    clock: Arc<dyn Clock>,
    made: Moment,
    calls: Mutex<Calls>,
    /// Held by the one call that asks for an answer on behalf of all.
    proving: tokio::sync::Mutex<()>,
    /// A call has left, or gives up.
    pub(crate) fewer_calls: Notify,
}

#[derive(Debug)]
struct Calls {
    active: usize,
    giving_up: usize,
    last_used: Moment,
    proof: Proof,
}

/// Whether the client is known to reach a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It is new, or did so a moment ago.
    Holds,
    /// It was unused for a while: it is to be asked.
    Due,
    /// It was asked and gave no answer.
    Failed,
}

/// Why a record was not handed to the client.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The queue is full: there will be room.
    Full,
    /// Everything was taken back, on behalf of another call.
    Purged,
    /// The client refuses the record.
    Refused(KafkaError),
}

impl Client {
    /// Makes a client, which begins to connect at once, with what was found in a cache if it needs credentials.
    pub(crate) fn new(
        config: &KafkaConfig,
        roots: Option<&Roots>,
        credentials: Option<(Arc<Cache>, Held)>,
        clock: Arc<dyn Clock>,
        in_flight: InFlight,
    ) -> Result<Self, ClientError> {
        let credential = credentials.as_ref().map(|(_, held)| Arc::clone(&held.credential));
        let settings = config.client_config(roots, credential.as_deref());
        let producer = settings
            .create_with_context(Context::new(credentials))
            .map_err(|source| ClientError { servers: config.bootstrap_servers().to_owned(), source })?;
        let made = Moment::now(clock.as_ref());
        Ok(Self {
            producer: Some(producer),
            id_header: config.message_id_header().to_owned(),
            purged: RwLock::new(false),
            in_flight,
            clock,
            made,
            calls: Mutex::new(Calls { active: 0, giving_up: 0, last_used: made, proof: Proof::Holds }),
            proving: tokio::sync::Mutex::new(()),
            fewer_calls: Notify::new(),
        })
    }

    #[expect(clippy::expect_used, reason = "it is taken by drop alone")]
    fn producer(&self) -> &ThreadedProducer<Context> {
        self.producer.as_ref().expect("a client that is not dropped")
    }

    pub(crate) fn context(&self) -> &Context {
        Producer::<Context>::context(self.producer())
    }

    /// Puts a record into the queue. Never blocks.
    pub(crate) fn send(&self, message: &Message, ticket: Ticket) -> Result<(), SendError> {
        let purged = self.purged.read().unwrap_or_else(PoisonError::into_inner);
        if *purged {
            return Err(SendError::Purged);
        }
        let record = record(message, &self.id_header, Box::new(ticket));
        match self.producer().send(record) {
            Ok(()) => Ok(()),
            Err((error, _)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                Err(SendError::Full)
            }
            Err((error, _)) => Err(SendError::Refused(error)),
        }
    }

    /// Takes back everything that is queued or in flight. The reports follow; one that is late needs another purge
    /// (a record that was about to change its queue is passed over).
    pub(crate) fn purge(&self) {
        *self.purged.write().unwrap_or_else(PoisonError::into_inner) = true;
        purge(self.producer());
    }

    /// Takes back what the kernel has not sent, once everything was purged. The reports of a call are to have come: by
    /// then the client's lines that told of the connections its records went over have come, too, for both are handed
    /// over in their order.
    pub(crate) fn cut(&self) {
        if *self.purged.read().unwrap_or_else(PoisonError::into_inner) {
            self.context().sockets.cut();
        }
    }

    /// Whether the client has ever learned anything from a broker. Until then it knows no partition's leader, so that
    /// nothing can have been sent.
    pub(crate) fn has_met_the_cluster(&self) -> bool {
        self.producer().client().fetch_cluster_id(Duration::ZERO).is_some()
    }

    /// Why the client will never send again, if so.
    pub(crate) fn fatal_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.producer().client().fatal_error()
    }

    /// What it connects with, if a broker has refused that.
    pub(crate) fn refused_credential(&self) -> Option<Held> {
        let is_refused = self.context().step() == Some(Step::Credentials);
        if is_refused { self.context().credential() } else { None }
    }

    /// The count that each of its records is to be held in.
    pub(crate) const fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Whether a call that has not given up is still under way.
    pub(crate) fn has_healthy_calls(&self) -> bool {
        let calls = self.calls();
        calls.active > calls.giving_up
    }

    /// What a further call may think of it.
    pub(crate) fn trust(&self) -> Trust {
        self.trust_after(&self.calls())
    }

    /// Whether a broker would take it if it had to connect again. One whose token is over would be refused, at a moment
    /// that nobody chooses.
    pub(crate) fn can_connect(&self) -> bool {
        self.context().can_connect()
    }

    fn trust_after(&self, calls: &Calls) -> Trust {
        match calls.proof {
            Proof::Failed => Trust::Gone,
            Proof::Due => Trust::Unproven,
            // Calls that are under way prove it, or find out.
            Proof::Holds if calls.active > 0 => Trust::Sound,
            Proof::Holds => trust(self.made, calls.last_used, Moment::now(self.clock.as_ref())),
        }
    }

    /// Whether a broker answers, if that is in doubt; asked once on behalf of all calls that wait. `false`: the client
    /// is to be replaced. Nothing has been sent with it by then.
    pub(crate) async fn is_sound(self: &Arc<Self>, topic: &str, limit: Duration) -> bool {
        let proof = || self.calls().proof;
        if proof() == Proof::Holds {
            return true;
        }
        let _one = self.proving.lock().await;
        if proof() == Proof::Due {
            let answered = self.answers(topic, PROBE_TIMEOUT.min(limit)).await;
            if answered {
                self.context().answered();
            }
            self.calls().proof = if answered { Proof::Holds } else { Proof::Failed };
        }
        proof() == Proof::Holds
    }

    /// Asks any broker for the leaders of a topic. The answer serves what is published next as well: whatever has moved
    /// while the process was asleep is known by then.
    async fn answers(self: &Arc<Self>, topic: &str, timeout: Duration) -> bool {
        let (client, topic) = (Arc::clone(self), topic.to_owned());
        let ask = move || client.producer().client().fetch_metadata(Some(&topic), timeout);
        match tokio::task::spawn_blocking(ask).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::info!(%error, "a Kafka client that was unused gave no answer: it is replaced");
                false
            }
            // The runtime is ending.
            Err(_) => false,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that uses the client, for as long as it does.
#[derive(Debug)]
pub(crate) struct Visit {
    client: Arc<Client>,
    gave_up: bool,
}

impl Visit {
    /// Counts a call in, as one that [`Client::is_sound`] is to be asked for first.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        client.context().log_for_caller();
        let mut calls = client.calls();
        if client.trust_after(&calls) == Trust::Unproven {
            calls.proof = Proof::Due;
        }
        calls.active += 1;
        drop(calls);
        Self { client, gave_up: false }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The call gives up: it waits for the others, and none of them for it.
    pub(crate) fn give_up(&mut self) {
        if !self.gave_up {
            self.gave_up = true;
            self.client.calls().giving_up += 1;
            self.client.fewer_calls.notify_waiters();
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut calls = self.client.calls();
        calls.active -= 1;
        calls.giving_up -= usize::from(self.gave_up);
        calls.last_used = Moment::now(self.client.clock.as_ref());
        drop(calls);
        self.client.fewer_calls.notify_waiters();
    }
}

fn purge(producer: &ThreadedProducer<Context>) {
    // Not waiting for the broker threads: one that resolves a name does not answer for seconds.
    producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Drop for Client {
    /// Ending a client joins its threads, which can take seconds: another thread's job.
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else {
            return;
        };
        let end = move || {
            let deadline = Instant::now() + END_BOUND;
            // Normally none is outstanding: every call waits for its own.
            while producer.in_flight_count() > 0 && Instant::now() < deadline {
                purge(&producer);
                std::thread::sleep(END_POLL);
            }
            drop(producer);
        };
        let thread = std::thread::Builder::new().name("kafka-client-end".to_owned());
        if let Err(error) = thread.spawn(end) {
            tracing::error!(%error, "no thread could be started to end a Kafka client: it was ended in place");
        }
    }
}
