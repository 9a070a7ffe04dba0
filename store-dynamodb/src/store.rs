//! The store that relays work on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use bytes::Bytes;
use futures::future::BoxFuture;
use outbox::quarantine::{Move, Moved, Parking, Quarantine};
use outbox::store::{
    AcquireRequest, Acquired, Backlog, BacklogMetrics, Claimed, FetchRequest, Fetched, LeaseOwnership,
    LeaseRenewal, NamedClaims,
};
use outbox::{Bucket, Chance, Clock, Lease, LeaseTimes, OutboxStore, RelayId, StoreError, Ticks};

use crate::{Sequence, StoreOptions};

/// The outbox in a DynamoDB table. Cheap to clone; clones share the client's connections.
#[derive(Clone, Debug)]
pub struct DynamoDbStore {
    pub(crate) client: Client,
    pub(crate) options: Arc<StoreOptions>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Chance,
}

impl DynamoDbStore {
    /// A store on this client. Give the client [`crate::client_timeouts`]: the store limits its requests, but only the
    /// client can limit how long a connection takes to come up. And [`crate::http_client`], where the process may be
    /// frozen.
    pub fn new(client: Client, options: StoreOptions, clock: Arc<dyn Clock>, chance: Chance) -> Self {
        Self { client, options: Arc::new(options), clock, chance }
    }

    /// Where it is.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
}

impl OutboxStore for DynamoDbStore {
    type Row = Sequence;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        self.acquire_round(request).await
    }

    async fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        self.pending_buckets(buckets, limit).await
    }

    async fn fetch(&self, request: &FetchRequest<'_, Sequence>) -> Result<Fetched<Sequence>, StoreError> {
        self.fetch_batch(request).await
    }

    async fn delete(&self, bucket: Bucket, rows: &[Sequence], limit: Duration) -> Result<(), StoreError> {
        self.delete_rows(bucket, rows, limit).await
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        Some(self)
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        Some(self)
    }

    fn named_claims(&self) -> Option<&dyn NamedClaims> {
        Some(self)
    }

    fn backlog(&self) -> Option<&dyn BacklogMetrics> {
        Some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine<Sequence>> {
        Some(self)
    }

    fn deletes_individually(&self) -> bool {
        true
    }
}

impl BacklogMetrics for DynamoDbStore {
    fn sample<'a>(
        &'a self,
        buckets: &'a BTreeSet<Bucket>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        Box::pin(self.sample_backlog(buckets, limit))
    }
}

impl Quarantine<Sequence> for DynamoDbStore {
    fn parked<'a>(
        &'a self,
        bucket: Bucket,
        limit: Duration,
    ) -> BoxFuture<'a, Result<BTreeMap<Bytes, Parking>, StoreError>> {
        Box::pin(self.parked_keys(bucket, self.until(limit)))
    }

    fn park<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        moves: &'a [Move<Sequence>],
        limit: Duration,
    ) -> BoxFuture<'a, Moved<Sequence>> {
        Box::pin(self.park_messages(relay, lease, times, moves, self.until(limit)))
    }

    fn count_parked(&self, limit: Duration) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.count_parked_keys(self.until(limit)))
    }

    fn count_attempts<'a>(
        &'a self,
        bucket: Bucket,
        rows: &'a [Sequence],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.count_attempts_at(bucket, rows, self.until(limit)))
    }
}

impl LeaseRenewal for DynamoDbStore {
    fn renew<'a>(
        &'a self,
        relay: &'a RelayId,
        lease: Lease,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.renew_lease(relay, lease.bucket, times, limit))
    }
}

impl NamedClaims for DynamoDbStore {
    fn claim<'a>(
        &'a self,
        relay: &'a RelayId,
        buckets: &'a BTreeSet<Bucket>,
        times: LeaseTimes,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(self.claim_free(relay, buckets, times, limit))
    }
}

impl LeaseOwnership for DynamoDbStore {
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.free_leases(relay, leases, self.until(limit)))
    }

    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.free_strays(relay, limit))
    }

    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.stop_relay(relay, leases, stamp, limit))
    }

    fn has_message<'a>(&'a self, bucket: Bucket, limit: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.head_exists(bucket, true, self.until(limit)))
    }
}
