//! The host of one function, as its callers hold it.

use std::sync::{Arc, Weak};

use serde_json::Value;

use super::events::{Events, Mode};
use super::logs::LogLine;
use super::outcome::{Counters, HostError, InvocationRecord, InvokeError, Outcome};
use super::table::ProcessInfo;
use super::{FunctionSpec, lock};

/// A function that can be invoked. Clones are the same host; when the last one is dropped, every process is
/// killed and what is waiting is given up.
///
/// All of it runs on the Tokio runtime that called [`LambdaHost::start`].
#[derive(Debug, Clone)]
pub struct LambdaHost {
    handle: Arc<Handle>,
}

/// What the clones share; the running events hold [`Events`] alone, so that they do not keep the host up.
#[derive(Debug)]
struct Handle {
    events: Arc<Events>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.events.stop();
    }
}

impl LambdaHost {
    /// A host for one function. No process is started before the first event.
    ///
    /// # Errors
    /// The binary is missing, or no file.
    pub fn start(spec: FunctionSpec) -> Result<Self, HostError> {
        check_binary(&spec)?;
        Ok(Self { handle: Arc::new(Handle { events: Arc::new(Events::new(spec)) }) })
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
        let (_, outcome) = self.events().submit(event.into(), Mode::InTurn, None)?;
        match outcome.await {
            Ok(result) => result,
            Err(_) => Err(self.events().stopped()),
        }
    }

    /// Queues one event and returns its request id at once. A failed attempt is repeated, and an event that is
    /// too old is dropped, as the spec says.
    ///
    /// # Errors
    /// The event was not queued: throttled, too large, host stopped.
    pub fn invoke_async(&self, event: &Value) -> Result<String, InvokeError> {
        let (request_id, _) =
            self.events().submit(event.to_string().into_bytes().into(), Mode::Queued, None)?;
        Ok(request_id)
    }

    /// Waits until no event is running or waiting.
    pub async fn wait_until_idle(&self) {
        let mut unfinished = self.events().unfinished.subscribe();
        // The sender lives in what we hold, so this cannot fail.
        let _ = unfinished.wait_for(|events| *events == 0).await;
    }

    /// The function.
    pub fn spec(&self) -> &FunctionSpec {
        &self.events().spec
    }

    /// The running processes, by process id.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.events().table.snapshot()
    }

    /// What the functions printed, oldest first; the newest 10,000 lines.
    pub fn logs(&self) -> Vec<LogLine> {
        self.events().log.snapshot()
    }

    /// The finished attempts, oldest first; the newest 10,000.
    pub fn records(&self) -> Vec<InvocationRecord> {
        self.events().records.snapshot()
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        *lock(&self.events().counters)
    }

    /// Stops one process (SIGSTOP), whatever it is doing; its deadline goes on. False: no such process.
    pub async fn freeze(&self, pid: u32) -> bool {
        match self.events().table.get(pid) {
            Some(process) => process.freeze().await,
            None => false,
        }
    }

    /// Lets one process go on (SIGCONT). False: no such process.
    pub async fn thaw(&self, pid: u32) -> bool {
        match self.events().table.get(pid) {
            Some(process) => process.thaw().await,
            None => false,
        }
    }

    /// Kills one process (SIGKILL) and waits for its end. False: no such process.
    pub async fn kill(&self, pid: u32) -> bool {
        match self.events().table.get(pid) {
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
        self.events().kill_all().await
    }

    /// Refuses further events, gives up the waiting ones, kills every process and waits for their ends.
    pub async fn shutdown(self) {
        self.events().stop();
        self.wait_until_idle().await;
        self.events().kill_all().await;
    }

    /// A handle that does not keep the function up.
    pub(super) fn downgrade(&self) -> WeakHost {
        WeakHost(Arc::downgrade(&self.handle))
    }

    pub(super) fn events(&self) -> &Arc<Events> {
        &self.handle.events
    }
}

/// A host as long as somebody else keeps it.
#[derive(Debug, Clone)]
pub(super) struct WeakHost(Weak<Handle>);

impl WeakHost {
    pub(super) fn upgrade(&self) -> Option<LambdaHost> {
        self.0.upgrade().map(|handle| LambdaHost { handle })
    }
}

fn check_binary(spec: &FunctionSpec) -> Result<(), HostError> {
    let error = |source| HostError::Binary { function: spec.name.clone(), path: spec.binary.clone(), source };
    let metadata = std::fs::metadata(&spec.binary).map_err(error)?;
    if metadata.is_file() { Ok(()) } else { Err(error(std::io::Error::other("it is not a file"))) }
}
