//! Settings, and what they make of the client's configuration.

use std::time::Duration;

use outbox::settings::{SettingError, Settings, invalid};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use crate::auth::Auth;
use crate::ca::{Ca, Roots};
use crate::credentials::Credential;
use crate::error::ClientError;
use crate::sockets;

pub use crate::auth::{AUTH, CA_FILE, CA_PEM, IAM_REGION, SCRAM_MECHANISM, SECRET_ID};

/// Where the brokers are.
pub const BOOTSTRAP_SERVERS: &str = "KAFKA_BOOTSTRAP_SERVERS";
/// The header that carries the message id.
pub const MESSAGE_ID_HEADER: &str = "OUTBOX_MESSAGE_ID_HEADER";
/// Whether one record of a key is under way at a time.
pub const STRICT_KEY_ORDER: &str = "OUTBOX_STRICT_KEY_ORDER";
const DEFAULT_MESSAGE_ID_HEADER: &str = "x-outbox-message-id";
const NAME: &str = "OUTBOX_NAME";
const DEFAULT_NAME: &str = "outbox";

/// The largest record, with its overhead: what Java's client sends at most, unless it is told otherwise
/// (`max.request.size`). An item of DynamoDB is less than half of it.
pub const MAX_RECORD_BYTES: usize = 1_048_576;

/// The largest record batch of more than one record.
///
/// A broker refuses a whole batch when it exceeds the topic's `max.message.bytes`. With batches of this size a topic
/// that takes records of this size never refuses a record because of its neighbours, and five requests of this size
/// under way still fill a connection.
pub const BATCH_BYTES: usize = 128 * 1024;

/// The longest that one publish call lasts, whatever its limit.
///
/// Below [`MESSAGE_TIMEOUT`], so that it is always the call that ends a send: messages that time out one by one inside
/// the client let those behind them overtake.
pub(crate) const MAX_LIMIT: Duration = Duration::from_mins(4);
const MESSAGE_TIMEOUT: Duration = Duration::from_mins(5);

/// How long a client may have been unused, or its process asleep, before it is replaced rather than trusted.
///
/// A process that was frozen finds its connections dead without a word: load balancers and NAT forget an idle one
/// after 350 s on AWS. The client itself closes connections that were idle this long while it was awake, so with the
/// time asleep on top none is older than twice this. A new client costs two connections or so, of which a broker takes
/// 4 a second or more, and half a second: it asks for its producer id by a timer of 500 ms.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(170);

/// How long a client is taken to be well without asking. One that was unused for longer is asked for an answer before
/// it is given a record.
///
/// Whatever stranded its connections meanwhile would otherwise cost [`SOCKET_TIMEOUT`], more than a publish of a
/// function with the shortest timeout, 10 s, can spare. Asking costs one round trip, and no connection.
pub(crate) const PROVEN_FOR: Duration = Duration::from_secs(2);

/// How long that answer may take: many round trips, and far from what a publish has.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest wait for an answer on a connection: what finds one that died while it was in use. Brokers that wait for
/// all replicas may well need a second or two.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest for TCP, TLS, authentication and the first answer together. Below
/// [`UNREACHABLE_AFTER`](crate::call::UNREACHABLE_AFTER), so that a broker that accepts and says nothing is known to
/// be one by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a topic may be unknown within a call. A topic that the cluster creates on first use takes about a second.
const UNKNOWN_TOPIC_TIMEOUT: Duration = Duration::from_secs(5);

/// How to reach Kafka, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    bootstrap_servers: String,
    message_id_header: String,
    client_id: String,
    auth: Auth,
    ca: Ca,
    strict_key_order: bool,
}

impl KafkaConfig {
    /// Reads `KAFKA_BOOTSTRAP_SERVERS`, `KAFKA_AUTH` and what belongs to it, `OUTBOX_MESSAGE_ID_HEADER`,
    /// `OUTBOX_STRICT_KEY_ORDER`, and `OUTBOX_NAME` for the client id that brokers show in their logs and quotas. Opens no
    /// file.
    ///
    /// # Errors
    /// Names the variable, what it holds and what is allowed.
    pub fn from_settings(settings: &mut Settings) -> Result<Self, SettingError> {
        const ADDRESSES: &str = "the brokers, as host:port, separated by commas";
        let servers = settings.required(BOOTSTRAP_SERVERS, ADDRESSES)?;
        let bootstrap_servers =
            addresses(&servers).ok_or_else(|| invalid(BOOTSTRAP_SERVERS, &servers, ADDRESSES))?;
        let (auth, ca) = Auth::from_settings(settings)?;
        let message_id_header = settings.read_or(
            MESSAGE_ID_HEADER,
            DEFAULT_MESSAGE_ID_HEADER.to_owned(),
            "1 to 249 printable ASCII characters, without spaces",
            |value| is_header_name(value).then(|| value.to_owned()),
        )?;
        Ok(Self {
            bootstrap_servers,
            message_id_header,
            client_id: settings.get(NAME).unwrap_or(DEFAULT_NAME).to_owned(),
            auth,
            ca,
            strict_key_order: settings
                .read_or(STRICT_KEY_ORDER, false, "true or false", |value| value.parse().ok())?,
        })
    }

