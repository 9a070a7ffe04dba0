//! The two functions, served to the Lambda runtime.

use lambda_runtime::{LambdaEvent, service_fn};
use outbox::Settings;
use outbox_publisher_kafka::{Connect, KafkaPublisher};
use outbox_store_dynamodb::DynamoDbStore;
use serde_json::Value;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::{App, FunctionError, scheduled, start, stream};

/// Serves `stream-relay` until the runtime ends.
///
/// # Errors
/// If the Runtime API cannot be reached.
pub async fn stream_relay() -> Result<(), lambda_runtime::Error> {
    // It was started because a message was written: connecting goes on while the event is fetched and read.
    let app = prepare(Connect::AtOnce).await;
    let app = &app;
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Value>| stream(ready(app)?, event).await))
        .await
}

/// Serves `scheduled-relay` until the runtime ends.
///
/// # Errors
/// If the Runtime API cannot be reached.
pub async fn scheduled_relay() -> Result<(), lambda_runtime::Error> {
    // Most sweeps find nothing, and a broker has only so many connections to give in a second.
    let app = prepare(Connect::AtFirstPublish).await;
    let app = &app;
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Value>| {
        scheduled(ready(app)?, event).await
    }))
    .await
}

/// Where the runtime makes the span of an invocation.
const INVOCATION_SPAN: &str = "lambda_runtime::layers::trace";
/// What is logged: levels, also by target. Not by what is in a span: regular expressions would be a tenth of the binary.
const LOG: &str = "RUST_LOG";

type Started = Result<App<DynamoDbStore, KafkaPublisher>, FunctionError>;

/// Starts logging and the function's parts. A start that fails is kept, and answers every invocation: that way its
/// reason reaches whoever invoked, the error metric and the failure destination, and not the log alone.
async fn prepare(connect: Connect) -> Started {
    let wanted = std::env::var(LOG).ok().filter(|wanted| !wanted.is_empty());
    let filter = wanted.as_deref().map(str::parse::<Targets>).transpose();
    // The span of an invocation carries its request id; its parents have nothing to add.
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false);
    let chosen = filter.as_ref().ok().cloned().flatten();
    let chosen = chosen.unwrap_or_else(|| Targets::new().with_default(Level::INFO));
    // However little is to be logged, what is logged says of which invocation.
    let chosen = chosen.with_target(INVOCATION_SPAN, Level::INFO);
    tracing_subscriber::registry().with(lines).with(chosen).init();
    if let Err(error) = filter {
        tracing::warn!(%error, "{LOG} is not understood: what is at least info is logged");
    }
    let started = start(Settings::from_environment(), connect).await;
    if let Err(error) = &started {
        tracing::error!(%error, "the function cannot start");
    }
    started
}

fn ready(started: &Started) -> Result<&App<DynamoDbStore, KafkaPublisher>, FunctionError> {
    started.as_ref().map_err(Clone::clone)
}
