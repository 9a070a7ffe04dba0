//! What a relay can be told (design.md, section 12).

use std::time::Duration;

use crate::BucketCount;
use crate::settings::{SettingError, Settings, invalid};

/// The relay's options. [`RelayOptions::from_settings`] checks them; the defaults are sound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayOptions {
    /// How many buckets the outbox has: equal for every writer and relay.
    pub bucket_count: BucketCount,
    /// How many messages are fetched and published together.
    pub batch_size: usize,
    /// How long a lease lasts that is not renewed.
    pub lease_duration: Duration,
    /// At what age a lease is renewed: well below the duration. The difference is how far clocks may be apart.
    pub lease_renew_interval: Duration,
    /// What happens to a message that can never be published.
    pub poison_policy: PoisonPolicy,
    /// The logical name in metrics and logs.
    pub name: String,
    /// A bound on one whole publish call, for stores that cannot renew a lease: a statement about the publisher, not a
    /// timeout that ends it. A publish that outlasts it faults the relay. `None` where the store can renew.
    pub max_publish_duration: Option<Duration>,
}

/// What happens to a message that can never be published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoisonPolicy {
    /// Its key waits; messages of other keys go on.
    #[default]
    Block,
    /// It is set aside, and what comes later with its key follows it, until somebody has them
    /// [redriven](crate::quarantine). The store must be able to.
    Quarantine,
}

impl RelayOptions {
    /// The most messages of one batch.
    pub const MAX_BATCH_SIZE: usize = 10_000;

    /// Reads the relay's own `OUTBOX_` settings.
    ///
    /// # Errors
    /// Names the setting at fault.
    pub fn from_settings(settings: &mut Settings) -> Result<Self, SettingError> {
        let defaults = Self::default();
        let options = Self {
            bucket_count: bucket_count(settings)?,
            batch_size: settings.number_or(
                "OUTBOX_BATCH_SIZE",
                defaults.batch_size,
                1..=Self::MAX_BATCH_SIZE,
            )?,
            lease_duration: settings.duration_or(
                "OUTBOX_LEASE_DURATION",
                defaults.lease_duration,
                Duration::from_secs(3)..=Duration::from_mins(15),
            )?,
            lease_renew_interval: settings.duration_or(
                "OUTBOX_LEASE_RENEW_INTERVAL",
                defaults.lease_renew_interval,
                Duration::from_secs(1)..=Duration::from_mins(10),
            )?,
            poison_policy: settings.read_or(
                "OUTBOX_POISON_POLICY",
                defaults.poison_policy,
                "block or quarantine",
                |value| match value {
                    "block" => Some(PoisonPolicy::Block),
                    "quarantine" => Some(PoisonPolicy::Quarantine),
                    _ => None,
                },
            )?,
            name: settings.read_or(
                "OUTBOX_NAME",
                defaults.name,
                "1 to 64 ASCII letters, digits, '-', '_' or '.'",
                |value| is_name(value).then(|| value.to_owned()),
            )?,
            max_publish_duration: None,
        };
        // A renewal that comes at the last moment is late: one lost request must not cost the lease.
        if options.lease_renew_interval > options.lease_duration / 2 {
            let interval = settings.get("OUTBOX_LEASE_RENEW_INTERVAL").unwrap_or("10s, the default,");
            return Err(invalid(
                "OUTBOX_LEASE_RENEW_INTERVAL",
                interval,
                "at most half of OUTBOX_LEASE_DURATION, so that one lost renewal does not lose the lease",
            ));
        }
        Ok(options)
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            bucket_count: BucketCount::DEFAULT,
            batch_size: 500,
            lease_duration: Duration::from_secs(30),
            lease_renew_interval: Duration::from_secs(10),
            poison_policy: PoisonPolicy::Block,
            name: "outbox".to_owned(),
            max_publish_duration: None,
        }
    }
}

/// Reads `OUTBOX_BUCKET_COUNT`, which writers and relays share.
///
/// # Errors
/// Names the setting unless it is a number from 1 to [`BucketCount::MAX`].
pub fn bucket_count(settings: &mut Settings) -> Result<BucketCount, SettingError> {
    let allowed = format!("a whole number from 1 to {}, equal for every writer and relay", BucketCount::MAX);
    settings.read_or("OUTBOX_BUCKET_COUNT", BucketCount::DEFAULT, &allowed, |value| {
        value.parse().ok().and_then(BucketCount::new)
    })
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<RelayOptions, String> {
        RelayOptions::from_settings(&mut Settings::new(values.iter().copied()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        assert_eq!(read(&[]), Ok(RelayOptions::default()));
    }

    #[test]
    fn both_policies_can_be_chosen() {
        for (value, policy) in [("block", PoisonPolicy::Block), ("quarantine", PoisonPolicy::Quarantine)] {
            assert_eq!(read(&[("OUTBOX_POISON_POLICY", value)]).unwrap().poison_policy, policy);
        }
    }

    #[test]
    fn every_bad_value_is_refused_by_name() {
        for (name, value) in [
            ("OUTBOX_BUCKET_COUNT", "0"),
            ("OUTBOX_BUCKET_COUNT", "1025"),
            ("OUTBOX_BATCH_SIZE", "0"),
            ("OUTBOX_LEASE_DURATION", "30"),
            ("OUTBOX_LEASE_DURATION", "1s"),
            ("OUTBOX_LEASE_RENEW_INTERVAL", "16s"),
            ("OUTBOX_POISON_POLICY", "skip"),
            ("OUTBOX_NAME", "no spaces"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_shorter_lease_than_two_default_renewals_is_refused() {
        let error = read(&[("OUTBOX_LEASE_DURATION", "15s")]).unwrap_err();
        assert!(
            error.contains("OUTBOX_LEASE_RENEW_INTERVAL") && error.contains("OUTBOX_LEASE_DURATION"),
            "{error}"
        );
    }
}
