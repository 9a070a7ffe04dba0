//! The host of one function: takes events, finds them an environment, keeps the books.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::environment::{Environment, Event, StartError};
use super::logs::{Log, LogLine, Ring};
use super::outcome::{Counters, HostError, InvocationRecord, InvokeError, Outcome};
use super::runtime_api::LARGEST_PAYLOAD;
use super::table::{ProcessInfo, ProcessTable};
use super::{FunctionSpec, lock};

/// Invocation records kept; older ones are dropped.
const KEPT_RECORDS: usize = 10_000;

/// A function that can be invoked. Clones are the same host; when the last one is dropped, every process is
/// killed and what is waiting is given up.
///
/// All of it runs on the Tokio runtime that called [`LambdaHost::start`].
#[derive(Debug, Clone)]
pub struct LambdaHost {
    handle: Arc<Handle>,
}

/// What the clones share; the running invocations hold [`Inner`] alone, so that they do not keep the host up.
#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

#[derive(Debug)]
struct Inner {
    spec: Arc<FunctionSpec>,
    log: Log,
    table: Arc<ProcessTable>,
    records: Ring<InvocationRecord>,
    counters: Mutex<Counters>,
    /// Environments that wait for an event, the last used last.
    idle: Mutex<Vec<Environment>>,
    /// One permit for every environment that may run.
    running: Semaphore,
    /// One permit for every event that may be here, running or waiting.
    accepted: Arc<Semaphore>,
    /// How many events are here.
    unfinished: watch::Sender<usize>,
    stop: CancellationToken,
}

impl LambdaHost {
    /// A host for one function. No process is started before the first event.
    ///
    /// # Errors
    /// The binary is missing, or no file.
    pub fn start(spec: FunctionSpec) -> Result<Self, HostError> {
        check_binary(&spec)?;
        let inner = Inner {
            log: Log::new(&spec.name),
            table: Arc::default(),
            records: Ring::new(KEPT_RECORDS),
            counters: Mutex::default(),
            idle: Mutex::default(),
            running: Semaphore::new(spec.reserved_concurrency),
            accepted: Arc::new(Semaphore::new(spec.reserved_concurrency + spec.queue_limit)),
            unfinished: watch::Sender::new(0),
            stop: CancellationToken::new(),
            spec: Arc::new(spec),
        };
        Ok(Self { handle: Arc::new(Handle { inner: Arc::new(inner) }) })
    }

    /// Runs one event and waits for what comes of it. If every environment is busy it waits for one.
    ///
    /// # Errors
    /// The event did not reach the function: throttled, too large, no process, host stopped. What the
    /// function itself did wrong is an [`Outcome`].
    ///
    /// # Cancellation
    /// Dropping the future forgets the outcome; the event is run all the same, as it would be on Lambda.
    pub async fn invoke(&self, event: &Value) -> Result<Outcome, InvokeError> {
        self.invoke_bytes(event.to_string().into_bytes()).await
    }

    /// As [`invoke`](Self::invoke), for an event that is any bytes, also such as are not JSON.
    ///
    /// # Errors
    /// As [`invoke`](Self::invoke).
    pub async fn invoke_bytes(&self, event: Vec<u8>) -> Result<Outcome, InvokeError> {
        let (_, outcome) = self.submit(event, 0)?;
        match outcome.await {
            Ok(result) => result,
            Err(_) => Err(self.handle.inner.stopped()),
        }
    }

    /// Queues one event and returns its request id at once. A failed attempt is repeated as the spec says.
    ///
    /// # Errors
    /// The event was not queued: throttled, too large, host stopped.
    pub fn invoke_async(&self, event: &Value) -> Result<String, InvokeError> {
        let retries = self.handle.inner.spec.async_retries;
        let (request_id, _) = self.submit(event.to_string().into_bytes(), retries)?;
        Ok(request_id)
    }

    /// Waits until no event is running or waiting.
    pub async fn wait_until_idle(&self) {
        let mut unfinished = self.handle.inner.unfinished.subscribe();
        // The sender lives in what we hold, so this cannot fail.
        let _ = unfinished.wait_for(|events| *events == 0).await;
    }

    /// The function.
    pub fn spec(&self) -> &FunctionSpec {
        &self.handle.inner.spec
    }

