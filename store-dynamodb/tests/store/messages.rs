//! Fetching, probing, deleting.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use outbox::store::{FetchRequest, OrderKey};
use outbox::{Bucket, BucketCount, OutboxStore as _};

use crate::support::{Bench, Hook, LIMIT, buckets, fetch_request, key};

/// The bucket of the key "21".
const BUCKET: Bucket = Bucket::new(4);

#[tokio::test]
async fn messages_come_in_the_order_they_were_written() {
    let bench = Bench::new().await;
    let mut sent = Vec::new();
    for _ in 0..30 {
        sent.push(bench.enqueue("21").await);
    }
    let first = bench.fetch(BUCKET, 20).await;
    assert!(first.more);
    let read: Vec<_> = first.messages.iter().map(|stored| stored.message.clone().unwrap()).collect();
    assert_eq!(read, sent[..20]);
    assert!(!bench.fetch(BUCKET, 31).await.more);
    assert!(bench.fetch(Bucket::new(0), 20).await.messages.is_empty());
}

#[tokio::test]
async fn a_batch_spans_pages_and_ends_at_its_bound_of_bytes() {
    let bench = Bench::new().await;
    let mut messages = Vec::new();
    for _ in 0..28 {
        messages.push(bench.message("21").with_value(vec![7; 200_000]));
    }
    for some in messages.chunks(14) {
        bench.writer.enqueue(some).await.unwrap();
    }
    // Five pages of 1 MB and a little: the batch ends once it is past 4 MB.
    let batch = bench.fetch(BUCKET, 500).await;
    assert!(batch.more);
    assert!((21..28).contains(&batch.messages.len()), "{}", batch.messages.len());
}

#[tokio::test]
async fn only_buckets_with_messages_are_pending() {
    let bench = Bench::new().await;
    bench.enqueue("21").await;
    let all: BTreeSet<_> = BucketCount::DEFAULT.buckets().collect();
    assert_eq!(bench.store.pending(&all, LIMIT).await.unwrap(), [BUCKET].into());
    let ownership = bench.store.ownership().unwrap();
    assert!(ownership.has_message(BUCKET, LIMIT).await.unwrap());
    assert!(!ownership.has_message(Bucket::new(0), LIMIT).await.unwrap());
}

#[tokio::test]
async fn deleted_rows_are_gone_and_may_be_deleted_again() {
    let bench = Bench::new().await;
    let messages: Vec<_> = (0..60).map(|_| bench.message("21")).collect();
    bench.writer.enqueue(&messages).await.unwrap();
    let rows: Vec<_> = bench.fetch(BUCKET, 100).await.messages.iter().map(|stored| stored.row).collect();
    for _ in 0..2 {
        bench.store.delete(BUCKET, &rows[..55], LIMIT).await.unwrap();
        let left: Vec<_> = bench.fetch(BUCKET, 100).await.messages.iter().map(|stored| stored.row).collect();
        assert_eq!(left, rows[55..]);
    }
}

/// A query is only read-committed against a transaction: here the first message of a bucket appears just after the
/// query has missed it, and before the gap is probed.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_appears_in_a_gap_is_fetched_before_those_behind_it() {
    let bench = Bench::new().await;
    let first = bench.enqueue("21").await;
    let second = bench.enqueue("21").await;
    let hidden = bench.item("OUTBOX#MESSAGES#4", "0000000000000000001").await.unwrap();
    let delete = bench.client.delete_item().table_name("outbox");
    delete.set_key(Some(key("OUTBOX#MESSAGES#4", "0000000000000000001"))).send().await.unwrap();

    let client = bench.client.clone();
    let hook = Hook::before(2, move || {
        let put = client.put_item().table_name("outbox").set_item(Some(hidden.clone()));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(put.send()).unwrap();
        });
    });
    let batch = bench.hooked(hook.clone()).fetch(&fetch_request(BUCKET, 10)).await.unwrap();
    let read: Vec<_> = batch.messages.into_iter().map(|stored| stored.message.unwrap()).collect();
    assert_eq!(read, [first, second]);
    assert_eq!(hook.sent(), 3, "query, probe, query");
}

