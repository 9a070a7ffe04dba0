//! DynamoDB for a developer's machine: embedded, or whatever an endpoint names.
//!
//! Between the clients (ours and the functions') and a local database sits a small proxy that counts requests
//! and consumed capacity, so that a run can say what it would have cost. A second one beside it can make requests meet
//! faults, and can be reached through a link; what is being tested uses that one, what tests uses the first.

mod database;
mod doors;
mod error;
mod faults;
mod meter;
mod probe;
mod proxy;

pub use database::{AWS_ENDPOINT_URL_DYNAMODB, Database, Kind};
pub use error::DatabaseError;
pub use faults::{Fault, Faults, InForce, Injected, Rule};
pub use meter::{OperationUsage, Usage};
pub use probe::{ProbeError, check_parts};
