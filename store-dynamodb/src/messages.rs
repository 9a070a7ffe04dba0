//! Reading messages: probes, batches, and the gaps in them.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::store::{FetchRequest, Fetched};
use outbox::{Bucket, Chain, StoreError};

use crate::error::{Effect, store_error};
use crate::item::{Read, from_item};
use crate::limits::item_size;
use crate::request::Until;
use crate::schema::Item;
use crate::{DynamoDbStore, Sequence};

/// How many probes are under way at once.
const CONCURRENT_PROBES: usize = 16;
/// The most gaps of a batch that are probed, lowest first.
const MAX_GAPS: usize = 8;

impl DynamoDbStore {
    /// Which of `buckets` have a message, eventually consistent: half the price, and what is missed is found next time.
    pub(crate) async fn pending_buckets(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        let until = self.until(limit);
        let probe =
            |bucket: Bucket| async move { (bucket, self.head_exists(bucket, false, until).await) }.boxed();
        let probes = buckets.iter().map(|bucket| probe(*bucket)).collect();
        let mut pending = BTreeSet::new();
        let mut failed = Vec::new();
        for (bucket, found) in concurrently(CONCURRENT_PROBES, probes).await {
            match found {
                Ok(true) => drop(pending.insert(bucket)),
                Ok(false) => {}
                Err(error) if error.is_misconfiguration() => return Err(error),
                // One partition that is throttled must not hide the others: it may have work.
                Err(error) => {
                    tracing::debug!(%bucket, error = %Chain(&error), "a bucket could not be looked at");
                    pending.insert(bucket);
                    failed.push(error);
                }
            }
        }
        // All of them: that is no partition's own trouble.
        match failed.pop() {
            Some(error) if failed.len() + 1 == buckets.len() => Err(error),
            _ => Ok(pending),
        }
    }

    /// Whether a bucket has a message.
    pub(crate) async fn head_exists(
        &self,
        bucket: Bucket,
        consistent: bool,
        until: Until,
    ) -> Result<bool, StoreError> {
        self.exists(self.query_messages(bucket, None).consistent_read(consistent), until).await
    }

    /// The oldest messages of a bucket, with its gaps looked into.
    ///
    /// A query is only read-committed against a transaction: a page can hold a transaction's later message and lack its
    /// earlier one. So each gap is read once more, on its own; if something has appeared in one, the whole batch is read
    /// again, once. A gap that stays is a number that was reserved and never used.
    pub(crate) async fn fetch_batch(
        &self,
        request: &FetchRequest<'_, Sequence>,
    ) -> Result<Fetched<Sequence>, StoreError> {
        let until = self.until(request.limit);
        let batch = self.read_batch(request, until).await?;
        let sequences: Vec<Sequence> = batch.messages.iter().map(|stored| stored.row).collect();
        let probe = |gap| {
            let query = self.query_messages(request.bucket, Some(gap)).consistent_read(true);
            self.exists(query, until).boxed()
        };
        let probes = gaps(request.removed_up_to.copied(), &sequences).into_iter().map(probe).collect();
        for appeared in concurrently(MAX_GAPS, probes).await {
            if appeared? {
                return self.read_batch(request, until).await;
            }
        }
        Ok(batch)
    }

