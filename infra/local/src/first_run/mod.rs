//! The first run: orders go in with `TransactWriteItems`, records come out of Kafka, and a report says what held.

mod report;
mod run;

pub use report::Report;
pub use run::{Observer, Progress, RunError, RunOptions, Silent, run};
