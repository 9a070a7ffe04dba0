//! The events of one function: from acceptance through a place among the running ones to their end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::environment::{Environment, Event, StartError};
use super::logs::{Log, Ring};
use super::outcome::{Counters, InvocationRecord, InvokeError, Outcome};
use super::runtime_api::LARGEST_PAYLOAD;
use super::spec::RecursiveLoop;
use super::table::ProcessTable;
use super::trace::Trace;
use super::{FunctionSpec, lock};

/// Invocation records kept; older ones are dropped.
const KEPT_RECORDS: usize = 10_000;
/// The largest asynchronous event that Lambda takes, in bytes.
pub(super) const LARGEST_ASYNCHRONOUS_PAYLOAD: usize = 1024 * 1024;
/// How often one chain of requests may come to a function that does not allow loops.
const LONGEST_CHAIN: u32 = 16;

/// How an event is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Once, as soon as an environment is free.
    InTurn,
    /// Once, and at once: throttled unless an environment is free.
    AtOnce,
    /// Asynchronously: repeated after a failure, dropped when too old.
    Queued,
}

/// An accepted event's request id, and where its outcome will be heard.
pub(super) type Submitted = (String, oneshot::Receiver<Result<Outcome, InvokeError>>);

/// One function's environments, events and books. The running events hold it, so that it lasts until they end.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) spec: Arc<FunctionSpec>,
    pub(super) log: Log,
    pub(super) table: Arc<ProcessTable>,
    pub(super) records: Ring<InvocationRecord>,
    pub(super) counters: Mutex<Counters>,
    /// Environments that wait for an event, the last used last.
    idle: Mutex<Vec<Environment>>,
    /// One permit for every environment that may run. First come, first served.
    running: Arc<Semaphore>,
    /// One permit for every event that may be here, running or waiting.
    accepted: Arc<Semaphore>,
    /// How many events are here.
    pub(super) unfinished: watch::Sender<usize>,
    stop: CancellationToken,
}

impl Events {
    pub(super) fn new(spec: FunctionSpec) -> Self {
        Self {
            log: Log::new(&spec.name),
            table: Arc::default(),
            records: Ring::new(KEPT_RECORDS),
            counters: Mutex::default(),
            idle: Mutex::default(),
            running: Arc::new(Semaphore::new(spec.reserved_concurrency)),
            accepted: Arc::new(Semaphore::new(spec.reserved_concurrency + spec.queue_limit)),
            unfinished: watch::Sender::new(0),
            stop: CancellationToken::new(),
            spec: Arc::new(spec),
        }
    }

    /// Accepts an event and runs it in the background. The trace header says which chain of requests caused it;
    /// without one it begins a chain.
    pub(super) fn submit(
        self: &Arc<Self>,
        payload: Bytes,
        mode: Mode,
        trace_header: Option<&str>,
    ) -> Result<Submitted, InvokeError> {
        let function = || self.spec.name.clone();
        if self.stop.is_cancelled() {
            return Err(self.stopped());
        }
        let limit = match mode {
            Mode::InTurn | Mode::AtOnce => LARGEST_PAYLOAD,
            Mode::Queued => LARGEST_ASYNCHRONOUS_PAYLOAD,
        };
        if payload.len() > limit {
            return Err(InvokeError::TooLarge { function: function(), size: payload.len(), limit });
        }
        let trace = self.enter(trace_header)?;
        let Ok(place) = Arc::clone(&self.accepted).try_acquire_owned() else {
            lock(&self.counters).throttles += 1;
            return Err(InvokeError::Throttled { function: function(), limit: self.spec.queue_limit });
        };
        let turn = match mode {
            Mode::InTurn | Mode::Queued => None,
            Mode::AtOnce => match Arc::clone(&self.running).try_acquire_owned() {
                Ok(turn) => Some(turn),
                Err(_) => {
                    lock(&self.counters).throttles += 1;
                    let environments = self.spec.reserved_concurrency;
                    return Err(InvokeError::Busy { function: function(), environments });
                }
            },
        };
        let event = Event { request_id: Uuid::new_v4().to_string(), payload, trace };
        let request_id = event.request_id.clone();
        let (sender, outcome) = oneshot::channel();
        let accepted = Accepted::new(Arc::clone(self), place);
        // A task of its own, so that a caller that goes away leaves no process half-way.
        tokio::spawn(async move {
            let events = &accepted.events;
            let run = async {
                match mode {
                    Mode::InTurn | Mode::AtOnce => events.run_once(&event, turn).await,
                    Mode::Queued => events.run_queued(&event).await,
                }
            };
            let result = tokio::select! {
                result = run => result,
                () = events.stop.cancelled() => Err(events.stopped()),
            };
            if let Err(error) = &result {
                tracing::warn!(%error, request_id = event.request_id, "an event was not run");
            }
            drop(accepted);
            // The caller may be gone, and of an asynchronous event nobody listens.
            let _ = sender.send(result);
        });
        Ok((request_id, outcome))
    }

