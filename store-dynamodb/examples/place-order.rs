//! Places one order: a business item and its message in one transaction, with the loop around it.
//!
//! Start the local environment (`cargo run --bin outbox-local -- up`), paste the `export` lines that it prints into this
//! shell, and then:
//!
//! ```sh
//! cargo run --example place-order
//! ```
//!
//! For brevity the order goes into the outbox's own table, under a key of its own; any table will do.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use outbox::{Chain, Message, MessageIds, Settings};
use outbox_store_dynamodb::{StoreOptions, Writer, client_timeouts};

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match place().await {
        Ok(order) => {
            println!("order {order} is placed: its record is on its way to the topic \"orders\"");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The whole chain of causes: each layer prints itself alone.
            eprintln!("{}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn place() -> Result<String, Error> {
    // Region, credentials and AWS_ENDPOINT_URL_DYNAMODB come from the environment; timeouts do not.
    let environment = aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await;
    let config = aws_sdk_dynamodb::config::Builder::from(&environment).timeout_config(client_timeouts());
    let client = Client::from_conf(config.build());
    // OUTBOX_TABLE_NAME, OUTBOX_KEY_PREFIX, OUTBOX_BUCKET_COUNT: the same as the relay's.
    let options = StoreOptions::from_settings(&mut Settings::from_environment())?;
    let table = options.table_name().to_owned();
    let writer = Writer::new(client.clone(), options);

    let order = MessageIds::from_system().next_id().to_string();
    let message = Message::new(MessageIds::from_system().next_id(), "orders")
        .with_key("customer-42")
        .with_value(format!(r#"{{"order":"{order}"}}"#));
    // Bounded: what keeps failing is the caller's to hear of.
    for attempt in 1..=5 {
        // Inside the loop: a transaction that is built again reserves a number again. The gap it leaves is harmless.
        let mut items = writer.transact_items(std::slice::from_ref(&message)).await?;
        items.push(business_item(&table, &order)?);
        match client.transact_write_items().set_transact_items(Some(items)).send().await {
            Ok(_) => return Ok(order),
            // Its own condition tells an earlier attempt whose reply was lost: the order is there, and so is its message.
            Err(error) if attempt > 1 && is_placed_already(&error) => return Ok(order),
            Err(error) if attempt == 5 => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50 * attempt)).await,
        }
    }
    Err("not placed".into())
}

fn business_item(table: &str, order: &str) -> Result<TransactWriteItem, Error> {
    let s = |text: String| AttributeValue::S(text);
    let item = HashMap::from([
        ("PK".to_owned(), s(format!("ORDER#{order}"))),
        ("SK".to_owned(), s("ORDER".to_owned())),
        ("Customer".to_owned(), s("customer-42".to_owned())),
    ]);
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(PK)");
    Ok(TransactWriteItem::builder().put(put.build()?).build())
}

fn is_placed_already(
    error: &aws_sdk_dynamodb::error::SdkError<
        aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError,
    >,
) -> bool {
    use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError::TransactionCanceledException;
    let Some(TransactionCanceledException(cancelled)) = error.as_service_error() else { return false };
    // The order is the last of the items.
    cancelled.cancellation_reasons().last().and_then(|reason| reason.code()) == Some("ConditionalCheckFailed")
}
