//! The application: it places orders, each together with its message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, Put, ScalarAttributeType, TableStatus,
    TransactWriteItem,
};
use futures::future::try_join_all;
use outbox::{Message, MessageIds};
use outbox_store_dynamodb::{WriteError, Writer};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::verdict::PlacedOrder;

const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const TABLE_BOUND: Duration = Duration::from_secs(60);

/// Why an order could not be placed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The outbox's writer refused or failed.
    #[error("the message of order {order} could not be written")]
    Message {
        /// The order.
        order: String,
        /// Why.
        #[source]
        source: WriteError,
    },
    /// A request to DynamoDB failed for good.
    #[error("{what} failed: {cause}")]
    Request {
        /// What was being done.
        what: String,
        /// The SDK's whole chain of causes, which it does not give as sources.
        cause: String,
    },
    /// The order is no item: a fault of this program.
    #[error("order {order} could not be turned into an item")]
    Item {
        /// The order.
        order: String,
        /// Why.
        #[source]
        source: serde_dynamo::Error,
    },
    /// The order is no JSON: a fault of this program.
    #[error("order {order} could not be turned into JSON")]
    Json {
        /// The order.
        order: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// There is no topic to send to: a fault of this program.
    #[error("orders have no topic")]
    NoTopic,
    /// Whoever counts the orders has gone.
    #[error("the run ended while orders were being placed")]
    Ended,
}

impl OrderError {
    /// Whether trying again is of no use.
    fn is_final(&self) -> bool {
        match self {
            Self::Message { source, .. } => !source.is_transient(),
            Self::Request { .. } => false,
            Self::Item { .. } | Self::Json { .. } | Self::NoTopic | Self::Ended => true,
        }
    }
}

fn failed<E: std::error::Error>(what: impl Into<String>) -> impl FnOnce(E) -> OrderError {
    move |error| OrderError::Request { what: what.into(), cause: DisplayErrorContext(error).to_string() }
}

/// The business item, and with a note the message's value.
#[derive(Debug, Clone, Serialize)]
struct Order {
    #[serde(rename = "OrderId")]
    id: String,
    customer: String,
    number: u32,
    amount_cents: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// Where orders go.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) client: Client,
    pub(crate) writer: Writer,
    /// The business items' table.
    pub(crate) table: String,
    /// Where the messages go: each customer's next order to the next topic. At least one.
    pub(crate) topics: Vec<Arc<str>>,
    pub(crate) load: Load,
}

/// What is placed, and how fast.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    pub(crate) customers: u32,
    /// So many of the customers, the last ones, have messages without a key, and so without an order.
    pub(crate) keyless: u32,
    /// Orders in flight at once, each of another customer.
    pub(crate) concurrency: usize,
    /// How many in all; `None`: until stopped.
    pub(crate) orders: Option<u32>,
    /// From one order to the next; `None`: as fast as it goes.
    pub(crate) interval: Option<Duration>,
    /// Each customer's every so manieth message has tens of kilobytes; 0: none has.
    pub(crate) large_every: u32,
    /// Ends the placing: what is being placed is finished.
    pub(crate) stop: CancellationToken,
}

/// A customer whose next order may be placed.
#[derive(Debug, Clone, Copy)]
struct Customer {
    number: u32,
    placed: u32,
    wanted: u32,
}

