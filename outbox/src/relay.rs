//! The relay engine: leases buckets, publishes their messages, deletes what was acknowledged.
//!
//! One engine, three ways to run it (design.md, section 7): [`Relay::hinted`], [`Relay::sweep`] and
//! [`Relay::run_continuously`].

mod budget;
mod continuous;
mod drain;
mod durations;
mod engine;
mod failure;
mod held;
mod hinted;
mod report;
mod sampling;
mod set_aside;
mod settle;
mod sweep;
mod waiting;
mod workers;

pub use budget::{Budget, MIN_INVOCATION};
pub use continuous::Continuous;
pub use durations::Durations;
pub use engine::Relay;
pub use failure::{FailureKind, Failures};
pub use report::{BucketEnd, BucketReport, RunError, RunReport};
pub use sampling::BacklogSample;
pub use workers::{NoWorkers, Started, Workers, WorkersError};
