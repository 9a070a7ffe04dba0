//! How the publisher proves who it is, and whose brokers it trusts: the settings.

use std::path::PathBuf;

use outbox::settings::{SettingError, Settings, invalid};

use crate::ca::{Ca, normalised};

/// How the client proves who it is.
pub const AUTH: &str = "KAFKA_AUTH";
/// A file with the certificates of the CA that the brokers' certificates come from.
pub const CA_FILE: &str = "KAFKA_CA_FILE";
/// Those certificates themselves.
pub const CA_PEM: &str = "KAFKA_CA_PEM";
/// The secret of Secrets Manager that holds user name and password.
pub const SECRET_ID: &str = "KAFKA_SECRET_ID";
/// The hash that SCRAM uses.
pub const SCRAM_MECHANISM: &str = "KAFKA_SCRAM_MECHANISM";
/// The region of the cluster that IAM tokens are for.
pub const IAM_REGION: &str = "KAFKA_IAM_REGION";

const PLAINTEXT: &str = "plaintext";
const TLS: &str = "tls";
const SCRAM: &str = "scram";
const IAM: &str = "iam";
const NAMES: [&str; 4] = [PLAINTEXT, TLS, SCRAM, IAM];

/// The settings that only some of [`NAMES`] have.
const BELONGING: [(&str, &[&str]); 5] = [
    (CA_FILE, &[TLS, SCRAM, IAM]),
    (CA_PEM, &[TLS, SCRAM, IAM]),
    (SECRET_ID, &[SCRAM]),
    (SCRAM_MECHANISM, &[SCRAM]),
    (IAM_REGION, &[IAM]),
];

/// How the publisher proves to the brokers who it is. All but the first encrypt, and check the brokers' certificates and
/// host names.
///
/// There is no SCRAM without TLS: it would send every record in the clear, for a broker that asks for a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// Not at all, and in the clear.
    Plaintext,
    /// Not at all; the brokers do.
    Tls,
    /// By a user name and a password.
    Scram {
        /// The hash.
        mechanism: ScramMechanism,
        /// The name or ARN of the secret that holds both.
        secret_id: String,
    },
    /// By a token that is signed with AWS credentials, as MSK takes it.
    Iam {
        /// The cluster's region; `None`: the function's own.
        region: Option<String>,
    },
}

/// The hash of SCRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScramMechanism {
    /// What many clusters use that are not MSK.
    Sha256,
    /// The only one of MSK.
    #[default]
    Sha512,
}

impl ScramMechanism {
    /// As librdkafka calls it, and the setting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|mechanism| mechanism.name() == name)
    }
}

impl Auth {
    /// As `KAFKA_AUTH` calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Plaintext => PLAINTEXT,
            Self::Tls => TLS,
            Self::Scram { .. } => SCRAM,
            Self::Iam { .. } => IAM,
        }
    }

    /// Whether it takes credentials.
    pub const fn needs_credentials(&self) -> bool {
        matches!(self, Self::Scram { .. } | Self::Iam { .. })
    }

    /// Reads `KAFKA_AUTH` and what belongs to it. What belongs to another one is refused: somebody believes it counts.
    pub(crate) fn from_settings(settings: &mut Settings) -> Result<(Self, Ca), SettingError> {
        let name = settings.read_or(AUTH, PLAINTEXT, &format!("one of {}", NAMES.join(", ")), |value| {
            NAMES.into_iter().find(|name| *name == value)
        })?;
        for (variable, owners) in BELONGING {
            if let Some(value) = settings.get(variable)
                && !owners.contains(&name)
            {
                let owners = owners.join(" or ");
                let allowed =
                    format!("it is for {AUTH}={owners}, and this is {AUTH}={name}: remove one of them");
                return Err(invalid(variable, &shown(variable, value), &allowed));
            }
        }
        let auth = match name {
            TLS => Self::Tls,
            SCRAM => Self::Scram { mechanism: mechanism(settings)?, secret_id: secret_id(settings)? },
            IAM => Self::Iam { region: region(settings)? },
            _ => Self::Plaintext,
        };
        Ok((auth, ca(settings)?))
    }
}

fn mechanism(settings: &mut Settings) -> Result<ScramMechanism, SettingError> {
    let allowed = "SCRAM-SHA-512 (MSK's), or SCRAM-SHA-256";
    settings.read_or(SCRAM_MECHANISM, ScramMechanism::default(), allowed, ScramMechanism::from_name)
}

