//! The function's settings, read from the environment once (design.md, section 12).

use outbox::{RelayOptions, SettingError, Settings};
use outbox_publisher_kafka::KafkaConfig;
use outbox_store_dynamodb::StoreOptions;

use crate::metrics::Metrics;
use crate::workers::MAX_WORKERS;

/// The prefixes of our own variables: one that no setting has is refused. A `KAFKA_AUTH` that is misspelt would have
/// every record sent in the clear.
const PREFIXES: [&str; 2] = ["OUTBOX_", "KAFKA_"];

/// Enough to halve the time of a backlog twice, few enough for an account with Lambda's smallest limit, 10 at once.
const DEFAULT_MAX_WORKERS: usize = 4;
const MOST_WORKERS: usize = 100;

/// All that a function is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the relay works.
    pub relay: RelayOptions,
    /// Where the outbox is.
    pub store: StoreOptions,
    /// Where the brokers are.
    pub kafka: KafkaConfig,
    /// How many sweeps may be at work at once; 0: none starts another.
    pub max_workers: usize,
    /// Where metrics go.
    pub metrics: Metrics,
    /// This function's name, which Lambda sets; `None`: this is not Lambda.
    pub function_name: Option<String>,
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
            max_workers: settings.number_or(MAX_WORKERS, DEFAULT_MAX_WORKERS, 0..=MOST_WORKERS)?,
            metrics: settings.read_or("OUTBOX_METRICS", Metrics::Emf, "emf or off", |value| match value {
                "emf" => Some(Metrics::Emf),
                "off" => Some(Metrics::Off),
                _ => None,
            })?,
            function_name: settings.get("AWS_LAMBDA_FUNCTION_NAME").map(str::to_owned),
        };
        for prefix in PREFIXES {
            settings.refuse_unknown(prefix)?;
        }
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
    fn the_bound_of_workers_is_bounded() {
        let with = |value| read(&[REQUIRED[0], REQUIRED[1], ("OUTBOX_MAX_WORKERS", value)]);
        assert_eq!(with("0").unwrap().max_workers, 0);
        for value in ["101", "-1", "many"] {
            let error = with(value).unwrap_err();
            assert!(error.contains("OUTBOX_MAX_WORKERS") && error.contains(value), "{error}");
        }
    }

    #[test]
    fn metrics_are_written_unless_they_are_turned_off() {
        assert_eq!(read(&REQUIRED).unwrap().metrics, Metrics::Emf);
        let with = |value| read(&[REQUIRED[0], REQUIRED[1], ("OUTBOX_METRICS", value)]);
        assert_eq!(with("emf").unwrap().metrics, Metrics::Emf);
        assert_eq!(with("off").unwrap().metrics, Metrics::Off);
        let error = with("statsd").unwrap_err();
        assert!(error.contains("OUTBOX_METRICS") && error.contains("statsd"), "{error}");
    }

    #[test]
    fn a_misspelt_setting_is_named() {
        for name in ["OUTBOX_BUCKETS", "KAFKA_AUT", "KAFKA_PASSWORD"] {
            let misspelt = [REQUIRED[0], REQUIRED[1], (name, "12")];
            assert!(read(&misspelt).unwrap_err().contains(name));
        }
    }
}
