//! The writes of leases: each conditional on the version that was read (design.md, section 6).
//!
//! A request can land late: one that a timeout gave up on, or one of an earlier life. The conditions are what a late
//! request fails on; [`LeaseWrite`] states them, and here they are in DynamoDB's terms.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use outbox::coordination::{HeartbeatRecord, LeaseRecord};
use outbox::lease_write::{LeaseWrite, Verdict};
use outbox::{Bucket, Lease, RelayId, StoreError, StoreErrorKind, Ticks};

use crate::error::{Effect, store_error};
use crate::item::number;
use crate::request::Until;
use crate::schema::{Item, attribute};
use crate::{DynamoDbStore, StoreOptions};

/// How often a release is tried when the version had moved on under it by this relay's own renewal.
const RELEASE_ATTEMPTS: usize = 2;

/// What became of a conditional write.
pub(crate) enum Written {
    Done,
    /// Refused, with what was stored; `None` if nothing was.
    Refused(Option<Item>),
}

impl DynamoDbStore {
    /// Writes a lease, and says what this relay holds by it: the lease if the write was carried out, now or by an
    /// earlier attempt whose reply was lost.
    pub(crate) async fn take_lease(
        &self,
        relay: &RelayId,
        bucket: Bucket,
        write: LeaseWrite,
        until: Until,
    ) -> Result<Option<Lease>, StoreError> {
        let Written::Refused(stored) = self.write_lease(relay, bucket, &write, until).await? else {
            return Ok(write.grants(bucket));
        };
        let stored = stored.as_ref().map(|stored| lease_record(&self.options, stored)).transpose()?;
        match write.judge(relay, bucket, stored.as_ref()) {
            Verdict::Held(lease) => Ok(Some(lease)),
            Verdict::NotHeld | Verdict::ReleaseAgain(_) => Ok(None),
        }
    }

