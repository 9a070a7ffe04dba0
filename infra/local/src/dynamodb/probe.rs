//! Whether a database keeps the promises that the outbox rests on. An emulator that does not makes every test
//! above it worthless, so this is asked before it is used.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ScalarAttributeType,
    StreamSpecification, StreamViewType, TableStatus, TransactWriteItem, Update,
};
use aws_sdk_dynamodbstreams::Client as StreamsClient;
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use futures::future::join_all;
use thiserror::Error;
use uuid::Uuid;

const RACERS: usize = 200;
/// For a table to become active, and for a record to show up in a stream.
const BOUND: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Which promise was broken, or why it could not be looked at.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Conditional writes are not atomic.
    #[error(
        "this DynamoDB cannot be trusted: of {RACERS} racing conditional puts on one item, {winners} won (1 must)"
    )]
    Race {
        /// How many succeeded.
        winners: usize,
    },
    /// A transaction does not show up in the stream item by item.
    #[error(
        "this DynamoDB cannot be trusted: a transaction of two items made {records} stream records (2 it must make)"
    )]
    Stream {
        /// How many records there were.
        records: usize,
    },
    /// A repeated transaction is carried out twice.
    #[error(
        "this DynamoDB cannot be trusted: a transaction sent twice with one client token was applied {times} times"
    )]
    Token {
        /// What the counter showed.
        times: String,
    },
    /// A request failed that has no reason to.
    #[error("probing DynamoDB failed at {step}: {cause}")]
    Request {
        /// What was being done.
        step: &'static str,
        /// The SDK's whole chain of causes, which it does not give as sources.
        cause: String,
    },
}

fn failed<E: std::error::Error>(step: &'static str) -> impl FnOnce(E) -> ProbeError {
    move |error| ProbeError::Request { step, cause: DisplayErrorContext(error).to_string() }
}

/// Tries the promises on a table of its own, which it deletes afterwards. Takes about a second.
///
/// Looks at: racing conditional puts (one winner), stream records of a transaction (one an item), a replayed
/// client token (no second write).
pub async fn check_parts(client: &Client, streams: &StreamsClient) -> Result<(), ProbeError> {
    let table = format!("outbox-probe-{}", Uuid::from_u128(rand::random()).simple());
    let stream = create_table(client, &table).await?;
    let result = async {
        racing_puts(client, &table).await?;
        replayed_token(client, &table).await?;
        transaction_in_stream(client, streams, &table, &stream).await
    }
    .await;
    let deleted = client.delete_table().table_name(&table).send().await.map_err(failed("deleting the table"));
    result.and(deleted.map(drop))
}

