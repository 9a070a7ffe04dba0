//! Names and keys of the table format. Frozen: other writers and relays share the table (design.md, section 4).

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use outbox::{Bucket, RelayId};
use sha2::{Digest as _, Sha256};

use crate::{Sequence, StoreOptions};

/// Attribute names.
pub(crate) mod attribute {
    pub(crate) const MESSAGE_ID: &str = "MessageId";
    pub(crate) const TOPIC: &str = "Topic";
    pub(crate) const KEY: &str = "Key";
    pub(crate) const VALUE: &str = "Value";
    pub(crate) const HEADERS: &str = "Headers";
    pub(crate) const PARTITION: &str = "Partition";
    pub(crate) const CREATED_AT_UTC: &str = "CreatedAtUtc";
    pub(crate) const BUCKET_COUNT: &str = "BucketCount";
    pub(crate) const SEQUENCE: &str = "Sequence";
    pub(crate) const OWNER: &str = "Owner";
    pub(crate) const EXPIRES_AT_UTC: &str = "ExpiresAtUtc";
    pub(crate) const LAST_SEEN_UTC: &str = "LastSeenUtc";
    pub(crate) const STOPPED_AT_UTC: &str = "StoppedAtUtc";
    /// How many runs have sent a message in vain.
    pub(crate) const ATTEMPTS: &str = "Attempts";
    /// Those of before it was redriven.
    pub(crate) const PAST_ATTEMPTS: &str = "PastAttempts";
    pub(crate) const QUARANTINE_REASON: &str = "QuarantineReason";
    pub(crate) const QUARANTINED_AT_UTC: &str = "QuarantinedAtUtc";
    pub(crate) const PARKED_AT_UTC: &str = "ParkedAtUtc";
    pub(crate) const REDRIVE_STARTED_AT_UTC: &str = "RedriveStartedAtUtc";
    /// How many keys of a bucket are parked.
    pub(crate) const PARKED_KEYS: &str = "ParkedKeys";
}

const MESSAGES: &str = "MESSAGES";
const SEQUENCE: &str = "SEQUENCE";
const COORDINATION: &str = "COORDINATION";
const LEASE: &str = "LEASE#";
const RELAY: &str = "RELAY#";
const QUARANTINE: &str = "QUARANTINE";
/// What the sort keys of the numbers of parked keys begin with, beside the leases.
pub(crate) const PARKED: &str = "PARKED#";
/// What the sort keys of parked keys begin with. Not with a digit, as those of messages do.
pub(crate) const PARKED_KEY: &str = "KEY#";

/// The digits of a bucket in a lease's sort key.
const LEASE_DIGITS: usize = 10;

/// An item, as the SDK has it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// What a sort key in the coordination partition names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CoordinationKey {
    Lease(Bucket),
    Heartbeat(RelayId),
    /// How many keys of the bucket are parked.
    Parked(Bucket),
    /// Something that a later version put there.
    Unknown,
}

/// The partition key of a bucket's messages: `OUTBOX#MESSAGES#3`.
pub fn message_partition(key_prefix: &str, bucket: Bucket) -> String {
    format!("{key_prefix}#{MESSAGES}#{bucket}")
}

/// The bucket whose messages have this partition key; `None` if it is not the partition key of messages.
pub fn bucket_of_message_partition(key_prefix: &str, partition: &str) -> Option<Bucket> {
    let rest = partition.strip_prefix(key_prefix)?.strip_prefix('#')?;
    plain_decimal(rest.strip_prefix(MESSAGES)?.strip_prefix('#')?)
}

/// A bucket as a partition key has it: no sign, no leading zero. Anything else is not one of our keys.
fn plain_decimal(digits: &str) -> Option<Bucket> {
    let bucket: u32 = digits.parse().ok()?;
    (bucket.to_string() == digits).then(|| Bucket::new(bucket))
}

impl StoreOptions {
    pub(crate) fn message_partition(&self, bucket: Bucket) -> String {
        message_partition(&self.key_prefix, bucket)
    }

    pub(crate) fn coordination_partition(&self) -> String {
        format!("{}#{COORDINATION}", self.key_prefix)
    }

    pub(crate) fn message_key(&self, bucket: Bucket, sequence: Sequence) -> Item {
        self.key(self.message_partition(bucket), sequence.to_string())
    }

    pub(crate) fn sequence_key(&self, bucket: Bucket) -> Item {
        self.key(format!("{}#{SEQUENCE}#{bucket}", self.key_prefix), SEQUENCE.to_owned())
    }

    pub(crate) fn lease_key(&self, bucket: Bucket) -> Item {
        self.key(self.coordination_partition(), format!("{LEASE}{:0LEASE_DIGITS$}", bucket.number()))
    }

    pub(crate) fn heartbeat_key(&self, relay: &RelayId) -> Item {
        self.key(self.coordination_partition(), format!("{RELAY}{relay}"))
    }

    pub(crate) fn quarantine_partition(&self, bucket: Bucket) -> String {
        format!("{}#{QUARANTINE}#{bucket}", self.key_prefix)
    }

    /// A message that is set aside, under its own number.
    pub(crate) fn quarantine_key(&self, bucket: Bucket, sequence: Sequence) -> Item {
        self.key(self.quarantine_partition(bucket), sequence.to_string())
    }

