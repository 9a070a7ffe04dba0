//! The enqueue side: messages to items of the caller's own transaction (design.md, section 5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use futures::future::try_join_all;
use outbox::{Bucket, Chance, Clock, Message, MessageError, StoreError, StoreErrorKind, SystemClock};

use crate::error::{Effect, store_error};
use crate::item::{number, to_item};
use crate::limits::{MAX_ITEM_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_ITEMS, item_size};
use crate::schema::attribute;
use crate::{Sequence, StoreOptions, WriteError};

/// How often `enqueue` sends its one transaction when it collides with others, and the first pause between.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Writes messages to the outbox. Cheap to clone; one for a process is enough.
///
/// ```no_run
/// # async fn place(client: aws_sdk_dynamodb::Client, order: aws_sdk_dynamodb::types::TransactWriteItem)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use outbox::{Message, MessageIds};
/// use outbox_store_dynamodb::{StoreOptions, Writer};
///
/// let writer = Writer::new(client.clone(), StoreOptions::new("app"));
/// let message = Message::new(MessageIds::from_system().next_id(), "orders")
///     .with_key("customer-42")
///     .with_value(r#"{"order":"17"}"#);
/// // Inside the caller's retry loop: a transaction that is built again reserves numbers again.
/// let mut items = writer.transact_items(&[message]).await?;
/// items.push(order);
/// client.transact_write_items().set_transact_items(Some(items)).send().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    client: Client,
    options: Arc<StoreOptions>,
    clock: Arc<dyn Clock>,
    chance: Chance,
}

impl Writer {
    /// A writer on the machine's clock and chance.
    pub fn new(client: Client, options: StoreOptions) -> Self {
        Self::with(client, options, Arc::new(SystemClock::new()), Chance::from_system())
    }

    /// A writer on this clock and this chance.
    pub fn with(client: Client, options: StoreOptions, clock: Arc<dyn Clock>, chance: Chance) -> Self {
        Self { client, options: Arc::new(options), clock, chance }
    }

    /// Turns messages into items of the caller's transaction, in the order given.
    ///
    /// Reserves one range of numbers for each distinct bucket, so call it inside the loop that retries the
    /// transaction: one that is built again reserves again, and the gaps it leaves are harmless. Order is kept within
    /// a bucket by the order in which transactions reserve, so a caller that must have its messages in order commits
    /// one transaction before it builds the next.
    ///
    /// A transaction fails, and overwrites nothing, where a number is taken: a reset counter loses no message. Business
    /// items share the transaction's limits of 100 items and 4 MB.
    ///
    /// # Errors
    /// Names the message that breaks a limit, before anything is sent; or says how the reservation failed, in which
    /// case no message is written.
    pub async fn transact_items(&self, messages: &[Message]) -> Result<Vec<TransactWriteItem>, WriteError> {
        let placed = self.place(messages).await?;
        placed.into_iter().map(|placed| placed.transact_item(&self.options)).collect()
    }

