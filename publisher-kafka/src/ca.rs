//! Whose certificates the brokers' must come from.
//!
//! OpenSSL is linked statically and looks for the system's where its own build would have put them, which is nowhere: the
//! system's bundle is found here.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rdkafka::error::KafkaError;

use crate::auth::{CA_FILE, CA_PEM};

/// Where the systems that this may run on keep the certificates of public CAs. The first is that of Lambda's image and of
/// Red Hat's and Amazon's Linux; the others are those of Debian and Ubuntu, of SUSE, of Alpine.
const WELL_KNOWN: [&str; 5] = [
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The largest file that is taken for a list of certificates: a system's own are a fifth of it.
const MAX_BYTES: u64 = 1_048_576;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Where the certificates are, as the settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ca {
    /// The system's.
    WellKnown,
    /// In this file.
    File(PathBuf),
    /// These, in PEM.
    Pem(String),
}

/// The certificates themselves, or where the client is to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The system's file: read by the client, for it is large.
    File(PathBuf),
    /// In PEM.
    Pem(String),
}

/// There are no certificates to check the brokers' with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    /// The system has none.
    #[error(
        "no CA certificates to check the brokers' with: set {CA_FILE} or {CA_PEM}, for there is no file {}",
        .tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoneFound {
        /// Where they were looked for.
        tried: Vec<PathBuf>,
    },
    /// The file cannot be read.
    #[error("{CA_FILE}={:?} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// They have the form of certificates, and are none.
    #[error("the Kafka client does not take {what}")]
    NotTaken {
        /// Where they are from.
        what: String,
        /// Its words.
        #[source]
        source: KafkaError,
    },
    /// The file holds something else.
    #[error("{CA_FILE}={:?} holds no certificates in PEM, or is larger than {MAX_BYTES} bytes", path.display())]
    NoPem {
        /// The file.
        path: PathBuf,
    },
}

impl Ca {
    /// Finds the certificates.
    pub(crate) fn find(&self) -> Result<Roots, CaError> {
        self.find_among(&WELL_KNOWN.map(PathBuf::from))
    }

    fn find_among(&self, well_known: &[PathBuf]) -> Result<Roots, CaError> {
        match self {
            Self::Pem(pem) => Ok(Roots::Pem(pem.clone())),
            Self::File(path) => read(path).map(Roots::Pem),
            Self::WellKnown => {
                let found = well_known.iter().find(|path| path.is_file());
                found
                    .map(|path| Roots::File(path.clone()))
                    .ok_or_else(|| CaError::NoneFound { tried: well_known.to_vec() })
            }
        }
    }

    /// What to look at when a broker's certificate is not from there.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::WellKnown => {
                format!("the system's CA certificates; set {CA_FILE} or {CA_PEM} for a private CA")
            }
            Self::File(path) => format!("{CA_FILE}={:?}", path.display().to_string()),
            Self::Pem(_) => CA_PEM.to_owned(),
        }
    }
}

fn read(path: &Path) -> Result<String, CaError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|source| CaError::Unreadable { path: path.to_owned(), source })?;
    let is_small = u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_BYTES);
    let text = if is_small { std::str::from_utf8(&bytes).ok() } else { None };
    text.and_then(normalised).ok_or_else(|| CaError::NoPem { path: path.to_owned() })
}

/// The certificates of a PEM text, as OpenSSL reads them; `None`: there are none, or one is cut.
///
/// Templates and consoles make blanks or `\n` of the ends of lines. What is between certificates is left out.
pub(crate) fn normalised(text: &str) -> Option<String> {
    let text = text.replace("\\r", "").replace("\\n", "\n");
    let mut pem = String::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let (body, after) = after.split_once(END)?;
        rest = after;
        let letters: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        if letters.is_empty() || !letters.iter().all(is_base64) {
            return None;
        }
        pem.push_str(BEGIN);
        for line in letters.chunks(64) {
            pem.push('\n');
            pem.extend(line.iter().map(|byte| char::from(*byte)));
        }
        pem.push('\n');
        pem.push_str(END);
        pem.push('\n');
    }
    (!pem.is_empty()).then_some(pem)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A CA that nobody trusts: `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500`.
    pub(crate) const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBijCCAS+gAwIBAgIUKMu8jygHp7NVtgdfRLzVDpmtCWUwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOYSBDQSBvZiBub2JvZHkwIBcNMjYxMTMwMjEyNDAxWhgPMjEy
NjExMDYyMTI0MDFaMBkxFzAVBgNVBAMMDmEgQ0Egb2Ygbm9ib2R5MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEwstDtEh5ryrqV4mWfI6tJN5zZFReG7fJhQLT03cx
xw9Bu7/ZCHHu2A0ieVk6DYGZDstXwAmNNzT6qxKlz65MiKNTMFEwHQYDVR0OBBYE
FHVcCtgvbSHKpwwEOIZW4y40Sj0uMB8GA1UdIwQYMBaAFHVcCtgvbSHKpwwEOIZW
4y40Sj0uMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhANAwSJYe
AdVGfc/85TGXmPy5v14yNOhfE11CAt4RtFIYAiEA8aZPokpH1jdhiGSue4IhOSXs
qHI4OONLf0cy/LxhxcQ=
-----END CERTIFICATE-----
";

    #[test]
    fn a_pem_text_survives_templates_and_consoles() {
        let two = format!("# ours\n{CERTIFICATE}\nsubject=x\n{CERTIFICATE}");
        assert_eq!(normalised(&two), Some(format!("{CERTIFICATE}{CERTIFICATE}")));
        for mangled in [
            CERTIFICATE.to_owned(),
            CERTIFICATE.trim().to_owned(),
            CERTIFICATE.replace('\n', "\\n"),
            CERTIFICATE.replace('\n', "\\r\\n"),
            CERTIFICATE.replace('\n', "\r\n"),
            CERTIFICATE.replace('\n', " "),
        ] {
            assert_eq!(normalised(&mangled).as_deref(), Some(CERTIFICATE), "{mangled:?}");
        }
        let cut = &CERTIFICATE[..CERTIFICATE.len() / 2];
        let odd = CERTIFICATE.replace("MII", "M.I");
        for bad in ["", "certificate", cut, &format!("{CERTIFICATE}{cut}"), &odd, &format!("{BEGIN}{END}")] {
            assert_eq!(normalised(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_first_well_known_place_is_taken_and_all_are_named_where_none_is() {
        let directory = std::env::temp_dir();
        let nowhere = directory.join("no-such-file-of-ours");
        let file = std::env::current_exe().unwrap();
        let found = Ca::WellKnown.find_among(&[nowhere.clone(), directory.clone(), file.clone()]).unwrap();
        assert_eq!(found, Roots::File(file));
        let error = Ca::WellKnown.find_among(&[nowhere.clone(), directory.clone()]).unwrap_err().to_string();
        assert!(error.contains("KAFKA_CA_FILE") && error.contains("KAFKA_CA_PEM"), "{error}");
        assert!(error.contains(nowhere.to_str().unwrap()), "{error}");
        assert!(error.contains(directory.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let missing = Ca::File("/no/such/file".into()).find().unwrap_err();
        assert!(matches!(missing, CaError::Unreadable { .. }));
        assert_eq!(missing.to_string(), "KAFKA_CA_FILE=\"/no/such/file\" cannot be read");
        // Endless, and no text.
        for other in ["/dev/zero", "/proc/self/exe"] {
            let error = Ca::File(other.into()).find().unwrap_err();
            assert!(matches!(error, CaError::NoPem { .. }), "{error}");
            assert!(error.to_string().contains(other), "{error}");
        }
    }
}
