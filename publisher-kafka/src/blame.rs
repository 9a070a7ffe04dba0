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
}

/// The step that the client's own words tell of. Only those of a refusal are known here: words that a network can be
/// blamed for are left alone.
pub(crate) fn step_of(words: &str) -> Option<Step> {
    let says = |text: &str| words.contains(text);
    if is_throttled(words) {
        None
    } else if says("certificate verify failed") || says("verify broker certificate") {
        Some(Step::Certificate)
    } else if says("connecting to a PLAINTEXT broker listener")
        || says("wrong version number")
        || says("connecting to a SSL listener")
        || says("might require SASL authentication")
        // What a listener does that expected something else; so does a broker that is about to go, whose port then
        // refuses.
        || (says("Disconnected") && says("in state APIVERSION_QUERY"))
    {
        Some(Step::Encryption)
    } else if says("Unsupported SASL mechanism") {
        // A handshake fails for other reasons too: a broker takes one a second at most on a connection.
        Some(Step::Mechanism)
    } else if says("SASL authentication error") || (says("SASL ") && says("authentication failed")) {
        Some(Step::Credentials)
    } else {
        None
    }
}

/// Whether a broker of MSK asks for fewer connections in a second, which it says with the error of a refusal.
pub(crate) fn is_throttled(words: &str) -> bool {
    words.contains("Too many connects")
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
                 this cluster, and is {IAM_REGION} the cluster's region?"
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
            ("b:9096/1: Disconnected: connection closed by peer (after 3ms in state UP)", None),
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
                "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state: broker's \
                 supported mechanisms: ",
                None,
            ),
            ("SASL authentication error: [c14d3f4b]: Too many connects (after 3ms in state AUTH_REQ)", None),
            ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", None),
            ("SSL handshake failed: Connection setup timed out in state SSL_HANDSHAKE", None),
        ] {
            assert_eq!(step_of(words), step, "{words}");
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
            (Step::Mechanism, &scram, "KAFKA_SCRAM_MECHANISM=SCRAM-SHA-512"),
            (Step::Credentials, &scram, "KAFKA_SECRET_ID=AmazonMSK_relay"),
            (Step::Credentials, &iam, "kafka-cluster:Connect"),
        ] {
            let told = step.told(config);
            assert!(told.contains(part) && told.contains("b:9096"), "{told}");
        }
    }
}