    /// Frees a lease, also if this relay's own renewal moved its version on without an answer.
    pub(crate) async fn release_lease(
        &self,
        relay: &RelayId,
        lease: Lease,
        until: Until,
    ) -> Result<(), StoreError> {
        let mut write = LeaseWrite::Release { read: lease.expires_at };
        for _ in 0..RELEASE_ATTEMPTS {
            let written = self.write_lease(relay, lease.bucket, &write, until).await?;
            let Written::Refused(stored) = written else { return Ok(()) };
            let stored = stored.as_ref().map(|stored| lease_record(&self.options, stored)).transpose()?;
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
        until: Until,
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
                self.put(put, "claim", until).await
            }
            LeaseWrite::Keep { read, expires_at } => {
                let keep = self
                    .update_lease(bucket)
                    .update_expression("SET #expiry = :new")
                    .condition_expression("#owner = :me AND #expiry = :read")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":read", number(read))
                    .expression_attribute_values(":new", number(expires_at));
                self.update(keep, "renewal", until).await
            }
            LeaseWrite::Renew { now, expires_at } => {
                let renew = self
                    .update_lease(bucket)
                    .update_expression("SET #expiry = :new")
                    .condition_expression("#owner = :me AND #expiry > :now AND #expiry <= :new")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":now", number(now))
                    .expression_attribute_values(":new", number(expires_at));
                self.update(renew, "renewal", until).await
            }
            LeaseWrite::Release { read } => {
                let release = self
                    .update_lease(bucket)
                    .update_expression("REMOVE #owner")
                    .condition_expression("#owner = :me AND #expiry = :read")
                    .expression_attribute_values(":me", me())
                    .expression_attribute_values(":read", number(read));
                self.update(release, "release", until).await
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

    pub(crate) async fn put(
        &self,
        put: PutItemFluentBuilder,
        what: &str,
        until: Until,
    ) -> Result<Written, StoreError> {
        let put = put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.customize().config_override(self.within(until, what)?).send().await {
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
        until: Until,
    ) -> Result<Written, StoreError> {
        let update =
            update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.customize().config_override(self.within(until, what)?).send().await {
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

/// Reads a lease item.
///
/// # Errors
/// Names the item and the attribute that cannot be read.
pub fn lease_record(options: &StoreOptions, item: &Item) -> Result<LeaseRecord, StoreError> {
    let owner = match item.get(attribute::OWNER) {
        None => None,
        Some(owner) => {
            let owner = owner.as_s().ok().and_then(RelayId::new);
            Some(owner.ok_or_else(|| malformed(options, item, attribute::OWNER))?)
        }
    };
    Ok(LeaseRecord { owner, expires_at: time(options, item, attribute::EXPIRES_AT_UTC)? })
}

/// `None` for a record without a time: nobody of ours wrote it, and it says nothing.
///
/// # Errors
/// Names the item and the attribute that cannot be read.
pub fn heartbeat_record(options: &StoreOptions, item: &Item) -> Result<Option<HeartbeatRecord>, StoreError> {
    let stopped_at = time(options, item, attribute::STOPPED_AT_UTC)?;
    Ok(time(options, item, attribute::LAST_SEEN_UTC)?
        .map(|last_seen| HeartbeatRecord { last_seen, stopped_at }))
}

fn time(options: &StoreOptions, item: &Item, name: &'static str) -> Result<Option<Ticks>, StoreError> {
    let Some(value) = item.get(name) else {
        return Ok(None);
    };
    let ticks = value.as_n().ok().and_then(|digits| digits.parse().ok());
    ticks.map(|ticks| Some(Ticks::from_raw(ticks))).ok_or_else(|| malformed(options, item, name))
}

/// A coordination item that cannot be read is never written over: somebody has to look at it.
fn malformed(options: &StoreOptions, item: &Item, name: &str) -> StoreError {
    /// More than any sort key of ours: that of a heartbeat, with a relay id of 128 bytes.
    const SHOWN: usize = 160;
    // Its place alone is shown: whatever else is in it, nobody of ours need have written.
    let sort = item.get(&options.sort_key_attribute).and_then(|sort| sort.as_s().ok());
    let is_plain = |sort: &&String| sort.len() <= SHOWN && sort.bytes().all(|byte| byte.is_ascii_graphic());
    let sort = sort.filter(is_plain).map_or("with a sort key that is none of ours", String::as_str);
    let message = format!("the coordination item {sort:?} has an attribute {name} that cannot be read");
    StoreError::new(StoreErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attributes: &[(&str, AttributeValue)]) -> Item {
        let mut item = StoreOptions::new("t").lease_key(Bucket::new(3));
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        item
    }

    /// Found by fuzzing: an error quoted every text of the item.
    #[test]
    fn a_record_that_cannot_be_read_is_named_and_nothing_else_of_it_is_shown() {
        let secret = || AttributeValue::S("secret".repeat(1000));
        for name in [attribute::OWNER, attribute::EXPIRES_AT_UTC] {
            let error =
                lease_record(&StoreOptions::new("t"), &record(&[(name, secret()), ("Note", secret())]));
            let text = error.unwrap_err().to_string();
            assert!(text.contains("LEASE#0000000003") && text.contains(name), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        for name in [attribute::LAST_SEEN_UTC, attribute::STOPPED_AT_UTC] {
            let error = heartbeat_record(&StoreOptions::new("t"), &record(&[(name, secret())])).unwrap_err();
            assert!(error.to_string().contains(name) && !error.to_string().contains("secret"), "{error}");
        }
    }

    /// Found by fuzzing: an error was six times as long as a sort key of control characters.
    #[test]
    fn an_error_shows_a_sort_key_that_can_be_ours_and_no_other() {
        let mut item = record(&[(attribute::EXPIRES_AT_UTC, AttributeValue::Bool(true))]);
        let mut said = |sort: &str| {
            item.insert("SK".to_owned(), AttributeValue::S(sort.to_owned()));
            lease_record(&StoreOptions::new("t"), &item).unwrap_err().to_string()
        };
        for other in ["\u{7f}".repeat(200), "x".repeat(161), "RELAY#a\nERROR all is lost".to_owned()] {
            let text = said(&other);
            assert!(text.len() < 200 && !text.contains(&other), "{text}");
        }
        let relay = format!("RELAY#{}", "r".repeat(128));
        assert!(said(&relay).contains(&relay));
    }
}
