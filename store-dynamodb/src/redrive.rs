//! What is set aside, for whoever looks after it: listing, and sending it back (design.md, section 8).
//!
//! A key's messages go back in steps, of which each may be the last for a while:
//!
//! 1. Its marker says that they are on their way. From then on no relay sets a message of the key aside, nor publishes one.
//! 2. They move back under their own numbers, as many at once as a transaction takes, the oldest first.
//! 3. The last ones take the marker with them, in the same transaction. Whoever claims the bucket from then on finds all of
//!    them, in order, ahead of what came later. Their arrival is in the table's stream, and wakes a relay.
//!
//! Whatever happens in between, nothing of the key is published until all of it is back, and to redrive it again goes on
//! where it ended.

use std::time::Duration;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, TransactWriteItem};
use outbox::quarantine::Parking;
use outbox::store::Malformed;
use outbox::{Bucket, Message, StoreError, Ticks};

use crate::error::{Effect, store_error};
use crate::item::{Read, binary, from_item, number};
use crate::limits::item_size;
use crate::quarantine::{MOST_BYTES, MOST_MOVED, count_markers, delete, not_built, parking, put};
use crate::request::Until;
use crate::schema::{Item, attribute};
use crate::{DynamoDbStore, Sequence};

/// How often a step is tried that met another transaction, and the pause before it is tried again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// A message that is set aside.
#[derive(Clone, Debug)]
pub struct QuarantinedMessage {
    /// Its number in its bucket.
    pub sequence: Sequence,
    /// The message, or why it cannot be read.
    pub message: Result<Message, Malformed>,
    /// Why it can never be published; `None`: it follows an earlier one of its key.
    pub reason: Option<String>,
    /// How often it was sent in vain.
    pub attempts: u64,
    /// When it was set aside.
    pub quarantined_at: Option<Ticks>,
}

/// What was sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// How many messages.
    pub messages: usize,
}

/// Why messages were not, or not all, sent back. To redrive them again goes on where it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedriveError {
    /// There is no such message in the quarantine.
    #[error("no message {sequence} is in the quarantine of bucket {bucket}")]
    NotThere {
        /// The bucket.
        bucket: Bucket,
        /// The number.
        sequence: Sequence,
    },
    /// Another message has its number by now: the bucket's sequence counter was reset. Nothing was overwritten.
    #[error(
        "number {sequence} of bucket {bucket} is taken by another message: the bucket's sequence counter was behind its messages"
    )]
    PlaceTaken {
        /// The bucket.
        bucket: Bucket,
        /// The number.
        sequence: Sequence,
    },
    /// The store failed.
    #[error("messages were not sent back from the quarantine")]
    Store(#[from] StoreError),
}

