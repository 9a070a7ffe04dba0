//! What the tests of the Invoke API share.

use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::operation::invoke::InvokeOutput;
use aws_sdk_lambda::operation::invoke::builders::InvokeFluentBuilder;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use outbox_local::lambda::{AWS_ENDPOINT_URL_LAMBDA, FunctionSpec, InvokeApi, InvokeRequests, LambdaHost};
use serde_json::Value;
use tokio::time::timeout;

use crate::lambda_support::{BOUND, start};

/// The API, a function that it knows and that knows it, and a client.
pub(crate) struct Bench {
    pub(crate) api: InvokeApi,
    pub(crate) host: LambdaHost,
    pub(crate) client: Client,
}

impl Bench {
    pub(crate) async fn new(spec: FunctionSpec) -> Self {
        let api = InvokeApi::start().await.unwrap();
        let host = start(spec.with_variable(AWS_ENDPOINT_URL_LAMBDA, api.endpoint()));
        api.register(&host);
        let client = client(&api);
        Self { api, host, client }
    }

    pub(crate) fn invoke(&self, invocation_type: InvocationType, event: &Value) -> InvokeFluentBuilder {
        let payload = Blob::new(event.to_string());
        self.client.invoke().function_name("echo").invocation_type(invocation_type).payload(payload)
    }

    pub(crate) async fn idle(&self) {
        timeout(BOUND, self.host.wait_until_idle()).await.expect("idle within the bound");
    }

    /// How often the function was asked for: `Event`, `RequestResponse`, `DryRun`.
    pub(crate) fn asked(&self) -> [u64; 3] {
        let InvokeRequests { event, request_response, dry_run } = self.api.requests("echo");
        [event, request_response, dry_run]
    }
}

fn client(api: &InvokeApi) -> Client {
    let config = aws_sdk_lambda::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(api.endpoint())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}

pub(crate) async fn sent(request: InvokeFluentBuilder) -> InvokeOutput {
    let answer = timeout(2 * BOUND, request.send()).await.expect("answered within the bound");
    answer.unwrap_or_else(|error| panic!("{}", DisplayErrorContext(error)))
}

pub(crate) fn json_of(answer: &InvokeOutput) -> Value {
    serde_json::from_slice(answer.payload().unwrap().as_ref()).unwrap()
}