fn secret_id(settings: &mut Settings) -> Result<String, SettingError> {
    const ALLOWED: &str = "KAFKA_AUTH=scram needs the name or ARN of a secret in Secrets Manager that holds \
                           {\"username\": …, \"password\": …}";
    let id = settings.required(SECRET_ID, ALLOWED)?;
    if is_secret_id(&id) { Ok(id) } else { Err(invalid(SECRET_ID, &shown(SECRET_ID, &id), ALLOWED)) }
}

/// Whether it is the name or ARN of a secret, as far as letters tell.
fn is_secret_id(id: &str) -> bool {
    id.len() <= 2048 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+=.@-:!".contains(&byte))
}

fn region(settings: &mut Settings) -> Result<Option<String>, SettingError> {
    settings.read_or(IAM_REGION, None, "a region of AWS, such as eu-west-1", |value| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        ((1..=63).contains(&value.len()) && value.bytes().all(is_letter)).then(|| Some(value.to_owned()))
    })
}

fn ca(settings: &mut Settings) -> Result<Ca, SettingError> {
    let file = settings.get(CA_FILE).map(str::to_owned);
    if let Some(file) = file.as_deref().filter(|file| is_pem(file)) {
        let allowed = format!("the name of a file; the certificates themselves go into {CA_PEM}");
        return Err(invalid(CA_FILE, &shown(CA_FILE, file), &allowed));
    }
    let Some(pem) = settings.get(CA_PEM) else {
        return Ok(file.map_or(Ca::WellKnown, |file| Ca::File(PathBuf::from(file))));
    };
    let shown = shown(CA_PEM, pem);
    if file.is_some() {
        return Err(invalid(CA_PEM, &shown, &format!("{CA_FILE} is set as well: remove one of them")));
    }
    const ALLOWED: &str = "one or more certificates in PEM, -----BEGIN CERTIFICATE----- and so on; for the ends of its \
                           lines, \\n will do";
    normalised(pem).map(Ca::Pem).ok_or_else(|| invalid(CA_PEM, &shown, ALLOWED))
}

/// A value, to be named by an error. Who puts a PEM together may have put a private key into it, and who puts the secret
/// itself in place of its name must not find it in the log.
fn shown(variable: &str, value: &str) -> String {
    let is_plain = match variable {
        CA_PEM => false,
        SECRET_ID => is_secret_id(value),
        CA_FILE => !is_pem(value),
        _ => true,
    };
    if is_plain { value.to_owned() } else { hidden(value) }
}

fn is_pem(value: &str) -> bool {
    value.contains("-----") || value.contains(['\n', '\r'])
}

