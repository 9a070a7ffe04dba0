//! Variables that are missing, malformed or misspelt: every invocation says which.

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
