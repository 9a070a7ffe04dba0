//! Variables that are missing, malformed or misspelt: every invocation says which.

use outbox::Settings;
use outbox_functions::Config;
use outbox_local::template::Template;
use outbox_publisher_kafka::Auth;

use crate::bench::{BOTH, Bench, function_error};

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_variable_is_named_by_every_invocation() {
    for (name, value) in [
        ("OUTBOX_TABLE_NAME", ""),
        ("KAFKA_BOOTSTRAP_SERVERS", ""),
        ("KAFKA_BOOTSTRAP_SERVERS", "broker-without-a-port"),
        ("OUTBOX_LEASE_DURATION", "30"),
        ("OUTBOX_BUCKET_COUNT", "none"),
        ("OUTBOX_POISON_POLICY", "drop"),
        ("OUTBOX_METRICS", "statsd"),
        ("OUTBOX_BUCKETS", "8"),
        ("KAFKA_AUTH", "kerberos"),
        ("KAFKA_AUTH", "scram"),
        ("KAFKA_SECRET_ID", "AmazonMSK_relay"),
        ("KAFKA_PASSWORD", "hunter2"),
    ] {
        let mut bench = Bench::without_table().await;
        bench.set(name, value);
        for function in BOTH {
            let outcome = bench.invoke(function, &[bench.insert(4)]).await;
            let (error_type, message) = function_error(&outcome);
            assert_eq!(error_type, "Outbox.Misconfigured", "{name}");
            assert!(message.contains(name), "{name}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}

/// What a stack was given for another way of proving who it is reaches the function, which refuses it: nothing is left
/// out in silence, least of all where everything would go in the clear then.
#[test]
fn a_stack_with_parameters_of_another_auth_is_refused_by_its_functions() {
    let secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:AmazonMSK_relay-a1b2c3";
    let cluster = "arn:aws:kafka:eu-central-1:123456789012:cluster/orders/f00d-1";
    let config = |parameters: &[(&str, &str)]| {
        let template = Template::of_this_workspace().unwrap();
        let template = template.with_parameter("KafkaBootstrapServers", "b:9092").unwrap();
        let with =
            |template: Template, (name, value): &(&str, &str)| template.with_parameter(name, *value).unwrap();
        let function = parameters.iter().fold(template, with).function("StreamRelayFunction").unwrap();
        Config::from_settings(Settings::new(function.variables)).map(|config| config.kafka)
    };
    for (parameters, variable) in [
        (&[("KafkaSecretArn", secret)][..], "KAFKA_SECRET_ID"),
        (&[("KafkaAuth", "iam"), ("KafkaSecretArn", secret)], "KAFKA_SECRET_ID"),
        (&[("KafkaClusterArn", cluster)], "KAFKA_IAM_REGION"),
        (
            &[("KafkaAuth", "scram"), ("KafkaSecretArn", secret), ("KafkaClusterArn", cluster)],
            "KAFKA_IAM_REGION",
        ),
        (&[("KafkaCaPem", "x")], "KAFKA_CA_PEM"),
        (&[("KafkaAuth", "scram")], "KAFKA_SECRET_ID"),
    ] {
        let error = config(parameters).unwrap_err().to_string();
        assert!(error.contains(variable) && error.contains("KAFKA_AUTH"), "{parameters:?}: {error}");
    }
    let iam = config(&[("KafkaAuth", "iam"), ("KafkaClusterArn", cluster)]).unwrap();
    assert_eq!(iam.auth(), &Auth::Iam { region: Some("eu-central-1".to_owned()) });
}