    /// The brokers, as host:port, separated by commas.
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    /// The header that carries the message id.
    pub fn message_id_header(&self) -> &str {
        &self.message_id_header
    }

    /// Whether one record of a key is under way at a time: nothing of a key is ever stored behind a record of it that a
    /// broker refuses.
    pub const fn strict_key_order(&self) -> bool {
        self.strict_key_order
    }

    /// How the publisher proves who it is.
    pub const fn auth(&self) -> &Auth {
        &self.auth
    }

    /// Whose brokers are trusted. Only where anything is encrypted.
    pub(crate) const fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Whether brokers can be asked about topics: rdkafka hands no token to a client that asks.
    pub(crate) const fn can_ask(&self) -> bool {
        !matches!(self.auth, Auth::Iam { .. })
    }

    /// Whether librdkafka knows every setting, as far as can be told without a client.
    pub(crate) fn check(&self, roots: Option<&Roots>) -> Result<(), ClientError> {
        let checked = self.client_config(roots, None).create_native_config().map(drop);
        checked.map_err(|source| ClientError { servers: self.bootstrap_servers.clone(), source })
    }

    /// The configuration of the client: what is set here is all that is ever set. It holds secrets: not to be shown.
    pub(crate) fn client_config(
        &self,
        roots: Option<&Roots>,
        credential: Option<&Credential>,
    ) -> ClientConfig {
        let mut config = ClientConfig::new();
        let mut set = |name: &str, value: String| {
            config.set(name, value);
        };
        let millis = |duration: Duration| duration.as_millis().to_string();

        set("bootstrap.servers", self.bootstrap_servers.clone());
        set("client.id", self.client_id.clone());

        set("security.protocol", security_protocol(&self.auth).to_owned());
        match roots {
            Some(Roots::File(path)) => set("ssl.ca.location", path.display().to_string()),
            Some(Roots::Pem(pem)) => set("ssl.ca.pem", pem.clone()),
            None => {}
        }
        match &self.auth {
            Auth::Plaintext | Auth::Tls => {}
            Auth::Scram { mechanism, .. } => set("sasl.mechanism", mechanism.name().to_owned()),
            // Tokens are asked for when they are needed: see `Context`.
            Auth::Iam { .. } => set("sasl.mechanism", "OAUTHBEARER".to_owned()),
        }
        if let Some(Credential::Login { username, password }) = credential {
            set("sasl.username", username.clone());
            set("sasl.password", password.clone());
        }

        // What deleting after an acknowledgement rests on.
        set("acks", "all".to_owned());
        set("enable.idempotence", "true".to_owned());
        set("partitioner", "murmur2_random".to_owned());

        // A batch is handed over in one go, within a millisecond or two: waiting longer fills no request better, and
        // not waiting at all sends the first message of every batch alone.
        set("linger.ms", "2".to_owned());
        set("batch.size", BATCH_BYTES.to_string());
        set("message.max.bytes", MAX_RECORD_BYTES.to_string());
        // Every consumer can read it, a record is as large as it looks, and a small function has little CPU to spare.
        set("compression.type", "none".to_owned());
        // Eight buckets with a batch of 4 MiB each, and room for keys and headers, which are not counted. A full queue
        // is waited for.
        set("queue.buffering.max.messages", "100000".to_owned());
        set("queue.buffering.max.kbytes", "40960".to_owned());

        set("message.timeout.ms", millis(MESSAGE_TIMEOUT));
        set("request.timeout.ms", millis(SOCKET_TIMEOUT));
        set("socket.timeout.ms", millis(SOCKET_TIMEOUT));
        set("socket.connection.setup.timeout.ms", millis(CONNECT_TIMEOUT));
        set("socket.keepalive.enable", "true".to_owned());
        set("socket.nagle.disable", "true".to_owned());
        set("connections.max.idle.ms", millis(MAX_IDLE));
        // A run has seconds: the default of 10 s between attempts would use them up.
        set("reconnect.backoff.ms", "50".to_owned());
        set("reconnect.backoff.max.ms", "1000".to_owned());
        set("topic.metadata.propagation.max.ms", millis(UNKNOWN_TOPIC_TIMEOUT));
        // What tells of the client's sockets. Such lines are few, and are no news to anybody else.
        config.set("debug", sockets::DEBUG);
        config.set_log_level(RDKafkaLogLevel::Debug);
        config
    }
}

