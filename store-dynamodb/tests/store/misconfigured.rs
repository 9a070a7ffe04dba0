//! A table that is not there, or not the one that is meant: loud, and with the setting's name.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use outbox::{Chain, OutboxStore as _, StoreError};
use outbox_store_dynamodb::StoreOptions;

use crate::support::{Bench, LIMIT, at, buckets, fetch_request, relay};

async fn every_call(bench: &Bench) -> Vec<StoreError> {
    let store = &bench.store;
    let ownership = store.ownership().unwrap();
    let bucket = outbox::Bucket::new(3);
    vec![
        store.pending(&buckets([3]), LIMIT).await.unwrap_err(),
        store.fetch(&fetch_request(bucket, 10)).await.unwrap_err(),
        store.named_claims().unwrap().claim(&relay("a"), &buckets([3]), at(0), LIMIT).await.unwrap_err(),
        ownership.stop(&relay("a"), &[], at(0).now, LIMIT).await.unwrap_err(),
        ownership.has_message(bucket, LIMIT).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn a_missing_table_is_named_with_its_setting() {
    let bench = Bench::without_table(StoreOptions::new("not-there")).await;
    for error in every_call(&bench).await {
        assert!(error.is_misconfiguration());
        let text = Chain(&error).to_string();
        assert!(text.contains("not-there") && text.contains("OUTBOX_TABLE_NAME"), "{text}");
    }
}

#[tokio::test]
async fn a_table_with_other_keys_is_named_with_its_settings() {
    let bench = Bench::without_table(StoreOptions::new("outbox")).await;
    let define = |name, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    let create = bench.client.create_table().table_name("outbox").billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(define("id", ScalarAttributeType::S)).key_schema(
        KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap(),
    );
    create.send().await.unwrap();
    for error in every_call(&bench).await {
        assert!(error.is_misconfiguration());
        let text = Chain(&error).to_string();
        let names = ["OUTBOX_PARTITION_KEY_ATTRIBUTE", "OUTBOX_SORT_KEY_ATTRIBUTE", "\"outbox\""];
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_connections_is_an_error_in_time() {
    let bench = Bench::unreachable().await;
    let started = std::time::Instant::now();
    let error = bench.store.pending(&buckets([3]), LIMIT).await.unwrap_err();
    assert!(!error.is_misconfiguration(), "it may come back");
    assert!(started.elapsed() < LIMIT * 2);
    let error = bench.writer.enqueue(&[bench.message("21")]).await.unwrap_err();
    let outbox_store_dynamodb::WriteError::Store(error) = error else { panic!("{error}") };
    assert_eq!(error.kind(), outbox::StoreErrorKind::Unavailable, "nothing was sent: {error:?}");
}