    /// Counts this function into the chain of requests, unless it has been in there too often.
    fn enter(&self, trace_header: Option<&str>) -> Result<Trace, InvokeError> {
        let mut trace = Trace::following(trace_header);
        let times = trace.enter(&self.spec.arn());
        if times < LONGEST_CHAIN || self.spec.recursive_loop == RecursiveLoop::Allow {
            return Ok(trace);
        }
        lock(&self.counters).recursive_invocations_dropped += 1;
        let error = InvokeError::Recursion { function: self.spec.name.clone(), times };
        tracing::warn!(%error, "an invocation is dropped");
        Err(error)
    }

    async fn run_once(
        &self,
        event: &Event,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, InvokeError> {
        let turn = match turn {
            Some(turn) => turn,
            None => self.turn().await?,
        };
        self.attempt(event, 1, turn).await
    }

    /// Runs an event until it is answered, its retries are used up, or it is too old.
    async fn run_queued(&self, event: &Event) -> Result<Outcome, InvokeError> {
        let expires = Instant::now() + self.spec.max_event_age;
        let mut delay = self.spec.async_retry_delay;
        let mut attempt = 1;
        loop {
            let turn = match timeout_at(expires, self.turn()).await {
                Ok(turn) => turn?,
                Err(_) => return Err(self.expired()),
            };
            let outcome = self.attempt(event, attempt, turn).await?;
            if outcome.is_response() || attempt > self.spec.async_retries {
                return Ok(outcome);
            }
            tracing::debug!(request_id = event.request_id, %outcome, "will be run again");
            if Instant::now().checked_add(delay).is_none_or(|next| next > expires) {
                return Err(self.expired());
            }
            sleep(delay).await;
            delay = delay.saturating_mul(2);
            attempt += 1;
        }
    }

    /// Waits for a place among the running ones.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, InvokeError> {
        // Fails only if the semaphore is closed, which nobody does.
        Arc::clone(&self.running).acquire_owned().await.map_err(|_| self.stopped())
    }

    async fn attempt(
        &self,
        event: &Event,
        attempt: u32,
        _turn: OwnedSemaphorePermit,
    ) -> Result<Outcome, InvokeError> {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let reused = self.take_idle();
        let cold_start = reused.is_none();
        let environment = match reused {
            Some(environment) => Ok(environment),
            None => self.start_environment().await,
        };
        let (pid, outcome) = match environment {
            Ok(mut environment) => {
                let (outcome, reusable) = environment.invoke(event).await;
                let pid = environment.pid();
                if reusable && !self.stop.is_cancelled() {
                    lock(&self.idle).push(environment);
                }
                (Some(pid), outcome)
            }
            Err(StartError::Failed { pid, outcome }) => (Some(pid), outcome),
            Err(StartError::Io(source)) => {
                return Err(InvokeError::Start {
                    function: self.spec.name.clone(),
                    source: Arc::new(source),
                });
            }
        };
        self.record(InvocationRecord {
            request_id: event.request_id.clone(),
            attempt,
            pid,
            cold_start,
            started,
            ended: SystemTime::now(),
            duration: clock.elapsed(),
            outcome: outcome.without_content(),
        });
        Ok(outcome)
    }

    async fn start_environment(&self) -> Result<Environment, StartError> {
        lock(&self.counters).cold_starts += 1;
        Environment::start(Arc::clone(&self.spec), &self.log, Arc::clone(&self.table)).await
    }

    /// The most recently used environment whose process has not died meanwhile.
    fn take_idle(&self) -> Option<Environment> {
        let mut idle = lock(&self.idle);
        idle.retain(Environment::is_alive);
        idle.pop()
    }

    fn record(&self, record: InvocationRecord) {
        let duration_ms = Duration::as_millis(&record.duration);
        let (request_id, attempt) = (&record.request_id, record.attempt);
        if record.outcome.is_response() {
            tracing::debug!(function = self.spec.name, request_id, attempt, duration_ms, "answered");
        } else {
            tracing::warn!(
                function = self.spec.name, request_id, attempt, duration_ms,
                outcome = %record.outcome, "failed"
            );
        }
        lock(&self.counters).count(&record.outcome);
        self.records.push(record);
    }

    pub(super) async fn kill_all(&self) -> usize {
        let mut processes = self.table.all();
        // One that has ended stays in the table for a moment.
        processes.retain(|process| process.exit().is_none());
        // All signals first: none waits for another's end.
        for process in &processes {
            process.kill();
        }
        let mut killed = 0;
        for process in &mut processes {
            killed += usize::from(process.kill_and_wait().await.is_kill());
        }
        killed
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
        for process in self.table.all() {
            process.kill();
        }
        lock(&self.idle).clear();
    }

    pub(super) fn stopped(&self) -> InvokeError {
        InvokeError::Stopped { function: self.spec.name.clone() }
    }

    fn expired(&self) -> InvokeError {
        lock(&self.counters).expired_events += 1;
        InvokeError::Expired { function: self.spec.name.clone(), age: self.spec.max_event_age }
    }
}

/// The place of one event among the accepted ones, given back on drop.
struct Accepted {
    events: Arc<Events>,
    _place: OwnedSemaphorePermit,
}

impl Accepted {
    fn new(events: Arc<Events>, place: OwnedSemaphorePermit) -> Self {
        events.unfinished.send_modify(|unfinished| *unfinished += 1);
        Self { events, _place: place }
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.events.unfinished.send_modify(|unfinished| *unfinished -= 1);
    }
}
