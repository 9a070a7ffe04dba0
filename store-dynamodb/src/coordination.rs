//! Heartbeats, leases and what is planned from them: the rounds of design.md, section 6.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::coordination::Coordination;
use outbox::lease_write::{HeartbeatWrite, LeaseWrite};
use outbox::store::{AcquireRequest, Acquired, Claimed};
use outbox::{Bucket, Chain, Lease, LeaseTimes, RelayId, StoreError, StoreErrorKind, Ticks};

use crate::DynamoDbStore;
use crate::error::{Effect, store_error};
use crate::item::number;
use crate::lease::{Written, heartbeat_record, lease_record};
use crate::request::Until;
use crate::schema::{CoordinationKey, Item, attribute, coordination_key};

/// How many lease writes are under way at once.
const CONCURRENT_WRITES: usize = 16;
/// How often the leases are read after a stop, to hand back what a late claim took.
const STOP_PASSES: usize = 3;

impl DynamoDbStore {
    /// One acquisition round: heartbeat, read, plan, write.
    pub(crate) async fn acquire_round(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        let AcquireRequest { relay, times, limit, .. } = *request;
        let until = self.until(limit);
        if !self.heartbeat(relay, times.now, until).await? {
            return Ok(Acquired { clock_behind: true, refused_writes: 1, ..Acquired::default() });
        }
        let read = self.read_coordination(until).await?;
        let plan = read.plan(request.bucket_count, relay, times);

        let mut acquired = Acquired {
            standby_rank: plan.standby_rank,
            place: read.place(relay, times),
            surplus: plan.surplus.clone(),
            excess: plan.release.intersection(request.busy).copied().collect(),
            available: read.available(request.bucket_count, &plan, request.busy, times.now),
            error: unreadable(&read),
            parked: read.parked.clone(),
            ..Acquired::default()
        };
        let surplus: Vec<Lease> = plan
            .release
            .difference(request.busy)
            .filter_map(|bucket| Some(Lease { bucket: *bucket, expires_at: read.version(*bucket)? }))
            .collect();
        acquired.error = self.free_leases(relay, &surplus, until).await.err().or(acquired.error);

        let mut writes = Vec::new();
        for bucket in plan.keep.difference(request.busy) {
            let keep = read.leases.get(bucket).and_then(|lease| LeaseWrite::keep(lease, times));
            writes.extend(keep.map(|keep| self.take_lease(relay, *bucket, keep, until).boxed()));
        }
        for bucket in plan.claim.intersection(request.wanted) {
            let claim = LeaseWrite::claim(read.leases.get(bucket), times);
            writes.push(self.take_lease(relay, *bucket, claim, until).boxed());
        }
        for written in concurrently(CONCURRENT_WRITES, writes).await {
            match written {
                Ok(lease) => acquired.note(lease),
                // The others stand: one throttled write must not cost a relay its whole share.
                Err(error) => acquired.error = Some(error),
            }
        }
        // Last: of a round that is short of time, it is what can wait.
        self.prune(&read, times, until).await;
        Ok(acquired)
    }

    /// Claims those of `buckets` that are free, without a heartbeat.
    pub(crate) async fn claim_free(
        &self,
        relay: &RelayId,
        buckets: &BTreeSet<Bucket>,
        times: LeaseTimes,
        limit: Duration,
    ) -> Result<Claimed, StoreError> {
        let until = self.until(limit);
        let read = self.read_coordination(until).await?;
        let free = buckets.iter().copied().filter(|bucket| read.is_free(*bucket, times.now));
        let claim = |bucket: Bucket| {
            let claim = LeaseWrite::claim(read.leases.get(&bucket), times);
            self.take_lease(relay, bucket, claim, until).boxed()
        };
        let claims = free.map(claim).collect();
        let wanted = |bucket: &Bucket| buckets.contains(bucket);
        let mut claimed = Claimed {
            error: unreadable(&read).filter(|_| read.unreadable.iter().any(wanted)),
            parked: read.parked.clone(),
            ..Claimed::default()
        };
        for taken in concurrently(CONCURRENT_WRITES, claims).await {
            match taken {
                Ok(lease) => claimed.leases.extend(lease),
                Err(error) => claimed.error = Some(error),
            }
        }
        Ok(claimed)
    }

