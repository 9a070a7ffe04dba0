//! What a broker's listener for clients speaks, and who may do everything there.

use std::fmt;

/// What the listener for clients speaks: the one of [`Broker::secure_servers`](super::Broker::secure_servers) and, behind
/// a link, of [`Broker::linked_servers`](super::Broker::linked_servers).
///
/// The administrator's way in is plaintext whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Security {
    /// Neither encrypted nor authenticated: the administrator's listener serves clients too.
    #[default]
    Plaintext,
    /// TLS, with a certificate by a CA made for this broker. Clients are not asked who they are.
    Tls,
    /// TLS as above, and SASL with SCRAM-SHA-512.
    Scram,
    /// TLS as above, and SASL with OAUTHBEARER. The broker takes [tokens](super::unsecured_token) that nobody signed.
    OauthBearer,
}

/// Who may do everything on a broker that knows its clients: the user of
/// [`Broker::credentials`](super::Broker::credentials), and the subject of a token with this name.
pub const SUPER_USER: &str = "outbox";

impl Security {
    /// Whether there is anything to protect the listener with.
    pub(super) fn is_secured(self) -> bool {
        self != Self::Plaintext
    }

    /// Whether the broker knows who its clients are, and so can tell what they may do.
    pub(super) fn knows_principals(self) -> bool {
        matches!(self, Self::Scram | Self::OauthBearer)
    }

    /// Kafka's name of the protocol.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Tls => "SSL",
            Self::Scram | Self::OauthBearer => "SASL_SSL",
        }
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "plaintext",
            Self::Tls => "TLS",
            Self::Scram => "SASL/SCRAM",
            Self::OauthBearer => "SASL/OAUTHBEARER",
        })
    }
}
