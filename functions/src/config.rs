//! The function's settings, read from the environment once (design.md, section 12).

use outbox::{RelayOptions, SettingError, Settings};
use outbox_publisher_kafka::KafkaConfig;
use outbox_store_dynamodb::StoreOptions;

/// The prefix of our own variables: one that no setting has is refused.
const PREFIX: &str = "OUTBOX_";

/// All that a function is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the relay works.
    pub relay: RelayOptions,
    /// Where the outbox is.
    pub store: StoreOptions,
    /// Where the brokers are.
    pub kafka: KafkaConfig,
}

impl Config {
    /// Reads all settings.
    ///
    /// # Errors
    /// Names the variable that is missing, malformed, or unknown.
    pub fn from_settings(mut settings: Settings) -> Result<Self, SettingError> {
        let config = Self {
            relay: RelayOptions::from_settings(&mut settings)?,
            store: StoreOptions::from_settings(&mut settings)?,
            kafka: KafkaConfig::from_settings(&mut settings)?,
        };
        settings.refuse_unknown(PREFIX)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [(&str, &str); 2] =
        [("OUTBOX_TABLE_NAME", "orders"), ("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")];

    fn read(values: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_settings(Settings::new(values.iter().copied())).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_required_is_enough() {
        let config = read(&REQUIRED).unwrap();
        assert_eq!(config.store.table_name(), "orders");
        assert_eq!(config.relay, RelayOptions::default());
    }

    #[test]
    fn what_is_missing_is_named() {
        for (missing, _) in REQUIRED {
            let rest: Vec<_> = REQUIRED.into_iter().filter(|(name, _)| *name != missing).collect();
            assert!(read(&rest).unwrap_err().contains(missing));
        }
    }

    #[test]
    fn a_misspelt_setting_is_named() {
        let misspelt = [REQUIRED[0], REQUIRED[1], ("OUTBOX_BUCKETS", "12")];
        assert!(read(&misspelt).unwrap_err().contains("OUTBOX_BUCKETS"));
    }
}