/// What makes of a producer's settings those of a client that only asks, and connects as the producer does; `None`: there
/// can be none, for rdkafka hands no token to such a client.
pub(crate) fn asking(mut config: ClientConfig) -> Option<ClientConfig> {
    let mechanism = config.get("sasl.mechanism").or_else(|| config.get("sasl.mechanisms"));
    if mechanism.is_some_and(|mechanism| mechanism.eq_ignore_ascii_case("OAUTHBEARER")) {
        return None;
    }
    // It needs no producer id, nor the permission to get one.
    config.remove("enable.idempotence");
    // Nobody reads its log.
    config.remove("debug");
    config.set_log_level(RDKafkaLogLevel::Emerg);
    Some(config)
}

const fn security_protocol(auth: &Auth) -> &'static str {
    match auth {
        Auth::Plaintext => "plaintext",
        Auth::Tls => "ssl",
        Auth::Scram { .. } | Auth::Iam { .. } => "sasl_ssl",
    }
}

/// The list without the blanks around its commas; `None` unless it is a list of host:port.
fn addresses(list: &str) -> Option<String> {
    let addresses: Vec<&str> = list.split(',').map(str::trim).collect();
    addresses.iter().all(|address| is_address(address)).then(|| addresses.join(","))
}

fn is_address(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ipv6) => ipv6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        }
    };
    // `parse` alone would take a plus sign.
    let is_port =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|number| number > 0);
    is_host && is_port
}

fn is_header_name(name: &str) -> bool {
    (1..=249).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<KafkaConfig, SettingError> {
        KafkaConfig::from_settings(&mut Settings::new(values.iter().copied()))
    }

    #[test]
    fn the_brokers_are_all_that_is_required() {
        let config = read(&[(BOOTSTRAP_SERVERS, " b-1.example:9092 , [::1]:9093")]).unwrap();
        assert_eq!(config.bootstrap_servers(), "b-1.example:9092,[::1]:9093");
        assert_eq!(config.message_id_header(), "x-outbox-message-id");
        assert_eq!(config.auth(), &Auth::Plaintext);
        assert_eq!(config.client_config(None, None).get("client.id"), Some("outbox"));
    }

    #[test]
    fn no_brokers_is_an_error_that_names_the_variable() {
        let error = read(&[]).unwrap_err().to_string();
        assert!(error.starts_with("KAFKA_BOOTSTRAP_SERVERS is not set"), "{error}");
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        for bad in [
            "localhost",
            ":9092",
            "localhost:",
            "localhost:0",
            "localhost:65536",
            "localhost:+1",
            "PLAINTEXT://localhost:9092",
            "a:1,",
            "a:1,,b:2",
            "a b:1",
            "::1:9092",
            "[::x]:9092",
        ] {
            let error = read(&[(BOOTSTRAP_SERVERS, bad)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("KAFKA_BOOTSTRAP_SERVERS={bad:?} is not valid")), "{error}");
        }
    }

    #[test]
    fn the_id_header_can_be_named() {
        let servers = (BOOTSTRAP_SERVERS, "localhost:9092");
        let config = read(&[servers, (MESSAGE_ID_HEADER, "id")]).unwrap();
        assert_eq!(config.message_id_header(), "id");
        let error = read(&[servers, (MESSAGE_ID_HEADER, "my id")]).unwrap_err().to_string();
        assert!(error.starts_with("OUTBOX_MESSAGE_ID_HEADER=\"my id\" is not valid"), "{error}");
    }

    #[test]
    fn strict_order_is_asked_for_by_name() {
        let servers = (BOOTSTRAP_SERVERS, "localhost:9092");
        assert!(!read(&[servers]).unwrap().strict_key_order());
        assert!(!read(&[servers, (STRICT_KEY_ORDER, "false")]).unwrap().strict_key_order());
        assert!(read(&[servers, (STRICT_KEY_ORDER, "true")]).unwrap().strict_key_order());
        let error = read(&[servers, (STRICT_KEY_ORDER, "yes")]).unwrap_err().to_string();
        assert_eq!(error, "OUTBOX_STRICT_KEY_ORDER=\"yes\" is not valid: true or false");
    }

    #[test]
    fn a_client_that_asks_needs_no_producer_id_and_no_token() {
        let mut config = read(&[(BOOTSTRAP_SERVERS, "localhost:9092")]).unwrap().client_config(None, None);
        let without = asking(config.clone()).unwrap();
        assert_eq!(without.get("bootstrap.servers"), Some("localhost:9092"));
        assert_eq!(without.get("enable.idempotence"), None);
        without.create_native_config().unwrap();
        config.set("sasl.mechanism", "OAUTHBEARER");
        assert!(asking(config).is_none());
    }

    #[test]
    fn what_deletion_rests_on_is_set_and_the_client_takes_every_setting() {
        let config = read(&[(BOOTSTRAP_SERVERS, "localhost:9092")]).unwrap().client_config(None, None);
        assert_eq!(config.get("acks"), Some("all"));
        assert_eq!(config.get("enable.idempotence"), Some("true"));
        assert_eq!(config.get("partitioner"), Some("murmur2_random"));
        config.create_native_config().unwrap();
    }
}
