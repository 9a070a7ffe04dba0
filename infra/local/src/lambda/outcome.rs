//! What can come of an invocation.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;

/// What the function made of an event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It answered.
    Response(Value),
    /// It reported an error, a caught panic included.
    FunctionError {
        /// The error's type, as the function reported it.
        error_type: String,
        /// The error's text, as the function reported it.
        message: String,
    },
    /// The deadline passed and the process was killed.
    TimedOut,
    /// The process ended without an answer: it exited, or something killed it.
    Crashed {
        /// How it ended.
        exit: Exit,
        /// What it was doing.
        phase: Phase,
    },
    /// The process never asked for an event: it reported why, or its init phase took too long.
    InitError {
        /// The error's type, as the function reported it.
        error_type: String,
        /// The error's text, as the function reported it.
        message: String,
    },
}

impl Outcome {
    /// The answer, if there is one.
    pub fn response(&self) -> Option<&Value> {
        match self {
            Self::Response(value) => Some(value),
            Self::FunctionError { .. } | Self::TimedOut | Self::Crashed { .. } | Self::InitError { .. } => {
                None
            }
        }
    }

    /// The same without an answer's content.
    pub(super) fn without_content(&self) -> Self {
        match self {
            Self::Response(_) => Self::Response(Value::Null),
            other => other.clone(),
        }
    }

    /// Whether the function answered.
    pub fn is_response(&self) -> bool {
        self.response().is_some()
    }
}

/// One line about the outcome, without the answer's content.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(_) => f.write_str("response"),
            Self::FunctionError { error_type, message } => {
                write!(f, "function error {error_type}: {message}")
            }
            Self::TimedOut => f.write_str("timed out"),
            Self::Crashed { exit, phase } => write!(f, "process ended during {phase}: {exit}"),
            Self::InitError { error_type, message } => write!(f, "init error {error_type}: {message}"),
        }
    }
}

/// A phase of an execution environment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// From the start of the process to its first request for an event.
    Init,
    /// From the delivery of an event to the next request for one.
    Invoke,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "init",
            Self::Invoke => "invoke",
        })
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
}

impl Exit {
    /// Whether SIGKILL ended it.
    pub(super) fn is_kill(self) -> bool {
        self.signal == Some(Signal::SIGKILL as i32)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self { code: status.code(), signal: status.signal() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("unknown status"),
        }
    }
}

/// Why a host could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The function's binary is missing or no file.
    #[error("function {function}: {path} cannot be run")]
    Binary {
        /// The function.
        function: String,
        /// The path that was looked at.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// Why an event did not reach the function at all.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InvokeError {
    /// As many invocations as allowed are running and waiting.
    #[error("function {function}: throttled, {limit} invocations are waiting already")]
    Throttled {
        /// The function.
        function: String,
        /// The most invocations that may wait.
        limit: usize,
    },
    /// Every environment is busy, and the event was not to wait for one.
    #[error("function {function}: throttled, all its environments are busy ({environments})")]
    Busy {
        /// The function.
        function: String,
        /// The most environments that run at once.
        environments: usize,
    },
    /// The function keeps coming back in one chain of requests, and its loops are to be terminated.
    #[error("function {function}: a recursive loop, it was in this chain of requests {times} times before")]
    Recursion {
        /// The function.
        function: String,
        /// How often the chain had come to it before.
        times: u32,
    },
    /// An asynchronous event grew too old before it was run, or would have before its next retry.
    #[error("function {function}: an asynchronous event is dropped, older than {} ms", age.as_millis())]
    Expired {
        /// The function.
        function: String,
        /// How old an event may be.
        age: Duration,
    },
    /// The event is larger than Lambda takes.
    #[error("function {function}: the event has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// The function.
        function: String,
        /// The event's size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The process could not be started.
    #[error("function {function}: the process could not be started")]
    Start {
        /// The function.
        function: String,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The host was stopped.
    #[error("function {function}: the host was stopped")]
    Stopped {
        /// The function.
        function: String,
    },
}

/// One attempt at one event, finished.
#[derive(Debug, Clone)]
pub struct InvocationRecord {
    /// The request id; retries of one event share it.
    pub request_id: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The process that ran it, if one was started.
    pub pid: Option<u32>,
    /// Whether a process was started for it.
    pub cold_start: bool,
    /// When the attempt got its place among the running ones.
    pub started: SystemTime,
    /// When it was over: its process asked for the next event, or ended.
    pub ended: SystemTime,
    /// From the start to the end, by the monotonic clock.
    pub duration: Duration,
    /// What came of it. An answer's content is not kept: it is null here.
    pub outcome: Outcome,
}

/// What a host has seen since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Processes started.
    pub cold_starts: u64,
    /// Attempts finished, whatever came of them.
    pub invocations: u64,
    /// Attempts that ended with an error the function reported, init errors included.
    pub errors: u64,
    /// Attempts that passed the deadline.
    pub timeouts: u64,
    /// Attempts whose process ended under them.
    pub crashes: u64,
    /// Events refused because too many were waiting, or because all environments were busy.
    pub throttles: u64,
    /// Asynchronous events dropped because they were too old for a first attempt or for another one.
    pub expired_events: u64,
    /// Invocations dropped because the function had come back too often in one chain of requests.
    pub recursive_invocations_dropped: u64,
}

impl Counters {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        self.invocations += 1;
        match outcome {
            Outcome::Response(_) => {}
            Outcome::FunctionError { .. } | Outcome::InitError { .. } => self.errors += 1,
            Outcome::TimedOut => self.timeouts += 1,
            Outcome::Crashed { .. } => self.crashes += 1,
        }
    }
}
