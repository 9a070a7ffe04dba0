//! The stream poller: reads a table's stream and invokes a function with it, as Lambda's event source mapping.
//!
//! One task looks for shards (`poller.rs`); every shard is read and invoked by a task of its own, in order, one
//! batch at a time (`shard.rs`), a child after its parent. Records become events as Lambda shapes them
//! (`record.rs`); what the function says of a batch is read in `answer.rs`. Batches can be made not to arrive
//! as they should (`faults.rs`).

mod answer;
mod faults;
mod mapping;
mod poller;
mod record;
mod shard;

pub use faults::StreamFaults;
pub use mapping::StreamMapping;
pub use poller::{StreamCounters, StreamError, StreamPoller, latest_stream_arn};
