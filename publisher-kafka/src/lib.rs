//! The outbox's Kafka publisher, on librdkafka.
//!
//! # What it promises
//! - A message is reported as acknowledged only when every in-sync replica has it (`acks=all`). Idempotence is on, and
//!   records are placed as Java's client places them (`murmur2_random`). None of the three can be turned off.
//! - Messages of one key are sent in the order given. One that cannot go (too large for this client or, where the brokers
//!   tell its limit, for its topic; an invalid topic) is found before anything of the batch is sent, and what is behind it
//!   in its key waits with it. What is ahead of it goes.
//! - Every error is one of few answers: again later, again later for this topic alone, perhaps stored, never, or not until
//!   somebody changes a setting. Each code that librdkafka knows has its answer in one table, and one that it does not know
//!   keeps the message.
//! - When [`KafkaPublisher::publish`](outbox::Publisher::publish) returns, nothing of the batch is queued or in flight:
//!   what was not acknowledged in time has been taken back. A client that does not give it back is waited for, past the
//!   limit, until the process is ended: a frozen process could send it minutes later. What the kernel had not sent of it
//!   is discarded too: the client's connections are reset.
//! - A process that was frozen needs no luck: a client that was unused for two seconds is asked for an answer before it
//!   is given a record, and one that gives none in a second, or was unused or asleep for 170 s, is replaced.
//! - A broker that cannot be reached is an error that names it and quotes the client's own words, well before the limit.
//!   So is one that does not take the client: the error names the step that failed, and its setting.
//! - Credentials are obtained by async code, within a limit, and renewed by their age before anything is sent: no timer
//!   need run, and no thread of the client's waits for them. A client whose token is over is replaced.
//! - No password, token or certificate is in a log line, an error or a `Debug` text.
//!
//! # What it does not promise
//! - That a message that was taken back is not stored: the broker may have it. It is sent again, with the same id.
//! - The order of a key of which a broker refuses a record for good, unless it is asked for: see below.
//! - That two publish calls on one publisher never touch each other: one that runs into its limit takes back what is
//!   left of the others too, after giving them half a second to finish.
//!
//! # Order when a broker refuses a record
//! Lost connections, lost answers, new leaders and restarted brokers change no key's order: an idempotent producer's records
//! are stored in sequence, or not at all. A refusal for good is another matter. Up to five requests are under way to a
//! broker, and the client itself sends again what the refusal of one of them made the broker pass over. So, of rows 1, 2,
//! 3 of a key, 1 of which the broker refuses:
//! - those that are not handed to the client by then are not sent; they wait behind 1;
//! - those that shared 1's batch, which the broker refuses whole, are sent again behind 1, each alone: if 1 is refused once
//!   more, they wait behind it;
//! - those in the client's hands otherwise are stored: **consumers see 2, 3, and 1 when it is mended, if ever**. As they are
//!   behind a message that waits, the relay does not delete them: when 1 goes, they go again after it, with the same ids.
//!
//! What brokers refuse for good is rare by then: a record larger than its topic allows where the limit could not be read
//! (which takes the permission DescribeConfigs on the topic), or was lowered within ten minutes; one that breaks a rule of
//! its topic (a compacted topic needs keys); a permission taken away while records are under way. A batch of more than one
//! record is smaller than [`config::BATCH_BYTES`], so that a topic that takes batches of that size refuses none but the one
//! with the record at fault; to one that is known to take less, a key has one record under way at a time.
//!
//! With [`config::STRICT_KEY_ORDER`] every key has: the next record of a key is sent when the one before is acknowledged, and
//! nothing of a key is ever stored behind a record of it that was refused. Other keys flow on. A batch then takes as many
//! round trips as its most frequent key has messages in it.
//!
//! # Keys
//! An empty key is a key: the record carries it, and it is placed by its hash, as Java does. Only a message without
//! a key goes anywhere (sticking to one partition for a few milliseconds, so that batches form).

pub mod auth;
pub mod ca;
pub mod config;
pub mod credentials;
pub mod publisher;

mod blame;
mod cache;
mod call;
mod client;
mod context;
mod error;
mod in_flight;
mod limits;
mod record;
mod replaced;
mod sockets;
mod start;
mod trust;

pub use auth::{Auth, ScramMechanism};
pub use ca::CaError;
pub use config::KafkaConfig;
pub use credentials::{Credential, CredentialError, CredentialSource};
pub use error::ClientError;
pub use publisher::{Connect, KafkaPublisher};
pub use replaced::Replaced;
pub use start::StartError;
