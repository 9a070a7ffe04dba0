//! What a cold start makes: clients, once, from the settings.

use std::sync::Arc;

use aws_config::BehaviorVersion;
use outbox::{Chance, Clock, Relay, Settings, SystemClock};
use outbox_publisher_kafka::{Connect, KafkaPublisher};
use outbox_store_dynamodb::{DynamoDbStore, client_timeouts, http_client};

use crate::credentials::credential_source;
use crate::{App, Config, FunctionError, LambdaWorkers, TableIdentity};

/// Makes the function's parts. Waits for no connection: a first request may fail, and then says why. `connect` says
/// whether brokers are connected to already; where they want credentials, the first of those are waited for then, within
/// a bound.
///
/// # Errors
/// Names the setting that is missing, malformed or unknown.
pub async fn start(
    settings: Settings,
    connect: Connect,
) -> Result<App<DynamoDbStore, KafkaPublisher>, FunctionError> {
    let config = Config::from_settings(settings).map_err(|error| FunctionError::misconfigured(&error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // For the providers of credentials too: what they connect to may be dead after a freeze as well.
    let aws = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client(Arc::clone(&clock)))
        .timeout_config(client_timeouts())
        .load()
        .await;
    if aws.region().is_none() {
        // Lambda sets it; without it every request would fail before it is sent, again and again.
        let message = "AWS_REGION is not set: the region of the table, such as eu-west-1";
        return Err(FunctionError::Misconfigured(message.to_owned()));
    }
    let chance = Chance::from_system();
    let table = TableIdentity::from(&config.store);
    let (name, metrics) = (config.relay.name.clone(), config.metrics);
    let store = DynamoDbStore::new(
        aws_sdk_dynamodb::Client::new(&aws),
        config.store,
        Arc::clone(&clock),
        chance.clone(),
    );
    let publisher = match credential_source(&config.kafka, &aws, &clock)? {
        None => KafkaPublisher::new(config.kafka, connect, Arc::clone(&clock)),
        Some(source) => {
            KafkaPublisher::with_credentials(config.kafka, source, connect, Arc::clone(&clock)).await
        }
    };
    let publisher = publisher.map_err(|error| FunctionError::misconfigured(&error))?;
    let relay = Relay::new(store, publisher, config.relay, Arc::clone(&clock), chance.clone());
    let mut relay = relay.map_err(|error| FunctionError::misconfigured(&error))?;
    if let Some(function) = config.function_name {
        relay = relay.with_workers(Arc::new(LambdaWorkers::new(&aws, function, config.max_workers)));
    }
    Ok(App::new(relay, name, table, metrics, clock, chance))
}
