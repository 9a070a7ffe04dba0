//! The table, as the template defines it, for those who make theirs in code.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    StreamViewType, TableStatus,
};
use outbox::{Clock, StoreError, StoreErrorKind};

use crate::StoreOptions;
use crate::error::{Effect, store_error};

/// How long a new table may take to become active, and how often it is looked at.
const ACTIVE_WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The request that creates the outbox's table: string keys, on demand, a stream of keys only (a hint needs no more),
/// and no time to live, which would turn a message that waits into one that is lost.
///
/// # Errors
/// Only if the options hold an empty attribute name.
pub fn definition(client: &Client, options: &StoreOptions) -> Result<CreateTableFluentBuilder, StoreError> {
    let unbuilt = |error| StoreError::new(StoreErrorKind::Misconfigured, "a table definition").because(error);
    let attribute = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
    };
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let (partition, sort) = (options.partition_key_attribute(), options.sort_key_attribute());
    let stream =
        StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::KeysOnly);
    Ok(client
        .create_table()
        .table_name(options.table_name())
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute(partition).map_err(unbuilt)?)
        .attribute_definitions(attribute(sort).map_err(unbuilt)?)
        .key_schema(key(partition, KeyType::Hash).map_err(unbuilt)?)
        .key_schema(key(sort, KeyType::Range).map_err(unbuilt)?)
        .stream_specification(stream.build().map_err(unbuilt)?))
}

/// Creates the table and waits until it is active. A table of that name that is there already is left as it is.
///
/// # Errors
/// Says what failed, or that the table was not active in time.
pub async fn create(client: &Client, options: &StoreOptions, clock: &dyn Clock) -> Result<(), StoreError> {
    if let Err(error) = definition(client, options)?.send().await
        && !error.as_service_error().is_some_and(|error| error.is_resource_in_use_exception())
    {
        return Err(store_error(options, Effect::Writes, "creation", error));
    }
    let since = clock.monotonic();
    while clock.monotonic().since(since) < ACTIVE_WITHIN {
        let described = client.describe_table().table_name(options.table_name()).send().await;
        let described =
            described.map_err(|error| store_error(options, Effect::Reads, "description", error))?;
        if described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
            return Ok(());
        }
        clock.sleep(LOOK_EVERY).await;
    }
    let message = format!("table {:?} was not active within {ACTIVE_WITHIN:?}", options.table_name());
    Err(StoreError::new(StoreErrorKind::MayHaveHappened, message))
}
