//! The relay engine on virtual time, over the store in memory: what it must do when things go well, and when not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod budget;
mod capabilities;
mod continuous;
mod hinted;
mod leases;
mod quarantine;
mod retries;
mod sampling;
mod skew;
mod support;
mod sweep;
mod workers;
