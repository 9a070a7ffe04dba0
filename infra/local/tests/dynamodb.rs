//! The embedded DynamoDB behind its counting proxy.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnConsumedCapacity,
    ScalarAttributeType,
};
use outbox_local::dynamodb::{Database, Kind};

async fn create_table(client: &aws_sdk_dynamodb::Client, name: &str) {
    let attribute =
        AttributeDefinition::builder().attribute_name("PK").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("PK").key_type(KeyType::Hash);
    client
        .create_table()
        .table_name(name)
        .attribute_definitions(attribute.build().unwrap())
        .key_schema(key.build().unwrap())
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
}

#[tokio::test]
async fn the_database_of_the_environment_keeps_its_promises() {
    let database = Database::from_env().await.unwrap();
    println!("database: {}", database.kind());
    database.check().await.unwrap();
}

#[tokio::test]
async fn everybodys_requests_and_units_are_counted() {
    let database = Database::start(None).await.unwrap();
    assert_eq!(*database.kind(), Kind::Embedded);
    let client = database.client().await;
    create_table(&client, "units").await;
    let before = database.usage().unwrap();
    for _ in 0..3 {
        client.put_item().table_name("units").item("PK", AttributeValue::S("a".into())).send().await.unwrap();
    }
    let refused = client.put_item().table_name("units").item("PK", AttributeValue::S("a".into()));
    refused.condition_expression("attribute_not_exists(PK)").send().await.unwrap_err();
    let get =
        client.get_item().table_name("units").key("PK", AttributeValue::S("a".into())).consistent_read(true);
    get.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();

    let used = database.usage().unwrap().since(&before);
    let puts = used.operations["PutItem"];
    assert_eq!((puts.requests, puts.refused, puts.failed_conditions), (4, 1, 1));
    assert_eq!((used.read_units(), used.write_units()), (1.0, 3.0));
}

#[tokio::test]
async fn a_plain_http_endpoint_is_counted_too() {
    let embedded = Database::start(None).await.unwrap();
    let external = Database::start(Some(embedded.endpoint().to_owned())).await.unwrap();
    assert!(matches!(external.kind(), Kind::External { .. }));
    create_table(&external.client().await, "there").await;
    assert_eq!(external.usage().unwrap().operations["CreateTable"].requests, 1);
    let tables = embedded.client().await.list_tables().send().await.unwrap();
    assert_eq!(tables.table_names(), ["there"]);
}

#[tokio::test(flavor = "current_thread")]
async fn it_does_not_need_its_callers_runtime() {
    let database = Database::start(None).await.unwrap();
    let client = database.client().await;
    create_table(&client, "alone").await;
    drop(database);
    client.list_tables().send().await.unwrap_err();
}
