//! Lost replies: the write was carried out, and its sender does not know. The store may say that it succeeded, or that it
//! may have; never that it did not.

use super::Harness;
use super::model::Round;
use super::ownership::all_free;
use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Stage, at, buckets, relay};
use crate::{Bucket, OutboxStore as _};

const NO_HOOK: Ran = Ran::Skipped { lacks: "losing_a_reply hook" };

/// A claim whose reply was lost was granted, or is an error; then its strays can be freed.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_a_claim<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "replies::of_a_claim").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims, Needs::Ownership]) {
        return Ok(skipped);
    }
    let Some(lossy) = harness.losing_a_reply(&stage.store, 1).await else { return Ok(NO_HOOK) };
    let claims = lossy.named_claims().ok_or_else(|| stage.violation("named claims", "none"))?;
    if let Ok(claimed) = claims.claim(&relay("a"), &buckets([3]), at(0), LIMIT).await {
        let truthful = !claimed.leases.is_empty() || claimed.error.is_some();
        stage.ensure(truthful, "a claim that was carried out to be granted, or an error", &claimed)?;
    }
    let claims = stage.named_claims()?;
    let other = claims.claim(&relay("b"), &buckets([3]), at(1), LIMIT).await;
    let other = stage.succeeds("another's claim", other)?;
    stage.holds("another, of what was claimed", &other.leases, [])?;
    stage.release_strays("a").await?;
    all_free(&mut stage, "a", 2).await?;
    Ok(Ran::Passed)
}

/// A renewal whose reply was lost is no lost lease.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_a_renewal<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "replies::of_a_renewal").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    let Some(lossy) = harness.losing_a_reply(&stage.store, 1).await else { return Ok(NO_HOOK) };
    let renewal = lossy.renewal().ok_or_else(|| stage.violation("lease renewal", "none"))?;
    let renewed = renewal.renew(&relay("a"), lease, at(10), LIMIT).await;
    let truthful = renewed.as_ref().map_or(true, Option::is_some);
    stage.ensure(truthful, "a renewal that was carried out to hold the lease, or an error", &renewed)?;
    // Whatever the first said, the second finds the lease held.
    stage.renew("a", lease, at(10)).await?;
    stage.renew("a", lease, at(35)).await?;
    stage.audit(36).await?;
    Ok(Ran::Passed)
}

/// A release whose reply was lost has freed the bucket.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_a_release<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "replies::of_a_release").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 7)?;
    let Some(lossy) = harness.losing_a_reply(&stage.store, 1).await else { return Ok(NO_HOOK) };
    let ownership = lossy.ownership().ok_or_else(|| stage.violation("lease ownership", "none"))?;
    // An error is an answer too: the lease would lapse.
    let _ = ownership.release(&relay("a"), &[lease], LIMIT).await;
    stage.release("a", &[lease]).await?;
    let next = stage.acquire(Round::of("b", 1)).await?;
    stage.holds("the next owner", &next.leases, [7])?;
    stage.audit(2).await?;
    Ok(Ran::Passed)
}

/// A stop whose reply was lost, stamp or release, can be made again.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_a_stop<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    for write in [1, 2] {
        let mut stage = Stage::fresh(harness, "replies::of_a_stop").await?;
        if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
            return Ok(skipped);
        }
        let acquired = stage.acquire(Round::of("a", 0)).await?;
        let Some(lossy) = harness.losing_a_reply(&stage.store, write).await else { return Ok(NO_HOOK) };
        let ownership = lossy.ownership().ok_or_else(|| stage.violation("lease ownership", "none"))?;
        if ownership.stop(&relay("a"), &acquired.leases, at(1).now, LIMIT).await.is_err() {
            stage.stop("a", &acquired.leases, at(1).now).await?;
        }
        all_free(&mut stage, "a", 2).await?;
    }
    Ok(Ran::Passed)
}

/// An acquisition that loses the reply of its heartbeat, or of a claim, holds what it took; or it is an error, and made
/// good by the next.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_an_acquisition<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    for write in [1, 2, 5] {
        let stage = Stage::fresh(harness, "replies::of_an_acquisition").await?;
        let Some(lossy) = harness.losing_a_reply(&stage.store, write).await else { return Ok(NO_HOOK) };
        let none = buckets([]);
        if let Ok(acquired) = lossy.acquire(&Round::of("a", 0).request(&none)).await {
            let behind = "its own heartbeat not to be taken for a later one";
            stage.ensure(!acquired.clock_behind, behind, &acquired)?;
            if acquired.error.is_none() {
                stage.holds("the relay that lost a reply", &acquired.leases, 0..8)?;
            }
        }
        let none = buckets([]);
        let again = stage.store.acquire(&Round::of("a", 1).request(&none)).await;
        let again = stage.succeeds("the next acquisition", again)?;
        stage.holds("the relay, the next time", &again.leases, 0..8)?;
        // Held, and by the relay that believes so.
        let other = stage.store.acquire(&Round::of("b", 2).request(&none)).await;
        let other = stage.succeeds("another's acquisition", other)?;
        stage.holds("another", &other.leases, [])?;
    }
    Ok(Ran::Passed)
}

/// A delete whose reply was lost has deleted what it was given and nothing else, and can be repeated.
///
/// # Errors
/// The promise that was not kept.
pub async fn of_a_delete<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "replies::of_a_delete").await?;
    let put = stage.fill(3, 5).await?;
    let rows = stage.expect_messages(3, &put).await?;
    let Some(lossy) = harness.losing_a_reply(&stage.store, 1).await else { return Ok(NO_HOOK) };
    let first = rows.get(..2).unwrap_or_default();
    let _ = lossy.delete(Bucket::new(3), first, LIMIT).await;
    stage.expect_messages(3, put.get(2..).unwrap_or_default()).await?;
    stage.delete(3, first).await?;
    stage.expect_messages(3, put.get(2..).unwrap_or_default()).await?;
    Ok(Ran::Passed)
}
