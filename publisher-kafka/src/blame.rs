//! What an operator is to look at when no broker takes the client: the step that failed, and its setting.

use crate::auth::{AUTH, Auth, IAM_REGION, SCRAM_MECHANISM, SECRET_ID};
use crate::config::KafkaConfig;

/// A step between a connection and its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The broker's certificate is not from a CA that is trusted, or is for another host.
    Certificate,
    /// One side speaks TLS, and the other does not.
    Encryption,
    /// The broker knows no such way to prove who one is.
    Mechanism,
    /// The broker does not believe the client.
    Credentials,
    /// The broker wants a certificate of the client's.
    ClientCertificate,
}

/// The step that the client's own words tell of. Only those of a refusal are known here: words that a network can be
/// blamed for are left alone.
pub(crate) fn step_of(words: &str) -> Option<Step> {
    let says = |text: &str| words.contains(text);
    if is_passing(words) {
        None
    } else if says("certificate verify failed") || says("verify broker certificate") {
        Some(Step::Certificate)
    } else if says("alert certificate required") || says("alert bad certificate") {
        Some(Step::ClientCertificate)
    } else if says("connecting to a PLAINTEXT broker listener")
        || says("wrong version number")
        || says("connecting to a SSL listener")
        || says("might require SASL authentication")
        || says("Request not valid in current SASL state")
        || closes_at_once(words)
    {
        Some(Step::Encryption)
    } else if says("Unsupported SASL mechanism") {
        Some(Step::Mechanism)
    } else if says("SASL authentication error") || (says("SASL ") && says("authentication failed")) {
        Some(Step::Credentials)
    } else {
        None
    }
}

/// What a listener does that expected something else: it closes in the handshake, at the first request, or at the first that needs a proof
/// of who asks. So does a broker that is about to go, whose port then refuses.
fn closes_at_once(words: &str) -> bool {
    const SOON: u32 = 2_000;
    let after = |state: &str| {
        let (before, _) = words.split_once(&format!("ms in state {state}"))?;
        before.rsplit_once("(after ")?.1.parse::<u32>().ok()
    };
    let is_proven = words.contains("sasl_");
    words.contains("Disconnected")
        && (after("SSL_HANDSHAKE").is_some()
            || after("APIVERSION_QUERY").is_some()
            || (!is_proven && after("UP").is_some_and(|after| after < SOON)))
}

/// Whether an error of a proof that failed is none of the proof's: a broker of MSK asks for fewer connections in a second,
/// the connection broke or was too slow, or a freeze fell between a token's making and its use.
pub(crate) fn is_passing(words: &str) -> bool {
    let of_the_network = [
        "SaslAuthenticateRequest failed: Local:",
        "SaslAuthenticateResponse parsing failed",
        "mechanism handshake failed: Local:",
    ];
    let others = ["Too many connects", "Must supply an unexpired token"];
    of_the_network.iter().chain(&others).any(|text| words.contains(text))
}

/// The broker that a line of the client's is about, as the client calls it: `sasl_ssl://b-1.example:9098/1`.
pub(crate) fn broker_of(line: &str) -> Option<&str> {
    let line =
        line.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: ")).map_or(line, |(_, line)| line);
    let (name, _) = line.split_once(": ")?;
    (name.contains(':') && name.contains('/') && !name.contains(' ')).then_some(name)
}

impl Step {
    /// Whether it fails every time until somebody changes a setting, a secret or a permission.
    pub(crate) const fn is_final(self) -> bool {
        // A broker that goes away in a handshake looks like one that speaks no TLS.
        !matches!(self, Self::Encryption)
    }

