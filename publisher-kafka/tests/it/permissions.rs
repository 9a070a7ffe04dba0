//! What becomes of messages where the relay lacks a permission, on a real broker that knows who its clients are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use outbox::{PublishErrorKind, Publisher, Settings, SystemClock};
use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Operation, Resource, Security};
use outbox_publisher_kafka::{
    Connect, Credential, CredentialError, CredentialSource, KafkaConfig, KafkaPublisher, Replaced,
};
use tokio::sync::OnceCell;

use crate::support::{
    PLENTY, assert_all_acknowledged, chain, create_topic_that_takes, failure, kinds, messages, publish,
    value_for,
};

const REJECTED: Option<PublishErrorKind> = Some(PublishErrorKind::Rejected);
const BEHIND: Option<PublishErrorKind> = Some(PublishErrorKind::Unavailable);

static BROKER: OnceCell<Option<Broker>> = OnceCell::const_new();

/// One broker for all; each test has a user and topics of its own. `None`, said aloud: there is no broker of our own.
async fn broker() -> Option<&'static Broker> {
    let start = async || {
        let users = ["writer", "reader", "asker"].map(str::to_owned).to_vec();
        let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
        match Broker::start(BrokerOptions { security: Security::Scram, users, ..options }).await {
            Err(error @ BrokerError::NoSecurity { .. }) => {
                println!("skipped: {error}");
                None
            }
            started => Some(started.unwrap()),
        }
    };
    BROKER.get_or_init(start).await.as_ref()
}

#[derive(Debug)]
struct Login(&'static str, String);

impl CredentialSource for Login {
    fn what(&self) -> String {
        "the credential of the test".to_owned()
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        let credential = Credential::login(self.0, self.1.as_str()).unwrap();
        Box::pin(async { Ok(credential) })
    }
}

async fn publisher(broker: &Broker, user: &'static str) -> KafkaPublisher {
    let settings = [
        ("KAFKA_BOOTSTRAP_SERVERS", broker.secure_servers().unwrap()),
        ("KAFKA_AUTH", "scram"),
        ("KAFKA_SECRET_ID", "none"),
        ("KAFKA_CA_FILE", broker.ca_file().unwrap().to_str().unwrap()),
    ];
    let config = KafkaConfig::from_settings(&mut Settings::new(settings)).unwrap();
    let login = Arc::new(Login(user, broker.credentials().unwrap().1.to_owned()));
    let clock = Arc::new(SystemClock::new());
    KafkaPublisher::with_credentials(config, login, Connect::AtOnce, clock).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_may_not_be_written_to_holds_up_its_own_keys_until_it_may() {
    let Some(broker) = broker().await else { return };
    for topic in ["open", "described", "unseen"] {
        broker.create_topic(topic, 1).await.unwrap();
    }
    broker.allow("writer", Operation::Write, Resource::Topic("open")).await.unwrap();
    broker.allow("writer", Operation::Describe, Resource::Topic("described")).await.unwrap();
    let publisher = publisher(broker, "writer").await;
    for topic in ["described", "unseen"] {
        let mut batch = messages("open", 6, 3);
        batch[0].topic = topic.to_owned();
        let start = Instant::now();
        let outcomes = publish(&publisher, &batch, PLENTY).await;
        assert_eq!(kinds(&outcomes)[..3], [REJECTED, None, None], "{topic}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let text = chain(failure(&outcomes[0]));
        assert!(text.contains("TopicAuthorizationFailed") && text.contains("Write on it"), "{text}");
        assert!(text.contains(topic), "{text}");
        println!("{text}");
    }
    assert_eq!(publisher.replaced(Replaced::Outdated), 2);
    broker.allow("writer", Operation::Write, Resource::Topic("described")).await.unwrap();
    assert_all_acknowledged(&publish(&publisher, &messages("described", 3, 1), PLENTY).await);
    assert_eq!(publisher.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_to_write_idempotently_the_error_names_it_and_ends_soon() {
    let Some(broker) = broker().await else { return };
    broker.create_topic("read", 1).await.unwrap();
    broker.allow("reader", Operation::Describe, Resource::Topic("read")).await.unwrap();
    let publisher = publisher(broker, "reader").await;
    let start = Instant::now();
    let outcomes = publish(&publisher, &messages("read", 3, 1), PLENTY).await;
    println!("after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(kinds(&outcomes), [Some(PublishErrorKind::Misconfigured); 3]);
    let text = chain(failure(&outcomes[0]));
    assert!(text.contains("ClusterAuthorizationFailed") && text.contains("IdempotentWrite"), "{text}");
    println!("{text}");
    assert_eq!(publisher.replaced(Replaced::Fatal), 1);
    // A grant is all it takes.
    broker.allow("reader", Operation::Write, Resource::Topic("read")).await.unwrap();
    assert_all_acknowledged(&publish(&publisher, &messages("read", 3, 1), PLENTY).await);
    assert_eq!(publisher.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_may_not_be_read_is_found_by_a_refusal_and_one_that_may_before() {
    const LIMIT: usize = 100_000;
    let Some(broker) = broker().await else { return };
    create_topic_that_takes(broker, "asked", LIMIT).await;
    broker.allow("asker", Operation::Write, Resource::Topic("asked")).await.unwrap();
    let mut batch = messages("asked", 3, 1);
    batch[0].value = Some(value_for(LIMIT + 1).into());
    for (found_by, rest) in [("MessageSizeTooLarge", None), ("max.message.bytes", BEHIND)] {
        let publisher = publisher(broker, "asker").await;
        let outcomes = publish(&publisher, &batch, PLENTY).await;
        let text = chain(failure(&outcomes[0]));
        assert!(text.contains(found_by), "{text}");
        assert_eq!(kinds(&outcomes)[0], REJECTED);
        println!("{found_by}: {:?}", kinds(&outcomes));
        if rest.is_some() {
            assert_eq!(kinds(&outcomes)[1..], [rest; 2]);
        }
        broker.allow("asker", Operation::DescribeConfigs, Resource::Topic("asked")).await.unwrap();
    }
}
