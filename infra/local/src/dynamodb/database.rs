//! The database that was taken, and clients for it.

use std::fmt;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

use super::doors::{Doors, listen, runtime};
use super::error::DatabaseError;
use super::faults::Faults;
use super::meter::Usage;
use super::probe::{ProbeError, check_parts};
use crate::link::Link;

/// The SDK's own variable for another DynamoDB, read here and by the functions.
pub const AWS_ENDPOINT_URL_DYNAMODB: &str = "AWS_ENDPOINT_URL_DYNAMODB";

/// Local databases accept any, and the SDK insists on some. DynamoDB Local wants letters and digits only.
const DUMMY: &str = "local";
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
const DEFAULT_REGION: &str = "us-east-1";

/// Which database it is. `Display` is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// dynoxide-rs, in this process, in memory.
    Embedded,
    /// What `AWS_ENDPOINT_URL_DYNAMODB` or the caller named.
    External {
        /// Its address.
        endpoint: String,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => write!(f, "embedded (dynoxide-rs, in memory)"),
            Self::External { endpoint } => write!(f, "external, at {endpoint}"),
        }
    }
}

/// A DynamoDB to read from and write to. Dropping it ends what was started here, and its data with it.
#[derive(Debug)]
pub struct Database {
    kind: Kind,
    endpoint: String,
    region: String,
    /// Real credentials for an external database over TLS, dummies for everything local.
    real_credentials: bool,
    /// `None` for AWS, where nothing stands between.
    doors: Option<Doors>,
}

impl Database {
    /// Takes the database at `AWS_ENDPOINT_URL_DYNAMODB`, or an embedded one when that is not set.
    pub async fn from_env() -> Result<Self, DatabaseError> {
        let endpoint = std::env::var(AWS_ENDPOINT_URL_DYNAMODB).ok();
        Self::start(endpoint.filter(|endpoint| !endpoint.trim().is_empty())).await
    }

    /// Takes the database at `endpoint`, or starts an embedded one.
    ///
    /// A plain-HTTP endpoint is taken for an emulator: it is reached through the counting proxy, with dummy
    /// credentials unless `AWS_ACCESS_KEY_ID` is set. One over TLS is AWS, or as good: nothing stands between,
    /// and nothing is counted.
    pub async fn start(endpoint: Option<String>) -> Result<Self, DatabaseError> {
        let region = std::env::var("AWS_REGION").ok().filter(|region| !region.is_empty());
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        match endpoint {
            None => Self::embedded(region).await,
            Some(endpoint) if endpoint.starts_with("http://") => Self::emulator(endpoint, region).await,
            Some(endpoint) if endpoint.starts_with("https://") => Ok(Self {
                kind: Kind::External { endpoint: endpoint.clone() },
                endpoint,
                region,
                real_credentials: true,
                doors: None,
            }),
            Some(value) => Err(DatabaseError::Endpoint { value }),
        }
    }

    async fn embedded(region: String) -> Result<Self, DatabaseError> {
        let runtime = runtime()?;
        let database =
            dynoxide::Database::memory().map_err(|error| DatabaseError::Embedded(Box::new(error)))?;
        let (listener, address) = listen(&runtime).await?;
        runtime.spawn(dynoxide::server::serve_on(listener, database));
        let doors = Doors::open(runtime, &format!("http://{address}")).await?;
        Ok(Self::behind(doors, Kind::Embedded, region, false))
    }

