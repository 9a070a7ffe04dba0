//! A Lambda host: runs real function binaries the way Lambda runs them.
//!
//! [`LambdaHost`] is one function. It starts *execution environments* as they are needed (one process and one
//! Runtime API port each), gives every environment one invocation at a time, enforces the deadline with
//! SIGKILL, and can freeze, thaw and kill the processes.
//!
//! One invocation's way through it: [`LambdaHost::invoke`] (`host.rs`) takes an environment, which delivers
//! the event and watches the process (`environment.rs`), which polls the Runtime API (`runtime_api.rs`).

mod environment;
mod host;
mod logs;
mod outcome;
mod process;
mod runtime_api;
mod spec;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use host::LambdaHost;
pub use logs::{LogLine, LogStream};
pub use outcome::{Counters, Exit, HostError, InvocationRecord, InvokeError, Outcome, Phase};
pub use spec::FunctionSpec;
pub use table::{ProcessInfo, ProcessState};

/// Locks a mutex whose data stays whole even if a holder panicked: every critical section here is a few
/// plain assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
