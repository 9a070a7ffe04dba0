//! Setting messages aside (design.md, sections 4 and 8): what relays write.
//!
//! In the partition `OUTBOX#QUARANTINE#{bucket}` there are
//!
//! - messages, each under its own number, as they were, with `QuarantinedAtUtc`, `Attempts`, and in those that are poison
//!   `QuarantineReason`;
//! - for each parked key a marker, `KEY#{sha-256 of the key}`, with `Key`, `ParkedAtUtc`, and `RedriveStartedAtUtc` once
//!   its messages are on their way back.
//!
//! And beside the leases, where whoever claims a bucket reads it, `PARKED#{bucket}` has `ParkedKeys`, how many markers the
//! bucket has.
//!
//! One transaction moves messages, marks their keys, counts the markers and extends the lease. So a relay that read the
//! leases before it is refused its claim, and one that read them after it knows that the bucket has parked keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
};
use bytes::Bytes;
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::quarantine::{Move, Moved, Parking, Why};
use outbox::{Bucket, Lease, LeaseTimes, RelayId, StoreError, StoreErrorKind};
use tracing::field::display;

use crate::error::{Effect, store_error};
use crate::item::{about, binary, number};
use crate::lease::lease_record;
use crate::limits::{MAX_ITEM_BYTES, item_size};
use crate::request::Until;
use crate::schema::{Item, PARKED, PARKED_KEY, attribute};
use crate::{DynamoDbStore, Sequence};

/// The most messages of one transaction: each takes a put and a delete, and at worst a marker of its own; the lease and
/// the count are two more. DynamoDB takes 100 items.
pub(crate) const MOST_MOVED: usize = 32;
/// The most bytes of messages in one: DynamoDB takes 4 MB of items, and it is not said whether a delete counts.
pub(crate) const MOST_BYTES: usize = 1_900_000;
/// How many reads and counts are under way at once.
const CONCURRENT: usize = 8;
/// The most bytes of a reason that are kept.
const MOST_REASON: usize = 2_000;
/// The most parked keys of a bucket that a relay keeps in mind. A bucket with more waits as a whole.
const MOST_KEYS: usize = 20_000;

/// A message that is to be moved, as it was read.
struct Aside<'a> {
    one: &'a Move<Sequence>,
    item: Item,
    key: Option<Vec<u8>>,
}

/// What became of a transaction.
enum Parked {
    /// It was carried out.
    Done(Lease),
    /// Another relay has the lease.
    LeaseLost,
    Failed(StoreError),
}

