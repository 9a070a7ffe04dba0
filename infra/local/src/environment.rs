//! The whole of it: database, broker, both functions, and what invokes them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use outbox::{BucketCount, StoreError, SystemClock};
use outbox_store_dynamodb::{StoreOptions, table};
use thiserror::Error;

use crate::dynamodb::{AWS_ENDPOINT_URL_DYNAMODB, Database, DatabaseError, Faults, ProbeError};
use crate::functions::{FunctionBinaries, FunctionsError, Profile};
use crate::kafka::{Broker, BrokerError, BrokerOptions, KAFKA_BOOTSTRAP_SERVERS, RequireError};
use crate::lambda::{AWS_ENDPOINT_URL_LAMBDA, HostError, InvokeApi, LambdaHost};
use crate::link::Link;
use crate::schedule::{ScheduleError, Scheduler};
use crate::stream::{StreamError, StreamFaults, StreamPoller, latest_stream_arn};
use crate::template::{FunctionTemplate, Template, TemplateError};

const STREAM_RELAY: &str = "StreamRelayFunction";
const SCHEDULED_RELAY: &str = "ScheduledRelayFunction";
/// What is running may finish; what takes longer is killed.
const STOP_BOUND: Duration = Duration::from_secs(15);

/// What to start, and how. [`Default`] starts everything here, with the template's defaults.
#[derive(Debug, Clone)]
pub struct EnvironmentOptions {
    /// Another DynamoDB; `None`: the embedded one.
    pub dynamodb_endpoint: Option<String>,
    /// Which broker.
    pub kafka: BrokerOptions,
    /// The outbox table, which is created unless it is there.
    pub table: String,
    /// The number of buckets.
    pub buckets: BucketCount,
    /// Values of other template parameters, such as `LeaseDuration`.
    pub parameters: BTreeMap<String, String>,
    /// How often the sweep runs; `None`: as the template says.
    pub sweep_interval: Option<Duration>,
    /// How the functions are compiled.
    pub profile: Profile,
    /// The functions, where somebody has found or built them already.
    pub binaries: Option<FunctionBinaries>,
    /// Whether the functions reach the database through its link, so that their network can be broken; everybody else
    /// goes straight to it. Without effect on AWS, whose [`dynamodb_link`](Environment::dynamodb_link) is `None`. (For
    /// Kafka it is [`BrokerOptions::behind_link`].)
    pub dynamodb_behind_link: bool,
    /// Whether function processes are frozen between invocations, as Lambda does.
    pub freeze_when_idle: bool,
    /// Whether the table's stream invokes anything. Without it, only the schedule does.
    pub with_stream: bool,
    /// What becomes of the stream's batches: [`StreamPoller::set_faults`] changes it later.
    pub stream_faults: StreamFaults,
}

impl Default for EnvironmentOptions {
    fn default() -> Self {
        Self {
            dynamodb_endpoint: None,
            kafka: BrokerOptions::default(),
            table: "outbox".to_owned(),
            buckets: BucketCount::DEFAULT,
            parameters: BTreeMap::new(),
            sweep_interval: None,
            profile: Profile::Dev,
            binaries: None,
            dynamodb_behind_link: false,
            freeze_when_idle: true,
            with_stream: true,
            stream_faults: StreamFaults::default(),
        }
    }
}

impl EnvironmentOptions {
    /// With links between the functions and everything they talk to. Whatever cannot be behind one is refused by name at
    /// the start, but for AWS.
    #[must_use]
    pub fn with_links(mut self) -> Self {
        self.dynamodb_behind_link = true;
        self.kafka.behind_link = true;
        self
    }

    /// The defaults, with the DynamoDB and the broker that the environment variables name, if they do.
    pub fn from_env() -> Result<Self, RequireError> {
        let endpoint = std::env::var(AWS_ENDPOINT_URL_DYNAMODB).ok();
        Ok(Self {
            dynamodb_endpoint: endpoint.filter(|endpoint| !endpoint.trim().is_empty()),
            kafka: BrokerOptions::from_env()?,
            ..Self::default()
        })
    }
}

