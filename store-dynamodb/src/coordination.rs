//! Heartbeats and leases: each one conditional write, conditional on the version that was read (design.md, section 6).
//!
//! A request can land late: one that a timeout gave up on, or one of an earlier life. The conditions are what a late
//! request fails on.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use futures::FutureExt as _;
use outbox::concurrently::concurrently;
use outbox::coordination::{Coordination, HeartbeatRecord, LeaseRecord};
use outbox::lease_write::{HeartbeatWrite, LeaseWrite, Verdict};
use outbox::store::{AcquireRequest, Acquired, Claimed};
use outbox::{Bucket, Chain, Lease, LeaseTimes, RelayId, StoreError, StoreErrorKind, Ticks};

use crate::DynamoDbStore;
use crate::error::{Effect, store_error};
use crate::item::number;
use crate::request::within;
use crate::schema::{CoordinationKey, Item, attribute, coordination_key};

/// How many lease writes are under way at once.
const CONCURRENT_WRITES: usize = 16;
/// How often the leases are read after a stop, to hand back what a late claim took.
const STOP_PASSES: usize = 3;
/// How often a release is tried when the version had moved on under it by this relay's own renewal.
const RELEASE_ATTEMPTS: usize = 2;

/// What became of a conditional write.
enum Written {
    Done,
    /// Refused, with what was stored; `None` if nothing was.
    Refused(Option<Item>),
}