impl DynamoDbStore {
    /// The keys of a bucket that have a marker.
    pub(crate) async fn parked_keys(
        &self,
        bucket: Bucket,
        until: Until,
    ) -> Result<BTreeMap<Bytes, Parking>, StoreError> {
        let what = "query of the parked keys";
        let mut keys = BTreeMap::new();
        let mut start: Option<Item> = None;
        loop {
            let query = self
                .client
                .query()
                .table_name(&self.options.table_name)
                .key_condition_expression("#partition = :partition AND begins_with(#sort, :marker)")
                .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                .expression_attribute_names("#sort", &self.options.sort_key_attribute)
                .expression_attribute_values(
                    ":partition",
                    AttributeValue::S(self.options.quarantine_partition(bucket)),
                )
                .expression_attribute_values(":marker", AttributeValue::S(PARKED_KEY.to_owned()))
                .consistent_read(true)
                .set_exclusive_start_key(start);
            let page = query.customize().config_override(self.within(until, what)?).send().await;
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
            for item in page.items.unwrap_or_default() {
                let key = item.get(attribute::KEY).and_then(|key| key.as_b().ok()).ok_or_else(|| {
                    let sort = item.get(&self.options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
                    let message = format!(
                        "the marker {} of a parked key of bucket {bucket} has no readable {}: nobody knows whose it is",
                        sort.map_or("", String::as_str),
                        attribute::KEY
                    );
                    StoreError::new(StoreErrorKind::Misconfigured, message)
                })?;
                keys.insert(Bytes::copy_from_slice(key.as_ref()), parking(&item));
            }
            start = page.last_evaluated_key;
            if keys.len() > MOST_KEYS {
                let message = format!("bucket {bucket} has more than {MOST_KEYS} parked keys: redrive some");
                return Err(StoreError::new(StoreErrorKind::Misconfigured, message));
            }
            if start.is_none() {
                return Ok(keys);
            }
        }
    }

    /// How many keys are parked in all buckets, by the counts that stand beside the leases.
    pub(crate) async fn count_parked_keys(&self, until: Until) -> Result<u64, StoreError> {
        let what = "query of the numbers of parked keys";
        let mut total = 0_u64;
        let mut start: Option<Item> = None;
        loop {
            let partition = AttributeValue::S(self.options.coordination_partition());
            let query = self
                .client
                .query()
                .table_name(&self.options.table_name)
                .key_condition_expression("#partition = :partition AND begins_with(#sort, :parked)")
                .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                .expression_attribute_names("#sort", &self.options.sort_key_attribute)
                .expression_attribute_values(":partition", partition)
                .expression_attribute_values(":parked", AttributeValue::S(PARKED.to_owned()))
                .consistent_read(true)
                .set_exclusive_start_key(start);
            let page = query.customize().config_override(self.within(until, what)?).send().await;
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
            for item in page.items() {
                let keys = item.get(attribute::PARKED_KEYS).and_then(|keys| keys.as_n().ok());
                // One that cannot be read leaves the total unknown: it is not zero.
                let keys: u64 = keys.and_then(|keys| keys.parse().ok()).ok_or_else(|| {
                    let sort = item.get(&self.options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
                    let sort = sort.map_or("", String::as_str);
                    let message = format!("the item {sort:?} has no readable {}", attribute::PARKED_KEYS);
                    StoreError::new(StoreErrorKind::Misconfigured, message)
                })?;
                total = total.saturating_add(keys);
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(total);
            }
        }
    }

    /// Moves messages aside, as many at once as a transaction takes.
    pub(crate) async fn park_messages(
        &self,
        relay: &RelayId,
        lease: Lease,
        times: LeaseTimes,
        moves: &[Move<Sequence>],
        until: Until,
    ) -> Moved<Sequence> {
        let mut moved = Moved { lease: Some(lease), rows: Vec::new(), error: None };
        let mut left = moves;
        while let (Some(lease), false) = (moved.lease, left.is_empty()) {
            let (taken, asides) = match self.next_asides(lease.bucket, left, until).await {
                Ok(next) => next,
                Err(error) => {
                    moved.error = Some(error);
                    break;
                }
            };
            let (now, later) = left.split_at(taken);
            left = later;
            // Those that are gone were moved before, by a call that was not answered: a row leaves its place in no other
            // way while its lease is held and it was not acknowledged.
            let gone = now.iter().filter(|one| !asides.iter().any(|aside| aside.one.row == one.row));
            moved.rows.extend(gone.map(|one| one.row));
            if asides.is_empty() {
                continue;
            }
            match self.park_together(relay, lease, times, asides, until).await {
                Ok((rows, Parked::Done(lease))) => {
                    moved.rows.extend(rows);
                    moved.lease = Some(lease);
                }
                Ok((_, Parked::LeaseLost)) => moved.lease = None,
                Ok((_, Parked::Failed(error))) | Err(error) => {
                    moved.error = Some(error);
                    break;
                }
            }
        }
        moved
    }

    /// Reads the next messages, as many as go into one transaction. How many moves these are, and those that are there.
    async fn next_asides<'a>(
        &self,
        bucket: Bucket,
        moves: &'a [Move<Sequence>],
        until: Until,
    ) -> Result<(usize, Vec<Aside<'a>>), StoreError> {
        let moves = &moves[..moves.len().min(MOST_MOVED)];
        let read = |(at, one): (usize, &'a Move<Sequence>)| {
            let key = self.options.message_key(bucket, one.row);
            async move { (at, self.get(key, "read of a message", until).await) }.boxed()
        };
        // They come as they are answered, and are moved in their order.
        let mut reads = concurrently(CONCURRENT, moves.iter().enumerate().map(read).collect()).await;
        reads.sort_by_key(|(at, _)| *at);
        let (mut taken, mut bytes, mut asides) = (0, 0, Vec::new());
        for (one, (_, item)) in moves.iter().zip(reads) {
            if let Some(item) = item? {
                bytes += item_size(&item);
                if bytes > MOST_BYTES && !asides.is_empty() {
                    break;
                }
                let key = item.get(attribute::KEY).and_then(|key| key.as_b().ok());
                asides.push(Aside { one, key: key.map(|key| key.as_ref().to_vec()), item });
            }
            taken += 1;
        }
        Ok((taken, asides))
    }

    /// One transaction. Leaves out what may not be moved; returns what was, if anything was.
    async fn park_together(
        &self,
        relay: &RelayId,
        lease: Lease,
        times: LeaseTimes,
        asides: Vec<Aside<'_>>,
        until: Until,
    ) -> Result<(Vec<Sequence>, Parked), StoreError> {
        let bucket = lease.bucket;
        let keys: BTreeSet<Vec<u8>> = asides.iter().filter_map(|aside| aside.key.clone()).collect();
        let read = |key: Vec<u8>| {
            async move {
                let marker =
                    self.get(self.options.parked_key(bucket, &key), "read of a marker", until).await?;
                Ok::<_, StoreError>((key, marker.as_ref().map(parking)))
            }
            .boxed()
        };
        let mut markers: HashMap<Vec<u8>, Option<Parking>> = HashMap::new();
        for marker in concurrently(CONCURRENT, keys.into_iter().map(read).collect()).await {
            let (key, parking) = marker?;
            markers.insert(key, parking);
        }

        let mut marked: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut new_markers = 0_usize;
        let (mut rows, mut items) = (Vec::new(), Vec::new());
        for aside in asides {
            let is_poison = matches!(aside.one.why, Why::Poison { .. });
            if let Some(key) = aside.key.as_ref().filter(|key| !marked.contains(*key)) {
                match markers.get(key).copied().flatten() {
                    Some(Parking::Redriving) => continue,
                    Some(Parking::Parked) => items.push(self.check_marker(bucket, key)),
                    // Its messages were redriven since: it is no parked key's any more.
                    None if !is_poison => continue,
                    None => {
                        items.push(self.put_marker(bucket, key));
                        new_markers += 1;
                    }
                }
                marked.insert(key.clone());
            }
            let (row, size, about) = (aside.one.row, item_size(&aside.item), about(&aside.item));
            let Some(item) = self.set_aside_item(bucket, aside) else {
                let what = "a message is too large to be set aside: its key waits";
                let (id, topic, trace) = (about.id.map(display), about.topic, about.trace.map(display));
                tracing::error!(%bucket, message_id = id, topic, trace_id = trace, item = %row, size, "{what}");
                continue;
            };
            items.push(put(&self.options, item));
            items.push(delete(&self.options, self.options.message_key(bucket, row)));
            rows.push(row);
        }
        if rows.is_empty() {
            return Ok((rows, Parked::Done(lease)));
        }
        if new_markers > 0 {
            items.push(count_markers(&self.options, bucket, &format!("{new_markers}")));
        }
        let expires_at = times.expires_at().max(lease.expires_at.next());
        let extended = Lease { bucket, expires_at };
        items.push(self.extend_lease(relay, lease, extended));
        let items = items.into_iter().collect::<Result<Vec<_>, _>>().map_err(not_built)?;
        let parked = self.write_together(relay, items, extended, until).await?;
        Ok((rows, parked))
    }

    async fn write_together(
        &self,
        relay: &RelayId,
        items: Vec<TransactWriteItem>,
        extended: Lease,
        until: Until,
    ) -> Result<Parked, StoreError> {
        let what = "moving to the quarantine";
        let write = self.client.transact_write_items().set_transact_items(Some(items));
        let Err(error) = write.customize().config_override(self.within(until, what)?).send().await else {
            return Ok(Parked::Done(extended));
        };
        // The lease is the last item.
        let stored = refused_last(&error).map(|item| lease_record(&self.options, item)).transpose()?;
        let is_mine = |owner: &RelayId| owner == relay;
        Ok(match stored {
            Some(stored) if !stored.owner.as_ref().is_some_and(is_mine) => Parked::LeaseLost,
            // Under another version: a renewal that was not answered was carried out, or this very transaction was. The
            // caller renews, and finds out at the next turn.
            _ => Parked::Failed(store_error(&self.options, Effect::Writes, what, error)),
        })
    }

    /// Counts one more attempt at each message that is still there.
    pub(crate) async fn count_attempts_at(
        &self,
        bucket: Bucket,
        rows: &[Sequence],
        until: Until,
    ) -> Result<(), StoreError> {
        let what = "count of attempts";
        let count = |row: &Sequence| {
            // Never on one that is gone: an update would bring back an item with nothing but the count.
            let update = self
                .client
                .update_item()
                .table_name(&self.options.table_name)
                .set_key(Some(self.options.message_key(bucket, *row)))
                .update_expression("ADD #attempts :one")
                .condition_expression("attribute_exists(#partition)")
                .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                .expression_attribute_names("#attempts", attribute::ATTEMPTS)
                .expression_attribute_values(":one", number(1));
            async move {
                let sent = update.customize().config_override(self.within(until, what)?).send().await;
                match sent {
                    Ok(_) => Ok(()),
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
            .boxed()
        };
        concurrently(CONCURRENT, rows.iter().map(count).collect()).await.into_iter().collect()
    }

    /// One item, strongly consistent.
    pub(crate) async fn get(&self, key: Item, what: &str, until: Until) -> Result<Option<Item>, StoreError> {
        let get = self.client.get_item().table_name(&self.options.table_name).set_key(Some(key));
        let get =
            get.consistent_read(true).customize().config_override(self.within(until, what)?).send().await;
        let got = get.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
        Ok(got.item)
    }

    /// The item of a message that is set aside: as it was, and why. `None` if that is more than an item holds.
    fn set_aside_item(&self, bucket: Bucket, aside: Aside<'_>) -> Option<Item> {
        let Aside { one, mut item, .. } = aside;
        item.extend(self.options.quarantine_key(bucket, one.row));
        let count = |name| item.get(name)?.as_n().ok()?.parse::<u64>().ok();
        let attempts = count(attribute::ATTEMPTS).unwrap_or(0) + count(attribute::PAST_ATTEMPTS).unwrap_or(0);
        let was_sent = matches!(one.why, Why::Poison { was_sent: true, .. });
        item.remove(attribute::PAST_ATTEMPTS);
        item.insert(attribute::ATTEMPTS.to_owned(), number(attempts + u64::from(was_sent)));
        item.insert(attribute::QUARANTINED_AT_UTC.to_owned(), number(self.clock.now_utc()));
        let left = MAX_ITEM_BYTES.checked_sub(item_size(&item))?;
        if let Why::Poison { reason, .. } = &one.why {
            let room = left.checked_sub(attribute::QUARANTINE_REASON.len())?.min(MOST_REASON);
            let reason = &reason[..reason.floor_char_boundary(room)];
            item.insert(attribute::QUARANTINE_REASON.to_owned(), AttributeValue::S(reason.to_owned()));
        }
        Some(item)
    }

    fn put_marker(&self, bucket: Bucket, key: &[u8]) -> Result<TransactWriteItem, BuildError> {
        let mut item = self.options.parked_key(bucket, key);
        item.insert(attribute::KEY.to_owned(), binary(key));
        item.insert(attribute::PARKED_AT_UTC.to_owned(), number(self.clock.now_utc()));
        put(&self.options, item)
    }

    /// That a key is parked, and not on its way back.
    fn check_marker(&self, bucket: Bucket, key: &[u8]) -> Result<TransactWriteItem, BuildError> {
        let check = ConditionCheck::builder()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.parked_key(bucket, key)))
            .condition_expression("attribute_exists(#partition) AND attribute_not_exists(#redrive)")
            .expression_attribute_names("#partition", &self.options.partition_key_attribute)
            .expression_attribute_names("#redrive", attribute::REDRIVE_STARTED_AT_UTC);
        Ok(TransactWriteItem::builder().condition_check(check.build()?).build())
    }

    fn extend_lease(
        &self,
        relay: &RelayId,
        lease: Lease,
        extended: Lease,
    ) -> Result<TransactWriteItem, BuildError> {
        let update = Update::builder()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.lease_key(lease.bucket)))
            .update_expression("SET #expiry = :new")
            .condition_expression("#owner = :me AND #expiry = :read")
            .expression_attribute_names("#owner", attribute::OWNER)
            .expression_attribute_names("#expiry", attribute::EXPIRES_AT_UTC)
            .expression_attribute_values(":me", AttributeValue::S(relay.to_string()))
            .expression_attribute_values(":read", number(lease.expires_at))
            .expression_attribute_values(":new", number(extended.expires_at))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(TransactWriteItem::builder().update(update.build()?).build())
    }
}

