//! The relay engine: leases buckets, publishes their messages, deletes what was acknowledged.

mod budget;
mod drain;
mod held;
mod report;
mod run;
mod settle;
mod waiting;

pub use budget::{Budget, MIN_INVOCATION};
pub use report::{BucketEnd, BucketReport, RunError, RunReport};
pub use run::Relay;
