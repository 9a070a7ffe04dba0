//! Functions that prove to the brokers who they are, with a secret by its name.

use outbox_local::kafka::{Broker, BrokerError, BrokerOptions, Security};

use crate::bench::{Bench, Function, assert_no_failure, function_error, ids, logged};
use crate::secrets::Secrets;

/// A bench beside a broker that wants to know its clients; `None`, said aloud: there is no such broker.
async fn bench(security: Security) -> Option<(Bench, Broker)> {
    let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
    let broker = match Broker::start(BrokerOptions { security, ..options }).await {
        Err(error @ BrokerError::NoSecurity { .. }) => {
            println!("skipped: {error}");
            return None;
        }
        started => started.unwrap(),
    };
    let mut bench = Bench::beside(broker.secure_servers().unwrap()).await;
    bench.set("KAFKA_CA_FILE", broker.ca_file().unwrap().to_str().unwrap());
    // As much as there is: nothing of it may be a secret.
    bench.set("RUST_LOG", "trace");
    broker.create_topic(&bench.topic, 1).await.unwrap();
    Some((bench, broker))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_had_is_named_and_then_it_can() {
    let Some((mut bench, broker)) = bench(Security::Scram).await else { return };
    let secrets = Secrets::start().await;
    bench.set("KAFKA_AUTH", "scram");
    bench.set("KAFKA_SECRET_ID", "AmazonMSK_relay");
    bench.set("AWS_ENDPOINT_URL_SECRETS_MANAGER", &secrets.endpoint());
    let (user, password) = broker.credentials().unwrap();
    let message = bench.enqueue("21").await;
    let host = bench.host(Function::Stream);
    let event = bench.event(Function::Stream, &[bench.insert(4)]);

    let secret = "KAFKA_SECRET_ID=AmazonMSK_relay";
    secrets.refuse("AccessDeniedException");
    let outcome = host.invoke(&event).await.unwrap();
    let (error_type, text) = function_error(&outcome);
    assert_eq!(error_type, "Outbox.Misconfigured", "{text}");
    assert!(text.contains(secret) && text.contains("secretsmanager:GetSecretValue"), "{text}");
    // The start had found it already.
    assert!(logged(&host, &["no credentials for Kafka", secret]), "{:#?}", host.logs());

    secrets.fall_silent();
    let outcome = host.invoke(&event).await.unwrap();
    assert_no_failure(&outcome);
    assert!(logged(&host, &[secret, "interface endpoint"]), "{:#?}", host.logs());

    secrets.hold(r#"{"user":"relay","password":"hunter2"}"#);
    let outcome = host.invoke(&event).await.unwrap();
    let (_, text) = function_error(&outcome);
    assert!(text.contains(secret) && text.contains("\"username\""), "{text}");

    secrets.hold(&serde_json::json!({ "username": user, "password": "hunter2" }).to_string());
    let outcome = host.invoke(&event).await.unwrap();
    let (error_type, text) = function_error(&outcome);
    assert_eq!(error_type, "Outbox.Misconfigured", "{text}");
    assert!(text.contains("refused the user name and password") && text.contains(secret), "{text}");
    assert_eq!(bench.waiting(4).await, 1);

    // The same process, as soon as what was in the way is gone.
    secrets.hold(&serde_json::json!({ "username": user, "password": password }).to_string());
    assert_no_failure(&host.invoke(&event).await.unwrap());
    assert_eq!(bench.waiting(4).await, 0);
    bench.set("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers());
    assert_eq!(ids(&bench.records().await), [message.id.to_string()]);

    assert!(secrets.asked().iter().all(|id| id == "AmazonMSK_relay"));
    for line in host.logs() {
        assert!(!line.text.contains("hunter2") && !line.text.contains(password), "{}", line.text);
    }
}

/// The broker takes tokens, and cannot know what those of IAM are: that it refuses this one shows that the function as it
/// is built can make one, and speaks TLS and OAUTHBEARER.
#[tokio::test(flavor = "multi_thread")]
async fn an_iam_token_is_shown_to_the_broker_and_to_nobody_else() {
    let Some((mut bench, _broker)) = bench(Security::OauthBearer).await else { return };
    bench.set("KAFKA_AUTH", "iam");
    bench.set("AWS_SESSION_TOKEN", "session+hunter2");
    bench.enqueue("21").await;
    let host = bench.host(Function::Stream);
    let outcome = host.invoke(&bench.event(Function::Stream, &[bench.insert(4)])).await.unwrap();
    let (error_type, text) = function_error(&outcome);
    assert_eq!(error_type, "Outbox.Misconfigured", "{text}");
    assert!(text.contains("refused the IAM token") && text.contains("kafka-cluster:Connect"), "{text}");
    assert_eq!(bench.waiting(4).await, 1);
    assert!(host.logs().iter().any(|line| line.text.contains("OAUTHBEARER")), "{:#?}", host.logs());
    for line in host.logs() {
        // The token is a URL that begins so, in base64.
        for secret in ["hunter2", "aHR0cHM6Ly9rYWZrYS"] {
            assert!(!line.text.contains(secret), "{}", line.text);
        }
    }
}
