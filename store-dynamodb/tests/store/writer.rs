//! The enqueue side.

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use outbox::{Bucket, Header};
use outbox_store_dynamodb::WriteError;

use crate::support::{Bench, key};

fn business(id: &str) -> TransactWriteItem {
    let put = Put::builder().table_name("outbox").set_item(Some(key(id, "ORDER")));
    let put = put.condition_expression("attribute_not_exists(PK)").build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

#[tokio::test]
async fn a_message_exists_only_if_its_business_item_does() {
    let bench = Bench::new().await;
    for expected in [true, false] {
        let mut items = bench.writer.transact_items(&[bench.message("21")]).await.unwrap();
        items.push(business("ORDER#1"));
        let written = bench.client.transact_write_items().set_transact_items(Some(items)).send().await;
        assert_eq!(written.is_ok(), expected, "the order is placed once");
        assert_eq!(bench.fetch(Bucket::new(4), 10).await.messages.len(), 1);
    }
}

#[tokio::test]
async fn list_order_is_kept_within_each_bucket() {
    let bench = Bench::new().await;
    let messages: Vec<_> = (0..90).map(|n: u32| bench.message(&(n % 9).to_string())).collect();
    bench.writer.enqueue(&messages).await.unwrap();
    let count = bench.store.options().bucket_count();
    let mut read = 0;
    for bucket in count.buckets() {
        let batch = bench.fetch(bucket, 100).await;
        let stored: Vec<_> = batch.messages.iter().map(|stored| stored.message.clone().unwrap()).collect();
        let expected: Vec<_> =
            messages.iter().filter(|message| message.bucket(count) == Some(bucket)).cloned().collect();
        assert_eq!(stored, expected);
        if let Some(first) = batch.messages.first() {
            assert_eq!(first.row.get(), 1, "numbering starts at 1");
        }
        read += stored.len();
    }
    assert_eq!(read, 90);
}

#[tokio::test]
async fn every_part_of_a_message_comes_back() {
    let bench = Bench::new().await;
    let full = bench.message("21").with_value(vec![0, 255]).with_header(Header::null("n")).with_partition(12);
    let mut bare = bench.message("");
    bare.value = None;
    bench.writer.enqueue(&[full.clone(), bare.clone()]).await.unwrap();
    let read = async |bucket| bench.fetch(Bucket::new(bucket), 1).await.messages.remove(0).message.unwrap();
    assert_eq!(read(4).await, full, "an explicit partition decides the bucket");
    assert_eq!(read(1).await, bare, "an empty key is a key");
}

#[tokio::test]
async fn a_counter_that_was_reset_overwrites_nothing() {
    let bench = Bench::new().await;
    let first = bench.enqueue("21").await;
    let delete = bench.client.delete_item().table_name("outbox");
    delete.set_key(Some(key("OUTBOX#SEQUENCE#4", "SEQUENCE"))).send().await.unwrap();
    let error = bench.writer.enqueue(&[bench.message("21")]).await.unwrap_err();
    assert!(matches!(error, WriteError::SequenceTaken { bucket, .. } if bucket == Bucket::new(4)), "{error}");
    let batch = bench.fetch(Bucket::new(4), 10).await;
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(*batch.messages[0].message.as_ref().unwrap(), first);
}

#[tokio::test]
async fn a_message_that_is_there_under_its_own_number_is_a_success() {
    let bench = Bench::new().await;
    let message = bench.enqueue("21").await;
    // What an attempt leaves whose reply was lost and whose token the service no longer knows: the counter goes back so
    // that the second call reserves the same number.
    let mut counter = key("OUTBOX#SEQUENCE#4", "SEQUENCE");
    counter.insert("Sequence".to_owned(), AttributeValue::N("0".to_owned()));
    bench.put(counter).await;
    bench.writer.enqueue(&[message]).await.unwrap();
    assert_eq!(bench.fetch(Bucket::new(4), 10).await.messages.len(), 1);
}

#[tokio::test]
async fn limits_are_checked_before_anything_is_sent() {
    let bench = Bench::new().await;
    let large = bench.message("21").with_value(vec![0; 410_000]);
    let error = bench.writer.transact_items(&[bench.message("21"), large.clone()]).await.unwrap_err();
    let WriteError::ItemTooLarge { id, size, limit } = error else { panic!("{error}") };
    assert_eq!((id, limit), (large.id, 409_600));
    assert!((410_000..410_400).contains(&size), "{size}");

    let many: Vec<_> = (0..101).map(|_| bench.message("21")).collect();
    let error = bench.writer.enqueue(&many).await.unwrap_err();
    assert!(error.to_string().contains("101 messages are 1 over"), "{error}");

    let heavy: Vec<_> = (0..11).map(|_| bench.message("21").with_value(vec![0; 400_000])).collect();
    let error = bench.writer.enqueue(&heavy).await.unwrap_err();
    assert!(matches!(error, WriteError::TransactionTooLarge { id, .. } if id == heavy[10].id), "{error}");

    let error = bench.writer.enqueue(&[bench.message("21").with_partition(-1)]).await.unwrap_err();
    assert!(matches!(error, WriteError::Message(_)), "{error}");
    assert_eq!(bench.item("OUTBOX#SEQUENCE#4", "SEQUENCE").await, None, "a number was reserved");
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_named() {
    let bench = Bench::new().await;
    let mut counter = key("OUTBOX#SEQUENCE#4", "SEQUENCE");
    counter.insert("Sequence".to_owned(), AttributeValue::N("-9".to_owned()));
    bench.put(counter).await;
    let error = bench.writer.enqueue(&[bench.message("21")]).await.unwrap_err();
    let WriteError::Store(error) = error else { panic!("{error}") };
    assert!(error.is_misconfiguration() && error.to_string().contains("counter of bucket 4"), "{error}");
}