impl Shop {
    /// Creates the table of the business items.
    pub(crate) async fn create_table(&self) -> Result<(), OrderError> {
        let what = || format!("creating table {}", self.table);
        let attribute = AttributeDefinition::builder()
            .attribute_name("OrderId")
            .attribute_type(ScalarAttributeType::S)
            .build()
            .map_err(failed(what()))?;
        let key = KeySchemaElement::builder()
            .attribute_name("OrderId")
            .key_type(KeyType::Hash)
            .build()
            .map_err(failed(what()))?;
        self.client
            .create_table()
            .table_name(&self.table)
            .attribute_definitions(attribute)
            .key_schema(key)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .map_err(failed(what()))?;
        let deadline = Instant::now() + TABLE_BOUND;
        loop {
            let described =
                self.client.describe_table().table_name(&self.table).send().await.map_err(failed(what()))?;
            if described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let cause = format!("it was not active within {} s", TABLE_BOUND.as_secs());
                return Err(OrderError::Request { what: what(), cause });
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Places all orders and sends each, once it is committed, to `placed`.
    ///
    /// A customer's next order is placed after the last one is committed: only that makes their order something to
    /// be kept. Orders of different customers overlap.
    pub(crate) async fn place_all(&self, placed: mpsc::Sender<PlacedOrder>) -> Result<(), OrderError> {
        let ids = MessageIds::from_system();
        let pace = self.load.interval.map(pace);
        let waiting = Mutex::new(self.load.spread());
        let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = (0..self.load.concurrency.max(1)).map(async |_| {
            loop {
                if let Some(pace) = &pace {
                    let tick = async { pace.lock().await.tick().await };
                    self.load.stop.run_until_cancelled(tick).await;
                }
                if self.load.stop.is_cancelled() {
                    return Ok(());
                }
                // Whoever takes a customer out serves it alone.
                let Some(mut customer) = lock().pop_front() else { return Ok(()) };
                customer.placed += 1;
                let order = self.place(customer, &ids).await?;
                placed.send(order).await.map_err(|_| OrderError::Ended)?;
                if customer.placed < customer.wanted {
                    lock().push_back(customer);
                }
            }
        });
        try_join_all(workers).await.map(drop)
    }

    /// One order and its message, in one transaction.
    async fn place(&self, customer: Customer, ids: &MessageIds) -> Result<PlacedOrder, OrderError> {
        let (name, number) = (format!("customer-{:04}", customer.number), customer.placed);
        let id = format!("{name}/{number}");
        let mut order = Order {
            id: id.clone(),
            customer: name.clone(),
            number,
            amount_cents: 100 + number % 900,
            note: String::new(),
        };
        let item =
            serde_dynamo::to_item(&order).map_err(|source| OrderError::Item { order: id.clone(), source })?;
        order.note = self.load.note(number);
        let value =
            serde_json::to_vec(&order).map_err(|source| OrderError::Json { order: id.clone(), source })?;
        let topic = self.topic(number).ok_or(OrderError::NoTopic)?;
        // Made once: however often the transaction is built, it is the same message.
        let mut message = Message::new(ids.next_id(), topic.to_string()).with_value(value.clone());
        let key = self.load.has_key(customer.number).then(|| name.into_bytes());
        if let Some(key) = &key {
            message = message.with_key(key.clone());
        }
        let business = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(OrderId)")
            .build()
            .map_err(failed(format!("building order {id}")))?;
        let business = TransactWriteItem::builder().put(business).build();
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            match self.attempt(&message, business.clone(), &id).await {
                Ok(()) => break,
                Err(error) if attempt == ATTEMPTS || error.is_final() => return Err(error),
                Err(error) => tracing::debug!(%error, order = id, attempt, "again"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
        let committed = Instant::now();
        let message = message.id;
        Ok(PlacedOrder { message, topic, customer: customer.number, number, key, value, committed })
    }

    fn topic(&self, number: u32) -> Option<Arc<str>> {
        let count = u32::try_from(self.topics.len()).ok().filter(|count| *count > 0)?;
        self.topics.get(usize::try_from(number % count).ok()?).cloned()
    }

    /// One attempt: numbers are reserved anew for each, and what an earlier one committed is found by its business
    /// item.
    async fn attempt(
        &self,
        message: &Message,
        business: TransactWriteItem,
        id: &str,
    ) -> Result<(), OrderError> {
        let reserved = self.writer.transact_items(std::slice::from_ref(message)).await;
        let mut items = reserved.map_err(|source| OrderError::Message { order: id.to_owned(), source })?;
        let business_at = items.len();
        items.push(business);
        let sent = self.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if is_placed_already(&error, business_at) => Ok(()),
            Err(error) => Err(failed(format!("placing order {id}"))(error)),
        }
    }
}

impl Load {
    /// Every customer gets the same number of orders, the first ones one more where it does not come out even.
    fn spread(&self) -> VecDeque<Customer> {
        let count = self.customers.max(1);
        let wanted = |number| match self.orders {
            Some(orders) => orders / count + u32::from(number < orders % count),
            None => u32::MAX,
        };
        (0..count)
            .map(|number| Customer { number, placed: 0, wanted: wanted(number) })
            .filter(|customer| customer.wanted > 0)
            .collect()
    }

    fn has_key(&self, customer: u32) -> bool {
        customer < self.customers.saturating_sub(self.keyless)
    }

    /// What makes a message large: 10 to 59 KB, by its number.
    fn note(&self, number: u32) -> String {
        let large = self.large_every > 0 && number.is_multiple_of(self.large_every);
        let kilobytes = if large { 10 + number / self.large_every % 50 } else { 0 };
        "a gift, please. ".repeat(usize::try_from(kilobytes * 64).unwrap_or(0))
    }
}

/// Ticks that all workers share. After a pause of the database the rate goes on; what was missed is not made up.
fn pace(period: Duration) -> tokio::sync::Mutex<Interval> {
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::sync::Mutex::new(ticks)
}

/// Order ids are this run's own: an order that exists is one whose answer was lost.
fn is_placed_already(error: &SdkError<TransactWriteItemsError>, business_at: usize) -> bool {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error()
    else {
        return false;
    };
    let reason = cancelled.cancellation_reasons().get(business_at).and_then(|reason| reason.code());
    reason == Some("ConditionalCheckFailed")
}
