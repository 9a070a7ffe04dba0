//! A transactional outbox: the model, the formats, the contracts and the relay engine.
//!
//! Application code writes its items and its outgoing messages in one transaction; a [`Relay`] leases buckets,
//! publishes their messages and deletes what the broker acknowledged. A crash, a freeze or a lost race publishes
//! again rather than loses: at least once, in order per key.
//!
//! This crate knows no database and no broker. Stores implement [`store::OutboxStore`], publishers implement
//! [`publisher::Publisher`]. Time, chance and identity are passed in.

pub mod about;
pub mod backoff;
pub mod bucket;
pub mod clock;
pub mod concurrently;
pub mod conformance;
pub mod coordination;
pub mod custom_store;
pub mod error;
pub mod fair_share;
pub mod headers;
pub mod ids;
pub mod lease_age;
pub mod lease_plan;
pub mod lease_write;
pub mod memory;
pub mod message;
pub mod notify;
pub mod options;
pub mod publisher;
pub mod quarantine;
pub mod relay;
pub mod settings;
pub mod store;
pub mod ticks;
pub mod trace_context;

pub use about::About;
pub use backoff::Backoff;
pub use bucket::{Bucket, BucketCount};
pub use clock::{Clock, Monotonic, SystemClock, TokioClock};
pub use error::{Chain, StoreError, StoreErrorKind};
pub use headers::Header;
pub use ids::{Chance, MessageId, MessageIds, RelayId};
pub use message::{Message, MessageError};
pub use notify::{HintBroadcast, InProcessHints, Notifier};
pub use options::{PoisonPolicy, RelayOptions};
pub use publisher::{Outcome, PublishError, PublishErrorKind, Publisher};
pub use relay::{BucketEnd, Budget, Continuous, Relay, RunReport};
pub use settings::{SettingError, Settings};
pub use store::{Lease, LeaseTimes, OutboxStore};
pub use ticks::Ticks;
pub use trace_context::TraceId;
