//! What the publisher shows to the brokers: from Secrets Manager, or signed with the function's own credentials.

mod msk;
mod secret;

use std::sync::Arc;

use aws_config::SdkConfig;
use outbox::Clock;
use outbox_publisher_kafka::{Auth, CredentialSource, KafkaConfig};

use crate::FunctionError;
use msk::MskTokens;
use secret::SecretLogin;

/// The source that the settings want; `None`: they want none. It asks for nothing yet.
///
/// # Errors
/// The function has no credentials of its own to sign with.
pub(crate) fn credential_source(
    kafka: &KafkaConfig,
    aws: &SdkConfig,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<dyn CredentialSource>>, FunctionError> {
    Ok(match kafka.auth() {
        Auth::Scram { secret_id, .. } => Some(Arc::new(SecretLogin::new(aws, secret_id.clone()))),
        Auth::Iam { region } => {
            let tokens = MskTokens::new(aws, region.clone(), Arc::clone(clock));
            let missing =
                "KAFKA_AUTH=iam needs AWS credentials and a region, and the function was started without";
            Some(Arc::new(tokens.ok_or_else(|| FunctionError::Misconfigured(missing.to_owned()))?))
        }
        _ => None,
    })
}
