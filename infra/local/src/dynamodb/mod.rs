//! DynamoDB for a developer's machine: embedded, or whatever an endpoint names.
//!
//! Between the clients (ours and the functions') and a local database sits a small proxy that counts requests
//! and consumed capacity, so that a run can say what it would have cost.

mod database;
mod error;
mod meter;
mod probe;
mod proxy;

pub use database::{AWS_ENDPOINT_URL_DYNAMODB, Database, Kind};
pub use error::DatabaseError;
pub use meter::{OperationUsage, Usage};
pub use probe::{ProbeError, check_parts};
