//! Counted: what the relay costs, how many of its writes are refused, and the cases that others met in the field, over
//! the real DynamoDB store on the embedded database. `cargo test -p outbox-tests --test counted -- --nocapture` prints
//! the counts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod cost;
mod fleet;
mod gaps;
mod ghost;
mod kind;
mod lost_replies;
mod publishing;
mod skew;
mod stop;
mod support;
mod wire;
