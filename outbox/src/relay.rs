//! The relay engine: leases buckets, publishes their messages, deletes what was acknowledged.
//!
//! One engine, three ways to run it (design.md, section 7): [`Relay::hinted`], [`Relay::sweep`] and
//! [`Relay::run_continuously`].

mod budget;
mod continuous;
mod drain;
mod engine;
mod held;
mod hinted;
mod report;
mod set_aside;
mod settle;
mod sweep;
mod waiting;
mod workers;

pub use budget::{Budget, MIN_INVOCATION};
pub use continuous::Continuous;
pub use engine::Relay;
pub use report::{BucketEnd, BucketReport, RunError, RunReport};
pub use workers::{NoWorkers, Started, Workers, WorkersError};
