//! TLS, and the proof of who one is.

use std::time::{Duration, Instant};

use outbox_local::kafka::{Broker, SUPER_USER, Security};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::Producer;

use crate::support::{BOUND, Client, LONG, Proof, STRANGER, broker, start, values};

const KINDS: [Security; 3] = [Security::Tls, Security::Scram, Security::OauthBearer];

/// What lets a client do everything on a broker.
fn key_to(broker: &Broker, security: Security) -> Proof {
    match security {
        Security::Plaintext | Security::Tls => Proof::Nothing,
        Security::Scram => {
            let (user, password) = broker.credentials().unwrap();
            assert_eq!(user, SUPER_USER);
            Proof::Password { user: SUPER_USER, password: password.to_owned() }
        }
        Security::OauthBearer => Proof::Token { principal: SUPER_USER, lifetime: LONG },
    }
}

fn client(broker: &Broker, proof: &Proof) -> Client {
    Client::new(broker.secure_servers().unwrap(), broker.ca_file().unwrap(), proof)
}

#[tokio::test]
async fn each_kind_takes_a_record_directly_and_through_the_link() {
    for security in KINDS {
        let Some(broker) = broker(security).await else {
            return;
        };
        let opened = broker.link().unwrap().opened();
        broker.create_topic("orders", 1).await.unwrap();
        let proof = key_to(broker, security);
        let direct = client(broker, &proof);
        direct.send("orders", "direct").await.unwrap();
        assert_eq!(broker.link().unwrap().opened(), opened, "{security}");

        let linked = broker.linked_servers().unwrap();
        let behind = Client::new(linked, broker.ca_file().unwrap(), &proof);
        behind.send("orders", "linked").await.unwrap();
        for (client, servers) in [(direct, broker.secure_servers().unwrap()), (behind, linked)] {
            let metadata = client.producer.client().fetch_metadata(Some("orders"), BOUND).unwrap();
            let told = metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port()));
            assert_eq!(told.collect::<Vec<_>>(), [servers], "{security}");
        }
        assert_eq!(values(broker, "orders").await, ["direct", "linked"], "{security}");
    }
}

#[tokio::test]
async fn the_certificate_is_for_localhost_too() {
    let Some(broker) = broker(Security::Tls).await else {
        return;
    };
    let servers = broker.secure_servers().unwrap().replace("127.0.0.1", "localhost");
    // 127.0.0.1 alone, if the system knows localhost by more.
    let settings = [("broker.address.family", "v4")];
    let client = Client::with(&servers, broker.ca_file().unwrap(), &Proof::Nothing, &settings);
    broker.create_topic("by-name", 1).await.unwrap();
    client.send("by-name", "value").await.unwrap();
}

#[tokio::test]
async fn an_unknown_ca_is_refused_by_clients() {
    let (Some(broker), Some(other)) = (broker(Security::Tls).await, broker(Security::Scram).await) else {
        return;
    };
    let client = Client::new(broker.secure_servers().unwrap(), other.ca_file().unwrap(), &Proof::Nothing);
    client.complaint(RDKafkaErrorCode::SSL, "certificate verify failed").await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_refused() {
    let Some(broker) = broker(Security::Scram).await else {
        return;
    };
    let password = broker.credentials().unwrap().1.to_owned();
    for (user, password) in [(SUPER_USER, "wrong".to_owned()), ("nobody", password.clone())] {
        let client = client(broker, &Proof::Password { user, password });
        client.complaint(RDKafkaErrorCode::Authentication, "invalid credentials").await;
    }
    // The password is right for the users that the broker was given.
    let stranger = client(broker, &Proof::Password { user: STRANGER, password });
    stranger.producer.client().fetch_metadata(None, BOUND).unwrap();
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    let expired = Proof::Token { principal: SUPER_USER, lifetime: Duration::ZERO };
    client(broker, &expired).complaint(RDKafkaErrorCode::Authentication, "invalid_token").await;
}

#[tokio::test]
async fn a_connection_ends_with_its_token() {
    let Some(broker) = broker(Security::OauthBearer).await else {
        return;
    };
    broker.create_topic("short", 1).await.unwrap();
    // The first handshakes of a broker take a second of such a token.
    client(broker, &key_to(broker, Security::OauthBearer)).send("short", "first").await.unwrap();
    let (made, lifetime) = (Instant::now(), Duration::from_secs(4));
    let short = client(broker, &Proof::Token { principal: SUPER_USER, lifetime });
    short.send("short", "in time").await.unwrap();
    // The client shows its token again after nine tenths of what is left of its time; the second time that is too soon
    // for the broker (once a second at most), and it connects anew.
    short.complaint(RDKafkaErrorCode::Authentication, "invalid_token").await;
    assert!(made.elapsed() >= lifetime, "{:?}", made.elapsed());
}

#[tokio::test]
async fn users_and_certificates_survive_a_kill() {
    let Some(broker) = start(Security::Scram).await else {
        return;
    };
    broker.create_topic("orders", 1).await.unwrap();
    let key = key_to(&broker, Security::Scram);
    let clients = [
        client(&broker, &key),
        Client::new(broker.linked_servers().unwrap(), broker.ca_file().unwrap(), &key),
    ];
    for client in &clients {
        client.send("orders", "before").await.unwrap();
    }
    broker.kill().await.unwrap();
    broker.restart().await.unwrap();
    for client in &clients {
        client.send("orders", "after").await.unwrap();
    }
    client(&broker, &key).send("orders", "new").await.unwrap();
    assert_eq!(values(&broker, "orders").await, ["before", "before", "after", "after", "new"]);
}
