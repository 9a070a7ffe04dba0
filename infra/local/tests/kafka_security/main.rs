//! Secured brokers: who may enter publishes and is read, and who may not is refused, by the name of what is wrong.
//!
//! The tests of a kind share a broker, and have topics and principals of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests state what must hold by panicking")]

mod acl;
mod entering;
mod support;
