//! How much waits, within a bound of what that may cost.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::store::Backlog;
use outbox::{Bucket, StoreError, Ticks};

use crate::DynamoDbStore;
use crate::error::{Effect, store_error};
use crate::request::Until;
use crate::schema::{Item, attribute};

/// How many buckets are sampled at once. With what a page costs at most it is all that may be spent: one that begins when
/// another has ended gets what that one has not used.
const CONCURRENT_SAMPLES: usize = 8;
/// What a page of 1 MB costs, the largest there is: half a read unit for 4 KB.
const PAGE_UNITS: f64 = 128.0;
/// What one sample may spend on counting: eight pages of 1 MB. At one a minute, a backlog that stays that large costs 44
/// million read units a month.
const MOST_UNITS: f64 = 8.0 * PAGE_UNITS;

/// The read units that are left to count with.
struct Units(Mutex<f64>);

impl Units {
    /// Takes what a page may cost; `false`: there is not so much.
    fn take_page(&self) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_enough = *left >= PAGE_UNITS;
        if is_enough {
            *left -= PAGE_UNITS;
        }
        is_enough
    }

    /// Gives back what a page has not cost. One whose price is not told has cost all of it.
    fn give_back(&self, cost: Option<f64>) {
        let rest = PAGE_UNITS - cost.unwrap_or(PAGE_UNITS);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += rest.max(0.0);
    }
}

impl DynamoDbStore {
    /// How much waits in these buckets: a page of each, for as long as there are units left to count with, and the head
    /// of each further one, as much as its probe costs. So the age is that of the oldest head, and the count is at least
    /// what it says.
    pub(crate) async fn sample_backlog(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<Backlog, StoreError> {
        let until = self.until(limit);
        let units = Units(Mutex::new(MOST_UNITS));
        let sample = |bucket: Bucket| self.sample_bucket(bucket, &units, until).boxed();
        let samples = buckets.iter().map(|bucket| sample(*bucket)).collect();
        let mut total = Backlog { is_exact: true, ..Backlog::default() };
        for sample in concurrently(CONCURRENT_SAMPLES, samples).await {
            let sample = sample?;
            total.pending += sample.pending;
            total.is_exact &= sample.is_exact;
            total.oldest = total.oldest.into_iter().chain(sample.oldest).min();
        }
        Ok(total)
    }

    async fn sample_bucket(
        &self,
        bucket: Bucket,
        units: &Units,
        until: Until,
    ) -> Result<Backlog, StoreError> {
        let has_page = units.take_page();
        let query = self
            .query_messages(bucket, None)
            .projection_expression("#created")
            .expression_attribute_names("#created", attribute::CREATED_AT_UTC)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .set_limit((!has_page).then_some(1));
        let page = query.customize().config_override(self.within(until, "backlog query")?).send().await;
        let page = page.map_err(|error| store_error(&self.options, Effect::Reads, "backlog query", error))?;
        if has_page {
            units.give_back(page.consumed_capacity().and_then(|cost| cost.capacity_units()));
        }
        let created =
            |item: &Item| item.get(attribute::CREATED_AT_UTC)?.as_n().ok()?.parse().ok().map(Ticks::from_raw);
        Ok(Backlog {
            pending: u64::try_from(page.count()).unwrap_or(0),
            is_exact: page.last_evaluated_key().is_none(),
            oldest: page.items().iter().filter_map(created).min(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_before_and_what_is_left_comes_back() {
        let units = Units(Mutex::new(MOST_UNITS));
        let pages = || (0..100).filter(|_| units.take_page()).count();
        assert_eq!(pages(), CONCURRENT_SAMPLES, "as many as are under way at once");
        units.give_back(Some(0.5));
        assert_eq!(pages(), 0, "half a unit is missing");
        units.give_back(Some(100.0));
        assert_eq!(pages(), 1);
        // One that does not say, and one that says nonsense.
        units.give_back(None);
        units.give_back(Some(1_000_000.0));
        assert_eq!(pages(), 0);
        units.give_back(Some(0.0));
        assert_eq!(pages(), 1);
    }
}