    /// Frees leases. One that another has by now is no error.
    pub(crate) async fn free_leases(
        &self,
        relay: &RelayId,
        leases: &[Lease],
        until: Until,
    ) -> Result<(), StoreError> {
        let releases = leases.iter().map(|lease| self.release_lease(relay, *lease, until).boxed()).collect();
        concurrently(CONCURRENT_WRITES, releases).await.into_iter().collect()
    }

    /// Stamps the relay stopped, frees its leases, and reads again for what a late claim took. The stamp goes first: a
    /// stop that is cut short then leaves leases that expire, and not free buckets that peers keep for a relay they
    /// still count.
    pub(crate) async fn stop_relay(
        &self,
        relay: &RelayId,
        leases: &[Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let until = self.until(limit);
        let mut item = self.options.heartbeat_key(relay);
        item.insert(attribute::LAST_SEEN_UTC.to_owned(), number(stamp));
        item.insert(attribute::STOPPED_AT_UTC.to_owned(), number(stamp));
        let put = self.client.put_item().table_name(&self.options.table_name).set_item(Some(item));
        let put = put.customize().config_override(self.within(until, "stopped stamp")?).send().await;
        put.map_err(|error| store_error(&self.options, Effect::Writes, "stopped stamp", error))?;

        // A release that fails does not keep a late claim from being found; and what it left owned is found with it.
        let freed = self.free_leases(relay, leases, until).await;
        let is_clean = self.read_back(relay, until).await?;
        if is_clean { Ok(()) } else { freed }
    }

    /// Frees whatever lease names the relay.
    pub(crate) async fn free_strays(&self, relay: &RelayId, limit: Duration) -> Result<(), StoreError> {
        self.read_back(relay, self.until(limit)).await.map(drop)
    }

    /// Reads the leases and frees those that name the relay, until there are none: one pass finds what a late claim took,
    /// and each pass gives the next late one a chance to be found. Whether a pass found none.
    async fn read_back(&self, relay: &RelayId, until: Until) -> Result<bool, StoreError> {
        for _ in 0..STOP_PASSES {
            if self.left(until).is_zero() {
                break;
            }
            let read = self.read_coordination(until).await?;
            let mine = read.leases.iter().filter(|(_, lease)| lease.owner.as_ref() == Some(relay));
            let strays: Vec<Lease> = mine
                .filter_map(|(bucket, lease)| Some(Lease { bucket: *bucket, expires_at: lease.expires_at? }))
                .collect();
            if strays.is_empty() {
                return Ok(true);
            }
            self.free_leases(relay, &strays, until).await?;
        }
        Ok(false)
    }

    /// Extends a lease while it is in use: never backwards, and only one that is still this relay's.
    pub(crate) async fn renew_lease(
        &self,
        relay: &RelayId,
        bucket: Bucket,
        times: LeaseTimes,
        limit: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        self.take_lease(relay, bucket, LeaseWrite::renew(times), self.until(limit)).await
    }

    /// Announces the relay. `false`: a later time is stored, so this clock is behind.
    async fn heartbeat(&self, relay: &RelayId, now: Ticks, until: Until) -> Result<bool, StoreError> {
        let mut item = self.options.heartbeat_key(relay);
        item.insert(attribute::LAST_SEEN_UTC.to_owned(), number(now));
        let put = self
            .client
            .put_item()
            .table_name(&self.options.table_name)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#partition) OR #seen < :now")
            .expression_attribute_names("#partition", &self.options.partition_key_attribute)
            .expression_attribute_names("#seen", attribute::LAST_SEEN_UTC)
            .expression_attribute_values(":now", number(now));
        match self.put(put, "heartbeat", until).await? {
            Written::Done => Ok(true),
            Written::Refused(stored) => {
                let stored = stored
                    .as_ref()
                    .map(|stored| heartbeat_record(&self.options, stored))
                    .transpose()?
                    .flatten();
                Ok(HeartbeatWrite::Announce { now }.is_own_attempt(stored.as_ref()))
            }
        }
    }

    /// Removes relay records that have served their time. A prune that fails is left to the next sweep.
    async fn prune(&self, read: &Coordination, times: LeaseTimes, until: Until) {
        let prune = |(relay, write): (RelayId, HeartbeatWrite)| {
            async move {
                let HeartbeatWrite::Prune { read } = write else { return };
                // Gone already is no refusal: two sweeps may see the same record.
                let delete = self
                    .client
                    .delete_item()
                    .table_name(&self.options.table_name)
                    .set_key(Some(self.options.heartbeat_key(&relay)))
                    .condition_expression("attribute_not_exists(#partition) OR #seen = :read")
                    .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                    .expression_attribute_names("#seen", attribute::LAST_SEEN_UTC)
                    .expression_attribute_values(":read", number(read));
                let what = "pruning of a relay record";
                let pruned = match self.within(until, what) {
                    Ok(config) => delete
                        .customize()
                        .config_override(config)
                        .send()
                        .await
                        .map_err(|error| store_error(&self.options, Effect::Writes, what, error)),
                    Err(error) => Err(error),
                };
                if let Err(error) = pruned {
                    tracing::debug!(%relay, error = %Chain(&error), "a relay record was not pruned");
                }
            }
            .boxed()
        };
        let prunes = read.prunable(times).into_iter().map(prune).collect();
        concurrently(CONCURRENT_WRITES, prunes).await;
    }

    /// Every lease and heartbeat, in one strongly consistent query.
    pub(crate) async fn read_coordination(&self, until: Until) -> Result<Coordination, StoreError> {
        let mut read = Coordination::default();
        let mut start: Option<Item> = None;
        loop {
            let query = self
                .client
                .query()
                .table_name(&self.options.table_name)
                .key_condition_expression("#partition = :partition")
                .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                .expression_attribute_values(
                    ":partition",
                    AttributeValue::S(self.options.coordination_partition()),
                )
                .consistent_read(true)
                .set_exclusive_start_key(start);
            let what = "query of the leases";
            let page = query.customize().config_override(self.within(until, what)?).send().await;
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
            for item in page.items() {
                let sort = item.get(&self.options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
                match coordination_key(sort.map_or("", String::as_str)) {
                    CoordinationKey::Lease(bucket) if self.options.bucket_count.contains(bucket) => {
                        // One record that cannot be read stops its bucket, and no other.
                        match lease_record(&self.options, item) {
                            Ok(lease) => drop(read.leases.insert(bucket, lease)),
                            Err(_) => drop(read.unreadable.insert(bucket)),
                        }
                    }
                    CoordinationKey::Heartbeat(relay) => {
                        // One that cannot be read says of nobody that it is alive.
                        match heartbeat_record(&self.options, item) {
                            Ok(Some(heartbeat)) => drop(read.heartbeats.insert(relay, heartbeat)),
                            Ok(None) => {}
                            Err(error) => tracing::warn!(error = %Chain(&error), "a relay record is ignored"),
                        }
                    }
                    CoordinationKey::Parked(bucket) => {
                        // One that cannot be read is taken for some: which ones, its markers say.
                        let keys = item.get(attribute::PARKED_KEYS).and_then(|keys| keys.as_n().ok());
                        if keys.is_none_or(|keys| keys != "0") {
                            read.parked.insert(bucket);
                        }
                    }
                    // A bucket out of range, or something that a later version put there.
                    CoordinationKey::Lease(_) | CoordinationKey::Unknown => {}
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(read);
            }
        }
    }
}

/// What a read with a lease record that nobody can read ends in, once the other buckets have been served.
fn unreadable(read: &Coordination) -> Option<StoreError> {
    let bucket = read.unreadable.first()?;
    let message = format!(
        "the lease item of bucket {bucket} cannot be read: {} must be a string and {} a number; correct or delete it",
        attribute::OWNER,
        attribute::EXPIRES_AT_UTC
    );
    Some(StoreError::new(StoreErrorKind::Misconfigured, message))
}
