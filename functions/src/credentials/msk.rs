//! Tokens of MSK IAM: a URL that asks for a connection, signed with AWS credentials, in base64.
//!
//! Signed by what the SDK signs its own requests with, as AWS's own signers for other languages do. The one crate that
//! makes such tokens is a port of theirs by a single author; it reads the system's clock, gives every token a quarter of
//! an hour however soon its credentials expire, and turns on the SDK's latest behaviour for everybody it is linked with.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use outbox::{Chain, Clock};
use outbox_publisher_kafka::{Credential, CredentialError, CredentialSource};
use tracing::subscriber::{NoSubscriber, with_default};

/// How long a token lives: the longest that MSK takes.
const LIFE: Duration = Duration::from_mins(15);
/// The service that it is signed for.
const SERVICE: &str = "kafka-cluster";
/// What the broker's log calls the client. It takes the principal from the signature.
const PRINCIPAL: &str = "outbox-relay";
/// Tells CloudTrail whose token it is. Not signed, as in AWS's own signers.
const USER_AGENT: &str = concat!("outbox-relay%2F", env!("CARGO_PKG_VERSION"));

/// Signs tokens with the function's own credentials.
pub(super) struct MskTokens {
    credentials: SharedCredentialsProvider,
    region: String,
    clock: Arc<dyn Clock>,
}

impl MskTokens {
    /// For the brokers of a region, the function's own unless it is named; `None`: there is nothing to sign with.
    pub(super) fn new(aws: &SdkConfig, region: Option<String>, clock: Arc<dyn Clock>) -> Option<Self> {
        let region = region.or_else(|| aws.region().map(ToString::to_string))?;
        Some(Self { credentials: aws.credentials_provider()?, region, clock })
    }

    async fn token(&self) -> Result<Credential, CredentialError> {
        let credentials = self.credentials.provide_credentials().await.map_err(|error| {
            CredentialError::unavailable(format!("{} could not be had: {}", self.what(), Chain(&error)))
        })?;
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.now_utc().unix_millis());
        let life = life(&credentials, now).ok_or_else(|| {
            CredentialError::unavailable(format!("{} have expired, and there are no others", self.what()))
        })?;
        let token = token(&credentials, &self.region, now).map_err(|error| {
            CredentialError::misconfigured(format!(
                "the IAM token for region {} could not be signed (KAFKA_AUTH=iam, KAFKA_IAM_REGION): {error}",
                self.region
            ))
        })?;
        Credential::token(token, PRINCIPAL, life)
            .ok_or_else(|| CredentialError::misconfigured("the IAM token is none (KAFKA_AUTH=iam)"))
    }
}

impl CredentialSource for MskTokens {
    /// Signing takes no time: what can is this.
    fn what(&self) -> String {
        "the AWS credentials that the IAM token is signed with (KAFKA_AUTH=iam)".to_owned()
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        self.token().boxed()
    }
}

impl fmt::Debug for MskTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MskTokens").field("region", &self.region).finish_non_exhaustive()
    }
}

/// How long a token that is signed now can be used: no longer than its credentials; `None`: not at all.
fn life(credentials: &Credentials, now: SystemTime) -> Option<Duration> {
    let left = credentials.expiry().map_or(Some(LIFE), |expiry| expiry.duration_since(now).ok())?;
    (!left.is_zero()).then(|| left.min(LIFE))
}

/// A token: the URL, with its signature in its query.
fn token(
    credentials: &Credentials,
    region: &str,
    now: SystemTime,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let url = format!("https://kafka.{region}.amazonaws.com/?Action={SERVICE}%3AConnect");
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(LIFE);
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(now)
        .settings(settings)
        .build()?;
    let request = SignableRequest::new("GET", &url, std::iter::empty(), SignableBody::Bytes(&[]))?;
    // At its finest the signer's log shows the query that it signs, and the session token in it.
    let signed = with_default(NoSubscriber::default(), || sign(request, &params.into()));
    let (instructions, _) = signed?.into_parts();
    let mut signed = http::Request::get(&url).body(())?;
    instructions.apply_to_request_http1x(&mut signed);
    let url = format!("{}&User-Agent={USER_AGENT}", signed.uri());
    // The alphabet of URLs, without padding.
    Ok(aws_smithy_types::base64::encode(url).replace('+', "-").replace('/', "_").replace('=', ""))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn decoded(token: &str) -> String {
        let padding = "=".repeat((4 - token.len() % 4) % 4);
        let text = token.replace('-', "+").replace('_', "/") + &padding;
        String::from_utf8(aws_smithy_types::base64::decode(text).unwrap()).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn credentials(expiry: Option<SystemTime>) -> Credentials {
        Credentials::new(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCY",
            Some("a+b/c=".to_owned()),
            expiry,
            "test",
        )
    }

    #[test]
    fn a_token_is_what_the_signer_of_aws_makes() {
        let token = token(&credentials(None), "eu-west-1", at(1_796_037_753)).unwrap();
        let url = decoded(&token);
        // By aws-msk-iam-sasl-signer-python 1.0.2, from the same credentials at the same time.
        let (theirs, _) = THEIRS.rsplit_once("&User-Agent=").unwrap();
        let (ours, _) = url.rsplit_once("&User-Agent=").unwrap();
        let sorted = |url: &str| {
            let (host, query) = url.split_once("/?").unwrap();
            let mut parts: Vec<String> = query.split('&').map(str::to_owned).collect();
            parts.sort();
            (host.to_owned(), parts)
        };
        assert_eq!(sorted(ours), sorted(theirs));
    }

    const THEIRS: &str = "https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect\
        &X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIDEXAMPLE%2F20261130%2Feu-west-1%2Fkafka-cluster%2Faws4_request\
        &X-Amz-Date=20261130T112233Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host\
        &X-Amz-Security-Token=a%2Bb%2Fc%3D\
        &X-Amz-Signature=4e770ce9304262f38b68ba0735a6dedec34abb51a98455f225173161d9968185\
        &User-Agent=aws-msk-iam-sasl-signer-python%2F1.0.2";

    #[test]
    fn a_token_lives_no_longer_than_its_credentials() {
        let now = at(1_000_000);
        assert_eq!(life(&credentials(None), now), Some(LIFE));
        assert_eq!(life(&credentials(Some(at(1_100_000))), now), Some(LIFE));
        assert_eq!(life(&credentials(Some(at(1_000_060))), now), Some(Duration::from_mins(1)));
        for past in [1_000_000, 999_999] {
            assert_eq!(life(&credentials(Some(at(past))), now), None);
        }
    }

    #[test]
    fn no_line_shows_what_a_token_is_made_of() {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&lines);
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        let log = log.with_writer(move || Lines(Arc::clone(&writer))).finish();
        let token = with_default(log, || {
            tracing::trace!("the log is on");
            token(&credentials(None), "eu-west-1", at(1_796_037_753)).unwrap()
        });
        let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert!(lines.contains("the log is on"), "{lines}");
        for secret in ["a+b", "a%2Bb", "wJalr", &token] {
            assert!(!lines.contains(secret), "{lines}");
        }
    }

    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_region_that_is_none_is_an_error() {
        assert!(token(&credentials(None), "eu west", at(0)).is_err());
    }
}
