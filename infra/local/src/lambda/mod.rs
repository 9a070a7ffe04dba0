//! A Lambda host: runs real function binaries the way Lambda runs them.
//!
//! [`LambdaHost`] is one function. It starts *execution environments* as they are needed (one process and one
//! Runtime API port each), gives every environment one invocation at a time, enforces the deadline with
//! SIGKILL, and can freeze, thaw and kill the processes.
//!
//! [`InvokeApi`] is Lambda's own way to invoke such functions, over HTTP: what the AWS SDK in a function finds when
//! [`AWS_ENDPOINT_URL_LAMBDA`] names it, and what the AWS CLI finds. Loops are found and terminated as Lambda does,
//! by the tracing header (`trace.rs`).
//!
//! One invocation's way through it: [`LambdaHost::invoke`] (`host.rs`) or the Invoke API (`invoke_api/`) submits an
//! event, which waits for its turn (`events.rs`) and gets an environment, which delivers the event and watches the
//! process (`environment.rs`), which polls the Runtime API (`runtime_api.rs`).

mod environment;
mod events;
mod host;
mod invoke_api;
mod logs;
mod outcome;
mod process;
mod runtime_api;
mod spec;
mod table;
mod trace;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use host::LambdaHost;
pub use invoke_api::{AWS_ENDPOINT_URL_LAMBDA, InvokeApi, InvokeRequests};
pub use logs::{LogLine, LogStream};
pub use outcome::{Counters, Exit, HostError, InvocationRecord, InvokeError, Outcome, Phase};
pub use spec::{FunctionSpec, RecursiveLoop};
pub use table::{ProcessInfo, ProcessState};

/// Locks a mutex whose data stays whole even if a holder panicked: every critical section here is a few
/// plain assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
