//! Messages: order, bounds, deletes, probes.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Stage, all_buckets, buckets, ids, ids_of, request};
use super::{BUCKET_COUNT, Harness};
use crate::store::FetchRequest;
use crate::{Header, Message, OutboxStore as _};

/// Messages of a bucket are fetched in the order in which they were committed, and those of others are not among them.
///
/// # Errors
/// The promise that was not kept.
pub async fn come_in_committed_order<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::come_in_committed_order").await?;
    stage.expect_messages(2, &[]).await?;
    let (mut second, mut fifth) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        second.push(stage.put(stage.message(2)).await?);
        fifth.push(stage.put(stage.message(5)).await?);
    }
    stage.expect_messages(2, &second).await?;
    stage.expect_messages(5, &fifth).await?;
    stage.expect_messages(0, &[]).await?;
    Ok(Ran::Passed)
}

/// A message comes back byte for byte: no key and an empty key, no value and an empty value, are not the same.
///
/// # Errors
/// The promise that was not kept.
pub async fn come_back_as_they_were_put<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::come_back_as_they_were_put").await?;
    let bare = || Message::new(stage.message_id(), "orders");
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let variants = [
        bare(),
        bare().with_key(Bytes::new()),
        bare().with_key("key"),
        bare().with_value(Bytes::new()).with_key("empty value"),
        bare().with_key(every_byte.clone()).with_value(every_byte.clone()),
        bare().with_partition(13).with_key("explicit partition"),
        bare()
            .with_value("with headers")
            .with_header(Header::new("trace", every_byte))
            .with_header(Header::null("trace"))
            .with_header(Header::new("ключ", Bytes::new())),
    ];
    let mut put: Vec<Vec<Message>> = vec![Vec::new(); all_buckets().len()];
    for message in variants {
        let message = stage.put(message).await?;
        let bucket = message.bucket(BUCKET_COUNT).and_then(|bucket| usize::try_from(bucket.number()).ok());
        if let Some(messages) = bucket.and_then(|bucket| put.get_mut(bucket)) {
            messages.push(message);
        }
    }
    for (bucket, expected) in (0..).zip(&put) {
        stage.expect_messages(bucket, expected).await?;
    }
    Ok(Ran::Passed)
}

/// What has been committed is in the very next fetch.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_seen_at_once<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::are_seen_at_once").await?;
    let mut put = Vec::new();
    for _ in 0..20 {
        put.push(stage.put(stage.message(3)).await?);
        stage.expect_messages(3, &put).await?;
    }
    Ok(Ran::Passed)
}

/// A fetch returns the oldest messages, as many as it was asked for at most, and says when there are more.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_fetched_up_to_a_number<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::are_fetched_up_to_a_number").await?;
    let put = stage.fill(1, 5).await?;
    for max in [1, 3, 4] {
        let fetched = stage.fetch(request(1, max)).await?;
        let expected: Vec<_> = ids_of(&put).into_iter().take(max).collect();
        stage.equal(&format!("the first {max} messages"), &ids(&fetched), &expected)?;
        stage.ensure(fetched.more, "to be told that there are more", fetched.more)?;
    }
    // At exactly all of them a store may not know whether there are more; past that it does.
    stage.equal("the first 5 messages", &ids(&stage.fetch(request(1, 5)).await?), &ids_of(&put))?;
    stage.expect_messages(1, &put).await?;
    Ok(Ran::Passed)
}

/// A fetch returns no message past the size that it was asked for, but always one, however large.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_fetched_up_to_a_size<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    const EACH: usize = 1_000;
    let stage = Stage::fresh(harness, "messages::are_fetched_up_to_a_size").await?;
    let mut put = Vec::new();
    for _ in 0..6 {
        put.push(stage.put(stage.message(1).with_value(vec![b'v'; EACH])).await?);
    }
    for (max_bytes, at_most) in [(1, 1), (EACH, 1), (3 * EACH, 3)] {
        let fetched = stage.fetch(FetchRequest { max_bytes, ..request(1, 6) }).await?;
        let sizes: Vec<usize> = fetched.messages.iter().map(|stored| stored.size).collect();
        let near_enough = sizes.iter().all(|size| (EACH / 2..=EACH * 4).contains(size));
        stage.ensure(near_enough, "sizes near enough to bound a batch by", &sizes)?;
        let what = format!("1 to {at_most} messages in {max_bytes} bytes");
        stage.ensure((1..=at_most).contains(&sizes.len()), &what, &sizes)?;
        stage.equal("the oldest", &ids(&fetched), &ids_of(put.get(..sizes.len()).unwrap_or_default()))?;
        stage.ensure(fetched.more, "to be told that there are more", fetched.more)?;
    }
    Ok(Ran::Passed)
}

