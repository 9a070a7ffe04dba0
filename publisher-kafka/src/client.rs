//! One librdkafka client, from its making to its end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use outbox::Message;
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer, PurgeConfig, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

use crate::config::KafkaConfig;
use crate::context::{Context, Ticket};
use crate::error::ClientError;
use crate::record::record;

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
    calls: Mutex<Calls>,
    /// A call has left, or gives up.
    pub(crate) fewer_calls: Notify,
}

#[derive(Debug)]
struct Calls {
    active: usize,
    giving_up: usize,
    last_used: Instant,
    last_used_utc: SystemTime,
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
    pub(crate) fn new(config: &KafkaConfig) -> Result<Self, ClientError> {
        let producer = config
            .client_config()
            .create_with_context(Context::new())
            .map_err(|source| ClientError { servers: config.bootstrap_servers().to_owned(), source })?;
        Ok(Self {
            producer: Some(producer),
            id_header: config.message_id_header().to_owned(),
            purged: RwLock::new(false),
            calls: Mutex::new(Calls {
                active: 0,
                giving_up: 0,
                last_used: Instant::now(),
                last_used_utc: SystemTime::now(),
            }),
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

    /// Whether the client has ever learned anything from a broker. Until then it knows no partition's leader, so that
    /// nothing can have been sent.
    pub(crate) fn has_met_the_cluster(&self) -> bool {
        self.producer().client().fetch_cluster_id(Duration::ZERO).is_some()
    }

    /// Why the client will never send again, if so.
    pub(crate) fn fatal_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.producer().client().fatal_error()
    }

    /// How many records are queued, in flight, or not reported yet.
    pub(crate) fn outstanding(&self) -> i32 {
        self.producer().in_flight_count()
    }

    /// Whether a call that has not given up is still under way.
    pub(crate) fn has_healthy_calls(&self) -> bool {
        let calls = self.calls();
        calls.active > calls.giving_up
    }

    /// How long nobody has used it. A freeze may stop the monotonic clock, so the wall clock counts as well.
    pub(crate) fn idle(&self) -> Duration {
        let calls = self.calls();
        if calls.active > 0 {
            return Duration::ZERO;
        }
        let wall = calls.last_used_utc.elapsed().unwrap_or_default();
        calls.last_used.elapsed().max(wall)
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
    /// Counts a call in.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        client.calls().active += 1;
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
        calls.last_used = Instant::now();
        calls.last_used_utc = SystemTime::now();
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
