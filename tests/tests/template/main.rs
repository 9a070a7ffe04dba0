//! What `template.yaml` says, held against what it is for: which stream records it lets through, what its alarms and its
//! dashboard look at and where they send their reader, what the functions may do and what they do.
//!
//! Nothing is deployed here; `tests/deploy` does that.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod alarms;
mod documents;
mod filter;
mod permissions;
mod recorder;
mod stack;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outbox_local::template::Template;
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The project's template, deployed with these parameters.
fn template(parameters: &[(&str, &str)]) -> Template {
    let brokers = [("KafkaBootstrapServers", "broker:9092")];
    brokers
        .iter()
        .chain(parameters)
        .fold(Template::of_this_workspace().unwrap(), |template, (name, value)| {
            template.with_parameter(name, *value).unwrap()
        })
}

/// Its resources of one type.
fn resources(parameters: &[(&str, &str)], of_type: &str) -> BTreeMap<String, Value> {
    let all = template(parameters).resources().unwrap();
    all.into_iter().filter(|(_, resource)| resource["Type"] == of_type).collect()
}

/// Every text in a value, however deep.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(elements) => elements.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// One text or a list of them, as policies have it.
fn list(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(elements) => elements.iter().map(|element| element.as_str().unwrap()).collect(),
        one => vec![one.as_str().unwrap()],
    }
}