    /// Writes messages that have no business item: all or none, 100 at most.
    ///
    /// Sends one transaction, with one token, as often as it takes within a few attempts; a reply that was lost does
    /// not write twice, and an earlier attempt of this call that is found in the table is a success.
    ///
    /// # Errors
    /// With [`StoreErrorKind::MayHaveHappened`] the messages may be there: a caller that calls again with the same
    /// messages may write them twice, under the same message ids.
    pub async fn enqueue(&self, messages: &[Message]) -> Result<(), WriteError> {
        if messages.is_empty() {
            return Ok(());
        }
        let placed = self.place(messages).await?;
        let items: Vec<TransactWriteItem> = placed
            .iter()
            .map(|placed| placed.clone().transact_item(&self.options))
            .collect::<Result<_, _>>()?;
        let token = self.chance.message_id(self.clock.now_utc()).to_string();
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let request = self.client.transact_write_items().set_transact_items(Some(items.clone()));
            let Err(error) = request.client_request_token(&token).send().await else {
                return Ok(());
            };
            match self.refusal(&placed, &error) {
                Refusal::OwnAttempt => return Ok(()),
                Refusal::Taken(placed) => {
                    return Err(WriteError::SequenceTaken {
                        bucket: placed.bucket,
                        sequence: placed.sequence,
                    });
                }
                Refusal::Collision if attempt < ATTEMPTS => {}
                Refusal::Collision | Refusal::Other => {
                    return Err(store_error(&self.options, Effect::Writes, "enqueue", error).into());
                }
            }
            let jitter = self.chance.below(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
            self.clock.sleep(pause + Duration::from_micros(jitter)).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// Checks messages and gives each its place.
    async fn place(&self, messages: &[Message]) -> Result<Vec<Placed>, WriteError> {
        if messages.len() > MAX_TRANSACTION_ITEMS {
            return Err(WriteError::TooMany { count: messages.len(), limit: MAX_TRANSACTION_ITEMS });
        }
        let created_at = self.clock.now_utc();
        let mut placed = Vec::with_capacity(messages.len());
        for message in messages {
            message.validate()?;
            // Only a negative partition has no bucket, and that has just been refused.
            let bucket = message.bucket(self.options.bucket_count).ok_or_else(|| {
                let fault = outbox::message::MessageFault::NegativePartition(message.partition.unwrap_or(-1));
                WriteError::Message(MessageError { id: message.id, fault })
            })?;
            placed.push(Placed { message: message.clone(), bucket, sequence: Sequence::FIRST, created_at });
        }
        self.check_sizes(&placed)?;

        let mut counts: BTreeMap<Bucket, u32> = BTreeMap::new();
        for placed in &placed {
            *counts.entry(placed.bucket).or_default() += 1;
        }
        let reserved = counts
            .into_iter()
            .map(async |(bucket, count)| Ok::<_, StoreError>((bucket, self.reserve(bucket, count).await?)));
        let mut next: BTreeMap<Bucket, i64> = try_join_all(reserved).await?.into_iter().collect();
        for placed in &mut placed {
            let number = next.entry(placed.bucket).or_default();
            placed.sequence =
                Sequence::new(*number).ok_or_else(|| self.bad_counter(placed.bucket, "below 1"))?;
            *number += 1;
        }
        Ok(placed)
    }

    /// A size does not depend on the number a message gets, so it is checked before one is reserved.
    fn check_sizes(&self, placed: &[Placed]) -> Result<(), WriteError> {
        let mut total = 0;
        let mut first_over = None;
        for placed in placed {
            let size = item_size(&placed.item(&self.options)?);
            let id = placed.message.id;
            if size > MAX_ITEM_BYTES {
                return Err(WriteError::ItemTooLarge { id, size, limit: MAX_ITEM_BYTES });
            }
            total += size;
            if total > MAX_TRANSACTION_BYTES {
                first_over.get_or_insert(id);
            }
        }
        match first_over {
            Some(id) => {
                Err(WriteError::TransactionTooLarge { id, size: total, limit: MAX_TRANSACTION_BYTES })
            }
            None => Ok(()),
        }
    }

    /// Reserves `count` numbers of a bucket and returns the first. An answer that is lost leaves a gap.
    async fn reserve(&self, bucket: Bucket, count: u32) -> Result<i64, StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.sequence_key(bucket)))
            .update_expression("ADD #sequence :count")
            .expression_attribute_names("#sequence", attribute::SEQUENCE)
            .expression_attribute_values(":count", number(count))
            .return_values(ReturnValue::UpdatedNew);
        let updated = update.send().await;
        let what = "reservation of numbers";
        let updated = updated.map_err(|error| store_error(&self.options, Effect::Writes, what, error))?;
        let last = updated
            .attributes()
            .and_then(|new| new.get(attribute::SEQUENCE)?.as_n().ok()?.parse::<i64>().ok());
        let last = last.ok_or_else(|| self.bad_counter(bucket, "not a whole number"))?;
        Ok(last - i64::from(count) + 1)
    }

    fn bad_counter(&self, bucket: Bucket, fault: &str) -> StoreError {
        let table = &self.options.table_name;
        let message = format!("the sequence counter of bucket {bucket} in table {table:?} is {fault}");
        StoreError::new(StoreErrorKind::Misconfigured, message)
    }

    fn refusal<'a>(&self, placed: &'a [Placed], error: &SdkError<TransactWriteItemsError>) -> Refusal<'a> {
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error()
        else {
            let in_progress = error.as_service_error();
            return match in_progress {
                Some(TransactWriteItemsError::TransactionInProgressException(_)) => Refusal::Collision,
                _ => Refusal::Other,
            };
        };
        judge(placed, cancelled.cancellation_reasons())
    }
}