    /// The marker of a parked key. A key can be longer than a sort key may be: its hash stands for it.
    pub(crate) fn parked_key(&self, bucket: Bucket, key: &[u8]) -> Item {
        let hash = Sha256::digest(key).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        self.key(self.quarantine_partition(bucket), format!("{PARKED_KEY}{hash}"))
    }

    /// How many keys of a bucket are parked, beside the leases: whoever reads those knows it.
    pub(crate) fn parked_count_key(&self, bucket: Bucket) -> Item {
        self.key(self.coordination_partition(), format!("{PARKED}{:0LEASE_DIGITS$}", bucket.number()))
    }

    fn key(&self, partition: String, sort: String) -> Item {
        Item::from([
            (self.partition_key_attribute.clone(), AttributeValue::S(partition)),
            (self.sort_key_attribute.clone(), AttributeValue::S(sort)),
        ])
    }
}

/// Reads a sort key of the coordination partition.
pub(crate) fn coordination_key(sort: &str) -> CoordinationKey {
    if let Some(bucket) = sort.strip_prefix(LEASE).and_then(padded) {
        return CoordinationKey::Lease(bucket);
    }
    if let Some(bucket) = sort.strip_prefix(PARKED).and_then(padded) {
        return CoordinationKey::Parked(bucket);
    }
    if let Some(relay) = sort.strip_prefix(RELAY).and_then(RelayId::new) {
        return CoordinationKey::Heartbeat(relay);
    }
    CoordinationKey::Unknown
}

/// A bucket as a sort key of the coordination partition has it.
fn padded(digits: &str) -> Option<Bucket> {
    let is_padded = digits.len() == LEASE_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_padded.then(|| digits.parse().ok()).flatten().map(Bucket::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(item: &Item, name: &str) -> String {
        item[name].as_s().unwrap().clone()
    }

    #[test]
    fn keys_are_as_the_format_has_them() {
        let options = StoreOptions::new("t");
        let key = options.message_key(Bucket::new(12), Sequence::new(42).unwrap());
        assert_eq!(
            (text(&key, "PK"), text(&key, "SK")),
            ("OUTBOX#MESSAGES#12".into(), "0000000000000000042".into())
        );
        let key = options.sequence_key(Bucket::new(0));
        assert_eq!((text(&key, "PK"), text(&key, "SK")), ("OUTBOX#SEQUENCE#0".into(), "SEQUENCE".into()));
        let key = options.lease_key(Bucket::new(7));
        assert_eq!(
            (text(&key, "PK"), text(&key, "SK")),
            ("OUTBOX#COORDINATION".into(), "LEASE#0000000007".into())
        );
        let key = options.quarantine_key(Bucket::new(3), Sequence::new(42).unwrap());
        assert_eq!(
            (text(&key, "PK"), text(&key, "SK")),
            ("OUTBOX#QUARANTINE#3".into(), "0000000000000000042".into())
        );
        let key = options.parked_key(Bucket::new(3), b"k");
        let hash = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a";
        assert_eq!(
            (text(&key, "PK"), text(&key, "SK")),
            ("OUTBOX#QUARANTINE#3".into(), format!("KEY#{hash}"))
        );
        let key = options.parked_count_key(Bucket::new(3));
        assert_eq!(
            (text(&key, "PK"), text(&key, "SK")),
            ("OUTBOX#COORDINATION".into(), "PARKED#0000000003".into())
        );
        let key = options.heartbeat_key(&RelayId::new("r-1").unwrap());
        assert_eq!((text(&key, "PK"), text(&key, "SK")), ("OUTBOX#COORDINATION".into(), "RELAY#r-1".into()));
    }

    #[test]
    fn only_partition_keys_of_messages_have_a_bucket() {
        let bucket = |partition| bucket_of_message_partition("OUTBOX", partition);
        assert_eq!(bucket("OUTBOX#MESSAGES#0"), Some(Bucket::new(0)));
        assert_eq!(bucket("OUTBOX#MESSAGES#4294967295"), Some(Bucket::new(u32::MAX)));
        for other in [
            "",
            "OUTBOX",
            "OUTBOX#MESSAGES#",
            "OUTBOX#MESSAGES#01",
            "OUTBOX#MESSAGES#+1",
            "OUTBOX#MESSAGES#-1",
            "OUTBOX#MESSAGES#4294967296",
            "OUTBOX#MESSAGES#1#2",
            "OUTBOX#SEQUENCE#1",
            "OTHER#MESSAGES#1",
            "OUTBOXES#MESSAGES#1",
            "XOUTBOX#MESSAGES#1",
            "OUTBOX#COORDINATION",
        ] {
            assert_eq!(bucket(other), None, "{other}");
        }
    }

    #[test]
    fn unknown_coordination_items_are_passed_over() {
        assert_eq!(coordination_key("LEASE#0000000003"), CoordinationKey::Lease(Bucket::new(3)));
        assert_eq!(coordination_key("PARKED#0000000003"), CoordinationKey::Parked(Bucket::new(3)));
        assert_eq!(coordination_key("RELAY#a"), CoordinationKey::Heartbeat(RelayId::new("a").unwrap()));
        for unknown in [
            "LEASE#3",
            "LEASE#00000000003",
            "LEASE#+000000003",
            "LEASE#9999999999",
            "RELAY#",
            "PARKED#3",
            "NEW#1",
            "",
        ] {
            assert_eq!(coordination_key(unknown), CoordinationKey::Unknown, "{unknown}");
        }
    }
}
