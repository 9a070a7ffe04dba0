//! What a principal may do, once the broker knows who it is.

use outbox_local::kafka::{
    Broker, BrokerError, BrokerOptions, ClientError, Operation, Resource, SUPER_USER, Security,
};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::Producer;

use crate::support::{Client, LONG, Proof, STRANGER, broker, values};

fn client(broker: &Broker, principal: &'static str) -> Client {
    let proof = Proof::Token { principal, lifetime: LONG };
    Client::new(broker.secure_servers().unwrap(), broker.ca_file().unwrap(), &proof)
}

#[tokio::test]
async fn a_topic_needs_write() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    for topic in ["open", "closed", "unseen"] {
        broker.create_topic(topic, 1).await.unwrap();
    }
    broker.allow("writer", Operation::Write, Resource::Topic("open")).await.unwrap();
    broker.allow("writer", Operation::Describe, Resource::Topic("closed")).await.unwrap();
    let writer = client(broker, "writer");
    writer.send("open", "one").await.unwrap();
    // Of the one it knows the leader, and is refused the record; of the other it is told nothing.
    for topic in ["closed", "unseen"] {
        assert_eq!(
            writer.send(topic, "no").await,
            Err(RDKafkaErrorCode::TopicAuthorizationFailed),
            "{topic}"
        );
    }
    writer.send("open", "two").await.unwrap();

    broker.allow("writer", Operation::Write, Resource::Topic("closed")).await.unwrap();
    writer.send("closed", "allowed").await.unwrap();
    broker.deny("writer", Operation::Write, Resource::Topic("closed")).await.unwrap();
    assert_eq!(writer.send("closed", "no").await, Err(RDKafkaErrorCode::TopicAuthorizationFailed));
    assert_eq!(values(broker, "open").await, ["one", "two"]);
    assert_eq!(values(broker, "closed").await, ["allowed"]);
}

#[tokio::test]
async fn an_idempotent_producer_needs_write_on_any_topic_or_idempotent_write() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    broker.create_topic("described", 1).await.unwrap();
    broker.allow("reader", Operation::Describe, Resource::Topic("described")).await.unwrap();
    let refused = client(broker, "reader");
    refused.send("described", "no").await.unwrap_err();
    refused.complaint(RDKafkaErrorCode::ClusterAuthorizationFailed, "idempotence PID").await;
    let (code, _) = refused.producer.client().fatal_error().unwrap();
    assert_eq!(code, RDKafkaErrorCode::ClusterAuthorizationFailed);

    broker.allow("reader", Operation::IdempotentWrite, Resource::Cluster).await.unwrap();
    let admitted = client(broker, "reader");
    let error = admitted.send("described", "no").await.unwrap_err();
    assert_eq!(error, RDKafkaErrorCode::TopicAuthorizationFailed);
    assert_eq!(admitted.producer.client().fatal_error(), None);
}

#[tokio::test]
async fn what_is_forgotten_is_neither_allowed_nor_denied() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    broker.create_topic("forgotten", 1).await.unwrap();
    let topic = Resource::Topic("forgotten");
    broker.allow("guest", Operation::All, Resource::Topic("*")).await.unwrap();
    broker.deny("guest", Operation::Write, topic).await.unwrap();
    let guest = client(broker, "guest");
    let refused = Err(RDKafkaErrorCode::TopicAuthorizationFailed);
    assert_eq!(guest.send("forgotten", "denied").await, refused);
    broker.forget("guest").await.unwrap();
    assert_eq!(guest.send("forgotten", "not allowed").await, refused);
    broker.allow("guest", Operation::Write, topic).await.unwrap();
    // The client has learned that there is no such topic for it: one that knows nothing yet.
    client(broker, "guest").send("forgotten", "allowed").await.unwrap();
    // The super user is beyond all lists.
    broker.deny(SUPER_USER, Operation::All, topic).await.unwrap();
    client(broker, SUPER_USER).send("forgotten", "super").await.unwrap();
    assert_eq!(values(broker, "forgotten").await, ["allowed", "super"]);
}

#[tokio::test]
async fn an_entry_that_makes_no_sense_is_refused_by_the_broker() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    let error = broker.allow("anybody", Operation::Write, Resource::Topic("")).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { code: 42, .. }), "{error:?}");
}

#[tokio::test]
async fn users_have_rights_by_their_names() {
    let Some(broker) = broker(Security::Scram).await else {
        return;
    };
    broker.create_topic("theirs", 1).await.unwrap();
    broker.create_topic("not-theirs", 1).await.unwrap();
    broker.allow(STRANGER, Operation::Write, Resource::Topic("theirs")).await.unwrap();
    let password = broker.credentials().unwrap().1.to_owned();
    let proof = Proof::Password { user: STRANGER, password };
    let client = Client::new(broker.secure_servers().unwrap(), broker.ca_file().unwrap(), &proof);
    client.send("theirs", "value").await.unwrap();
    let refused = Err(RDKafkaErrorCode::TopicAuthorizationFailed);
    assert_eq!(client.send("not-theirs", "value").await, refused);
}

#[tokio::test]
async fn a_broker_that_does_not_know_its_clients_has_no_lists() {
    let Some(broker) = broker(Security::Tls).await else {
        return;
    };
    let error = broker.allow("anybody", Operation::All, Resource::Cluster).await.unwrap_err();
    assert!(matches!(error, ClientError::NoPrincipals { security: Security::Tls, .. }), "{error:?}");
}

#[tokio::test]
async fn a_broker_that_was_not_started_here_is_not_secured() {
    let options = BrokerOptions {
        bootstrap_servers: Some("127.0.0.1:1".to_owned()),
        security: Security::Scram,
        ..BrokerOptions::default()
    };
    let error = Broker::start(options).await.unwrap_err();
    assert!(matches!(error, BrokerError::NoSecurity { .. }), "{error:?}");
    assert!(error.to_string().contains("external, at 127.0.0.1:1"), "{error}");
}
