//! What stands in for AWS on a developer's machine, and the first run.
//!
//! One small library, shared by the first-run command and by the tests.

pub mod campaign;
pub mod dynamodb;
pub mod environment;
pub mod filter;
pub mod first_run;
pub mod functions;
pub mod guarded;
pub mod kafka;
pub mod lambda;
pub mod link;
mod ports;
pub mod schedule;
pub mod shop;
pub mod stream;
pub mod template;
