//! Where the outbox is (design.md, section 12).

use outbox::BucketCount;
use outbox::options::bucket_count;
use outbox::settings::{SettingError, Settings};

/// Where the outbox is: the table, its key attributes, the prefix of its partition keys. Equal for every writer and
/// relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    pub(crate) table_name: String,
    pub(crate) key_prefix: String,
    pub(crate) partition_key_attribute: String,
    pub(crate) sort_key_attribute: String,
    pub(crate) bucket_count: BucketCount,
}

impl StoreOptions {
    /// The outbox in this table, with the default prefix, key attributes and bucket count.
    pub fn new(table_name: impl Into<String>) -> Self {
        Self {
            table_name: table_name.into(),
            key_prefix: "OUTBOX".to_owned(),
            partition_key_attribute: "PK".to_owned(),
            sort_key_attribute: "SK".to_owned(),
            bucket_count: BucketCount::DEFAULT,
        }
    }

    /// The outbox with this prefix of every partition key.
    #[must_use]
    pub fn with_key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// The outbox in a table whose keys are named so.
    #[must_use]
    pub fn with_key_attributes(mut self, partition: impl Into<String>, sort: impl Into<String>) -> Self {
        self.partition_key_attribute = partition.into();
        self.sort_key_attribute = sort.into();
        self
    }

    /// The outbox with so many buckets.
    #[must_use]
    pub const fn with_bucket_count(mut self, count: BucketCount) -> Self {
        self.bucket_count = count;
        self
    }

    /// Reads the store's `OUTBOX_` settings.
    ///
    /// # Errors
    /// Names the setting at fault.
    pub fn from_settings(settings: &mut Settings) -> Result<Self, SettingError> {
        let defaults =
            Self::new(settings.required("OUTBOX_TABLE_NAME", "the name or ARN of the outbox table")?);
        Ok(Self {
            bucket_count: bucket_count(settings)?,
            key_prefix: settings.read_or(
                "OUTBOX_KEY_PREFIX",
                defaults.key_prefix,
                "1 to 128 characters",
                |value| (value.len() <= 128).then(|| value.to_owned()),
            )?,
            partition_key_attribute: attribute(
                settings,
                "OUTBOX_PARTITION_KEY_ATTRIBUTE",
                defaults.partition_key_attribute,
            )?,
            sort_key_attribute: attribute(
                settings,
                "OUTBOX_SORT_KEY_ATTRIBUTE",
                defaults.sort_key_attribute,
            )?,
            table_name: defaults.table_name,
        })
    }

    /// The table's name or ARN.
    pub fn table_name(&self) -> &str {
        &self.table_name
    }

    /// The prefix of every partition key.
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// The name of the partition key attribute.
    pub fn partition_key_attribute(&self) -> &str {
        &self.partition_key_attribute
    }

    /// The name of the sort key attribute.
    pub fn sort_key_attribute(&self) -> &str {
        &self.sort_key_attribute
    }

    /// How many buckets there are.
    pub const fn bucket_count(&self) -> BucketCount {
        self.bucket_count
    }
}

fn attribute(settings: &mut Settings, name: &str, default: String) -> Result<String, SettingError> {
    // DynamoDB's own limit on the names of key attributes.
    settings.read_or(name, default, "an attribute name of 1 to 255 characters", |value| {
        (value.len() <= 255).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_their_names() {
        let mut settings = Settings::new([
            ("OUTBOX_TABLE_NAME", "app"),
            ("OUTBOX_KEY_PREFIX", "EVENTS"),
            ("OUTBOX_PARTITION_KEY_ATTRIBUTE", "pk"),
            ("OUTBOX_SORT_KEY_ATTRIBUTE", "sk"),
            ("OUTBOX_BUCKET_COUNT", "12"),
        ]);
        let expected = StoreOptions::new("app")
            .with_key_prefix("EVENTS")
            .with_key_attributes("pk", "sk")
            .with_bucket_count(BucketCount::new(12).unwrap());
        assert_eq!(StoreOptions::from_settings(&mut settings), Ok(expected));
        assert_eq!(settings.refuse_unknown("OUTBOX_"), Ok(()));
    }

    #[test]
    fn a_missing_table_name_is_named() {
        let error = StoreOptions::from_settings(&mut Settings::new([("A", "B")])).unwrap_err();
        assert!(error.to_string().contains("OUTBOX_TABLE_NAME"), "{error}");
    }
}
