//! Deleting what the broker acknowledged.

use std::time::Duration;

use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::{Bucket, StoreError, StoreErrorKind};

use crate::error::{Effect, store_error};
use crate::request::Until;
use crate::{DynamoDbStore, Sequence};

/// DynamoDB's limit on one batch write.
const BATCH: usize = 25;
/// How many batch writes are under way at once.
const CONCURRENT_BATCHES: usize = 8;
/// The first and the longest pause before unprocessed deletes are tried again; jitter comes on top.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

impl DynamoDbStore {
    /// Deletes rows; those already gone are no error. Unprocessed ones are tried again until `limit` is over.
    pub(crate) async fn delete_rows(
        &self,
        bucket: Bucket,
        rows: &[Sequence],
        limit: Duration,
    ) -> Result<(), StoreError> {
        let until = self.until(limit);
        let batches =
            rows.chunks(BATCH).map(|batch| self.delete_batch(bucket, batch, until).boxed()).collect();
        concurrently(CONCURRENT_BATCHES, batches).await.into_iter().collect()
    }

    async fn delete_batch(&self, bucket: Bucket, rows: &[Sequence], until: Until) -> Result<(), StoreError> {
        let mut requests =
            rows.iter().map(|row| self.delete_request(bucket, *row)).collect::<Result<Vec<_>, _>>()?;
        let (mut pause, longest) = PAUSES;
        loop {
            let write = self.client.batch_write_item().request_items(&self.options.table_name, requests);
            let written = write.customize().config_override(self.within(until, "delete")?).send().await;
            let written =
                written.map_err(|error| store_error(&self.options, Effect::Writes, "delete", error))?;
            // The answer names the table as the request did; there is one table in it.
            requests = written.unprocessed_items.unwrap_or_default().into_values().flatten().collect();
            if requests.is_empty() {
                return Ok(());
            }
            let left = self.left(until);
            if left <= pause {
                let message = format!(
                    "{} of {} deletes in bucket {bucket} were left unprocessed by DynamoDB until the time was over",
                    requests.len(),
                    rows.len()
                );
                return Err(StoreError::new(StoreErrorKind::Throttled, message));
            }
            let jitter = self.chance.below(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
            self.clock.sleep((pause + Duration::from_micros(jitter)).min(left)).await;
            pause = longest.min(pause * 2);
        }
    }

    fn delete_request(&self, bucket: Bucket, row: Sequence) -> Result<WriteRequest, StoreError> {
        let delete = DeleteRequest::builder().set_key(Some(self.options.message_key(bucket, row))).build();
        let delete = delete.map_err(|error| {
            StoreError::new(StoreErrorKind::Misconfigured, "a delete could not be built").because(error)
        })?;
        Ok(WriteRequest::builder().delete_request(delete).build())
    }
}
