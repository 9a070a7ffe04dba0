//! The broker's settings.

use std::net::SocketAddr;
use std::path::Path;

use super::certificates::KEYSTORE;
use super::security::{SUPER_USER, Security};

/// Where the broker listens on 127.0.0.1.
#[derive(Debug)]
pub(super) struct Ports {
    /// The administrator, and clients that speak plaintext: `PLAINTEXT`.
    pub(super) plaintext: u16,
    /// `CONTROLLER`.
    pub(super) controller: u16,
    /// Clients that speak what `security` says: `SECURE`.
    pub(super) secure: Option<u16>,
    /// The same behind a link: `LINKED`.
    pub(super) linked: Option<Linked>,
}

/// The two ends of a link.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) target: SocketAddr,
    /// What the clients of that listener are told to connect to.
    pub(super) address: SocketAddr,
}

/// Among them a short session: a broker that was killed may register again only when its old session has ended.
pub(super) fn properties(ports: &Ports, security: Security, directory: &Path) -> String {
    let Ports { plaintext, controller, secure, linked } = ports;
    let mut listeners = format!("PLAINTEXT://127.0.0.1:{plaintext}");
    // A client is told the address that belongs to the listener it asks.
    let mut advertised = listeners.clone();
    let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
    let protocol = security.protocol();
    let secure = secure.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let secure = secure.map(|address| ("SECURE", address, address));
    let linked = linked.as_ref().map(|linked| ("LINKED", linked.target, linked.address));
    let for_clients: Vec<_> = secure.into_iter().chain(linked).collect();
    for (name, address, told) in &for_clients {
        listeners += &format!(",{name}://{address}");
        advertised += &format!(",{name}://{told}");
        protocols += &format!(",{name}:{protocol}");
    }
    let mut text = format!(
        "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map={protocols}
log.dirs={data}
auto.create.topics.enable=true
num.partitions=6
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
",
        data = directory.join("data").display()
    );
    if security.is_secured() {
        let keystore = directory.join(KEYSTORE);
        text += &format!("ssl.keystore.type=PEM\nssl.keystore.location={}\n", keystore.display());
    }
    for (name, _, _) in &for_clients {
        text += &sasl(security, &name.to_ascii_lowercase());
    }
    if security.knows_principals() {
        // Who comes without a name comes by the administrator's listener, as the broker itself and its controller do.
        text += &format!(
            "\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{SUPER_USER}
"
        );
    }
    text
}

/// What a listener is told about its clients' proof of who they are.
fn sasl(security: Security, listener: &str) -> String {
    let (mechanism, module, handler) = match security {
        Security::Plaintext | Security::Tls => return String::new(),
        Security::Scram => ("SCRAM-SHA-512", "scram.ScramLoginModule", None),
        Security::OauthBearer => (
            "OAUTHBEARER",
            "oauthbearer.OAuthBearerLoginModule",
            Some("oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"),
        ),
    };
    let package = "org.apache.kafka.common.security";
    let prefix = format!("listener.name.{listener}");
    let of_mechanism = format!("{prefix}.{}.sasl", mechanism.to_ascii_lowercase());
    let mut text = format!(
        "\
{prefix}.sasl.enabled.mechanisms={mechanism}
{of_mechanism}.jaas.config={package}.{module} required;
"
    );
    if let Some(handler) = handler {
        // With a limit, even one that is never reached, a connection ends with the token that it was opened with.
        text += &format!(
            "\
{of_mechanism}.server.callback.handler.class={package}.{handler}
{prefix}.connections.max.reauth.ms=86400000
"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(secure: bool, linked: bool) -> Ports {
        let linked = linked.then(|| Linked {
            target: SocketAddr::from(([127, 0, 0, 1], 4)),
            address: SocketAddr::from(([127, 0, 0, 1], 5)),
        });
        Ports { plaintext: 1, controller: 2, secure: secure.then_some(3), linked }
    }

    #[test]
    fn everything_listens_on_the_loopback_address() {
        for (secure, linked, listeners) in
            [(false, false, 3), (true, false, 5), (false, true, 5), (true, true, 7)]
        {
            let security = if secure { Security::Scram } else { Security::Plaintext };
            let text = properties(&ports(secure, linked), security, Path::new("/dir"));
            let lines: Vec<_> = text.lines().filter(|line| line.contains("://")).collect();
            assert_eq!(lines.len(), 2, "listeners and advertised.listeners: {text}");
            let all: Vec<_> = lines.iter().flat_map(|line| line.split(',')).collect();
            assert_eq!(all.len(), listeners, "{text}");
            assert!(all.iter().all(|listener| listener.contains("://127.0.0.1:")), "{text}");
        }
    }

    #[test]
    fn the_link_speaks_what_clients_speak_and_the_administrator_plaintext() {
        for (security, protocol) in
            [(Security::Tls, "SSL"), (Security::Scram, "SASL_SSL"), (Security::OauthBearer, "SASL_SSL")]
        {
            let text = properties(&ports(true, true), security, Path::new("/dir"));
            let map = format!(
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:{protocol},LINKED:{protocol}\n"
            );
            assert!(text.contains(&map), "{text}");
            assert!(text.contains("ssl.keystore.location=/dir/server.pem\n"), "{text}");
        }
    }

    #[test]
    fn a_plaintext_broker_has_nothing_to_do_with_security() {
        let text = properties(&ports(false, true), Security::Plaintext, Path::new("/dir"));
        for word in ["ssl.", "sasl.", "authorizer", "super.users"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}
