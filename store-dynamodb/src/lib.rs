//! The outbox in DynamoDB: the table, the writer for `TransactWriteItems`, and the store that relays work on.
//!
//! The table format is frozen and shared with other writers and relays (design.md, section 4).

mod backlog;
mod coordination;
mod delete;
mod error;
mod http;
mod item;
mod lease;
mod limits;
mod messages;
mod options;
mod quarantine;
mod redrive;
mod request;
mod schema;
mod store;
pub mod table;
mod writer;

/// What reads items, for the fuzzer alone: no part of the API.
///
/// Neither behind `cfg(fuzzing)`, which an ordinary test that replays the fuzzer's corpus does not have, nor behind a
/// feature, which a build of the whole workspace would turn on for everybody in it.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::item::{Read, from_item, to_item};
    pub use crate::lease::{heartbeat_record, lease_record};
}

pub use error::WriteError;
pub use http::http_client;
pub use item::Sequence;
pub use options::StoreOptions;
pub use redrive::{QuarantinedMessage, RedriveError, Redriven};
pub use request::{CONNECT_TIMEOUT, client_timeouts};
pub use schema::{bucket_of_message_partition, message_partition};
pub use store::DynamoDbStore;
pub use writer::Writer;
