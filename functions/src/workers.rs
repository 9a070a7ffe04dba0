//! Further sweeps: asynchronous invocations of the function itself.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::error::{DisplayErrorContext, ProvideErrorMetadata as _, SdkError};
use aws_sdk_lambda::operation::invoke::InvokeError;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use outbox::concurrently::concurrently;
use outbox::relay::{Started, Workers, WorkersError};
use serde_json::{Value, json};

/// The variable that says how many sweeps may be at work at once.
pub(crate) const MAX_WORKERS: &str = "OUTBOX_MAX_WORKERS";

/// The source that an event of ours names, as events of AWS do.
const SOURCE: &str = "outbox.scheduled-relay";
/// How many invocations are asked for at once.
const CONCURRENT_REQUESTS: usize = 8;
/// What of the limit is kept for the error: a request that runs into the limit itself is dropped, and says nothing of why.
const RESERVE: u32 = 10;

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
        Self { client: Client::new(aws), function: function.into(), max }
    }

    async fn invoke(&self, count: usize, limit: Duration) -> Result<(), WorkersError> {
        let limit = limit - limit / RESERVE;
        // A second attempt, for the first may find that its connection died in a freeze.
        let timeouts = TimeoutConfig::builder().operation_timeout(limit).operation_attempt_timeout(limit / 2);
        let config = aws_sdk_lambda::Config::builder().timeout_config(timeouts.build());
        let request = self.client.invoke().function_name(&self.function);
        let request =
            request.invocation_type(InvocationType::Event).payload(Blob::new(event(count).to_string()));
        match request.customize().config_override(config).send().await {
            Ok(_) => Ok(()),
            Err(error) => {
                let what_to_do = advice(&error);
                let error = DisplayErrorContext(error);
                Err(format!("function {} could not be invoked{what_to_do}: {error}", self.function).into())
            }
        }
    }
}

impl Workers for LambdaWorkers {
    fn max(&self) -> usize {
        self.max
    }

    fn start(&self, count: usize, limit: Duration) -> BoxFuture<'_, Started> {
        let invocations = (0..count).map(|_| self.invoke(count, limit).boxed()).collect();
        async move {
            let mut started = Started::default();
            for invoked in concurrently(CONCURRENT_REQUESTS, invocations).await {
                match invoked {
                    Ok(()) => started.count += 1,
                    Err(error) => started.error = Some(error),
                }
            }
            started
        }
        .boxed()
    }
}

/// What to do about it, where that can be told: nothing is to be done about one that is throttled.
fn advice(error: &SdkError<InvokeError>) -> String {
    let lacks = match error {
        SdkError::ServiceError(answer) if answer.err().code() == Some("AccessDeniedException") => {
            "lambda:InvokeFunction on itself"
        }
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => "a way to Lambda",
        _ => return String::new(),
    };
    format!(" (it needs {lacks}, or {MAX_WORKERS}=0)")
}

/// What such an invocation is sent: also how many were asked for together.
fn event(count: usize) -> Value {
    json!({ "source": SOURCE, "count": count })
}

/// How many sweeps were asked for together, this one among them; `None`: it is the schedule's.
pub(crate) fn asked_together(event: &Value) -> Option<u64> {
    let is_ours = event.get("source").and_then(Value::as_str) == Some(SOURCE);
    is_ours.then(|| event.get("count").and_then(Value::as_u64).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use aws_sdk_lambda::config::http::HttpResponse;
    use aws_sdk_lambda::error::ErrorMetadata;
    use aws_sdk_lambda::primitives::SdkBody;
    use aws_smithy_runtime_api::http::StatusCode;

    use super::*;

    #[test]
    fn an_event_of_ours_is_told_from_the_schedules() {
        assert_eq!(asked_together(&event(3)), Some(3));
        assert_eq!(asked_together(&json!({"source": SOURCE, "count": "many"})), Some(1));
        for other in
            [json!({}), json!(null), json!([]), json!({"source": "aws.scheduler"}), json!({"source": 7})]
        {
            assert_eq!(asked_together(&other), None, "{other}");
        }
    }

    #[test]
    fn advice_is_given_where_it_helps() {
        let timed_out = SdkError::timeout_error("slow");
        assert_eq!(advice(&timed_out), " (it needs a way to Lambda, or OUTBOX_MAX_WORKERS=0)");
        let refused = |code| {
            let error = InvokeError::generic(ErrorMetadata::builder().code(code).build());
            let answer = HttpResponse::new(StatusCode::try_from(400).unwrap(), SdkBody::empty());
            advice(&SdkError::service_error(error, answer))
        };
        assert!(refused("AccessDeniedException").contains("lambda:InvokeFunction"));
        assert_eq!(refused("TooManyRequestsException"), "");
    }
}
