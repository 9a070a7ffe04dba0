//! The first run: orders go in with `TransactWriteItems`, records come out of Kafka, and a report says what held.

mod orders;
mod outbox_left;
mod report;
mod run;
mod verdict;

pub use orders::OrderError;
pub use report::Report;
pub use run::{Observer, Progress, RunError, RunOptions, Silent, run};
pub use verdict::{Delivery, Latency, OutOfOrder, PlacedOrder, Verdict, judge};
