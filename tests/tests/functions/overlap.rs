//! Invocations that overlap: harmless, and without faults each message is sent once.

use std::collections::BTreeMap;

use futures::future::join_all;
use outbox::BucketCount;

use crate::bench::{Bench, Function, assert_no_failure, ids, keys};

/// The bucket of the key "21".
const BUCKET: u32 = 4;

async fn enqueue(bench: &Bench, key: &str, count: usize) -> Vec<String> {
    let messages: Vec<_> = (0..count).map(|_| bench.message(key)).collect();
    bench.writer.enqueue(&messages).await.unwrap();
    messages.iter().map(|message| message.id.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_invocations_at_once_for_one_bucket_send_each_message_once() {
    let bench = Bench::new().await;
    let host = bench.host_with(Function::Stream, |spec| spec.with_reserved_concurrency(10));
    let mut sent = Vec::new();
    // The first round starts ten processes, the second finds them warm, and meets more often.
    for _ in 0..3 {
        sent.extend(enqueue(&bench, "21", 100).await);
        let event = bench.event(Function::Stream, &[bench.insert(BUCKET)]);
        let outcomes = join_all((0..10).map(|_| host.invoke(&event))).await;
        for outcome in outcomes {
            assert_no_failure(&outcome.unwrap());
        }
        assert_eq!(bench.waiting(BUCKET).await, 0);
    }
    assert!(host.counters().cold_starts > 1, "they did not overlap");
    assert_eq!(ids(&bench.records().await), sent);
    bench.assert_released().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeps_and_hints_at_once_send_each_message_once() {
    let bench = Bench::new().await;
    let streaming = bench.host_with(Function::Stream, |spec| spec.with_reserved_concurrency(4));
    let sweeping = bench.host_with(Function::Scheduled, |spec| spec.with_reserved_concurrency(4));
    let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for key in keys() {
        sent.insert(key.clone(), enqueue(&bench, &key, 100).await);
    }
    let inserts: Vec<_> =
        BucketCount::DEFAULT.buckets().map(|bucket| bench.insert(bucket.number())).collect();
    let hint = bench.event(Function::Stream, &inserts);
    let tick = bench.event(Function::Scheduled, &[]);
    let (hinted, swept) = tokio::join!(
        join_all((0..4).map(|_| streaming.invoke(&hint))),
        join_all((0..4).map(|_| sweeping.invoke(&tick))),
    );
    for outcome in hinted {
        assert_no_failure(&outcome.unwrap());
    }
    for outcome in swept {
        assert!(outcome.as_ref().unwrap().is_response(), "{outcome:?}");
    }
    let mut got: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in bench.records().await {
        let key = String::from_utf8(record.key.clone().unwrap().to_vec()).unwrap();
        got.entry(key).or_default().extend(ids(&[record]));
    }
    assert_eq!(got, sent);
    bench.assert_released().await;
}

/// A removal may follow its insert in one batch, and the records of one transaction come in any order, in batches of
/// their own: whatever the event says, the table is asked.
#[tokio::test(flavor = "multi_thread")]
async fn records_in_any_order_and_removals_beside_inserts_change_nothing() {
    let bench = Bench::new().await;
    let sent = enqueue(&bench, "21", 3).await;
    let host = bench.host(Function::Stream);
    let change = |event: &str, sequence: u32| {
        bench.record(event, &format!("OUTBOX#MESSAGES#{BUCKET}"), &format!("{sequence:019}"))
    };
    for records in [
        vec![change("INSERT", 3), change("REMOVE", 3), change("INSERT", 1)],
        vec![change("INSERT", 2), change("REMOVE", 1), change("REMOVE", 2)],
        vec![change("INSERT", 1)],
    ] {
        assert_no_failure(&host.invoke(&bench.event(Function::Stream, &records)).await.unwrap());
    }
    assert_eq!(ids(&bench.records().await), sent);
    assert_eq!(bench.waiting(BUCKET).await, 0);
}
