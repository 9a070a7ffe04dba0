//! The command: the first run, the campaign, and the environment by itself.

mod cli;
mod progress;

use std::process::ExitCode;

use clap::Parser;
use outbox::Chain;
use outbox_local::campaign;
use outbox_local::environment::Environment;
use outbox_local::first_run::{self, RunOptions};
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};

/// The embedded database warns of every refused write, and refused writes are how a probe and a race end. What the
/// functions say all the time is for whoever asks for it (RUST_LOG=info); after a failed run it is shown anyway.
const FILTER: &str = "warn,dynoxide=error,outbox_local=info,outbox_local::function=warn";

/// In a campaign functions are killed and brokers go away on purpose: what must not be is in its report.
const CAMPAIGN_FILTER: &str = "error,dynoxide=off,outbox_local=error,outbox_local::function=off";

type AnyError = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let command = Cli::parse().command;
    let filter = if matches!(command, Command::Campaign(_)) { CAMPAIGN_FILTER } else { FILTER };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| filter.into()))
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    let done = match command {
        Command::FirstRun(arguments) => first_run(arguments).await,
        Command::Campaign(arguments) => campaign(arguments).await,
        Command::Up(arguments) => up(arguments).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Places orders and reports. Fails when anything was lost, altered or out of order.
async fn first_run(arguments: cli::FirstRun) -> Result<ExitCode, AnyError> {
    let mut observer = progress::FirstRun::new(arguments.orders);
    let options = arguments.options()?;
    let left_behind = left_behind(&options);
    let run = first_run::run(options, &mut observer);
    let report = tokio::select! {
        report = run => report?,
        // What was started ends with the run's future.
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            eprintln!("interrupted");
            return Ok(ExitCode::FAILURE);
        }
    };
    println!("\n{report}");
    if !left_behind.is_empty() {
        println!("\nleft behind: {}", left_behind.join(", "));
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Strikes and reports. Fails when anything was lost or out of order, or anything else that must hold did not.
async fn campaign(arguments: cli::Campaign) -> Result<ExitCode, AnyError> {
    let options = arguments.options()?;
    let seed = options.seed;
    // First of all, for whatever happens later.
    eprintln!("seed {seed}");
    let mut observer = progress::Campaign::new();
    let report = tokio::select! {
        report = campaign::run(options, &mut observer) => report?,
        // What was started ends with the campaign's future.
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            eprintln!("interrupted; the seed was {seed}");
            return Ok(ExitCode::FAILURE);
        }
    };
    println!("\n{report}");
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a database or a broker that is not ours keeps of a run.
fn left_behind(options: &RunOptions) -> Vec<String> {
    let mut left = Vec::new();
    if options.environment.dynamodb_endpoint.is_some() {
        left.push(format!("table {}", options.environment.table));
        left.push(format!("table {}", options.orders_table));
    }
    if options.environment.kafka.bootstrap_servers.is_some() {
        left.push(format!("topic {}", options.topic));
    }
    left
}

/// Starts everything and stays until Ctrl-C.
async fn up(arguments: cli::Up) -> Result<ExitCode, AnyError> {
    let start = Environment::start(arguments.environment.options()?);
    let environment = tokio::select! {
        environment = start => environment?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let database = environment.database();
    println!("DynamoDB  {} ({})", database.endpoint(), database.kind());
    println!("Kafka     {} ({})", environment.broker().bootstrap_servers(), environment.broker().kind());
    println!("Table     {}", environment.store_options().table_name());
    println!("\nFor your application:\n");
    for (name, value) in environment.variables() {
        println!("export {name}={value}");
    }
    println!("\nBoth functions are running (RUST_LOG=info shows what they say). Ctrl-C ends everything.");
    tokio::signal::ctrl_c().await?;
    environment.stop().await;
    Ok(ExitCode::SUCCESS)
}
