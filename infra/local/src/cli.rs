//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use outbox::BucketCount;
use outbox::settings::parse_duration;
use outbox_local::campaign::{CampaignOptions, Kind, Scenario, ScenarioKind};
use outbox_local::dynamodb::AWS_ENDPOINT_URL_DYNAMODB;
use outbox_local::environment::EnvironmentOptions;
use outbox_local::first_run::RunOptions;
use outbox_local::functions::Profile;
use outbox_local::kafka::{BrokerOptions, KAFKA_BOOTSTRAP_SERVERS, RequireError};

/// The outbox on this machine: DynamoDB, Kafka and both Lambda functions, without AWS and without Docker.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Place orders with their messages in one transaction each, read them back from Kafka, and report.
    ///
    /// Exits with 0 if every order arrived and each customer's orders arrived in order.
    FirstRun(FirstRun),
    /// Kill, freeze and cut off real processes under load, round by round, and report what was lost or out of order.
    ///
    /// Outages as long as real ones come first, each with a verdict of its own. Exits with 0 if nothing was lost,
    /// nothing out of order, every invocation ended by itself unless a round ended it, the outbox emptied in time, and
    /// every kind of round hit something. The seed reproduces the choices, not the timing of processes.
    Campaign(Campaign),
    /// Start everything and stay until Ctrl-C; prints what an application needs to use it.
    Up(Up),
}

#[derive(Debug, Args)]
pub(crate) struct FirstRun {
    /// How many orders to place.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) orders: u32,
    /// How many customers they are spread over; each customer's orders are placed one after another.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    customers: u32,
    /// How many orders are in flight at once, each of another customer.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    partitions: u32,
    /// How long nothing new may arrive before orders that are still missing count as lost.
    #[arg(long, default_value = "2m", value_parser = duration)]
    patience: Duration,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

#[derive(Debug, Args)]
pub(crate) struct Campaign {
    /// How many rounds; 0: outages alone.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    rounds: u32,
    /// Decides kinds, victims, delays and lengths; without it, one is drawn and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// These kinds of rounds alone, joined by commas.
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    only: Vec<Kind>,
    /// These outages, joined by commas; "all", or "none".
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "OUTAGES")]
    outages: Vec<String>,
    /// How long each outage lasts. From 3m on the functions have the template's timeouts and leases, below short ones.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    outage_length: Duration,
    /// Rounds between two fresh starts with a verdict each.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=200))]
    segment_rounds: u32,
    /// Orders a second.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// How many customers they are spread over; each customer's orders are placed one after another.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    customers: u32,
    #[command(flatten)]
    environment: CampaignEnvironment,
}

/// As for the other commands, without what the campaign decides itself.
#[derive(Debug, Args)]
pub(crate) struct CampaignEnvironment {
    /// Another DynamoDB; without it one is embedded.
    #[arg(long, env = AWS_ENDPOINT_URL_DYNAMODB, value_name = "URL")]
    dynamodb_endpoint: Option<String>,
    /// Another Kafka: then the rounds that stop, kill or freeze the broker are left out, by name.
    #[arg(long, env = KAFKA_BOOTSTRAP_SERVERS, value_name = "HOST:PORT")]
    kafka_bootstrap_servers: Option<String>,
    /// Build and run the functions as they are deployed.
    #[arg(long)]
    release: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) environment: EnvironmentArguments,
}

#[derive(Debug, Args)]
pub(crate) struct EnvironmentArguments {
    /// Another DynamoDB, such as http://127.0.0.1:8000 for DynamoDB Local; without it one is embedded.
    #[arg(long, env = AWS_ENDPOINT_URL_DYNAMODB, value_name = "URL")]
    dynamodb_endpoint: Option<String>,
    /// Another Kafka, such as 127.0.0.1:19092 for Redpanda; without it one is started here, and where there is
    /// no Java or no Maven for it, a mock (LOCAL_KAFKA_REQUIRE=real makes that an error).
    #[arg(long, env = KAFKA_BOOTSTRAP_SERVERS, value_name = "HOST:PORT")]
    kafka_bootstrap_servers: Option<String>,
    /// How many buckets the outbox has.
    #[arg(long, default_value_t = BucketCount::DEFAULT.get(), value_parser = clap::value_parser!(u32).range(1..=i64::from(BucketCount::MAX)))]
    buckets: u32,
    /// How often every bucket is looked at, such as 30s; without it, as often as template.yaml says.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    sweep_interval: Option<Duration>,
    /// Build and run the functions as they are deployed: slower to build, faster to run.
    #[arg(long)]
    release: bool,
    /// Let idle functions run on, which Lambda would freeze.
    #[arg(long)]
    no_freeze: bool,
}

