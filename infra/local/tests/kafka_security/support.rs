//! The brokers, and clients that say what they have seen.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Reader, Security, unsecured_token};
use rdkafka::ClientConfig;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::sync::OnceCell;

pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// Longer than the tests run.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);
/// A user who is allowed nothing: the tests that give rights have principals of their own.
pub(crate) const STRANGER: &str = "stranger";

/// They end with this process.
static TLS: OnceCell<Option<Broker>> = OnceCell::const_new();
static SCRAM: OnceCell<Option<Broker>> = OnceCell::const_new();
static OAUTH_BEARER: OnceCell<Option<Broker>> = OnceCell::const_new();

/// The broker of that kind; `None` where there can be none, and none is required.
pub(crate) async fn broker(security: Security) -> Option<&'static Broker> {
    let cell = match security {
        Security::Tls => &TLS,
        Security::Scram => &SCRAM,
        Security::OauthBearer => &OAUTH_BEARER,
        Security::Plaintext => unreachable!("no test here needs one"),
    };
    cell.get_or_init(|| start(security)).await.as_ref()
}

/// A broker of the test's own, to be killed.
pub(crate) async fn start(security: Security) -> Option<Broker> {
    let users = if security == Security::Scram { vec![STRANGER.to_owned()] } else { Vec::new() };
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    let start = Instant::now();
    match Broker::start(BrokerOptions { security, users, behind_link: true, ..options }).await {
        Err(error @ BrokerError::NoSecurity { .. }) => {
            println!("skipped: {error}");
            None
        }
        started => {
            println!("a broker that speaks {security} after {:?}", start.elapsed());
            Some(started.unwrap())
        }
    }
}

/// How a client shows who it is.
#[derive(Clone)]
pub(crate) enum Proof {
    Nothing,
    Password {
        user: &'static str,
        password: String,
    },
    /// A token that ends after this time; the client is told that it lives long.
    Token {
        principal: &'static str,
        lifetime: Duration,
    },
}

/// A producer, and what its client has complained about.
pub(crate) struct Client {
    pub(crate) producer: FutureProducer<Context>,
    complaints: Complaints,
}

#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Vec<(RDKafkaErrorCode, String)>>>);

pub(crate) struct Context {
    token: Option<(OAuthToken, i64)>,
    complaints: Complaints,
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let (token, lifetime_ms) = self.token.as_ref().ok_or("no token is needed here")?;
        let OAuthToken { token, principal_name, .. } = token;
        Ok(OAuthToken {
            token: token.clone(),
            principal_name: principal_name.clone(),
            lifetime_ms: *lifetime_ms,
        })
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        self.complaints.0.lock().unwrap().push((code, reason.to_owned()));
    }
}

impl Client {
    /// A client that knows nothing of the broker but what is said here.
    pub(crate) fn new(servers: &str, ca_file: &Path, proof: &Proof) -> Self {
        Self::with(servers, ca_file, proof, &[])
    }

    pub(crate) fn with(servers: &str, ca_file: &Path, proof: &Proof, settings: &[(&str, &str)]) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", servers)
            .set("ssl.ca.location", ca_file.to_str().unwrap())
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("reconnect.backoff.max.ms", "250")
            .set("message.timeout.ms", "20000")
            // What is wrong is told to the context.
            .set_log_level(RDKafkaLogLevel::Emerg);
        let mut token = None;
        match proof {
            Proof::Nothing => {
                config.set("security.protocol", "ssl");
            }
            Proof::Password { user, password } => {
                config
                    .set("security.protocol", "sasl_ssl")
                    .set("sasl.mechanism", "SCRAM-SHA-512")
                    .set("sasl.username", *user)
                    .set("sasl.password", password);
            }
            Proof::Token { principal, lifetime } => {
                config.set("security.protocol", "sasl_ssl").set("sasl.mechanism", "OAUTHBEARER");
                // A minute ago, so that one without a lifetime is over.
                let issued_at = SystemTime::now() - Duration::from_secs(60);
                let of = |lifetime| unsecured_token(principal, issued_at, Duration::from_secs(60) + lifetime);
                token = Some((of(*lifetime), of(LONG).lifetime_ms));
            }
        }
        for (name, value) in settings {
            config.set(*name, *value);
        }
        let complaints = Complaints::default();
        let context = Context { token, complaints: complaints.clone() };
        Self { producer: config.create_with_context(context).unwrap(), complaints }
    }

    pub(crate) async fn send(&self, topic: &str, value: &str) -> Result<(), RDKafkaErrorCode> {
        let record = FutureRecord::to(topic).key("key").payload(value);
        let sent = tokio::time::timeout(BOUND, self.producer.send(record, BOUND)).await.expect("in time");
        sent.map(drop).map_err(|(error, _)| error.rdkafka_error_code().unwrap())
    }

    /// Waits until the client has complained of that, in these words among others.
    pub(crate) async fn complaint(&self, code: RDKafkaErrorCode, words: &str) {
        let deadline = Instant::now() + BOUND;
        loop {
            let complaints = self.complaints.0.lock().unwrap().clone();
            if complaints.iter().any(|(found, reason)| *found == code && reason.contains(words)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no {code:?} with {words:?} within {BOUND:?}, but {complaints:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// What a topic has, read by the administrator's listener.
pub(crate) async fn values(broker: &Broker, topic: &str) -> Vec<String> {
    let reader = Reader::open(broker.bootstrap_servers(), topic).await.unwrap();
    let records = reader.rest().await.unwrap();
    records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}