/// Why the environment did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The database.
    #[error("DynamoDB is not available")]
    Database(#[from] DatabaseError),
    /// The database is there, and breaks a promise.
    #[error("DynamoDB was tried and found wanting")]
    Probe(#[from] ProbeError),
    /// The broker.
    #[error("Kafka is not available")]
    Broker(#[from] BrokerError),
    /// The functions could not be built.
    #[error("the functions are not available")]
    Functions(#[from] FunctionsError),
    /// The template.
    #[error("template.yaml cannot be used")]
    Template(#[from] TemplateError),
    /// The template has no event of the kind that a function needs.
    #[error("template.yaml: {function} has no event of type {event}")]
    NoEvent {
        /// The function.
        function: &'static str,
        /// The event's type.
        event: &'static str,
    },
    /// The outbox table.
    #[error("the outbox table is not available")]
    Table(#[from] StoreError),
    /// A function's host.
    #[error("a function could not be hosted")]
    Host(#[from] HostError),
    /// Lambda's Invoke API.
    #[error("the Invoke API could not be started")]
    InvokeApi(#[source] io::Error),
    /// The table's stream.
    #[error("the table's stream cannot be read")]
    Stream(#[from] StreamError),
    /// The schedule.
    #[error("the schedule cannot be run")]
    Schedule(#[from] ScheduleError),
}

/// Everything, running. Dropping it ends it all; [`stop`](Self::stop) lets the functions finish first.
#[derive(Debug)]
pub struct Environment {
    // What invokes goes first, then what is invoked, then what that talks to.
    scheduler: Scheduler,
    poller: Option<StreamPoller>,
    invoke_api: InvokeApi,
    stream_relay: LambdaHost,
    scheduled_relay: LambdaHost,
    broker: Broker,
    database: Database,
    dynamodb_behind_link: bool,
    client: Client,
    store_options: StoreOptions,
}

impl Environment {
    /// Starts everything and waits until it can be used.
    ///
    /// The functions get their settings, timeouts, filter and schedule from `template.yaml`, as when deployed.
    pub async fn start(options: EnvironmentOptions) -> Result<Self, EnvironmentError> {
        // The slow ones together: the first time, all three download or compile.
        let (binaries, broker, database) = tokio::try_join!(
            async {
                match &options.binaries {
                    Some(binaries) => Ok(binaries.clone()),
                    None => Ok(FunctionBinaries::find_or_build(options.profile).await?),
                }
            },
            async { Ok::<_, EnvironmentError>(Broker::start(options.kafka.clone()).await?) },
            trusted_database(options.dynamodb_endpoint.clone()),
        )?;
        let client = database.client().await;
        let store_options = StoreOptions::new(&options.table).with_bucket_count(options.buckets);
        table::create(&client, &store_options, &SystemClock::new()).await?;
        let stream = latest_stream_arn(&client, &options.table).await?;

        // Before the functions, whose environment names it.
        let invoke_api = InvokeApi::start().await.map_err(EnvironmentError::InvokeApi)?;
        let ways = Ways::of_functions(&options, &broker, &database, &invoke_api);
        let template = template(&options, &ways)?;
        let host = |function: &FunctionTemplate, binary| {
            let spec = function
                .spec(binary)
                .with_variables(database.environment_at(&ways.dynamodb))
                .with_freeze_when_idle(options.freeze_when_idle);
            let host = LambdaHost::start(spec)?;
            invoke_api.register(&host);
            Ok::<_, HostError>(host)
        };
        let streaming = template.function(STREAM_RELAY)?;
        let sweeping = template.function(SCHEDULED_RELAY)?;
        let no_event = |function, event| EnvironmentError::NoEvent { function, event };
        let mapping = streaming.streams.values().next().ok_or(no_event(STREAM_RELAY, "DynamoDB"))?.clone();
        let rule = sweeping.schedules.values().next().ok_or(no_event(SCHEDULED_RELAY, "ScheduleV2"))?.clone();
        let stream_relay = host(&streaming, &binaries.stream_relay)?;
        let scheduled_relay = host(&sweeping, &binaries.scheduled_relay)?;
        let poller = match options.with_stream {
            true => {
                let client = database.streams_client().await;
                let poller = StreamPoller::start(client, stream, mapping, stream_relay.clone());
                poller.set_faults(options.stream_faults);
                Some(poller)
            }
            false => None,
        };
        let scheduler = Scheduler::start(rule, options.sweep_interval, scheduled_relay.clone())?;
        Ok(Self {
            scheduler,
            poller,
            invoke_api,
            stream_relay,
            scheduled_relay,
            broker,
            database,
            dynamodb_behind_link: options.dynamodb_behind_link,
            client,
            store_options,
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// A client of the database.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Where the outbox is, for a writer.
    pub fn store_options(&self) -> &StoreOptions {
        &self.store_options
    }

    /// The function that the stream invokes.
    pub fn stream_relay(&self) -> &LambdaHost {
        &self.stream_relay
    }

    /// The function that the schedule invokes.
    pub fn scheduled_relay(&self) -> &LambdaHost {
        &self.scheduled_relay
    }

    /// Where both functions can be invoked, by themselves and by others.
    pub fn invoke_api(&self) -> &InvokeApi {
        &self.invoke_api
    }

    /// What reads the stream; `None` without [`EnvironmentOptions::with_stream`].
    pub fn poller(&self) -> Option<&StreamPoller> {
        self.poller.as_ref()
    }

    /// What the functions' requests to DynamoDB meet, and nobody else's; `None` for AWS.
    pub fn dynamodb_faults(&self) -> Option<&Faults> {
        self.database.faults()
    }

    /// The functions' network to DynamoDB; `None` without [`EnvironmentOptions::dynamodb_behind_link`].
    pub fn dynamodb_link(&self) -> Option<&Link> {
        self.database.link().filter(|_| self.dynamodb_behind_link)
    }

    /// The functions' network to Kafka; `None` without [`BrokerOptions::behind_link`].
    pub fn kafka_link(&self) -> Option<&Link> {
        self.broker.link()
    }

    /// What a process needs in its environment to use all this: an application, or a function.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.database.environment();
        variables.extend([
            ("OUTBOX_TABLE_NAME".to_owned(), self.store_options.table_name().to_owned()),
            ("OUTBOX_BUCKET_COUNT".to_owned(), self.store_options.bucket_count().get().to_string()),
            (KAFKA_BOOTSTRAP_SERVERS.to_owned(), self.broker.bootstrap_servers().to_owned()),
            (AWS_ENDPOINT_URL_LAMBDA.to_owned(), self.invoke_api.endpoint()),
        ]);
        variables
    }

    /// Lets running invocations finish, within a bound, and ends everything.
    pub async fn stop(self) {
        // A function that would go on in a further invocation is refused and leaves its work to the next sweep.
        drop((self.scheduler, self.poller, self.invoke_api));
        let idle = async {
            tokio::join!(self.stream_relay.wait_until_idle(), self.scheduled_relay.wait_until_idle())
        };
        if tokio::time::timeout(STOP_BOUND, idle).await.is_err() {
            tracing::warn!("invocations are still running and are ended now");
        }
        tokio::join!(self.stream_relay.shutdown(), self.scheduled_relay.shutdown());
        // In good order, where it is ours: an error here has nobody left to hurt.
        let _ = self.broker.stop().await;
    }
}

/// A database that keeps the promises that the outbox rests on.
async fn trusted_database(endpoint: Option<String>) -> Result<Database, EnvironmentError> {
    let database = Database::start(endpoint).await?;
    database.check().await?;
    Ok(database)
}

/// Where the functions find what they talk to.
struct Ways {
    dynamodb: String,
    kafka: String,
    lambda: String,
}

impl Ways {
    /// What is tested uses the endpoint where faults can meet it; what tests, such as the poller, does not.
    fn of_functions(
        options: &EnvironmentOptions,
        broker: &Broker,
        database: &Database,
        invoke_api: &InvokeApi,
    ) -> Self {
        let linked = database.linked_endpoint().filter(|_| options.dynamodb_behind_link);
        let dynamodb = linked.unwrap_or_else(|| database.faulty_endpoint()).to_owned();
        let kafka = broker.linked_servers().unwrap_or_else(|| broker.bootstrap_servers()).to_owned();
        Self { dynamodb, kafka, lambda: invoke_api.endpoint() }
    }
}

fn template(options: &EnvironmentOptions, ways: &Ways) -> Result<Template, TemplateError> {
    let mut template = Template::of_this_workspace()?
        .with_parameter("TableName", &options.table)?
        .with_parameter("BucketCount", options.buckets.get().to_string())?
        .with_parameter("KafkaBootstrapServers", &ways.kafka)?
        .with_parameter("DynamoDbEndpoint", &ways.dynamodb)?
        .with_parameter("LambdaEndpoint", &ways.lambda)?;
    for (name, value) in &options.parameters {
        template = template.with_parameter(name, value)?;
    }
    Ok(template)
}