/// A put of an item that is not there yet.
pub(crate) fn put(options: &crate::StoreOptions, item: Item) -> Result<TransactWriteItem, BuildError> {
    let put = Put::builder()
        .table_name(&options.table_name)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(#partition)")
        .expression_attribute_names("#partition", &options.partition_key_attribute);
    Ok(TransactWriteItem::builder().put(put.build()?).build())
}

/// A delete of an item that is there still.
pub(crate) fn delete(options: &crate::StoreOptions, key: Item) -> Result<TransactWriteItem, BuildError> {
    let delete = Delete::builder()
        .table_name(&options.table_name)
        .set_key(Some(key))
        .condition_expression("attribute_exists(#partition)")
        .expression_attribute_names("#partition", &options.partition_key_attribute);
    Ok(TransactWriteItem::builder().delete(delete.build()?).build())
}

/// Adds to how many keys of a bucket are parked.
pub(crate) fn count_markers(
    options: &crate::StoreOptions,
    bucket: Bucket,
    by: &str,
) -> Result<TransactWriteItem, BuildError> {
    let update = Update::builder()
        .table_name(&options.table_name)
        .set_key(Some(options.parked_count_key(bucket)))
        .update_expression("ADD #keys :by")
        .expression_attribute_names("#keys", attribute::PARKED_KEYS)
        .expression_attribute_values(":by", number(by));
    Ok(TransactWriteItem::builder().update(update.build()?).build())
}

pub(crate) fn not_built(error: BuildError) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "a transaction could not be built").because(error)
}

pub(crate) fn parking(marker: &Item) -> Parking {
    if marker.contains_key(attribute::REDRIVE_STARTED_AT_UTC) { Parking::Redriving } else { Parking::Parked }
}

/// What was stored where the last item of a transaction was refused for its condition; `None` if that was not why, or
/// nothing was.
fn refused_last<R>(error: &SdkError<TransactWriteItemsError, R>) -> Option<&Item> {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error.as_service_error()? else {
        return None;
    };
    let reason = cancelled.cancellation_reasons().last()?;
    reason.item().filter(|_| reason.code() == Some("ConditionalCheckFailed"))
}
