//! Fuzzing of everything that reads what others wrote: what is done with an input, and what must hold then.
//!
//! A target is a function of bytes that panics where something does not hold. libFuzzer calls it (`fuzz/run`), and so
//! does an ordinary test, which replays the corpus.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a check states what must hold by panicking when it does not"
)]

mod bounded;
mod event;
mod headers;
mod item;
mod json;
#[cfg(feature = "libfuzzer")]
mod libfuzzer;
mod records;
mod settings;

pub use json::{Shape, mutated};
#[cfg(feature = "libfuzzer")]
pub use libfuzzer::mutate_json;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It was one, and everything held.
    Checked,
    /// It is nothing that the code under test is ever given: no JSON, say. Not worth keeping.
    Rejected,
}

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called, also as a folder of the corpus.
    pub name: &'static str,
    /// Tries an input; panics if something does not hold that must.
    pub check: fn(&[u8]) -> Input,
}

/// A stream event, as its JSON.
pub const EVENT: Target = Target { name: "event", check: event::check };
/// A header blob.
pub const HEADERS: Target = Target { name: "headers", check: headers::check };
/// An item of the table, in DynamoDB's JSON.
pub const ITEM: Target = Target { name: "item", check: item::check };
/// A stream event that is put together from records of every kind, of which it is known what they are.
pub const RECORDS: Target = Target { name: "records", check: records::check };
/// A function's environment, a variable a line.
pub const SETTINGS: Target = Target { name: "settings", check: settings::check };

/// All of them.
pub const TARGETS: [Target; 5] = [EVENT, HEADERS, ITEM, RECORDS, SETTINGS];
