//! The real function binaries, in the Lambda host, given what they should and should not be given.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod authentication;
mod backlog;
mod bench;
mod connections;
mod credentials;
mod events;
mod freeze;
mod metrics;
mod network;
mod overlap;
mod rejected;
mod secrets;
mod settings;
mod tables;
mod thaw;
mod unreachable;