impl FirstRun {
    pub(crate) fn options(&self) -> Result<RunOptions, RequireError> {
        Ok(RunOptions {
            orders: self.orders,
            customers: self.customers,
            concurrency: self.concurrency.into(),
            partitions: self.partitions,
            patience: self.patience,
            ..RunOptions::in_environment(self.environment.options()?)
        })
    }
}

impl Campaign {
    pub(crate) fn options(&self) -> Result<CampaignOptions, Box<dyn std::error::Error>> {
        let defaults = CampaignOptions::default();
        let seed = self.seed.unwrap_or(defaults.seed);
        let kinds = if self.only.is_empty() { defaults.kinds } else { self.only.iter().copied().collect() };
        Ok(CampaignOptions {
            environment: self.environment.options()?,
            seed,
            rounds: self.rounds,
            kinds,
            segment_rounds: self.segment_rounds,
            timing: defaults.timing,
            scenarios: self.scenarios()?,
            rate: self.rate,
            customers: self.customers,
            keep: defaults.keep.join(seed.to_string()),
        })
    }

    fn scenarios(&self) -> Result<Vec<Scenario>, Box<dyn std::error::Error>> {
        let kinds: Vec<ScenarioKind> = match &self.outages[..] {
            [all] if all == "all" => ScenarioKind::ALL.into(),
            [none] if none == "none" => Vec::new(),
            named => named.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        };
        Ok(kinds.into_iter().map(|kind| Scenario::new(kind, self.outage_length)).collect())
    }
}

impl CampaignEnvironment {
    fn options(&self) -> Result<EnvironmentOptions, RequireError> {
        Ok(EnvironmentOptions {
            dynamodb_endpoint: given(&self.dynamodb_endpoint),
            kafka: BrokerOptions {
                bootstrap_servers: given(&self.kafka_bootstrap_servers),
                ..BrokerOptions::from_env()?
            },
            profile: if self.release { Profile::Release } else { Profile::Dev },
            ..EnvironmentOptions::default()
        })
    }
}

/// A blank value counts as none.
fn given(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.trim().is_empty())
}

impl EnvironmentArguments {
    pub(crate) fn options(&self) -> Result<EnvironmentOptions, RequireError> {
        let servers = given(&self.kafka_bootstrap_servers);
        Ok(EnvironmentOptions {
            dynamodb_endpoint: given(&self.dynamodb_endpoint),
            kafka: BrokerOptions { bootstrap_servers: servers, ..BrokerOptions::from_env()? },
            buckets: BucketCount::new(self.buckets).unwrap_or(BucketCount::DEFAULT),
            sweep_interval: self.sweep_interval,
            profile: if self.release { Profile::Release } else { Profile::Dev },
            freeze_when_idle: !self.no_freeze,
            ..EnvironmentOptions::default()
        })
    }
}

/// Durations are written as in the functions' settings.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "allowed is a whole number above 0 with a unit: 500ms, 30s, 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_duration_without_a_unit_is_refused() {
        let error =
            Cli::try_parse_from(["outbox-local", "up", "--sweep-interval", "30"]).unwrap_err().to_string();
        assert!(error.contains("--sweep-interval") && error.contains("30s"), "{error}");
    }

    fn campaign(arguments: &[&str]) -> CampaignOptions {
        let words = ["outbox-local", "campaign"].iter().chain(arguments);
        let Command::Campaign(arguments) = Cli::parse_from(words).command else { panic!("another command") };
        arguments.options().unwrap()
    }

    #[test]
    fn a_campaign_can_be_repeated_and_narrowed() {
        let options = campaign(&["--seed", "7", "--only", "kill,broker-kill", "--outages", "none"]);
        assert_eq!((options.seed, options.rounds), (7, 500));
        assert_eq!(options.kinds, [Kind::Kill, Kind::BrokerKill].into());
        assert!(options.scenarios.is_empty());
        assert_eq!(campaign(&["--outage-length", "20s"]).scenarios.len(), ScenarioKind::ALL.len());
        assert_ne!(campaign(&[]).seed, campaign(&[]).seed);
        let unknown = Cli::try_parse_from(["outbox-local", "campaign", "--only", "kil"]).unwrap_err();
        assert!(unknown.to_string().contains("kill-all"), "{unknown}");
    }

    #[test]
    fn every_run_has_tables_and_a_topic_of_its_own() {
        let Command::FirstRun(arguments) = Cli::parse_from(["outbox-local", "first-run"]).command else {
            panic!("another command");
        };
        let (one, two) = (arguments.options().unwrap(), arguments.options().unwrap());
        assert_ne!(one.topic, two.topic);
        assert_ne!(one.environment.table, one.orders_table);
        assert_ne!(one.environment.table, two.environment.table);
    }
}
