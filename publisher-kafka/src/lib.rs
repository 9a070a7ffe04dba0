//! The outbox's Kafka publisher, on librdkafka.
//!
//! # What it promises
//! - A message is reported as acknowledged only when every in-sync replica has it (`acks=all`). Idempotence is on, and
//!   records are placed as Java's client places them (`murmur2_random`). None of the three can be turned off.
//! - Messages of one key are sent in the order given. One that cannot go (too large, an invalid topic) is found before
//!   anything of the batch is sent, and what is behind it in its key waits with it.
//! - When [`KafkaPublisher::publish`](outbox::Publisher::publish) returns, nothing of the batch is queued or in flight:
//!   what was not acknowledged in time has been taken back. A client that does not give it back is waited for, past the
//!   limit, until the process is ended: a frozen process could send it minutes later. What the kernel had not sent of it
//!   is discarded too: the client's connections are reset.
//! - A process that was frozen needs no luck: a client that was unused for two seconds is asked for an answer before it
//!   is given a record, and one that gives none in a second, or was unused or asleep for 170 s, is replaced.
//! - A broker that cannot be reached is an error that names it and quotes the client's own words, well before the limit.
//!
//! # What it does not promise
//! - That a message that was taken back is not stored: the broker may have it. It is sent again, with the same id.
//! - The order of a key of which the broker itself refuses a record: up to five requests are under way to a broker,
//!   so what was sent behind the refused record may be stored by the time the refusal is known. A broker refuses
//!   whole record batches; those of more than one record are kept below [`config::BATCH_BYTES`], so that a topic that
//!   takes records of that size refuses none but the record at fault. From a topic with a smaller limit a record that
//!   merely shared a batch with the one at fault is sent again alone, possibly behind later records of its key.
//! - That two publish calls on one publisher never touch each other: one that runs into its limit takes back what is
//!   left of the others too, after giving them half a second to finish.
//!
//! # Keys
//! An empty key is a key: the record carries it, and it is placed by its hash, as Java does. Only a message without
//! a key goes anywhere (sticking to one partition for a few milliseconds, so that batches form).

pub mod config;
pub mod publisher;

mod call;
mod client;
mod context;
mod error;
mod in_flight;
mod limits;
mod record;
mod replaced;
mod sockets;
mod trust;

pub use config::KafkaConfig;
pub use error::ClientError;
pub use publisher::{Connect, KafkaPublisher};
pub use replaced::Replaced;