impl DynamoDbStore {
    /// One acquisition round: heartbeat, read, plan, write.
    pub(crate) async fn acquire_round(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        let AcquireRequest { relay, times, limit, .. } = *request;
        if !self.heartbeat(relay, times.now, limit).await? {
            return Ok(Acquired { clock_behind: true, refused_writes: 1, ..Acquired::default() });
        }
        let read = self.read_coordination(limit).await?;
        let plan = read.plan(request.bucket_count, relay, times);

        let mut acquired = Acquired {
            standby_rank: plan.standby_rank,
            excess: plan.release.intersection(request.busy).copied().collect(),
            available: read.available(request.bucket_count, &plan, times.now),
            error: unreadable(&read),
            ..Acquired::default()
        };
        let surplus: Vec<Lease> = plan
            .release
            .difference(request.busy)
            .filter_map(|bucket| Some(Lease { bucket: *bucket, expires_at: read.version(*bucket)? }))
            .collect();
        acquired.error = self.free_leases(relay, &surplus, limit).await.err().or(acquired.error);
        self.prune(&read, times, limit).await;

        let mut writes = Vec::new();
        for bucket in plan.keep.difference(request.busy) {
            let keep = read.leases.get(bucket).and_then(|lease| LeaseWrite::keep(lease, times));
            writes.extend(keep.map(|keep| self.take_lease(relay, *bucket, keep, limit).boxed()));
        }
        for bucket in plan.claim.intersection(request.wanted) {
            let claim = LeaseWrite::claim(read.leases.get(bucket), times);
            writes.push(self.take_lease(relay, *bucket, claim, limit).boxed());
        }
        for written in concurrently(CONCURRENT_WRITES, writes).await {
            match written {
                Ok(lease) => acquired.note(lease),
                // The others stand: one throttled write must not cost a relay its whole share.
                Err(error) => acquired.error = Some(error),
            }
        }
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
        let read = self.read_coordination(limit).await?;
        let free = buckets.iter().copied().filter(|bucket| read.is_free(*bucket, times.now));
        let claim = |bucket: Bucket| {
            let claim = LeaseWrite::claim(read.leases.get(&bucket), times);
            self.take_lease(relay, bucket, claim, limit).boxed()
        };
        let claims = free.map(claim).collect();
        let wanted = |bucket: &Bucket| buckets.contains(bucket);
        let mut claimed = Claimed {
            error: unreadable(&read).filter(|_| read.unreadable.iter().any(wanted)),
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
        limit: Duration,
    ) -> Result<(), StoreError> {
        let releases = leases.iter().map(|lease| self.release_lease(relay, *lease, limit).boxed()).collect();
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
        let ends = self.clock.monotonic().plus(limit);
        let mut item = self.options.heartbeat_key(relay);
        item.insert(attribute::LAST_SEEN_UTC.to_owned(), number(stamp));
        item.insert(attribute::STOPPED_AT_UTC.to_owned(), number(stamp));
        let put = self.client.put_item().table_name(&self.options.table_name).set_item(Some(item));
        let put = put.customize().config_override(within(limit)).send().await;
        put.map_err(|error| store_error(&self.options, Effect::Writes, "stopped stamp", error))?;

        self.free_leases(relay, leases, ends.since(self.clock.monotonic())).await?;
        self.free_strays(relay, ends.since(self.clock.monotonic())).await
    }

    /// Reads the leases and frees those that name the relay, until there are none: one pass finds what a late claim took,
    /// and each pass gives the next late one a chance to be found.
    pub(crate) async fn free_strays(&self, relay: &RelayId, limit: Duration) -> Result<(), StoreError> {
        let ends = self.clock.monotonic().plus(limit);
        for _ in 0..STOP_PASSES {
            let left = ends.since(self.clock.monotonic());
            if left.is_zero() {
                break;
            }
            let read = self.read_coordination(left).await?;
            let mine = read.leases.iter().filter(|(_, lease)| lease.owner.as_ref() == Some(relay));
            let strays: Vec<Lease> = mine
                .filter_map(|(bucket, lease)| Some(Lease { bucket: *bucket, expires_at: lease.expires_at? }))
                .collect();
            if strays.is_empty() {
                break;
            }
            self.free_leases(relay, &strays, left).await?;
        }
        Ok(())
    }

    /// Extends a lease while it is in use: never backwards, and only one that is still this relay's.
    pub(crate) async fn renew_lease(
        &self,
        relay: &RelayId,
        bucket: Bucket,
        times: LeaseTimes,
        limit: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        self.take_lease(relay, bucket, LeaseWrite::renew(times), limit).await
    }

    /// Announces the relay. `false`: a later time is stored, so this clock is behind.
    async fn heartbeat(&self, relay: &RelayId, now: Ticks, limit: Duration) -> Result<bool, StoreError> {
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
        match self.put(put, "heartbeat", limit).await? {
            Written::Done => Ok(true),
            Written::Refused(stored) => {
                let stored = stored.as_ref().map(heartbeat_record).transpose()?.flatten();
                Ok(HeartbeatWrite::Announce { now }.is_own_attempt(stored.as_ref()))
            }
        }
    }

    /// Removes relay records that have served their time. A prune that fails is left to the next sweep.
    async fn prune(&self, read: &Coordination, times: LeaseTimes, limit: Duration) {
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
                if let Err(error) = delete.customize().config_override(within(limit)).send().await {
                    let error =
                        store_error(&self.options, Effect::Writes, "pruning of a relay record", error);
                    tracing::debug!(%relay, error = %Chain(&error), "a relay record was not pruned");
                }
            }
            .boxed()
        };
        let prunes = read.prunable(times).into_iter().map(prune).collect();
        concurrently(CONCURRENT_WRITES, prunes).await;
    }

    /// Every lease and heartbeat, in one strongly consistent query.
    pub(crate) async fn read_coordination(&self, limit: Duration) -> Result<Coordination, StoreError> {
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
            let page = query.customize().config_override(within(limit)).send().await;
            let what = "query of the leases";
            let page = page.map_err(|error| store_error(&self.options, Effect::Reads, what, error))?;
            for item in page.items() {
                let sort = item.get(&self.options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
                match coordination_key(sort.map_or("", String::as_str)) {
                    CoordinationKey::Lease(bucket) if self.options.bucket_count.contains(bucket) => {
                        // One record that cannot be read stops its bucket, and no other.
                        match lease_record(item) {
                            Ok(lease) => drop(read.leases.insert(bucket, lease)),
                            Err(_) => drop(read.unreadable.insert(bucket)),
                        }
                    }
                    CoordinationKey::Heartbeat(relay) => {
                        // One that cannot be read says of nobody that it is alive.
                        match heartbeat_record(item) {
                            Ok(Some(heartbeat)) => drop(read.heartbeats.insert(relay, heartbeat)),
                            Ok(None) => {}
                            Err(error) => tracing::warn!(error = %Chain(&error), "a relay record is ignored"),
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

    /// Writes a lease, and says what this relay holds by it: the lease if the write was carried out, now or by an
    /// earlier attempt whose reply was lost.
    async fn take_lease(
        &self,
        relay: &RelayId,
        bucket: Bucket,
        write: LeaseWrite,
        limit: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        let Written::Refused(stored) = self.write_lease(relay, bucket, &write, limit).await? else {
            return Ok(write.grants(bucket));
        };
        let stored = stored.as_ref().map(lease_record).transpose()?;
        match write.judge(relay, bucket, stored.as_ref()) {
            Verdict::Held(lease) => Ok(Some(lease)),
            Verdict::NotHeld | Verdict::ReleaseAgain(_) => Ok(None),
        }
    }

    /// Frees a lease, also if this relay's own renewal moved its version on without an answer.
    async fn release_lease(&self, relay: &RelayId, lease: Lease, limit: Duration) -> Result<(), StoreError> {
        let mut write = LeaseWrite::Release { read: lease.expires_at };
        for _ in 0..RELEASE_ATTEMPTS {
            let written = self.write_lease(relay, lease.bucket, &write, limit).await?;
            let Written::Refused(stored) = written else { return Ok(()) };
            let stored = stored.as_ref().map(lease_record).transpose()?;
            match write.judge(relay, lease.bucket, stored.as_ref()) {
                Verdict::ReleaseAgain(again) => write = again,
                Verdict::Held(_) | Verdict::NotHeld => return Ok(()),
            }
        }
        Ok(())
    }

    /// One conditional write of a lease: the conditions of [`LeaseWrite::is_permitted`], in DynamoDB's terms.
    async fn write_lease(
        &self,
        relay: &RelayId,
        bucket: Bucket,
        write: &LeaseWrite,
        limit: Duration,
    ) -> Result<Written, StoreError> {
        let me = || AttributeValue::S(relay.to_string());
        match write {
            LeaseWrite::Claim { read, expires_at } => {
                let mut item = self.options.lease_key(bucket);
                item.insert(attribute::OWNER.to_owned(), me());
                item.insert(attribute::EXPIRES_AT_UTC.to_owned(), number(expires_at));
                let put = self.client.put_item().table_name(&self.options.table_name).set_item(Some(item));
                let put = match read.as_ref().map(|lease| lease.expires_at) {
                    Some(Some(version)) => put
                        .condition_expression("#expiry = :read")
                        .expression_attribute_names("#expiry", attribute::EXPIRES_AT_UTC)
                        .expression_attribute_values(":read", number(version)),
                    Some(None) => put
                        .condition_expression(
                            "attribute_exists(#partition) AND attribute_not_exists(#expiry)",
                        )
                        .expression_attribute_names("#partition", &self.options.partition_key_attribute)
                        .expression_attribute_names("#expiry", attribute::EXPIRES_AT_UTC),
                    None => put
                        .condition_expression("attribute_not_exists(#partition)")
                        .expression_attribute_names("#partition", &self.options.partition_key_attribute),
                };
                self.put(put, "claim", limit).await
            }
            LeaseWrite::Keep { read, expires_at } => {
                let keep = self
                    .update_lease(bucket)
                    .update_expression("SET #expiry = :new")
                    .condition_expression("#owner = :me AND #expiry = :read")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":read", number(read))
                    .expression_attribute_values(":new", number(expires_at));
                self.update(keep, "renewal", limit).await
            }
            LeaseWrite::Renew { now, expires_at } => {
                let renew = self
                    .update_lease(bucket)
                    .update_expression("SET #expiry = :new")
                    .condition_expression("#owner = :me AND #expiry > :now AND #expiry <= :new")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":now", number(now))
                    .expression_attribute_values(":new", number(expires_at));
                self.update(renew, "renewal", limit).await
            }
            LeaseWrite::Release { read } => {
                let release = self
                    .update_lease(bucket)
                    .update_expression("REMOVE #owner")
                    .condition_expression("#owner = :me AND #expiry = :read")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":read", number(read));
                self.update(release, "release", limit).await
            }
        }
    }

    fn update_lease(&self, bucket: Bucket) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.options.table_name)
            .set_key(Some(self.options.lease_key(bucket)))
            .expression_attribute_names("#owner", attribute::OWNER)
            .expression_attribute_names("#expiry", attribute::EXPIRES_AT_UTC)
    }

    async fn put(
        &self,
        put: PutItemFluentBuilder,
        what: &str,
        limit: Duration,
    ) -> Result<Written, StoreError> {
        let put = put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.customize().config_override(within(limit)).send().await {
            Ok(_) => Ok(Written::Done),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Written::Refused(refused.item.clone()))
                }
                _ => Err(store_error(&self.options, Effect::Writes, what, error)),
            },
        }
    }

    async fn update(
        &self,
        update: UpdateItemFluentBuilder,
        what: &str,
        limit: Duration,
    ) -> Result<Written, StoreError> {
        let update =
            update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.customize().config_override(within(limit)).send().await {
            Ok(_) => Ok(Written::Done),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Written::Refused(refused.item.clone()))
                }
                _ => Err(store_error(&self.options, Effect::Writes, what, error)),
            },
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