#[tokio::test]
async fn numbers_that_this_relay_removed_are_no_gap() {
    let bench = Bench::new().await;
    for _ in 0..3 {
        bench.enqueue("21").await;
    }
    let rows: Vec<_> = bench.fetch(BUCKET, 10).await.messages.iter().map(|stored| stored.row).collect();
    bench.store.delete(BUCKET, &rows[..2], LIMIT).await.unwrap();
    let hook = Hook::counting();
    let request = FetchRequest {
        bucket: BUCKET,
        max_messages: 10,
        max_bytes: 4 << 20,
        removed_up_to: Some(&rows[1]),
        limit: LIMIT,
    };
    let batch = bench.hooked(hook.clone()).fetch(&request).await.unwrap();
    assert_eq!((batch.messages.len(), hook.sent()), (1, 1));
}

#[tokio::test]
async fn items_of_later_versions_are_passed_over() {
    let bench = Bench::new().await;
    bench.put(key("OUTBOX#MESSAGES#4", "MARKER#1")).await;
    let sent = bench.enqueue("21").await;
    let batch = bench.fetch(BUCKET, 10).await;
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(*batch.messages[0].message.as_ref().unwrap(), sent);
}

#[tokio::test]
async fn a_malformed_item_is_a_message_that_waits() {
    let bench = Bench::new().await;
    bench.put(key("OUTBOX#MESSAGES#4", "0000000000000000001")).await;
    let batch = bench.fetch(BUCKET, 10).await;
    assert!(batch.messages[0].message.as_ref().unwrap_err().reason.contains("MessageId"));
    assert_eq!(batch.messages[0].order_key(), OrderKey::None);
}

#[tokio::test]
async fn what_is_ahead_of_another_bucket_count_is_served_first() {
    let bench = Bench::new().await;
    let sent = bench.enqueue("21").await;
    bench.enqueue("21").await;
    let mut wrong = bench.item("OUTBOX#MESSAGES#4", "0000000000000000002").await.unwrap();
    wrong.insert("BucketCount".to_owned(), AttributeValue::N("12".to_owned()));
    bench.put(wrong).await;
    let batch = bench.fetch(BUCKET, 10).await;
    assert_eq!(*batch.messages[0].message.as_ref().unwrap(), sent);
    let fault = batch.fault.unwrap();
    assert!(fault.is_misconfiguration());
    assert!(fault.to_string().contains("OUTBOX_BUCKET_COUNT") && fault.to_string().contains("12"), "{fault}");
    assert_eq!(bench.store.pending(&buckets([4]), LIMIT).await.unwrap().len(), 1);
}

#[tokio::test]
async fn items_of_later_versions_are_not_pending() {
    let bench = Bench::new().await;
    bench.put(key("OUTBOX#MESSAGES#4", "MARKER#1")).await;
    assert!(bench.store.pending(&buckets([4]), LIMIT).await.unwrap().is_empty());
    assert!(!bench.store.ownership().unwrap().has_message(BUCKET, LIMIT).await.unwrap());
}

#[tokio::test]
async fn the_backlog_is_counted_and_dated() {
    let bench = Bench::new().await;
    let backlog = bench.store.backlog().unwrap();
    let all: BTreeSet<_> = BucketCount::DEFAULT.buckets().collect();
    let empty = backlog.sample(&all, LIMIT).await.unwrap();
    assert_eq!((empty.pending, empty.is_exact, empty.oldest), (0, true, None));
    bench.enqueue("21").await;
    bench.enqueue("abc").await;
    let created = |item: &crate::support::Item| item["CreatedAtUtc"].as_n().unwrap().parse::<i64>().unwrap();
    let first = created(&bench.item("OUTBOX#MESSAGES#4", "0000000000000000001").await.unwrap());
    let two = backlog.sample(&all, LIMIT).await.unwrap();
    assert_eq!((two.pending, two.oldest), (2, Some(outbox::Ticks::from_raw(first))));
}
