//! What the fuzzer checks, without the fuzzer: its corpus, the largest inputs there can be, and its mutations.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod corpus;
mod limits;
mod mutations;
