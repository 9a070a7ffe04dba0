//! Tables that are missing or not the one that is meant, and items that are not as they should be.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};

use crate::bench::{BOTH, Bench, Function, assert_no_failure, function_error, ids, logged, neighbour_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_named() {
    let bench = Bench::without_table().await;
    for function in BOTH {
        let outcome = bench.invoke(function, &[bench.insert(4)]).await;
        let (error_type, message) = function_error(&outcome);
        assert_eq!(error_type, "Outbox.Misconfigured");
        assert!(message.contains("OUTBOX_TABLE_NAME") && message.contains(&bench.table), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_other_keys_is_named() {
    let bench = Bench::without_table().await;
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create =
        bench.client.create_table().table_name(&bench.table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(key.build().unwrap());
    create.send().await.unwrap();
    for function in BOTH {
        let outcome = bench.invoke(function, &[bench.insert(4)]).await;
        let (error_type, message) = function_error(&outcome);
        assert_eq!(error_type, "Outbox.Misconfigured");
        assert!(message.contains("OUTBOX_PARTITION_KEY_ATTRIBUTE"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_bucket_count_stops_its_bucket_and_no_other() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let free = bench.enqueue("abc").await;
    let mut stamped = bench.items("OUTBOX#MESSAGES#4").await.into_values().next().unwrap();
    stamped.insert("BucketCount".to_owned(), AttributeValue::N("12".to_owned()));
    bench.put(stamped).await;
    for function in BOTH {
        let outcome = bench.invoke(function, &[bench.insert(3), bench.insert(4)]).await;
        let (error_type, message) = function_error(&outcome);
        assert_eq!(error_type, "Outbox.Misconfigured");
        assert!(message.contains("OUTBOX_BUCKET_COUNT=8") && message.contains("count of 12"), "{message}");
    }
    assert_eq!(ids(&bench.records().await), [free.id.to_string()]);
    assert_eq!(bench.waiting(4).await, 1);
    bench.assert_released().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_item_holds_back_its_key_and_no_other() {
    let bench = Bench::new().await;
    // Both keys live in bucket 4; the second message of the first key must wait for the first.
    let malformed = bench.enqueue("21").await;
    bench.enqueue("21").await;
    let free = bench.enqueue(&neighbour_of("21")).await;
    let mut bad: HashMap<_, _> = bench.items("OUTBOX#MESSAGES#4").await.into_values().next().unwrap();
    bad.insert("Headers".to_owned(), AttributeValue::B(Blob::new([1, 255, 255, 255, 255])));
    bench.put(bad).await;

    let host = bench.host(Function::Stream);
    let event = serde_json::json!({ "Records": [bench.insert(4)] });
    assert_no_failure(&host.invoke(&event).await.unwrap());
    assert_eq!(ids(&bench.records().await), [free.id.to_string()]);
    assert_eq!(bench.waiting(4).await, 2);
    bench.assert_released().await;
    // What can be read of it is said, and by the names that lines about any message have.
    let id = format!(r#""message_id":"{}","topic":"{}""#, malformed.id, bench.topic);
    let said = ["0000000000000000001", "header", "bucket 4", r#""bucket":"4""#, &id];
    assert!(logged(&host, &said), "{:#?}", host.logs());
    // A sweep has the same to say, and is no failure.
    assert!(bench.invoke(Function::Scheduled, &[]).await.is_response());
}
