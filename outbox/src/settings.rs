//! Settings by name, as design.md section 12 lists them: read from the environment, refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The variables a process was given, and which of them somebody has asked for.
///
/// An empty value counts as not set: SAM templates cannot leave a variable out, only empty.
#[derive(Clone)]
pub struct Settings {
    values: BTreeMap<String, String>,
    known: BTreeSet<String>,
}

/// A setting that is missing, malformed or unknown. Its text is all an operator needs to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A required variable is not set.
    #[error("{name} is not set: {allowed}")]
    Missing {
        /// The variable.
        name: String,
        /// What it should hold.
        allowed: String,
    },
    /// A variable holds something else than what is allowed.
    #[error("{name}={value:?} is not valid: {allowed}")]
    Invalid {
        /// The variable.
        name: String,
        /// What it holds.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// Variables with our prefix that no setting has: most likely misspelt.
    #[error("unknown setting {}: check the spelling, or remove it", .names.join(", "))]
    Unknown {
        /// The variables.
        names: Vec<String>,
    },
}

impl Settings {
    /// Settings from names and values; of a repeated name the last one counts.
    pub fn new(values: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self {
            values: values.filter(|(_, value): &(String, String)| !value.is_empty()).collect(),
            known: BTreeSet::new(),
        }
    }

    /// Settings from this process's environment. Variables that are not Unicode are passed over.
    pub fn from_environment() -> Self {
        Self::new(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// The value of `name`, if it is set.
    pub fn get(&mut self, name: &str) -> Option<&str> {
        self.known.insert(name.to_owned());
        self.values.get(name).map(String::as_str)
    }

    /// The value of `name`.
    ///
    /// # Errors
    /// [`SettingError::Missing`], with `allowed` to say what it should hold.
    pub fn required(&mut self, name: &str, allowed: &str) -> Result<String, SettingError> {
        self.get(name)
            .map(str::to_owned)
            .ok_or_else(|| SettingError::Missing { name: name.to_owned(), allowed: allowed.to_owned() })
    }

    /// The value of `name` as `read` understands it, or `default` where it is not set.
    ///
    /// # Errors
    /// [`SettingError::Invalid`], with `allowed` to say what it may hold, where `read` gives nothing.
    pub fn read_or<T>(
        &mut self,
        name: &str,
        default: T,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        read(value).ok_or_else(|| invalid(name, value, allowed))
    }

    /// The whole number in `name`, or `default` where it is not set.
    ///
    /// # Errors
    /// [`SettingError::Invalid`] unless it is a number in `range`.
    pub fn number_or<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        name: &str,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, SettingError> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        self.read_or(name, default, &allowed, |value| {
            value.parse().ok().filter(|number| range.contains(number))
        })
    }

    /// The duration in `name`, or `default` where it is not set.
    ///
    /// # Errors
    /// [`SettingError::Invalid`] unless it is a whole number with a unit, in `range`.
    pub fn duration_or(
        &mut self,
        name: &str,
        default: Duration,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Result<Duration, SettingError> {
        let (from, to) = (show_duration(*range.start()), show_duration(*range.end()));
        let allowed =
            format!("a duration from {from} to {to}, as a whole number with a unit: 500ms, 30s, 2m");
        self.read_or(name, default, &allowed, |value| {
            parse_duration(value).filter(|duration| range.contains(duration))
        })
    }

    /// Refuses what nobody asked for: call it last.
    ///
    /// # Errors
    /// [`SettingError::Unknown`] if a variable that starts with `prefix` was never asked for.
    pub fn refuse_unknown(&self, prefix: &str) -> Result<(), SettingError> {
        let names = self.values.keys().filter(|name| name.starts_with(prefix) && !self.known.contains(*name));
        let names: Vec<String> = names.cloned().collect();
        if names.is_empty() { Ok(()) } else { Err(SettingError::Unknown { names }) }
    }
}

/// Values can be secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// The error for a value that is not allowed.
pub fn invalid(name: &str, value: &str, allowed: &str) -> SettingError {
    SettingError::Invalid { name: name.to_owned(), value: value.to_owned(), allowed: allowed.to_owned() }
}

/// Reads a whole number with a unit: `500ms`, `30s`, `2m`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match (millis % 60_000, millis % 1000) {
        (0, _) if millis > 0 => format!("{}m", millis / 60_000),
        (_, 0) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        for bad in
            ["", "30", "s", "1.5s", "-1s", "1h", "1 s", "99999999999999999999s", "18446744073709551615m"]
        {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bad_value_names_variable_value_and_what_is_allowed() {
        let mut settings = Settings::new([("OUTBOX_BATCH_SIZE", "many")]);
        let error = settings.number_or("OUTBOX_BATCH_SIZE", 500, 1..=10_000).unwrap_err().to_string();
        assert_eq!(error, "OUTBOX_BATCH_SIZE=\"many\" is not valid: a whole number from 1 to 10000");
    }

    #[test]
    fn an_unknown_variable_is_refused_by_name() {
        let mut settings = Settings::new([("OUTBOX_BATCHSIZE", "10"), ("OUTBOX_NAME", "a"), ("OTHER", "b")]);
        assert_eq!(settings.get("OUTBOX_NAME"), Some("a"));
        assert_eq!(
            settings.refuse_unknown("OUTBOX_"),
            Err(SettingError::Unknown { names: vec!["OUTBOX_BATCHSIZE".to_owned()] })
        );
    }

    #[test]
    fn an_empty_value_is_not_set() {
        let mut settings = Settings::new([("OUTBOX_NAME", "")]);
        assert_eq!(settings.get("OUTBOX_NAME"), None);
        assert!(settings.required("OUTBOX_NAME", "a name").is_err());
    }

    #[test]
    fn debug_shows_no_value() {
        assert!(!format!("{:?}", Settings::new([("KAFKA_PASSWORD", "hunter2")])).contains("hunter2"));
    }
}
