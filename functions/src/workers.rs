//! Further sweeps: asynchronous invocations of the function itself.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::Builder;
use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use outbox::concurrently::concurrently;
use outbox::relay::{Workers, WorkersError};
use serde_json::{Value, json};

/// The variable that says how many sweeps may be at work at once.
pub(crate) const MAX_WORKERS: &str = "OUTBOX_MAX_WORKERS";

/// The source that an event of ours names, as events of AWS do.
const SOURCE: &str = "outbox.scheduled-relay";
/// How many invocations are asked for at once.
const CONCURRENT_REQUESTS: usize = 8;
/// How long a connection to Lambda may take to come up. A VPC without a way to Lambda would otherwise cost all the time
/// that there is.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(400);

/// Invokes this function asynchronously.
///
/// Lambda runs such an event once: the template turns its retries off, for the schedule is the retry. An invocation that
/// was asked for twice, because a reply was lost, finds no share and leaves.
#[derive(Debug)]
pub struct LambdaWorkers {
    client: Client,
    function: String,
    max: usize,
}

impl LambdaWorkers {
    /// For the function of this name, at most `max` sweeps at once.
    pub fn new(aws: &SdkConfig, function: impl Into<String>, max: usize) -> Self {
        let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).build();
        let client = Client::from_conf(Builder::from(aws).timeout_config(timeouts).build());
        Self { client, function: function.into(), max }
    }

    async fn invoke(&self, limit: Duration) -> Result<(), WorkersError> {
        let timeouts = TimeoutConfig::builder().operation_timeout(limit).operation_attempt_timeout(limit);
        let config = aws_sdk_lambda::Config::builder().timeout_config(timeouts.build());
        let request = self.client.invoke().function_name(&self.function);
        let request = request.invocation_type(InvocationType::Event).payload(Blob::new(event().to_string()));
        match request.customize().config_override(config).send().await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = DisplayErrorContext(error);
                Err(format!(
                    "function {} could not be invoked (it needs lambda:InvokeFunction on itself and a way to Lambda, \
                     or {MAX_WORKERS}=0): {error}",
                    self.function
                )
                .into())
            }
        }
    }
}

impl Workers for LambdaWorkers {
    fn max(&self) -> usize {
        self.max
    }

    fn start(&self, count: usize, limit: Duration) -> BoxFuture<'_, Result<(), WorkersError>> {
        let invocations = (0..count).map(|_| self.invoke(limit).boxed()).collect();
        async move { concurrently(CONCURRENT_REQUESTS, invocations).await.into_iter().collect() }.boxed()
    }
}

/// What such an invocation is sent.
fn event() -> Value {
    json!({ "source": SOURCE })
}

/// Whether a sweep asked for this one, together with others maybe.
pub(crate) fn was_asked_for(event: &Value) -> bool {
    event.get("source").and_then(Value::as_str) == Some(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_ours_is_told_from_the_schedules() {
        assert!(was_asked_for(&event()));
        for other in
            [json!({}), json!(null), json!([]), json!({"source": "aws.scheduler"}), json!({"source": 7})]
        {
            assert!(!was_asked_for(&other), "{other}");
        }
    }
}
