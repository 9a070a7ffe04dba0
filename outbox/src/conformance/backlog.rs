//! The backlog: how much waits, and since when.

use super::Harness;
use super::model::Round;
use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Stage, all_buckets, at, buckets, relay};
use crate::store::{Backlog, FetchRequest};
use crate::{Bucket, Lease, OutboxStore as _};

/// The backlog of the buckets that were asked for: how many messages, and how old the oldest is, whoever holds it.
///
/// # Errors
/// The promise that was not kept.
pub async fn counts_and_dates_what_waits<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "backlog::counts_and_dates_what_waits").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Backlog]) {
        return Ok(skipped);
    }
    let nothing = settled(&stage, &[0, 1, 2, 3, 4, 5, 6, 7], 0).await?;
    stage.equal("the age of nothing", &nothing.oldest, &None)?;
    let first = stage.put(stage.message(2)).await?;
    let one = settled(&stage, &[2], 1).await?;
    stage.fill(2, 2).await?;
    stage.fill(5, 4).await?;
    // A relay that holds everything, and publishes nothing, does not hide what waits.
    stage.acquire(Round::of("idle", 0)).await?;
    let all = settled(&stage, &[0, 1, 2, 3, 4, 5, 6, 7], 7).await?;
    stage.equal("the oldest to stay the oldest", &all.oldest, &one.oldest)?;
    settled(&stage, &[5], 4).await?;
    settled(&stage, &[], 0).await?;
    let rows = stage.fetch(super::stage::request(2, 1)).await?;
    let rows: Vec<_> = rows.messages.into_iter().map(|stored| stored.row).collect();
    stage.delete(2, &rows).await?;
    let rest = settled(&stage, &[2, 5], 6).await?;
    // Without a date there is none for either.
    stage.ensure(rest.oldest >= one.oldest, "no age that went back", (first.id, one.oldest, rest.oldest))?;
    Ok(Ran::Passed)
}

/// Samples until the count is the expected one, a bounded number of times: a sample may be eventually consistent.
async fn settled<H: Harness>(stage: &Stage<'_, H>, of: &[u32], expected: u64) -> Result<Backlog, Violation> {
    const TRIES: usize = 100;
    let of = buckets(of.iter().copied());
    let mut found = Backlog::default();
    for _ in 0..TRIES {
        found = stage.succeeds("a sample", stage.backlog()?.sample(&of, LIMIT).await)?;
        if found.pending == expected {
            break;
        }
    }
    let as_expected = found.pending == expected && found.is_exact;
    let what = format!("{expected} messages, exactly, within {TRIES} samples of {of:?}");
    stage.ensure(as_expected, &what, found)?;
    Ok(found)
}

/// A store that cannot reach its database says so, in every call: it does not take what it cannot see for nothing.
///
/// # Errors
/// The promise that was not kept.
pub async fn is_an_error_where_it_is_unknown<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "backlog::is_an_error_where_it_is_unknown").await?;
    let Some(store) = harness.unreachable().await else {
        return Ok(Ran::Skipped { lacks: "unreachable hook" });
    };
    let (all, me) = (all_buckets(), relay("a"));
    if let Some(backlog) = store.backlog() {
        let sample = backlog.sample(&all, LIMIT).await;
        stage.ensure(sample.is_err(), "an unknown backlog to be an error", &sample)?;
    }
    let request = FetchRequest { removed_up_to: None, ..super::stage::request(0, 10) };
    let fetched = store.fetch(&request).await;
    stage.ensure(fetched.is_err(), "a fetch of what cannot be read to be an error", &fetched)?;
    let pending = store.pending(&all, LIMIT).await;
    let admitted = pending.as_ref().is_ok_and(|pending| *pending == all) || pending.is_err();
    stage.ensure(admitted, "buckets that cannot be looked at not to count as empty", &pending)?;
    let none = buckets([]);
    let acquired = store.acquire(&Round::of("a", 0).request(&none)).await;
    stage.ensure(acquired.is_err(), "an acquisition that reached nothing to be an error", &acquired)?;
    let lease = Lease { bucket: Bucket::new(0), expires_at: at(30).now };
    if let Some(renewal) = store.renewal() {
        let renewed = renewal.renew(&me, lease, at(0), LIMIT).await;
        stage.ensure(renewed.is_err(), "a renewal that reached nothing to be an error", &renewed)?;
    }
    if let Some(ownership) = store.ownership() {
        let found = ownership.has_message(Bucket::new(0), LIMIT).await;
        stage.ensure(found.is_err(), "a look that saw nothing to be an error", &found)?;
        let released = ownership.release(&me, &[lease], LIMIT).await;
        stage.ensure(released.is_err(), "a release that reached nothing to be an error", &released)?;
        let stopped = ownership.stop(&me, &[lease], at(1).now, LIMIT).await;
        stage.ensure(stopped.is_err(), "a stop that reached nothing to be an error", &stopped)?;
    }
    if let Some(claims) = store.named_claims() {
        let claimed = claims.claim(&me, &all, at(0), LIMIT).await;
        let admitted = claimed.as_ref().is_ok_and(|claimed| claimed.error.is_some()) || claimed.is_err();
        stage.ensure(admitted, "claims that reached nothing to be an error", &claimed)?;
    }
    Ok(Ran::Passed)
}
