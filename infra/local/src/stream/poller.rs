//! Finds the shards of a stream and keeps one reader on each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::DisplayErrorContext;
use aws_sdk_dynamodbstreams::operation::describe_stream::DescribeStreamError;
use aws_sdk_dynamodbstreams::types::Shard;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::faults::Drawing;
use super::shard::{ShardReader, Start};
use super::{StreamFaults, StreamMapping};
use crate::lambda::LambdaHost;

/// How often the stream is asked for new shards.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(2);

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The table cannot be described.
    #[error("table {table} cannot be described")]
    Table {
        /// The table.
        table: String,
        /// What DynamoDB said.
        #[source]
        source: Box<SdkError<DescribeTableError>>,
    },
    /// The table has no stream.
    #[error("table {table} has no stream")]
    NoStream {
        /// The table.
        table: String,
    },
}

/// The ARN of a table's current stream.
///
/// # Errors
/// The table cannot be described, or has no stream.
pub async fn latest_stream_arn(
    client: &aws_sdk_dynamodb::Client,
    table: &str,
) -> Result<String, StreamError> {
    let described = client.describe_table().table_name(table).send().await;
    let described = described
        .map_err(|source| StreamError::Table { table: table.to_owned(), source: Box::new(source) })?;
    let stream_arn = described.table.and_then(|table| table.latest_stream_arn);
    stream_arn.ok_or_else(|| StreamError::NoStream { table: table.to_owned() })
}

/// What a poller has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Records read.
    pub records: u64,
    /// Records that the filter kept from the function.
    pub filtered_out: u64,
    /// Batches that were sent and done with.
    pub batches: u64,
    /// Attempts at a batch that failed, wholly or in part.
    pub failed_attempts: u64,
    /// Records given up after all their retries.
    pub given_up: u64,
    /// Batches that were [dropped](StreamFaults::drop): neither in `batches` nor in `given_up`.
    pub dropped: u64,
    /// Batches that were [sent twice](StreamFaults::duplicate), which counts twice in `batches`.
    pub duplicated: u64,
    /// Batches that were sent [out of order](StreamFaults::reorder), or are kept to be.
    pub reordered: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) records: AtomicU64,
    pub(super) filtered_out: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) failed_attempts: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) duplicated: AtomicU64,
    pub(super) reordered: AtomicU64,
}

/// A running poller; it stops when this is dropped. A batch that was sent is run to its end by the host.
#[derive(Debug)]
pub struct StreamPoller {
    counting: Arc<Counting>,
    faults: Arc<Drawing>,
    _stop: DropGuard,
}

impl StreamPoller {
    /// Reads the stream and invokes the function, until dropped. A DynamoDB that is away is waited for.
    pub fn start(
        client: Client,
        stream_arn: impl Into<String>,
        mapping: StreamMapping,
        function: LambdaHost,
    ) -> Self {
        let counting = Arc::<Counting>::default();
        let faults = Arc::<Drawing>::default();
        let stop = CancellationToken::new();
        let reader = ShardReader {
            client,
            stream_arn: stream_arn.into().into(),
            mapping: Arc::new(mapping),
            function,
            counting: Arc::clone(&counting),
            faults: Arc::clone(&faults),
        };
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(follow_stream(reader)).await;
        });
        Self { counting, faults, _stop: stop.drop_guard() }
    }

    /// From now on these faults, and no others, meet the batches that are taken from the stream.
    pub fn set_faults(&self, faults: StreamFaults) {
        self.faults.set(faults);
    }

    /// What has happened so far.
    pub fn counters(&self) -> StreamCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StreamCounters {
            records: read(&self.counting.records),
            filtered_out: read(&self.counting.filtered_out),
            batches: read(&self.counting.batches),
            failed_attempts: read(&self.counting.failed_attempts),
            given_up: read(&self.counting.given_up),
            dropped: read(&self.counting.dropped),
            duplicated: read(&self.counting.duplicated),
            reordered: read(&self.counting.reordered),
        }
    }
}

/// Never returns; dropping it ends the readers.
async fn follow_stream(reader: ShardReader) {
    let mut started = BTreeSet::new();
    let mut finished = BTreeSet::new();
    let mut readers = JoinSet::new();
    let mut first_look = true;
    loop {
        match shards(&reader.client, &reader.stream_arn).await {
            Ok(shards) => {
                let listed: BTreeSet<_> = shards.iter().filter_map(|shard| shard.shard_id.clone()).collect();
                for shard in &shards {
                    let Some(id) = shard.shard_id.clone() else {
                        continue;
                    };
                    // A child is read after its parent, so that an item's changes stay in order. A parent that
                    // is not listed any more has been trimmed.
                    let parent_is_open = shard
                        .parent_shard_id()
                        .is_some_and(|parent| listed.contains(parent) && !finished.contains(parent));
                    if parent_is_open || !started.insert(id.clone()) {
                        continue;
                    }
                    // Only what exists at the start can be skipped; later shards are new as a whole.
                    let start = if first_look && !reader.mapping.from_horizon {
                        Start::Latest
                    } else {
                        Start::Horizon
                    };
                    let reader = reader.clone();
                    readers.spawn(async move {
                        reader.run(&id, start).await;
                        id
                    });
                }
                first_look = false;
            }
            Err(error) => {
                tracing::warn!(error = %DisplayErrorContext(&error), "the stream was not described");
            }
        }
        tokio::select! {
            Some(Ok(id)) = readers.join_next() => {
                // Its children may start.
                finished.insert(id);
            }
            () = sleep(DISCOVERY_INTERVAL) => {}
        }
    }
}

async fn shards(client: &Client, stream_arn: &str) -> Result<Vec<Shard>, SdkError<DescribeStreamError>> {
    let mut shards = Vec::new();
    let mut last = None;
    loop {
        let page =
            client.describe_stream().stream_arn(stream_arn).set_exclusive_start_shard_id(last).send().await?;
        let description = page
            .stream_description
            .unwrap_or_else(|| aws_sdk_dynamodbstreams::types::StreamDescription::builder().build());
        shards.extend(description.shards.unwrap_or_default());
        last = description.last_evaluated_shard_id;
        if last.is_none() {
            return Ok(shards);
        }
    }
}