async fn create_table(client: &Client, table: &str) -> Result<String, ProbeError> {
    let step = "creating a table";
    let attribute = AttributeDefinition::builder()
        .attribute_name("PK")
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(failed(step))?;
    let key = KeySchemaElement::builder()
        .attribute_name("PK")
        .key_type(KeyType::Hash)
        .build()
        .map_err(failed(step))?;
    let stream = StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::KeysOnly)
        .build()
        .map_err(failed(step))?;
    client
        .create_table()
        .table_name(table)
        .attribute_definitions(attribute)
        .key_schema(key)
        .billing_mode(BillingMode::PayPerRequest)
        .stream_specification(stream)
        .send()
        .await
        .map_err(failed(step))?;
    let deadline = Instant::now() + BOUND;
    loop {
        let described = client.describe_table().table_name(table).send().await.map_err(failed(step))?;
        let description = described.table.as_ref();
        let active = description.and_then(|table| table.table_status()) == Some(&TableStatus::Active);
        match description.and_then(|table| table.latest_stream_arn()) {
            Some(stream) if active => return Ok(stream.to_owned()),
            _ if Instant::now() >= deadline => {
                let cause = "the table and its stream did not become active".to_owned();
                return Err(ProbeError::Request { step, cause });
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn s(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

async fn racing_puts(client: &Client, table: &str) -> Result<(), ProbeError> {
    let race = (0..RACERS).map(|racer| {
        client
            .put_item()
            .table_name(table)
            .item("PK", s("race"))
            .item("Racer", s(racer.to_string()))
            .condition_expression("attribute_not_exists(PK)")
            .send()
    });
    let mut winners = 0;
    for outcome in join_all(race).await {
        match outcome {
            Ok(_) => winners += 1,
            Err(SdkError::ServiceError(refusal))
                if matches!(refusal.err(), PutItemError::ConditionalCheckFailedException(_)) => {}
            Err(error) => return Err(failed("racing conditional puts")(error)),
        }
    }
    if winners == 1 { Ok(()) } else { Err(ProbeError::Race { winners }) }
}

async fn replayed_token(client: &Client, table: &str) -> Result<(), ProbeError> {
    let step = "replaying a client token";
    let add = Update::builder()
        .table_name(table)
        .key("PK", s("token"))
        .update_expression("ADD Times :one")
        .expression_attribute_values(":one", AttributeValue::N("1".into()))
        .build()
        .map_err(failed(step))?;
    let token = Uuid::from_u128(rand::random()).to_string();
    for _ in 0..2 {
        client
            .transact_write_items()
            .client_request_token(&token)
            .transact_items(TransactWriteItem::builder().update(add.clone()).build())
            .send()
            .await
            .map_err(failed(step))?;
    }
    let item = client
        .get_item()
        .table_name(table)
        .key("PK", s("token"))
        .consistent_read(true)
        .send()
        .await
        .map_err(failed(step))?
        .item
        .unwrap_or_default();
    match item.get("Times") {
        Some(AttributeValue::N(times)) if times == "1" => Ok(()),
        Some(AttributeValue::N(times)) => Err(ProbeError::Token { times: times.clone() }),
        _ => Err(ProbeError::Token { times: "no".to_owned() }),
    }
}

async fn transaction_in_stream(
    client: &Client,
    streams: &StreamsClient,
    table: &str,
    stream: &str,
) -> Result<(), ProbeError> {
    let step = "writing a transaction";
    let mut pair = Vec::new();
    for name in ["pair-1", "pair-2"] {
        let put = Put::builder().table_name(table).item("PK", s(name)).build().map_err(failed(step))?;
        pair.push(TransactWriteItem::builder().put(put).build());
    }
    client.transact_write_items().set_transact_items(Some(pair)).send().await.map_err(failed(step))?;
    // Behind the pair in the stream: where it shows, the pair is complete.
    client.put_item().table_name(table).item("PK", s("end")).send().await.map_err(failed(step))?;
    let deadline = Instant::now() + BOUND;
    loop {
        let keys = stream_keys(streams, stream).await?;
        let records = keys.iter().filter(|key| key.starts_with("pair-")).count();
        // Shards are not ordered among each other, so the end alone is not enough.
        if keys.iter().any(|key| key == "end") && (records >= 2 || Instant::now() >= deadline) {
            return if records == 2 { Ok(()) } else { Err(ProbeError::Stream { records }) };
        }
        if Instant::now() >= deadline {
            return Err(ProbeError::Stream { records });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The keys of all records of all shards, from the beginning.
async fn stream_keys(streams: &StreamsClient, stream: &str) -> Result<Vec<String>, ProbeError> {
    let step = "reading the stream";
    let described = streams.describe_stream().stream_arn(stream).send().await.map_err(failed(step))?;
    let mut keys = Vec::new();
    for shard in described.stream_description.iter().flat_map(|description| description.shards()) {
        let mut iterator = streams
            .get_shard_iterator()
            .stream_arn(stream)
            .set_shard_id(shard.shard_id.clone())
            .shard_iterator_type(ShardIteratorType::TrimHorizon)
            .send()
            .await
            .map_err(failed(step))?
            .shard_iterator;
        while let Some(position) = iterator {
            let page = streams.get_records().shard_iterator(position).send().await.map_err(failed(step))?;
            let records = page.records.unwrap_or_default();
            // An open shard goes on for ever; an empty page is where it stands now.
            iterator = page.next_shard_iterator.filter(|_| !records.is_empty());
            keys.extend(records.iter().filter_map(|record| {
                record.dynamodb.as_ref()?.keys.as_ref()?.get("PK")?.as_s().ok().cloned()
            }));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Bytes;
    use axum::http::StatusCode;
    use serde_json::{Value, json};

    use super::super::Database;
    use super::super::proxy::{self, Tap};
    use super::*;

    /// A database that breaks a promise: the proxy changes what it is asked.
    struct Liar(fn(&str, &mut Value));

    impl Tap for Liar {
        fn request(&self, operation: &str, body: Bytes) -> Bytes {
            let mut request = serde_json::from_slice(&body).unwrap();
            self.0(operation, &mut request);
            request.to_string().into()
        }

        fn response(&self, _operation: &str, _status: StatusCode, _body: &[u8]) {}
    }

    async fn verdict(lie: fn(&str, &mut Value)) -> Result<(), ProbeError> {
        let honest = Database::start(None).await.unwrap();
        let (listener, address) = proxy::listen().await.unwrap();
        tokio::spawn(proxy::serve(
            listener,
            honest.endpoint().to_owned(),
            Arc::new(Liar(lie)),
            Arc::default(),
        ));
        let liar = Database::start(Some(format!("http://{address}"))).await.unwrap();
        check_parts(&liar.client().await, &liar.streams_client().await).await
    }

    #[tokio::test]
    async fn the_embedded_database_keeps_its_promises() {
        verdict(|_, _| {}).await.unwrap();
    }

    #[tokio::test]
    async fn forgotten_conditions_are_found_out() {
        let verdict = verdict(|_, request| {
            request.as_object_mut().unwrap().remove("ConditionExpression");
        });
        assert!(matches!(verdict.await, Err(ProbeError::Race { winners: RACERS })));
    }

    #[tokio::test]
    async fn forgotten_tokens_are_found_out() {
        let verdict = verdict(|_, request| {
            request.as_object_mut().unwrap().remove("ClientRequestToken");
        });
        assert!(matches!(verdict.await, Err(ProbeError::Token { times }) if times == "2"));
    }

    #[tokio::test]
    async fn a_stream_that_leaves_out_half_a_transaction_is_found_out() {
        let verdict = verdict(|operation, request| {
            if operation == "TransactWriteItems" {
                request["TransactItems"].as_array_mut().unwrap().truncate(1);
            }
        });
        assert!(matches!(verdict.await, Err(ProbeError::Stream { records: 1 })));
    }

    #[tokio::test]
    async fn a_database_that_is_not_there_is_an_error_with_its_cause() {
        let verdict = verdict(|_, request| *request = json!({})).await.unwrap_err();
        assert!(matches!(verdict, ProbeError::Request { step: "creating a table", .. }), "{verdict}");
    }
}
