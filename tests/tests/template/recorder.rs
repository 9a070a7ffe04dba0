//! The HTTP client under the SDK: it notes which action of DynamoDB was asked for, and on which partition keys.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use serde_json::Value;

/// An action, as policies name it without their `dynamodb:`, and a partition key.
pub(crate) type Asked = (String, String);

/// The client. Clones share their notes.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    inner: SharedHttpClient,
    asked: Arc<Mutex<BTreeSet<Asked>>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { inner: aws_smithy_http_client::Builder::new().build_http(), asked: Arc::default() }
    }

    /// What was asked for since this was called last.
    pub(crate) fn take(&self) -> BTreeSet<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn note(&self, request: &HttpRequest) {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        self.asked.lock().unwrap().extend(asked(operation, &body));
    }
}

/// The actions that IAM looks at. A transaction's are those of its items, and a batch's its own.
fn asked(operation: &str, body: &Value) -> Vec<Asked> {
    let one = |action: &str, key: &Value| vec![(action.to_owned(), key.as_str().unwrap().to_owned())];
    match operation {
        "PutItem" => one(operation, &body["Item"]["PK"]["S"]),
        "GetItem" | "UpdateItem" | "DeleteItem" => one(operation, &body["Key"]["PK"]["S"]),
        "Query" => {
            let condition = body["KeyConditionExpression"].as_str().unwrap();
            assert!(condition.starts_with("#partition = :partition"), "{condition}");
            one(operation, &body["ExpressionAttributeValues"][":partition"]["S"])
        }
        "BatchWriteItem" => {
            let requests =
                body["RequestItems"].as_object().unwrap().values().flat_map(|it| it.as_array().unwrap());
            requests.flat_map(|request| one(operation, &request["DeleteRequest"]["Key"]["PK"]["S"])).collect()
        }
        "TransactWriteItems" => {
            let items = body["TransactItems"].as_array().unwrap().iter();
            items
                .flat_map(|item| {
                    let (kind, item) = item.as_object().unwrap().iter().next().unwrap();
                    match kind.as_str() {
                        "Put" => one("PutItem", &item["Item"]["PK"]["S"]),
                        "Update" => one("UpdateItem", &item["Key"]["PK"]["S"]),
                        "Delete" => one("DeleteItem", &item["Key"]["PK"]["S"]),
                        "ConditionCheck" => one("ConditionCheckItem", &item["Key"]["PK"]["S"]),
                        other => panic!("a transaction with {other}"),
                    }
                })
                .collect()
        }
        other => vec![(other.to_owned(), String::new())],
    }
}

impl HttpClient for Recorder {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Connector { inner, recorder: self.clone() })
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    recorder: Recorder,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.recorder.note(&request);
        self.inner.call(request)
    }
}