fn hidden(value: &str) -> String {
    format!("({} characters)", value.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::tests::CERTIFICATE;

    fn read(values: &[(&str, &str)]) -> Result<(Auth, Ca), String> {
        Auth::from_settings(&mut Settings::new(values.iter().copied())).map_err(|error| error.to_string())
    }

    #[test]
    fn each_way_has_its_settings() {
        assert_eq!(read(&[]), Ok((Auth::Plaintext, Ca::WellKnown)));
        assert_eq!(read(&[(AUTH, "plaintext")]), Ok((Auth::Plaintext, Ca::WellKnown)));
        assert_eq!(
            read(&[(AUTH, "tls"), (CA_FILE, "/opt/ca.pem")]),
            Ok((Auth::Tls, Ca::File("/opt/ca.pem".into())))
        );
        let scram = |mechanism| Auth::Scram { mechanism, secret_id: "AmazonMSK_relay".to_owned() };
        let (way, secret) = ((AUTH, "scram"), (SECRET_ID, "AmazonMSK_relay"));
        assert_eq!(read(&[way, secret]), Ok((scram(ScramMechanism::Sha512), Ca::WellKnown)));
        assert_eq!(
            read(&[way, secret, (SCRAM_MECHANISM, "SCRAM-SHA-256")]),
            Ok((scram(ScramMechanism::Sha256), Ca::WellKnown))
        );
        assert_eq!(read(&[(AUTH, "iam")]), Ok((Auth::Iam { region: None }, Ca::WellKnown)));
        let region = Some("us-gov-west-1".to_owned());
        assert_eq!(
            read(&[(AUTH, "iam"), (IAM_REGION, "us-gov-west-1")]),
            Ok((Auth::Iam { region }, Ca::WellKnown))
        );
    }

    #[test]
    fn another_way_is_refused_by_name() {
        for auth in ["kerberos", "PLAINTEXT", "sasl"] {
            let error = read(&[(AUTH, auth)]).unwrap_err();
            assert_eq!(error, format!("KAFKA_AUTH={auth:?} is not valid: one of plaintext, tls, scram, iam"));
        }
    }

    #[test]
    fn a_setting_of_another_way_is_refused() {
        for (variable, owners) in BELONGING {
            for name in NAMES.into_iter().filter(|name| !owners.contains(name)) {
                let secret = if name == SCRAM { "s" } else { "" };
                let error = read(&[(AUTH, name), (SECRET_ID, secret), (variable, "x")]).unwrap_err();
                assert!(error.starts_with(&format!("{variable}=")), "{error}");
                assert!(error.contains(" is not valid: it is for KAFKA_AUTH="), "{error}");
                assert!(error.contains(&format!("this is KAFKA_AUTH={name}")), "{error}");
            }
        }
        // Without KAFKA_AUTH nothing is encrypted: whoever names a CA believes otherwise.
        let error = read(&[(CA_FILE, "/opt/ca.pem")]).unwrap_err();
        assert_eq!(
            error,
            "KAFKA_CA_FILE=\"/opt/ca.pem\" is not valid: it is for KAFKA_AUTH=tls or scram or iam, and this is \
             KAFKA_AUTH=plaintext: remove one of them"
        );
    }

    #[test]
    fn scram_needs_a_secret_by_its_name() {
        let error = read(&[(AUTH, "scram")]).unwrap_err();
        assert!(error.starts_with("KAFKA_SECRET_ID is not set: KAFKA_AUTH=scram needs the name"), "{error}");
        let error = read(&[(AUTH, "scram"), (SECRET_ID, r#"{"password":"hunter2"}"#)]).unwrap_err();
        assert!(error.starts_with("KAFKA_SECRET_ID=\"(22 characters)\" is not valid"), "{error}");
        let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:AmazonMSK_relay-a1b2c3";
        assert!(read(&[(AUTH, "scram"), (SECRET_ID, arn)]).is_ok());
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_shown() {
        let secret = r#"{"username":"relay","password":"hunter2"}"#;
        let key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----";
        for name in NAMES {
            for (variable, value) in [(SECRET_ID, secret), (CA_FILE, key), (CA_PEM, key)] {
                let Err(error) = read(&[(AUTH, name), (SECRET_ID, "s"), (variable, value)]) else {
                    panic!("{name} takes {variable}={value}");
                };
                assert!(!error.contains("hunter2"), "{error}");
            }
        }
        let error = read(&[(AUTH, "tls"), (CA_FILE, key)]).unwrap_err();
        assert!(error.starts_with("KAFKA_CA_FILE=\"(") && error.contains("KAFKA_CA_PEM"), "{error}");
    }

    #[test]
    fn the_rest_is_refused_by_name_and_value() {
        for (auth, secret, variable, value) in [
            ("scram", "s", SCRAM_MECHANISM, "PLAIN"),
            ("scram", "s", SCRAM_MECHANISM, "scram-sha-512"),
            ("iam", "", IAM_REGION, "eu-west-1.example.com/"),
            ("iam", "", IAM_REGION, "EU"),
        ] {
            let error = read(&[(AUTH, auth), (variable, value), (SECRET_ID, secret)]).unwrap_err();
            assert!(error.starts_with(&format!("{variable}={value:?} is not valid: ")), "{error}");
        }
    }

    #[test]
    fn a_ca_is_a_file_or_a_text_and_its_text_is_not_shown() {
        let text = CERTIFICATE.replace('\n', "\\n");
        let (_, ca) = read(&[(AUTH, "tls"), (CA_PEM, &text)]).unwrap();
        assert_eq!(ca, Ca::Pem(CERTIFICATE.to_owned()));
        let error = read(&[(AUTH, "tls"), (CA_PEM, &text), (CA_FILE, "f")]).unwrap_err();
        assert!(error.contains("KAFKA_CA_FILE is set as well"), "{error}");
        for bad in ["MIIBsecret", "-----BEGIN PRIVATE KEY-----\nMIIBsecret\n-----END PRIVATE KEY-----"] {
            let error = read(&[(AUTH, "tls"), (CA_PEM, bad)]).unwrap_err();
            assert!(error.starts_with("KAFKA_CA_PEM=\"("), "{error}");
            assert!(!error.contains("MIIB"), "{error}");
        }
    }
}
