//! A function's environment: what somebody has typed into a template.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::settings::{SettingError, Settings, parse_duration};
use outbox_functions::{Config, Metrics};

use crate::Input;

/// Our own variables.
const PREFIXES: [&str; 2] = ["OUTBOX_", "KAFKA_"];
/// What may be a secret by mistake: an error shows how long it is instead.
const HIDDEN: [&str; 3] = ["KAFKA_CA_FILE", "KAFKA_CA_PEM", "KAFKA_SECRET_ID"];
/// One that no version will have.
const MISSPELT: &str = "OUTBOX_NO_SUCH_SETTING";

/// Takes the bytes as lines of `NAME=value`.
pub(crate) fn check(bytes: &[u8]) -> Input {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Input::Rejected;
    };
    let variables: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).filter(|(_, value)| !value.is_empty()).collect();
    match Config::from_settings(Settings::new(variables.clone())) {
        Ok(config) => {
            check_config(&config, &variables);
            check_misspelt(&variables);
        }
        Err(error) => check_error(&error, &variables),
    }
    for value in variables.values() {
        check_duration(value);
    }
    Input::Checked
}

/// What was accepted is within what the settings allow, and is what was said.
fn check_config(config: &Config, variables: &BTreeMap<&str, &str>) {
    let (relay, store) = (&config.relay, &config.store);
    assert_eq!(variables.get("OUTBOX_TABLE_NAME").copied(), Some(store.table_name()));
    assert_eq!(relay.bucket_count, store.bucket_count());
    assert_eq!(said(variables, "OUTBOX_BUCKET_COUNT").unwrap_or(8), relay.bucket_count.get());
    assert!((1..=1024).contains(&relay.bucket_count.get()));
    assert_eq!(said(variables, "OUTBOX_BATCH_SIZE").unwrap_or(500), relay.batch_size);
    assert!((1..=10_000).contains(&relay.batch_size));
    assert!(relay.lease_duration <= Duration::from_mins(15));
    assert!(relay.lease_renew_interval >= Duration::from_secs(1));
    assert!(relay.lease_renew_interval * 2 <= relay.lease_duration);
    assert!(store.key_prefix().len() <= 128 && !store.key_prefix().is_empty());
    assert!(!store.partition_key_attribute().is_empty() && !store.sort_key_attribute().is_empty());
    assert!(relay.name.is_ascii() && (1..=64).contains(&relay.name.len()));
    assert_eq!(said(variables, "OUTBOX_MAX_WORKERS").unwrap_or(4), config.max_workers);
    assert!(config.max_workers <= 100);
    let is_off = variables.get("OUTBOX_METRICS") == Some(&"off");
    assert_eq!(config.metrics, if is_off { Metrics::Off } else { Metrics::Emf });
    assert!(config.kafka.bootstrap_servers().contains(':'));
    let strict = said(variables, "OUTBOX_STRICT_KEY_ORDER").unwrap_or(false);
    assert_eq!(strict, config.kafka.strict_key_order());
    let header = config.kafka.message_id_header();
    assert!(!header.is_empty() && header.bytes().all(|byte| byte.is_ascii_graphic()), "{header:?}");
}

fn said<T: std::str::FromStr>(variables: &BTreeMap<&str, &str>, name: &str) -> Option<T> {
    variables.get(name).map(|value| value.parse().ok().expect("a value that was accepted"))
}

/// What was refused is named, with its value, and is at fault.
fn check_error(error: &SettingError, variables: &BTreeMap<&str, &str>) {
    let text = error.to_string();
    match error {
        SettingError::Missing { name, allowed } => {
            assert!(!variables.contains_key(name.as_str()), "{text}");
            assert!(text.contains(name) && text.contains(allowed), "{text}");
        }
        SettingError::Invalid { name, value, allowed } => {
            // A default can be at odds with what was set beside it.
            let is_hidden = |said: &str| {
                HIDDEN.contains(&name.as_str()) && *value == format!("({} characters)", said.chars().count())
            };
            let said = variables.get(name.as_str());
            assert!(said.is_none_or(|said| said == value || is_hidden(said)), "{text}");
            let shown = format!("{value:?}");
            assert!(text.contains(name) && text.contains(&shown) && text.contains(allowed), "{text}");
        }
        SettingError::Unknown { names } => {
            assert!(!names.is_empty());
            for name in names {
                assert!(PREFIXES.iter().any(|prefix| name.starts_with(prefix)), "{text}");
                assert!(variables.contains_key(name.as_str()), "{text}");
                assert!(text.contains(name), "{text}");
            }
        }
        error => panic!("an error that this check does not know: {error}"),
    }
}

/// Beside settings that are right, a misspelt one is what is refused, and it alone.
fn check_misspelt(variables: &BTreeMap<&str, &str>) {
    let more = variables.iter().map(|(name, value)| (*name, *value)).chain([(MISSPELT, "1")]);
    let refused = Config::from_settings(Settings::new(more)).map(|config| config.relay.name);
    assert_eq!(refused, Err(SettingError::Unknown { names: vec![MISSPELT.to_owned()] }));
}

/// A duration is exactly the number that it begins with, of its unit.
fn check_duration(text: &str) {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let millis = match text.strip_prefix(digits) {
        Some("ms") => Some(1),
        Some("s") => Some(1000),
        Some("m") => Some(60_000),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()));
    let expected = number.zip(millis).map(|(number, millis)| u128::from(number) * millis);
    let largest = u128::from(u64::MAX) * 1000 + 999;
    let expected = expected.filter(|millis| *millis <= largest);
    assert_eq!(parse_duration(text).map(|duration| duration.as_millis()), expected, "{text:?}");
}
