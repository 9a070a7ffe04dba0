//! A relay as a long-lived process: for a container or a server, beside or instead of the Lambda functions.
//!
//! ```sh
//! export OUTBOX_TABLE_NAME=outbox KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092
//! cargo run --example continuous-relay
//! ```
//!
//! It takes the same settings as the functions, shares the buckets with every other relay of the table, and hands them
//! over when it is interrupted or terminated. Several of them divide the buckets. An application that writes messages in
//! the same process hands its commits to [`outbox::Notifier`]; here there is none, so a poll finds them.

use std::process::ExitCode;

use outbox::{Chain, Continuous, Settings};
use outbox_functions::start;
use outbox_publisher_kafka::Connect;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();

    let app = start(Settings::from_environment(), Connect::AtOnce).await?;
    let stop = CancellationToken::new();
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        tracing::info!(
            "stopping: what is being published is seen to its end, and the buckets are handed over"
        );
        stopping.cancel();
    });

    let id = app.chance.relay_id("continuous", app.clock.now_utc());
    tracing::info!(relay = %id, "running");
    let report = app.relay.run_continuously(&id, Continuous::until(stop)).await;
    tracing::info!(acknowledged = report.acknowledged(), deleted = report.deleted(), "stopped");
    match report.misconfiguration() {
        Some(error) => Err(Chain(error).to_string().into()),
        None => Ok(()),
    }
}
