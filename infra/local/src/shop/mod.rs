//! An application and its consumer: orders go in with `TransactWriteItems`, each with its message; records come out of
//! Kafka; and a verdict compares them.
//!
//! One order's way: `orders.rs` places it, `books.rs` notes it and what is consumed, `verdict.rs` judges. `text.rs` is
//! how numbers are written in a report.

mod books;
mod orders;
mod outbox_left;
mod text;
mod verdict;

pub(crate) use books::{Books, Readers};
pub use orders::OrderError;
pub(crate) use orders::{Load, Shop};
pub(crate) use outbox_left::count as outbox_left;
pub(crate) use text::{milliseconds, seconds, thousands};
pub use verdict::{Delivery, Latency, OutOfOrder, PlacedOrder, Verdict, judge};
