//! Asks the brokers for topics' limits.
//!
//! By a client of its own, for librdkafka's producer has no way to ask. It is made for the question and ended with the
//! answer: one that was kept would be a second set of connections, idle nearly always, that a frozen process strands. What
//! the answers are remembered for keeps such clients few.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;

const LIMIT: &str = "max.message.bytes";
/// The client ends a request that is not answered in time by itself, so that nothing of it is left: it gets a moment to.
const MOMENT: Duration = Duration::from_millis(50);

type Admin = AdminClient<DefaultClientContext>;

/// The limits of those topics that the brokers tell them of, within `limit`.
pub(super) async fn ask(config: &ClientConfig, topics: &[&str], limit: Duration) -> HashMap<String, usize> {
    let began = Instant::now();
    let admin: Admin = match config.create() {
        Ok(admin) => admin,
        Err(error) => {
            untold(topics, &error.to_string());
            return HashMap::new();
        }
    };
    let timeout = limit.saturating_sub(MOMENT);
    let resources: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let answer = tokio::time::timeout(limit, admin.describe_configs(&resources, &options)).await;
    end(admin);
    let answers = match answer {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => {
            untold(topics, &error.to_string());
            return HashMap::new();
        }
        Err(_) => {
            untold(topics, "no answer in time");
            return HashMap::new();
        }
    };
    let mut limits = HashMap::new();
    for answer in answers {
        let resource = match answer {
            Ok(resource) => resource,
            Err(code) => {
                untold(topics, &code.to_string());
                continue;
            }
        };
        let limit = resource.get(LIMIT).and_then(|entry| entry.value.as_deref()?.parse().ok());
        if let (OwnedResourceSpecifier::Topic(topic), Some(limit)) = (resource.specifier, limit) {
            limits.insert(topic, limit);
        }
    }
    tracing::debug!(?limits, took = ?began.elapsed(), "the brokers told topics' limits");
    limits
}

fn untold(topics: &[&str], why: &str) {
    tracing::info!(
        ?topics,
        why,
        "max.message.bytes could not be read (it takes the permission DescribeConfigs on the topic): a record that is too \
         large is found when a broker refuses it"
    );
}

/// Ending a client joins its threads: another thread's job.
fn end(admin: Admin) {
    let thread = std::thread::Builder::new().name("kafka-admin-end".to_owned());
    if let Err(error) = thread.spawn(move || drop(admin)) {
        tracing::error!(%error, "no thread could be started to end a Kafka client: it was ended in place");
    }
}