    async fn emulator(endpoint: String, region: String) -> Result<Self, DatabaseError> {
        let authority = endpoint.trim_start_matches("http://").trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '@']) {
            return Err(DatabaseError::Endpoint { value: endpoint });
        }
        let upstream = format!("http://{authority}");
        let real_credentials = std::env::var_os("AWS_ACCESS_KEY_ID").is_some();
        let doors = Doors::open(runtime()?, &upstream).await?;
        Ok(Self::behind(doors, Kind::External { endpoint }, region, real_credentials))
    }

    fn behind(doors: Doors, kind: Kind, region: String, real_credentials: bool) -> Self {
        let endpoint = doors.plain.endpoint.clone();
        Self { kind, endpoint, region, real_credentials, doors: Some(doors) }
    }

    /// Which database was taken.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it stands in for AWS, so that its promises have to be [checked](Self::check).
    pub fn is_emulator(&self) -> bool {
        self.doors.is_some()
    }

    /// Tries the promises that the outbox rests on, unless this is AWS itself: see [`check_parts`].
    ///
    /// Every suite asks this before it rests on an emulator.
    pub async fn check(&self) -> Result<(), ProbeError> {
        if !self.is_emulator() {
            return Ok(());
        }
        check_parts(&self.client().await, &self.streams_client().await).await
    }

    /// The URL that clients are to use: a counting proxy's, where there is one.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The URL of a second way in, where requests meet the [`faults`](Self::faults): for what is being tested. AWS has
    /// only the one.
    pub fn faulty_endpoint(&self) -> &str {
        self.doors.as_ref().map_or(&self.endpoint, |doors| &doors.faulty.endpoint)
    }

    /// The URL of the [`link`](Self::link) to the [faulty endpoint](Self::faulty_endpoint): for what is being tested with
    /// a network that breaks. `None` for AWS.
    pub fn linked_endpoint(&self) -> Option<&str> {
        self.doors.as_ref().map(|doors| doors.linked_endpoint.as_str())
    }

    /// What requests to the faulty endpoint meet, through the link or not; `None` for AWS.
    pub fn faults(&self) -> Option<&Faults> {
        self.doors.as_ref().map(|doors| &*doors.faults)
    }

    /// The network of those who use the linked endpoint; `None` for AWS.
    pub fn link(&self) -> Option<&Link> {
        self.doors.as_ref().map(|doors| &doors.link)
    }

    /// What was used up to now, by everybody; `None` where it is not measured.
    pub fn usage(&self) -> Option<Usage> {
        self.doors.as_ref().map(|doors| doors.plain.usage().and(&doors.faulty.usage()))
    }

    /// The part of it that came through the faulty endpoint. Refusals that are faults count as refused requests;
    /// requests that were lost on their way here do not count.
    pub fn faulty_usage(&self) -> Option<Usage> {
        self.doors.as_ref().map(|doors| doors.faulty.usage())
    }

    /// What a process needs in its environment to use this database through the SDK's defaults, as we do:
    /// dummy credentials for a local database, our own from the environment for another.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.environment_at(&self.endpoint)
    }

    /// As [`environment`](Self::environment), for another of this database's endpoints.
    pub fn environment_at(&self, endpoint: &str) -> Vec<(String, String)> {
        let mut variables = vec![(AWS_ENDPOINT_URL_DYNAMODB, endpoint), ("AWS_REGION", self.region.as_str())];
        let own = CREDENTIALS.map(|name| (name, std::env::var(name).unwrap_or_default()));
        if self.real_credentials {
            variables.extend(
                own.iter()
                    .filter(|(_, value)| !value.is_empty())
                    .map(|(name, value)| (*name, value.as_str())),
            );
        } else {
            variables.extend([("AWS_ACCESS_KEY_ID", DUMMY), ("AWS_SECRET_ACCESS_KEY", DUMMY)]);
        }
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// A client for tables and items.
    pub async fn client(&self) -> aws_sdk_dynamodb::Client {
        aws_sdk_dynamodb::Client::from_conf(self.client_config(&self.endpoint).await.build())
    }

    /// The settings of a client, for more to be added, of one of this database's endpoints.
    pub async fn client_config(&self, endpoint: &str) -> aws_sdk_dynamodb::config::Builder {
        let config = aws_sdk_dynamodb::config::Builder::from(&self.sdk_config().await);
        config.endpoint_url(endpoint)
    }

    /// A client for the streams of its tables.
    pub async fn streams_client(&self) -> aws_sdk_dynamodbstreams::Client {
        let mut config = aws_sdk_dynamodbstreams::config::Builder::from(&self.sdk_config().await);
        // AWS has another host for streams, and the SDK knows it.
        if self.is_emulator() {
            config = config.endpoint_url(&self.endpoint);
        }
        aws_sdk_dynamodbstreams::Client::from_conf(config.build())
    }

    async fn sdk_config(&self) -> SdkConfig {
        let mut loader =
            aws_config::defaults(BehaviorVersion::latest()).region(Region::new(self.region.clone()));
        if !self.real_credentials {
            let dummies = Credentials::new(DUMMY, DUMMY, None, None, "outbox-local");
            loader = loader.credentials_provider(SharedCredentialsProvider::new(dummies));
        }
        loader.load().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endpoint_that_is_no_url_is_named() {
        for value in ["localhost:8000", "ftp://x", "http://", "http://host/path"] {
            let error = Database::start(Some(value.to_owned())).await.unwrap_err().to_string();
            assert!(error.contains(AWS_ENDPOINT_URL_DYNAMODB) && error.contains(value), "{error}");
        }
    }

    #[tokio::test]
    async fn a_tls_endpoint_is_used_directly_and_not_measured() {
        let database = Database::start(Some("https://dynamodb.example".to_owned())).await.unwrap();
        assert_eq!(database.endpoint(), "https://dynamodb.example");
        assert_eq!(database.faulty_endpoint(), "https://dynamodb.example");
        assert_eq!(
            (database.usage(), database.faulty_usage(), database.linked_endpoint()),
            (None, None, None)
        );
        assert!(database.faults().is_none() && database.link().is_none());
        assert!(!database.environment().iter().any(|(_, value)| value == DUMMY));
    }
}