impl DynamoDbStore {
    /// The messages of a bucket that are set aside, oldest first: `most` of them, behind the one with the number `after`.
    ///
    /// # Errors
    /// As any read of the store.
    pub async fn quarantined(
        &self,
        bucket: Bucket,
        after: Option<Sequence>,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<QuarantinedMessage>, StoreError> {
        let first = after.and_then(|after| Sequence::new(after.get().checked_add(1)?));
        let (Some(first), true) = (if after.is_some() { first } else { Some(Sequence::FIRST) }, most > 0)
        else {
            return Ok(Vec::new());
        };
        let query = self.query_quarantine(bucket, first);
        let items = self.collect(query, most, self.until(limit)).await?;
        Ok(items.into_iter().filter_map(|item| self.read_quarantined(bucket, item)).collect())
    }

    /// Sends a message back to where it came from, and with it everything that is set aside with its key, in order.
    ///
    /// May be called again, by anybody, whatever became of an earlier call.
    ///
    /// # Errors
    /// [`RedriveError::NotThere`] also where an earlier call has sent it back already: if that was cut short, the rest of
    /// its key is sent back by any other message of it, or by [`redrive_key`](Self::redrive_key).
    pub async fn redrive(
        &self,
        bucket: Bucket,
        sequence: Sequence,
        limit: Duration,
    ) -> Result<Redriven, RedriveError> {
        let until = self.until(limit);
        let what = "read of the quarantine";
        let item = self.get(self.options.quarantine_key(bucket, sequence), what, until).await?;
        let item = item.ok_or(RedriveError::NotThere { bucket, sequence })?;
        let key = item.get(attribute::KEY).and_then(|key| key.as_b().ok()).cloned();
        match key {
            Some(key) => self.send_back_key(bucket, key.as_ref(), until).await,
            None => {
                self.send_back(bucket, vec![item], None, until).await?;
                Ok(Redriven { messages: 1 })
            }
        }
    }

    /// Sends back everything that is set aside with a key, in order. Nothing, if the key is not parked.
    ///
    /// May be called again, by anybody, whatever became of an earlier call.
    ///
    /// # Errors
    /// Says what stopped it. Until it was called again with success nothing of the key is published.
    pub async fn redrive_key(
        &self,
        bucket: Bucket,
        key: &[u8],
        limit: Duration,
    ) -> Result<Redriven, RedriveError> {
        self.send_back_key(bucket, key, self.until(limit)).await
    }

    async fn send_back_key(
        &self,
        bucket: Bucket,
        key: &[u8],
        until: Until,
    ) -> Result<Redriven, RedriveError> {
        let marker = self.get(self.options.parked_key(bucket, key), "read of a marker", until).await?;
        let Some(marker) = marker else { return Ok(Redriven::default()) };
        if parking(&marker) == Parking::Parked {
            self.start_redrive(bucket, key, until).await?;
        }
        let mut redriven = Redriven::default();
        loop {
            // One more than goes into a transaction, to know whether it is the last one. Nothing is added meanwhile.
            let query = self
                .query_quarantine(bucket, Sequence::FIRST)
                .filter_expression("#key = :key")
                .expression_attribute_names("#key", attribute::KEY)
                .expression_attribute_values(":key", binary(key));
            let mut items = self.collect(query, MOST_MOVED + 1, until).await?;
            let (found, mut bytes) = (items.len(), 0);
            let fits = |item: &&Item| {
                bytes += item_size(item);
                bytes <= MOST_BYTES
            };
            let taken = items.iter().take(MOST_MOVED).take_while(fits).count().max(1).min(found);
            items.truncate(taken);
            let is_last = taken == found;
            if self.send_back(bucket, items, is_last.then_some(key), until).await? {
                redriven.messages += taken;
                if is_last {
                    return Ok(redriven);
                }
            } else if self
                .get(self.options.parked_key(bucket, key), "read of a marker", until)
                .await?
                .is_none()
            {
                // Somebody else has sent the rest back.
                return Ok(redriven);
            }
        }
    }

    /// From here on the key's messages are neither published nor set aside.
    async fn start_redrive(&self, bucket: Bucket, key: &[u8], until: Until) -> Result<(), StoreError> {
        let what = "start of a redrive";
        let update = self
            .client
            .update_item()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.parked_key(bucket, key)))
            .update_expression("SET #redrive = if_not_exists(#redrive, :now)")
            .condition_expression("attribute_exists(#partition)")
            .expression_attribute_names("#partition", &self.options.partition_key_attribute)
            .expression_attribute_names("#redrive", attribute::REDRIVE_STARTED_AT_UTC)
            .expression_attribute_values(":now", number(self.clock.now_utc()));
        match update.customize().config_override(self.within(until, what)?).send().await {
            Ok(_) => Ok(()),
            // Another redrive has ended meanwhile: the loop finds nothing to do.
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(())
            }
            Err(error) => Err(store_error(&self.options, Effect::Writes, what, error)),
        }
    }

    /// One transaction: moves items back, and with the last ones of a key its marker goes. `false`: something of it has
    /// changed since it was read.
    async fn send_back(
        &self,
        bucket: Bucket,
        items: Vec<Item>,
        last_of: Option<&[u8]>,
        until: Until,
    ) -> Result<bool, RedriveError> {
        let what = "move back from the quarantine";
        let places: Vec<Sequence> = items.iter().filter_map(|item| self.sequence_of(item)).collect();
        let mut writes = Vec::new();
        for (sequence, item) in places.iter().zip(items) {
            writes.push(put(&self.options, self.sent_back(bucket, *sequence, item)));
            writes.push(delete(&self.options, self.options.quarantine_key(bucket, *sequence)));
        }
        if let Some(key) = last_of {
            writes.push(self.delete_marker(bucket, key));
            writes.push(count_markers(&self.options, bucket, "-1"));
        }
        let writes: Vec<TransactWriteItem> =
            writes.into_iter().collect::<Result<_, _>>().map_err(not_built)?;
        for attempt in 1.. {
            let write = self.client.transact_write_items().set_transact_items(Some(writes.clone()));
            let config = self.within(until, what)?;
            let Err(error) = write.customize().config_override(config).send().await else { return Ok(true) };
            let codes: Vec<&str> = match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect()
                }
                _ => Vec::new(),
            };
            // Puts and deletes take turns: a delete that is refused says that the message has gone already.
            let refused = |at: usize| codes.get(at) == Some(&"ConditionalCheckFailed");
            let taken = |at: &usize| refused(at * 2) && !refused(at * 2 + 1);
            if let Some(at) = (0..places.len()).find(taken) {
                return Err(RedriveError::PlaceTaken { bucket, sequence: places[at] });
            }
            if codes.contains(&"ConditionalCheckFailed") {
                return Ok(false);
            }
            if !codes.contains(&"TransactionConflict") || attempt == ATTEMPTS {
                return Err(store_error(&self.options, Effect::Writes, what, error).into());
            }
            self.clock.sleep(PAUSE).await;
        }
        Ok(false)
    }

    fn delete_marker(&self, bucket: Bucket, key: &[u8]) -> Result<TransactWriteItem, BuildError> {
        let delete = Delete::builder()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.parked_key(bucket, key)))
            .condition_expression("attribute_exists(#redrive)")
            .expression_attribute_names("#redrive", attribute::REDRIVE_STARTED_AT_UTC);
        Ok(TransactWriteItem::builder().delete(delete.build()?).build())
    }

    /// The item as it was. Its attempts are past ones: it is sent as any other is.
    fn sent_back(&self, bucket: Bucket, sequence: Sequence, mut item: Item) -> Item {
        item.extend(self.options.message_key(bucket, sequence));
        item.remove(attribute::QUARANTINE_REASON);
        item.remove(attribute::QUARANTINED_AT_UTC);
        if let Some(attempts) = item.remove(attribute::ATTEMPTS) {
            item.insert(attribute::PAST_ATTEMPTS.to_owned(), attempts);
        }
        item
    }

    fn read_quarantined(&self, bucket: Bucket, mut item: Item) -> Option<QuarantinedMessage> {
        let sequence = self.sequence_of(&item)?;
        let number = |name: &str| item.get(name)?.as_n().ok()?.parse::<i64>().ok();
        let attempts =
            number(attribute::ATTEMPTS).and_then(|attempts| u64::try_from(attempts).ok()).unwrap_or(0);
        let quarantined_at = number(attribute::QUARANTINED_AT_UTC).map(Ticks::from_raw);
        let reason = item.remove(attribute::QUARANTINE_REASON);
        let reason = reason.and_then(|reason| reason.as_s().ok().cloned());
        // Whatever its bucket count was: it is shown, not published.
        item.remove(attribute::BUCKET_COUNT);
        let Read::Message(stored) = from_item(&self.options, bucket, item, 0) else { return None };
        Some(QuarantinedMessage { sequence, message: stored.message, reason, attempts, quarantined_at })
    }

    fn sequence_of(&self, item: &Item) -> Option<Sequence> {
        item.get(&self.options.sort_key_attribute)?.as_s().ok().and_then(|sort| Sequence::parse(sort))
    }

    /// The messages that are set aside in a bucket, from a number on.
    fn query_quarantine(&self, bucket: Bucket, first: Sequence) -> QueryFluentBuilder {
        let partition = AttributeValue::S(self.options.quarantine_partition(bucket));
        self.client
            .query()
            .table_name(&self.options.table_name)
            .key_condition_expression("#partition = :partition AND #sort BETWEEN :first AND :last")
            .expression_attribute_names("#partition", &self.options.partition_key_attribute)
            .expression_attribute_names("#sort", &self.options.sort_key_attribute)
            .expression_attribute_values(":partition", partition)
            .expression_attribute_values(":first", AttributeValue::S(first.to_string()))
            .expression_attribute_values(":last", AttributeValue::S(Sequence::LAST.to_string()))
            .consistent_read(true)
    }

    /// The first `most` items of a query.
    async fn collect(
        &self,
        query: QueryFluentBuilder,
        most: usize,
        until: Until,
    ) -> Result<Vec<Item>, StoreError> {
        let what = "query of the quarantine";
        let mut items = Vec::new();
        let mut start: Option<Item> = None;
        loop {
            let page = query.clone().set_exclusive_start_key(start);
            let page = page.customize().config_override(self.within(until, what)?).send().await;
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key;
            if start.is_none() || items.len() >= most {
                items.truncate(most);
                return Ok(items);
            }
        }
    }
}
