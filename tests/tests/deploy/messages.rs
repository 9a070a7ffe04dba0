//! What is written into the outbox, and what must come out of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use outbox::{Header, Message, MessageIds};
use outbox_local::kafka::{Reader, Record};
use outbox_store_dynamodb::{StoreOptions, Writer, message_partition};

use crate::{DELIVERY_BOUND, TABLE, TOPIC};

pub(crate) const CUSTOMERS: usize = 20;
pub(crate) const ORDERS_EACH: usize = 10;
/// What one bucket takes some ten invocations for, at one message a batch.
const BACKLOG: usize = 400;

/// Places orders customer by customer, each in one transaction: an order item and two messages of the customer.
pub(crate) async fn place_orders(client: &Client, options: &StoreOptions) -> Vec<Message> {
    let writer = Writer::new(client.clone(), options.clone());
    let ids = MessageIds::from_system();
    let mut placed = Vec::new();
    for order in 0..ORDERS_EACH {
        for customer in 0..CUSTOMERS {
            let messages = ["placed", "confirmed"].map(|event| {
                Message::new(ids.next_id(), TOPIC)
                    .with_key(format!("customer-{customer}"))
                    .with_value(format!(r#"{{"order":{order},"event":"{event}"}}"#))
                    .with_header(Header::new("event", event))
            });
            let mut items = writer.transact_items(&messages).await.unwrap();
            items.push(order_item(customer, order));
            client.transact_write_items().set_transact_items(Some(items)).send().await.unwrap();
            placed.extend(messages);
        }
    }
    placed
}

fn order_item(customer: usize, order: usize) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(TABLE)
        .item("PK", AttributeValue::S("ORDERS".to_owned()))
        .item("SK", AttributeValue::S(format!("{customer}#{order}")))
        .build();
    TransactWriteItem::builder().put(put.unwrap()).build()
}

/// What is easily lost on the way: no key, an empty key, a tombstone, headers without a value and of one name.
pub(crate) async fn enqueue_oddities(client: &Client, options: &StoreOptions) -> Vec<Message> {
    let ids = MessageIds::from_system();
    let message = || Message::new(ids.next_id(), TOPIC);
    let messages = vec![
        message().with_value("no key"),
        message().with_key("").with_value("an empty key"),
        message().with_key("a tombstone"),
        message().with_key([0, 255, 128].as_slice()).with_value([0, 159, 146, 150].as_slice()),
        message().with_partition(2).with_value("a partition of its own"),
        message()
            .with_key("headers")
            .with_header(Header::new("twice", "1"))
            .with_header(Header::null("null"))
            .with_header(Header::new("twice", "2"))
            .with_header(Header::new("empty", "")),
    ];
    Writer::new(client.clone(), options.clone()).enqueue(&messages).await.unwrap();
    messages
}

/// Messages of one key, and so of one bucket, which one relay at a time works on.
pub(crate) async fn enqueue_backlog(client: &Client, options: &StoreOptions) -> Vec<Message> {
    let (writer, ids) = (Writer::new(client.clone(), options.clone()), MessageIds::from_system());
    let message = |n: usize| Message::new(ids.next_id(), TOPIC).with_key("backlog").with_value(n.to_string());
    let backlog: Vec<Message> = (0..BACKLOG).map(message).collect();
    for messages in backlog.chunks(100) {
        writer.enqueue(messages).await.unwrap();
    }
    backlog
}

/// The next records of the topic, as many as there should be.
pub(crate) async fn read(reader: &Reader, count: usize, bound: Duration) -> Vec<Record> {
    let mut records = Vec::new();
    let deadline = Instant::now() + bound;
    while records.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, reader.next()).await {
            Ok(record) => records.push(record.unwrap()),
            Err(_) => panic!("{} of {count} records within {bound:?}", records.len()),
        }
    }
    records
}

/// Every message once, byte for byte, and each key's in the order in which they were committed.
pub(crate) fn compare(records: &[Record], expected: &[Message]) {
    let mut by_id: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records {
        let id = record.header_text("x-outbox-message-id").expect("every record carries its message's id");
        assert!(by_id.insert(id, record).is_none(), "{id} was published twice");
    }
    let mut last_of_key: BTreeMap<&[u8], i64> = BTreeMap::new();
    for message in expected {
        let id = message.id.to_string();
        let record = by_id.get(id.as_str()).unwrap_or_else(|| panic!("message {id} is missing"));
        assert_eq!(record.key.as_deref(), message.key.as_deref(), "the key of {id}");
        assert_eq!(record.value.as_deref(), message.value.as_deref(), "the value of {id}");
        let sent: Vec<_> =
            message.headers.iter().map(|header| (header.key.as_str(), header.value.as_deref())).collect();
        let mut got: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        got.retain(|(key, _)| *key != "x-outbox-message-id");
        assert_eq!(got, sent, "the headers of {id}");
        if let Some(partition) = message.partition {
            assert_eq!(record.partition, partition, "the partition of {id}");
        }
        if let Some(key) = message.key.as_deref() {
            let last = last_of_key.insert(key, record.offset);
            assert!(last < Some(record.offset), "{id} overtook an earlier message of its key");
        }
    }
}

/// The functions delete after the broker has acknowledged, so a reader can be ahead of them.
pub(crate) async fn wait_until_outbox_is_empty(client: &Client, options: &StoreOptions) {
    let deadline = Instant::now() + DELIVERY_BOUND;
    for bucket in options.bucket_count().buckets() {
        let partition = message_partition(options.key_prefix(), bucket);
        while count(client, &partition).await > 0 {
            assert!(Instant::now() < deadline, "{partition} was not empty within {DELIVERY_BOUND:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// How many wait in the bucket of a message.
pub(crate) async fn count_of_bucket(client: &Client, options: &StoreOptions, message: &Message) -> usize {
    let bucket = message.bucket(options.bucket_count()).unwrap();
    count(client, &message_partition(options.key_prefix(), bucket)).await
}

pub(crate) async fn count(client: &Client, partition: &str) -> usize {
    let query = client
        .query()
        .table_name(TABLE)
        .key_condition_expression("PK = :partition")
        .expression_attribute_values(":partition", AttributeValue::S(partition.to_owned()))
        .consistent_read(true);
    query.send().await.unwrap().items().len()
}