/// What a refused transaction means.
#[derive(Debug, PartialEq)]
enum Refusal<'a> {
    /// It is in the table already: an earlier attempt of the same call whose reply was lost.
    OwnAttempt,
    /// Another message has the place of one of these.
    Taken(&'a Placed),
    /// It met another transaction, or a limit on throughput: again.
    Collision,
    Other,
}

/// Judges by the reason of each item. A transaction is written as a whole, so the items that found their own message
/// speak for all.
fn judge<'a>(placed: &'a [Placed], reasons: &[CancellationReason]) -> Refusal<'a> {
    let mut own = false;
    let mut collision = false;
    for (placed, reason) in placed.iter().zip(reasons) {
        match reason.code() {
            Some("ConditionalCheckFailed") => {
                let stored = reason.item().and_then(|item| item.get(attribute::MESSAGE_ID)?.as_s().ok());
                if stored != Some(&placed.message.id.to_string()) {
                    return Refusal::Taken(placed);
                }
                own = true;
            }
            Some("TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded") => {
                collision = true
            }
            _ => {}
        }
    }
    match (own, collision) {
        (true, _) => Refusal::OwnAttempt,
        (false, true) => Refusal::Collision,
        (false, false) => Refusal::Other,
    }
}

/// A message with its place in the table.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    message: Message,
    bucket: Bucket,
    sequence: Sequence,
    created_at: outbox::Ticks,
}

impl Placed {
    fn item(&self, options: &StoreOptions) -> Result<crate::schema::Item, WriteError> {
        to_item(options, &self.message, self.bucket, self.sequence, self.created_at)
            .map_err(|source| WriteError::Headers { id: self.message.id, source })
    }

    /// The put: never over another message, and with the old item in the refusal to tell whose it is.
    fn transact_item(self, options: &StoreOptions) -> Result<TransactWriteItem, WriteError> {
        let put = Put::builder()
            .table_name(&options.table_name)
            .set_item(Some(self.item(options)?))
            .condition_expression("attribute_not_exists(#partition)")
            .expression_attribute_names("#partition", &options.partition_key_attribute)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = put.build().map_err(|error| {
            StoreError::new(StoreErrorKind::Misconfigured, "a put could not be built").because(error)
        })?;
        Ok(TransactWriteItem::builder().put(put).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::types::AttributeValue;
    use outbox::Ticks;

    fn placed(seed: u64) -> Placed {
        let now = Ticks::from_raw(639_316_345_534_567_890);
        let message = Message::new(Chance::seeded(seed).message_id(now), "orders");
        Placed { message, bucket: Bucket::new(1), sequence: Sequence::FIRST, created_at: now }
    }

    fn reason(code: &str, stored: Option<&Placed>) -> CancellationReason {
        let id = |stored: &Placed| AttributeValue::S(stored.message.id.to_string());
        let item = stored.map(|stored| [(attribute::MESSAGE_ID.to_owned(), id(stored))].into());
        CancellationReason::builder().code(code).set_item(item).build()
    }

    #[test]
    fn a_refusal_is_judged_by_whose_message_is_stored() {
        let both = [placed(1), placed(2)];
        let none = reason("None", None);
        let own = [none.clone(), reason("ConditionalCheckFailed", Some(&both[1]))];
        assert_eq!(judge(&both, &own), Refusal::OwnAttempt);
        let other = [
            reason("ConditionalCheckFailed", Some(&both[0])),
            reason("ConditionalCheckFailed", Some(&both[0])),
        ];
        assert_eq!(judge(&both, &other), Refusal::Taken(&both[1]));
        let unreadable = [reason("ConditionalCheckFailed", None), none.clone()];
        assert_eq!(judge(&both, &unreadable), Refusal::Taken(&both[0]));
        assert_eq!(judge(&both, &[none.clone(), reason("TransactionConflict", None)]), Refusal::Collision);
        assert_eq!(judge(&both, &[none, reason("ItemCollectionSizeLimitExceeded", None)]), Refusal::Other);
    }
}