    /// What failed, and what to look at.
    pub(crate) fn told(self, config: &KafkaConfig) -> String {
        let (auth, servers) = (config.auth(), config.bootstrap_servers());
        let way = format!("{AUTH}={}", auth.name());
        match (self, auth) {
            (Self::Certificate, _) => format!(
                "the certificate of a broker of {servers} was not accepted ({way}): it was checked with {}",
                config.ca().described()
            ),
            (Self::Encryption, _) => format!(
                "the brokers of {servers} do not answer as {way} would have them: is it the port of another listener?"
            ),
            (Self::ClientCertificate, _) => format!(
                "the brokers of {servers} want a certificate of the client's, and the relay offers none ({way}): it is a \
                 listener for mutual TLS"
            ),
            (Self::Mechanism, Auth::Scram { mechanism, .. }) => {
                format!(
                    "the brokers of {servers} do not offer {SCRAM_MECHANISM}={} ({way})",
                    mechanism.name()
                )
            }
            (Self::Mechanism, _) => format!("the brokers of {servers} do not offer what {way} needs"),
            (Self::Credentials, Auth::Scram { secret_id, .. }) => format!(
                "the brokers of {servers} refused the user name and password of {SECRET_ID}={secret_id} ({way})"
            ),
            (Self::Credentials, Auth::Iam { .. }) => format!(
                "the brokers of {servers} refused the IAM token ({way}): does the role have kafka-cluster:Connect on \
                 this cluster, is {IAM_REGION} the cluster's region, and is this machine's clock right?"
            ),
            (Self::Credentials, _) => format!("the brokers of {servers} want another {way}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox::Settings;

    use super::*;

    fn config(more: &[(&str, &str)]) -> KafkaConfig {
        let servers = [("KAFKA_BOOTSTRAP_SERVERS", "b:9096")];
        let values = servers.into_iter().chain(more.iter().copied());
        KafkaConfig::from_settings(&mut Settings::new(values)).unwrap()
    }

    #[test]
    fn the_clients_words_tell_of_the_step() {
        for (words, step) in [
            (
                "sasl_ssl://b:9096/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify \
                 failed: broker certificate could not be verified, verify that ssl.ca.location is correctly configured",
                Some(Step::Certificate),
            ),
            ("Failed to verify broker certificate: hostname mismatch", Some(Step::Certificate)),
            (
                "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 3ms)",
                Some(Step::Encryption),
            ),
            (
                "b:9096/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN (after 3ms in state \
                 APIVERSION_QUERY)",
                Some(Step::Encryption),
            ),
            (
                "b:9096/1: Disconnected: connection closed by peer (after 3ms in state UP)",
                Some(Step::Encryption),
            ),
            ("b:9096/1: Disconnected: connection closed by peer (after 300000ms in state UP)", None),
            ("sasl_ssl://b:9096/1: Disconnected: connection closed by peer (after 3ms in state UP)", None),
            (
                "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported \
                 mechanisms: SCRAM-SHA-512",
                Some(Step::Mechanism),
            ),
            (
                "SASL authentication error: Authentication failed during authentication due to invalid credentials \
                 with SASL mechanism SCRAM-SHA-512 (after 312ms in state AUTH_REQ)",
                Some(Step::Credentials),
            ),
            ("SASL OAUTHBEARER authentication failed (principal=relay): {}", Some(Step::Credentials)),
            (
                "SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Request not valid in current SASL state: \
                 broker's supported mechanisms: ",
                Some(Step::Encryption),
            ),
            (
                "SASL OAUTHBEARER mechanism handshake failed: Local: Broker transport failure: broker's supported \
                 mechanisms: (n/a)",
                None,
            ),
            (
                "sasl_ssl://b:9098/bootstrap: SASL authentication error: SaslAuthenticateRequest failed: Local: Broker \
                 transport failure (after 0ms in state DOWN)",
                None,
            ),
            (
                "SSL handshake failed: error: ssl3_read_bytes: tlsv13 alert certificate required",
                Some(Step::ClientCertificate),
            ),
            ("SASL authentication error: [c14d3f4b]: Too many connects (after 3ms in state AUTH_REQ)", None),
            ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", None),
            ("SSL handshake failed: Connection setup timed out in state SSL_HANDSHAKE", None),
        ] {
            assert_eq!(step_of(words), step, "{words}");
        }
    }

    #[test]
    fn a_line_is_about_a_broker() {
        let name = Some("sasl_ssl://b-1.example:9098/1");
        assert_eq!(broker_of("sasl_ssl://b-1.example:9098/1: SASL authentication error: no"), name);
        let line = "[thrd:sasl_ssl://b-1.example:9098/1]: sasl_ssl://b-1.example:9098/1: Broker changed state AUTH -> UP";
        assert_eq!(broker_of(line), name);
        assert_eq!(broker_of("b:9092/bootstrap: Disconnected"), Some("b:9092/bootstrap"));
        for other in ["1/1 brokers are down", "Failed to acquire: a token", "", ": "] {
            assert_eq!(broker_of(other), None, "{other}");
        }
    }

    #[test]
    fn each_step_names_its_setting() {
        let scram = config(&[("KAFKA_AUTH", "scram"), ("KAFKA_SECRET_ID", "AmazonMSK_relay")]);
        let iam = config(&[("KAFKA_AUTH", "iam")]);
        let tls = config(&[("KAFKA_AUTH", "tls"), ("KAFKA_CA_FILE", "/opt/ca.pem")]);
        for (step, config, part) in [
            (Step::Certificate, &tls, "KAFKA_CA_FILE=\"/opt/ca.pem\""),
            (Step::Certificate, &iam, "set KAFKA_CA_FILE or KAFKA_CA_PEM"),
            (Step::Encryption, &tls, "KAFKA_AUTH=tls"),
            (Step::ClientCertificate, &tls, "mutual TLS"),
            (Step::Mechanism, &scram, "KAFKA_SCRAM_MECHANISM=SCRAM-SHA-512"),
            (Step::Credentials, &scram, "KAFKA_SECRET_ID=AmazonMSK_relay"),
            (Step::Credentials, &iam, "kafka-cluster:Connect"),
        ] {
            let told = step.told(config);
            assert!(told.contains(part) && told.contains("b:9096"), "{told}");
        }
    }
}
