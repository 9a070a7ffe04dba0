//! How many messages the outbox still holds.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{AttributeValue, Select};
use futures::future::try_join_all;
use outbox_store_dynamodb::{StoreOptions, message_partition};

use super::orders::OrderError;

/// Counts the messages of all buckets, strongly consistent.
pub(crate) async fn count(client: &Client, options: &StoreOptions) -> Result<u64, OrderError> {
    let buckets = options.bucket_count().buckets().map(async |bucket| {
        let mut pages = client
            .query()
            .table_name(options.table_name())
            .consistent_read(true)
            .select(Select::Count)
            .key_condition_expression("#partition = :partition")
            .expression_attribute_names("#partition", options.partition_key_attribute())
            .expression_attribute_values(
                ":partition",
                AttributeValue::S(message_partition(options.key_prefix(), bucket)),
            )
            .into_paginator()
            .send();
        let mut count = 0;
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| OrderError::Request {
                what: format!("counting the messages of bucket {bucket}"),
                cause: DisplayErrorContext(error).to_string(),
            })?;
            count += u64::try_from(page.count()).unwrap_or(0);
        }
        Ok(count)
    });
    Ok(try_join_all(buckets).await?.iter().sum())
}

#[cfg(test)]
mod tests {
    use outbox::{Message, MessageIds, SystemClock};
    use outbox_store_dynamodb::{Writer, table};

    use super::*;
    use crate::dynamodb::Database;

    #[tokio::test]
    async fn the_messages_of_all_buckets_are_counted_and_nothing_else() {
        let database = Database::start(None).await.unwrap();
        let client = database.client().await;
        let options = StoreOptions::new("orders").with_key_prefix("OTHER");
        table::create(&client, &options, &SystemClock::new()).await.unwrap();
        assert_eq!(count(&client, &options).await.unwrap(), 0);
        let ids = MessageIds::from_system();
        // Eight keys are in more than one bucket.
        let messages: Vec<_> = (0..8)
            .map(|n: u32| Message::new(ids.next_id(), "topic").with_key(n.to_string()).with_value("v"))
            .collect();
        Writer::new(client.clone(), options.clone()).enqueue(&messages).await.unwrap();
        assert_eq!(count(&client, &options).await.unwrap(), 8);
    }
}
