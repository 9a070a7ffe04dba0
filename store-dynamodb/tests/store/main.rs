//! The DynamoDB store and writer against a real implementation of DynamoDB's conditions, behind HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod conformance;
mod leases;
mod limits;
mod messages;
mod misconfigured;
mod quarantine;
mod renewing;
mod server;
mod support;
mod writer;
