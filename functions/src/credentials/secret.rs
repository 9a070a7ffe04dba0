//! User name and password for SCRAM: from a secret of Secrets Manager.

use std::fmt;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::config::Builder;
use aws_sdk_secretsmanager::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use outbox::Chain;
use outbox_publisher_kafka::config::SECRET_ID;
use outbox_publisher_kafka::{Credential, CredentialError, CredentialSource};
use outbox_store_dynamodb::client_timeouts;
use serde_json::Value;

/// What the secret holds: the shape that MSK itself wants of a secret that is associated with a cluster.
const SHAPE: &str = r#"a JSON object with the texts "username" and "password""#;

/// How long a read may take: less than half of what the shortest publish has, so that the SDK is the one that says why.
/// Each publish tries again.
const TIMEOUT: Duration = Duration::from_millis(2_500);

/// Reads a secret.
pub(super) struct SecretLogin {
    client: Client,
    id: String,
}

impl SecretLogin {
    pub(super) fn new(aws: &SdkConfig, id: String) -> Self {
        let timeouts = client_timeouts().to_builder().operation_timeout(TIMEOUT).build();
        let config = Builder::from(aws).timeout_config(timeouts).build();
        Self { client: Client::from_conf(config), id }
    }

    async fn read(&self) -> Result<Credential, CredentialError> {
        let what = self.what();
        let secret = self.client.get_secret_value().secret_id(&self.id).send().await.map_err(|error| {
            let (lacks, is_final) = reason(&error);
            // Not by the SDK's own means: those show an answer that could not be read, and the secret in it.
            let text = format!("{what} could not be read{lacks}: {}", Chain(&error));
            if is_final { CredentialError::misconfigured(text) } else { CredentialError::unavailable(text) }
        })?;
        let login = secret.secret_string().and_then(login);
        login.ok_or_else(|| CredentialError::misconfigured(format!("{what} was read, and is not {SHAPE}")))
    }
}

impl CredentialSource for SecretLogin {
    fn what(&self) -> String {
        format!("the secret {SECRET_ID}={}", self.id)
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        self.read().boxed()
    }
}

impl fmt::Debug for SecretLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretLogin").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is to be done about an error, and whether it stays until that is done.
fn reason(error: &SdkError<GetSecretValueError>) -> (&'static str, bool) {
    match error {
        SdkError::ServiceError(answer) => match answer.err().code() {
            Some("AccessDeniedException") => (
                ": the function's role lacks secretsmanager:GetSecretValue on it, or kms:Decrypt on its key",
                true,
            ),
            Some("ResourceNotFoundException") => {
                (": there is no such secret in this region and account", true)
            }
            Some("DecryptionFailure") => (": the function's role lacks kms:Decrypt on its key", true),
            Some("InvalidParameterException" | "InvalidRequestException" | "ValidationException") => {
                ("", true)
            }
            _ => ("", false),
        },
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => {
            (": in a VPC this needs an interface endpoint for Secrets Manager, or NAT", false)
        }
        _ => ("", false),
    }
}

/// The user name and the password in a secret's text; `None`: it holds something else. No error of a parser's comes
/// with it: such an error quotes what it could not read.
fn login(text: &str) -> Option<Credential> {
    let secret: Value = serde_json::from_str(text).ok()?;
    let field = |name| secret.get(name).and_then(Value::as_str);
    Credential::login(field("username")?, field("password")?)
}

#[cfg(test)]
mod tests {
    use aws_sdk_secretsmanager::config::http::HttpResponse;
    use aws_sdk_secretsmanager::error::ErrorMetadata;
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    #[test]
    fn a_secret_has_the_shape_that_msk_wants() {
        let text = r#"{"username":"relay","password":"hunter2","engine":"kafka"}"#;
        assert_eq!(login(text), Credential::login("relay", "hunter2"));
        for bad in [
            "",
            "hunter2",
            "[]",
            r#"{"username":"relay"}"#,
            r#"{"username":"relay","password":7}"#,
            r#"{"username":"","password":"hunter2"}"#,
            r#"{"user":"relay","password":"hunter2"}"#,
        ] {
            assert_eq!(login(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_must_be_mended_is_told_from_what_passes() {
        let answered = |code| {
            let error = GetSecretValueError::generic(ErrorMetadata::builder().code(code).build());
            let answer = HttpResponse::new(StatusCode::try_from(400).unwrap(), SdkBody::empty());
            reason(&SdkError::service_error(error, answer))
        };
        assert!(answered("AccessDeniedException").0.contains("secretsmanager:GetSecretValue"));
        assert!(answered("ResourceNotFoundException").1);
        assert_eq!(answered("ThrottlingException"), ("", false));
        assert_eq!(answered("InternalServiceError"), ("", false));
        let (text, is_final) = reason(&SdkError::timeout_error("slow"));
        assert!(text.contains("endpoint") && !is_final);
    }
}
