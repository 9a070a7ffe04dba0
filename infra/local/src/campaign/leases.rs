//! Whether a bucket is held longer than a lease lasts.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue;
use outbox::{Clock, SystemClock, Ticks};
use outbox_store_dynamodb::StoreOptions;

use crate::shop::OrderError;

/// A lease that somebody owns, as the table has it (design.md, section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldLease {
    /// The sort key, which has the bucket.
    pub(super) lease: String,
    pub(super) owner: String,
    /// How long it is still valid; zero: it has lapsed.
    pub(super) left: Duration,
}

impl fmt::Display for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.lease, self.owner)
    }
}

/// The leases that have an owner, from one strongly consistent read.
pub(super) async fn held(client: &Client, options: &StoreOptions) -> Result<Vec<HeldLease>, OrderError> {
    let partition = format!("{}#COORDINATION", options.key_prefix());
    let mut pages = client
        .query()
        .table_name(options.table_name())
        .consistent_read(true)
        .key_condition_expression("#partition = :partition AND begins_with(#sort, :lease)")
        .expression_attribute_names("#partition", options.partition_key_attribute())
        .expression_attribute_names("#sort", options.sort_key_attribute())
        .expression_attribute_values(":partition", AttributeValue::S(partition))
        .expression_attribute_values(":lease", AttributeValue::S("LEASE#".to_owned()))
        .into_paginator()
        .items()
        .send();
    let now = SystemClock::new().now_utc();
    let mut held = Vec::new();
    while let Some(item) = pages.next().await {
        let item = item.map_err(|error| OrderError::Request {
            what: "reading the leases".to_owned(),
            cause: DisplayErrorContext(error).to_string(),
        })?;
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        let ticks = item.get("ExpiresAtUtc").and_then(|value| value.as_n().ok()?.parse().ok());
        if let (Some(owner), Some(ticks)) = (text("Owner"), ticks) {
            let lease = text(options.sort_key_attribute()).unwrap_or_default();
            held.push(HeldLease { lease, owner, left: Ticks::from_raw(ticks).since(now) });
        }
    }
    Ok(held)
}
