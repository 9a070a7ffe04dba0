//! An execution environment: one process, one Runtime API, one invocation at a time.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::FunctionSpec;
use super::logs::Log;
use super::outcome::{Outcome, Phase};
use super::process::Process;
use super::runtime_api::{Call, Delivery, RuntimeApi, Verdict};
use super::table::{ProcessState, ProcessTable};
use super::trace::Trace;

/// An environment whose process waits for an event. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Environment {
    spec: Arc<FunctionSpec>,
    table: Arc<ProcessTable>,
    process: Process,
    calls: mpsc::Receiver<Call>,
    /// The process's open request for its next event.
    waiting: Option<oneshot::Sender<Delivery>>,
    _api: RuntimeApi,
}

/// Why an environment did not come to wait for its first event.
#[derive(Debug)]
pub(super) enum StartError {
    /// No process was started.
    Io(io::Error),
    /// There was a process, and this came of its init phase.
    Failed { pid: u32, outcome: Outcome },
}

/// An event to be run.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) request_id: String,
    pub(super) payload: Bytes,
    pub(super) trace: Trace,
}

impl Environment {
    /// Starts a process and waits until it asks for its first event.
    pub(super) async fn start(
        spec: Arc<FunctionSpec>,
        log: &Log,
        table: Arc<ProcessTable>,
    ) -> Result<Self, StartError> {
        let (api, calls) = RuntimeApi::start().await.map_err(StartError::Io)?;
        let process = Process::start(&spec, &api.authority(), log).map_err(StartError::Io)?;
        table.add(&process);
        let mut environment = Self { spec, table, process, calls, waiting: None, _api: api };
        match environment.init().await {
            Ok(()) => Ok(environment),
            Err(outcome) => {
                environment.process.kill_and_wait().await;
                let pid = environment.process.pid();
                Err(StartError::Failed { pid, outcome })
            }
        }
    }

    async fn init(&mut self) -> Result<(), Outcome> {
        let deadline = Instant::now() + self.spec.init_timeout;
        loop {
            tokio::select! {
                biased;
                Some(call) = self.calls.recv() => match call {
                    Call::Next(waiting) => return self.wait_for_event(waiting).await,
                    Call::InitError(report, verdict) => {
                        let _ = verdict.send(Verdict::Accepted);
                        return Err(Outcome::InitError {
                            error_type: report.error_type,
                            message: report.message,
                        });
                    }
                    Call::Response(_, _, verdict) | Call::Error(_, _, verdict) => {
                        let _ = verdict.send(Verdict::UnknownRequest);
                    }
                },
                exit = self.process.wait() => {
                    return Err(Outcome::Crashed { exit, phase: Phase::Init });
                }
                () = sleep_until(deadline) => {
                    return Err(Outcome::InitError {
                        error_type: "Sandbox.Timedout".to_owned(),
                        message: format!(
                            "the process asked for no event within {} ms",
                            self.spec.init_timeout.as_millis()
                        ),
                    });
                }
            }
        }
    }

    async fn wait_for_event(&mut self, waiting: oneshot::Sender<Delivery>) -> Result<(), Outcome> {
        self.waiting = Some(waiting);
        self.table.set(self.process.pid(), ProcessState::Idle);
        if self.spec.freeze_when_idle {
            self.process.freeze().await;
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether the process is still there to take an event.
    pub(super) fn is_alive(&self) -> bool {
        self.process.exit().is_none()
    }

    /// Runs one event. It is over when the process asks for its next one, when it ends, or when the deadline
    /// kills it; an answer given before counts in all three cases. True: the environment can be used again.
    pub(super) async fn invoke(&mut self, event: &Event) -> (Outcome, bool) {
        let pid = self.process.pid();
        let state = ProcessState::Invoking(event.request_id.clone());
        self.table.set(pid, state);
        let deadline = Instant::now() + self.spec.timeout;
        let delivery = self.delivery(event);
        // Whoever stopped it: an event lets it go on.
        if self.process.is_stopped() {
            self.process.thaw().await;
        }
        let mut delivered = self.deliver(&delivery);
        let mut outcome = None;
        loop {
            tokio::select! {
                // In this order: an answer that was posted before the process ended is an answer.
                biased;
                Some(call) = self.calls.recv() => match call {
                    Call::Next(waiting) => match (delivered, outcome.take()) {
                        // It lost its connection while it waited, and asks again.
                        (false, _) => {
                            self.waiting = Some(waiting);
                            delivered = self.deliver(&delivery);
                        }
                        // It has not answered yet: refused by dropping the request.
                        (true, None) => {}
                        (true, Some(outcome)) => {
                            let reusable = self.wait_for_event(waiting).await.is_ok();
                            return (outcome, reusable);
                        }
                    },
                    Call::Response(id, body, verdict) => {
                        if judge(&id, event, &outcome, verdict) {
                            outcome = Some(answer(&body));
                        }
                    }
                    Call::Error(id, report, verdict) => {
                        if judge(&id, event, &outcome, verdict) {
                            outcome = Some(Outcome::FunctionError {
                                error_type: report.error_type,
                                message: report.message,
                            });
                        }
                    }
                    Call::InitError(_, verdict) => {
                        let _ = verdict.send(Verdict::WrongState);
                    }
                },
                exit = self.process.wait() => {
                    let crashed = Outcome::Crashed { exit, phase: Phase::Invoke };
                    return (outcome.unwrap_or(crashed), false);
                }
                // The deadline goes on while the process is frozen, and SIGKILL ends a stopped process too.
                () = sleep_until(deadline) => {
                    self.process.kill_and_wait().await;
                    return (outcome.unwrap_or(Outcome::TimedOut), false);
                }
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) -> bool {
        self.waiting.take().is_some_and(|waiting| waiting.send(delivery.clone()).is_ok())
    }

    fn delivery(&self, event: &Event) -> Delivery {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Delivery {
            request_id: event.request_id.clone(),
            deadline_ms: (now + self.spec.timeout).as_millis(),
            function_arn: self.spec.arn(),
            trace_id: event.trace.header(),
            payload: event.payload.clone(),
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // The table holds a handle too, so dropping ours would not be enough.
        self.process.kill();
    }
}

/// Accepts the first answer to the running event, and only that.
fn judge(id: &str, event: &Event, outcome: &Option<Outcome>, verdict: oneshot::Sender<Verdict>) -> bool {
    let (accepted, answer) = match (id == event.request_id, outcome) {
        (true, None) => (true, Verdict::Accepted),
        (true, Some(_)) => (false, Verdict::WrongState),
        (false, _) => (false, Verdict::UnknownRequest),
    };
    let _ = verdict.send(answer);
    accepted
}

fn answer(body: &[u8]) -> Outcome {
    match serde_json::from_slice(body) {
        Ok(value) => Outcome::Response(value),
        Err(error) => Outcome::FunctionError {
            error_type: "Runtime.InvalidResponse".to_owned(),
            message: format!("the answer is not JSON: {error}"),
        },
    }
}