    /// The running processes, by process id.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.handle.inner.table.snapshot()
    }

    /// What the functions printed, oldest first; the newest 10,000 lines.
    pub fn logs(&self) -> Vec<LogLine> {
        self.handle.inner.log.snapshot()
    }

    /// The finished attempts, oldest first; the newest 10,000.
    pub fn records(&self) -> Vec<InvocationRecord> {
        self.handle.inner.records.snapshot()
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        *lock(&self.handle.inner.counters)
    }

    /// Stops one process (SIGSTOP), whatever it is doing; its deadline goes on. False: no such process.
    pub async fn freeze(&self, pid: u32) -> bool {
        match self.handle.inner.table.get(pid) {
            Some(process) => process.freeze().await,
            None => false,
        }
    }

    /// Lets one process go on (SIGCONT). False: no such process.
    pub async fn thaw(&self, pid: u32) -> bool {
        match self.handle.inner.table.get(pid) {
            Some(process) => process.thaw().await,
            None => false,
        }
    }

    /// Kills one process (SIGKILL) and waits for its end. False: no such process.
    pub async fn kill(&self, pid: u32) -> bool {
        match self.handle.inner.table.get(pid) {
            Some(mut process) => {
                process.kill_and_wait().await;
                true
            }
            None => false,
        }
    }

    /// Kills every process (SIGKILL), waits for their ends and says how many died of it: not counted are those
    /// that had ended already, or ended by themselves meanwhile. The events that were running end as
    /// [`Outcome::Crashed`]; the next ones start new processes.
    pub async fn kill_all(&self) -> usize {
        self.handle.inner.kill_all().await
    }

    /// Refuses further events, gives up the waiting ones, kills every process and waits for their ends.
    pub async fn shutdown(self) {
        self.handle.inner.stop();
        self.wait_until_idle().await;
        self.handle.inner.kill_all().await;
    }

    fn submit(
        &self,
        payload: Vec<u8>,
        retries: u32,
    ) -> Result<(String, oneshot::Receiver<Result<Outcome, InvokeError>>), InvokeError> {
        let inner = &self.handle.inner;
        let function = || inner.spec.name.clone();
        if inner.stop.is_cancelled() {
            return Err(inner.stopped());
        }
        if payload.len() > LARGEST_PAYLOAD {
            return Err(InvokeError::TooLarge {
                function: function(),
                size: payload.len(),
                limit: LARGEST_PAYLOAD,
            });
        }
        let Ok(place) = Arc::clone(&inner.accepted).try_acquire_owned() else {
            lock(&inner.counters).throttles += 1;
            return Err(InvokeError::Throttled { function: function(), limit: inner.spec.queue_limit });
        };
        let event = Event { request_id: Uuid::new_v4().to_string(), payload: Bytes::from(payload) };
        let request_id = event.request_id.clone();
        let (sender, outcome) = oneshot::channel();
        let accepted = Accepted::new(Arc::clone(inner), place);
        // A task of its own, so that a caller that goes away leaves no process half-way.
        tokio::spawn(async move {
            let inner = &accepted.inner;
            let result = tokio::select! {
                result = inner.run(&event, retries) => result,
                () = inner.stop.cancelled() => Err(inner.stopped()),
            };
            if let Err(error) = &result {
                tracing::warn!(%error, request_id = event.request_id, "an event was not run");
            }
            drop(accepted);
            // The caller may be gone, and `invoke_async` never listens.
            let _ = sender.send(result);
        });
        Ok((request_id, outcome))
    }
}

/// The place of one event among the accepted ones, given back on drop.
struct Accepted {
    inner: Arc<Inner>,
    _place: OwnedSemaphorePermit,
}

impl Accepted {
    fn new(inner: Arc<Inner>, place: OwnedSemaphorePermit) -> Self {
        inner.unfinished.send_modify(|events| *events += 1);
        Self { inner, _place: place }
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.inner.unfinished.send_modify(|events| *events -= 1);
    }
}

impl Inner {
    /// Runs an event until it is answered or its retries are used up.
    async fn run(&self, event: &Event, retries: u32) -> Result<Outcome, InvokeError> {
        let mut delay = self.spec.async_retry_delay;
        for attempt in 1..=retries {
            let outcome = self.attempt(event, attempt).await?;
            if outcome.is_response() {
                return Ok(outcome);
            }
            tracing::debug!(request_id = event.request_id, %outcome, "will be run again");
            sleep(delay).await;
            delay = delay.saturating_mul(2);
        }
        self.attempt(event, retries + 1).await
    }

    async fn attempt(&self, event: &Event, attempt: u32) -> Result<Outcome, InvokeError> {
        // Fails only if the semaphore is closed, which nobody does.
        let _permit = self.running.acquire().await.map_err(|_| self.stopped())?;
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

    async fn kill_all(&self) -> usize {
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

    fn stop(&self) {
        self.stop.cancel();
        for process in self.table.all() {
            process.kill();
        }
        lock(&self.idle).clear();
    }

    fn stopped(&self) -> InvokeError {
        InvokeError::Stopped { function: self.spec.name.clone() }
    }
}

fn check_binary(spec: &FunctionSpec) -> Result<(), HostError> {
    let error = |source| HostError::Binary { function: spec.name.clone(), path: spec.binary.clone(), source };
    let metadata = std::fs::metadata(&spec.binary).map_err(error)?;
    if metadata.is_file() { Ok(()) } else { Err(error(std::io::Error::other("it is not a file"))) }
}