/// A delete removes what it was given and nothing else; what is gone already is no error, so that it can be repeated.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_deleted_alone<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::are_deleted_alone").await?;
    let (put, others) = (stage.fill(4, 6).await?, stage.fill(6, 2).await?);
    let rows = stage.expect_messages(4, &put).await?;
    let (first, rest) = rows.split_at(2.min(rows.len()));
    let left = put.get(2..).unwrap_or_default();
    stage.delete(4, first).await?;
    stage.expect_messages(4, left).await?;
    stage.delete(4, first).await?;
    stage.delete(4, &[]).await?;
    stage.expect_messages(4, left).await?;
    stage.expect_messages(6, &others).await?;
    // Some of them gone already.
    stage.delete(4, rest).await?;
    stage.delete(4, &rows).await?;
    stage.expect_messages(4, &[]).await?;
    stage.expect_messages(6, &others).await?;
    let again = stage.fill(4, 2).await?;
    stage.expect_messages(4, &again).await?;
    Ok(Ran::Passed)
}

/// Where the store says that it deletes individually, any set of fetched rows can go.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_deleted_one_by_one<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::are_deleted_one_by_one").await?;
    if let Some(skipped) = stage.lacks(&[Needs::IndividualDeletes]) {
        return Ok(skipped);
    }
    let put = stage.fill(4, 5).await?;
    let rows = stage.expect_messages(4, &put).await?;
    let odd: Vec<_> = rows.iter().skip(1).step_by(2).cloned().collect();
    stage.delete(4, &odd).await?;
    let even: Vec<_> = put.iter().step_by(2).cloned().collect();
    stage.expect_messages(4, &even).await?;
    Ok(Ran::Passed)
}

/// Fetched and deleted batch by batch, with new messages in between, every message comes once and in order. What was
/// removed last is told to the store, and hides nothing.
///
/// # Errors
/// The promise that was not kept.
pub async fn drain_in_order<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::drain_in_order").await?;
    let mut put = ids_of(&stage.fill(7, 80).await?);
    let (mut drained, mut removed) = (Vec::new(), None);
    for batch in 0..9 {
        let fetch = FetchRequest { removed_up_to: removed.as_ref(), ..request(7, 30) };
        let fetched = stage.fetch(fetch).await?;
        drained.extend(ids(&fetched));
        let rows: Vec<_> = fetched.messages.into_iter().map(|stored| stored.row).collect();
        stage.delete(7, &rows).await?;
        removed = rows.last().cloned().or(removed);
        if batch < 4 {
            put.extend(ids_of(&stage.fill(7, 10).await?));
        }
    }
    stage.equal("every message, once and in order", &drained, &put)?;
    stage.expect_messages(7, &[]).await?;
    Ok(Ran::Passed)
}

/// A probe names the buckets with messages among those it was asked for. It may be late, but not for ever.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_pending<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "messages::are_pending").await?;
    pending(&stage, &[], all_buckets(), BTreeSet::new()).await?;
    let put = stage.fill(1, 2).await?;
    stage.fill(6, 1).await?;
    pending(&stage, &[1, 6], all_buckets(), buckets([1, 6])).await?;
    pending(&stage, &[1, 6], buckets([0, 6]), buckets([6])).await?;
    pending(&stage, &[1, 6], BTreeSet::new(), BTreeSet::new()).await?;
    let rows = stage.expect_messages(1, &put).await?;
    let (first, rest) = rows.split_at(1.min(rows.len()));
    stage.delete(1, first).await?;
    pending(&stage, &[1, 6], all_buckets(), buckets([1, 6])).await?;
    stage.delete(1, rest).await?;
    pending(&stage, &[1, 6], all_buckets(), buckets([6])).await?;
    Ok(Ran::Passed)
}

/// Probes until the answer is the expected one, a bounded number of times: a probe may be eventually consistent. A bucket
/// that never had a message must not be named at any time.
async fn pending<H: Harness>(
    stage: &Stage<'_, H>,
    ever: &[u32],
    asked: BTreeSet<crate::Bucket>,
    expected: BTreeSet<crate::Bucket>,
) -> Result<(), Violation> {
    const TRIES: usize = 100;
    let possible = &buckets(ever.iter().copied()) & &asked;
    let mut found = BTreeSet::new();
    for _ in 0..TRIES {
        found = stage.succeeds("a probe", stage.store.pending(&asked, LIMIT).await)?;
        let what = format!("no other buckets than {possible:?}");
        stage.ensure(found.is_subset(&possible), &what, &found)?;
        if found == expected {
            break;
        }
    }
    stage.equal(&format!("the pending buckets of {asked:?}, within {TRIES} probes"), &found, &expected)
}