    async fn read_batch(
        &self,
        request: &FetchRequest<'_, Sequence>,
        until: Until,
    ) -> Result<Fetched<Sequence>, StoreError> {
        let mut fetched = Fetched { messages: Vec::new(), more: false, fault: None };
        let mut bytes = 0;
        let mut start: Option<Item> = None;
        loop {
            let missing = request.max_messages - fetched.messages.len();
            let query = self
                .query_messages(request.bucket, None)
                .consistent_read(true)
                .limit(i32::try_from(missing).unwrap_or(i32::MAX))
                .set_exclusive_start_key(start);
            let page = query.customize().config_override(self.within(until, "query")?).send().await;
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, "query", error))?;
            start = page.last_evaluated_key;
            for item in page.items.unwrap_or_default() {
                // A page is as large as it is, whatever was asked for: the rest of it is left for the next fetch.
                if bytes >= request.max_bytes && !fetched.messages.is_empty() {
                    fetched.more = true;
                    return Ok(fetched);
                }
                let size = item_size(&item);
                match from_item(&self.options, request.bucket, item, size) {
                    Read::Message(stored) => {
                        bytes += size;
                        fetched.messages.push(stored);
                    }
                    Read::Unknown => {}
                    // What is ahead of it is right, and goes first.
                    Read::WrongBucketCount(error) => {
                        fetched.fault = Some(error);
                        return Ok(fetched);
                    }
                }
            }
            fetched.more = start.is_some();
            if start.is_none() || fetched.messages.len() >= request.max_messages || bytes >= request.max_bytes
            {
                return Ok(fetched);
            }
        }
    }

    async fn exists(&self, query: QueryFluentBuilder, until: Until) -> Result<bool, StoreError> {
        let query = query.limit(1).projection_expression("#partition");
        let page = query.customize().config_override(self.within(until, "probe")?).send().await;
        let page = page.map_err(|error| store_error(&self.options, Effect::Reads, "probe", error))?;
        Ok(page.count() > 0)
    }

    /// Messages of a bucket, in a range of numbers if one is given.
    pub(crate) fn query_messages(&self, bucket: Bucket, range: Option<Gap>) -> QueryFluentBuilder {
        let partition = AttributeValue::S(self.options.message_partition(bucket));
        let query = self
            .client
            .query()
            .table_name(&self.options.table_name)
            .expression_attribute_names("#partition", &self.options.partition_key_attribute)
            .expression_attribute_values(":partition", partition);
        // Only sort keys that can be a message's: what a later version puts beside them is neither pending nor read.
        let Gap { first, last } = range.unwrap_or(Gap { first: Sequence::FIRST, last: Sequence::LAST });
        query
            .key_condition_expression("#partition = :partition AND #sort BETWEEN :first AND :last")
            .expression_attribute_names("#sort", &self.options.sort_key_attribute)
            .expression_attribute_values(":first", AttributeValue::S(first.to_string()))
            .expression_attribute_values(":last", AttributeValue::S(last.to_string()))
    }
}

/// Numbers that a batch skips, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    first: Sequence,
    last: Sequence,
}

/// The lowest gaps of a batch, [`MAX_GAPS`] at most. The first may run from the last message that was removed, or from
/// the first number there can be.
fn gaps(removed_up_to: Option<Sequence>, batch: &[Sequence]) -> Vec<Gap> {
    let before = removed_up_to.map_or(0, Sequence::get);
    let after_each = std::iter::once(before).chain(batch.iter().map(|sequence| sequence.get()));
    let gap = |(before, next): (i64, &Sequence)| {
        let first = Sequence::new(before.checked_add(1)?)?;
        let last = Sequence::new(next.get() - 1)?;
        (first <= last).then_some(Gap { first, last })
    };
    after_each.zip(batch).filter_map(gap).take(MAX_GAPS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sequence(number: i64) -> Sequence {
        Sequence::new(number).unwrap()
    }

    fn found(removed: Option<i64>, batch: &[i64]) -> Vec<(i64, i64)> {
        let batch: Vec<Sequence> = batch.iter().map(|number| sequence(*number)).collect();
        gaps(removed.map(sequence), &batch).iter().map(|gap| (gap.first.get(), gap.last.get())).collect()
    }

    #[test]
    fn a_gap_lies_between_neighbours() {
        assert_eq!(found(None, &[]), []);
        assert_eq!(found(None, &[1, 2, 3]), []);
        assert_eq!(found(None, &[4, 5, 9]), [(1, 3), (6, 8)]);
        assert_eq!(found(Some(3), &[4, 5, 7]), [(6, 6)]);
        assert_eq!(found(Some(3), &[6]), [(4, 5)]);
        // What was removed last can lie behind what is there now: its writer committed late.
        assert_eq!(found(Some(9), &[4, 12]), [(5, 11)]);
        assert_eq!(found(Some(i64::MAX), &[4]), []);
    }

    proptest! {
        #[test]
        fn gaps_are_few_low_and_hold_nothing_of_the_batch(
            removed in proptest::option::of(1..50_i64),
            batch in proptest::collection::btree_set(1..200_i64, 0..60),
        ) {
            let batch: Vec<i64> = batch.into_iter().collect();
            let found = found(removed, &batch);
            prop_assert!(found.len() <= MAX_GAPS);
            prop_assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0));
            for (first, last) in found {
                prop_assert!(first <= last && !batch.iter().any(|number| (first..=last).contains(number)));
            }
        }
    }
}