fn lease_record(item: &Item) -> Result<LeaseRecord, StoreError> {
    let owner = match item.get(attribute::OWNER) {
        None => None,
        Some(owner) => {
            let owner = owner.as_s().ok().and_then(RelayId::new);
            Some(owner.ok_or_else(|| malformed(item, attribute::OWNER))?)
        }
    };
    Ok(LeaseRecord { owner, expires_at: time(item, attribute::EXPIRES_AT_UTC)? })
}

/// `None` for a record without a time: nobody of ours wrote it, and it says nothing.
fn heartbeat_record(item: &Item) -> Result<Option<HeartbeatRecord>, StoreError> {
    let stopped_at = time(item, attribute::STOPPED_AT_UTC)?;
    Ok(time(item, attribute::LAST_SEEN_UTC)?.map(|last_seen| HeartbeatRecord { last_seen, stopped_at }))
}

fn time(item: &Item, name: &'static str) -> Result<Option<Ticks>, StoreError> {
    let Some(value) = item.get(name) else {
        return Ok(None);
    };
    let ticks = value.as_n().ok().and_then(|digits| digits.parse().ok());
    ticks.map(|ticks| Some(Ticks::from_raw(ticks))).ok_or_else(|| malformed(item, name))
}

/// A coordination item that cannot be read is never written over: somebody has to look at it.
fn malformed(item: &Item, name: &str) -> StoreError {
    // Only key attributes of these items are strings besides the owner; they hold no payload.
    let mut keys: Vec<&str> =
        item.values().filter_map(|value| value.as_s().ok().map(String::as_str)).collect();
    keys.sort_unstable();
    let message = format!("the coordination item {keys:?} has an attribute {name} that cannot be read");
    StoreError::new(StoreErrorKind::Misconfigured, message)
}
