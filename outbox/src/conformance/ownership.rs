//! Giving leases up: releases, strays, stops.

use super::Harness;
use super::model::{LAPSE, Round};
use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Stage, at, buckets, relay};
use crate::Bucket;

/// A released bucket can be taken at once, and its version never goes back: whoever takes it next gets a later one, by
/// any clock.
///
/// # Errors
/// The promise that was not kept.
pub async fn releases_at_once_and_keeps_the_version<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::releases_at_once_and_keeps_the_version").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let freed = [stage.lease_of(&acquired.leases, 6)?, stage.lease_of(&acquired.leases, 7)?];
    stage.release("a", &freed).await?;
    stage.release("a", &freed).await?;
    stage.release("a", &[]).await?;
    let next = stage.acquire(Round::of("b", -20).wanting(buckets([6, 7]))).await?;
    stage.holds("the next owner", &next.leases, [6, 7])?;
    for (before, after) in freed.iter().zip(&next.leases) {
        let later = after.expires_at > before.expires_at;
        stage.ensure(later, "a later version than the one released", (before, after))?;
    }
    stage.audit(1).await?;
    Ok(Ran::Passed)
}

/// A release of what another relay has by now is no error, and frees nothing.
///
/// # Errors
/// The promise that was not kept.
pub async fn releases_nothing_of_anothers<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::releases_nothing_of_anothers").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    let first = stage.acquire(Round::of("a", 0)).await?;
    let second = stage.acquire(Round::of("b", LAPSE)).await?;
    stage.holds("the next owner", &second.leases, 0..8)?;
    stage.release("a", &first.leases).await?;
    // Not even under the very version that the other has.
    stage.release("a", &second.leases).await?;
    stage.release_strays("a").await?;
    let third = stage.acquire(Round::of("c", LAPSE + 1)).await?;
    stage.holds("a third", &third.leases, [])?;
    stage.audit(LAPSE + 2).await?;
    Ok(Ran::Passed)
}

/// A renewal whose reply was lost has moved the version on: the lease is released all the same.
///
/// # Errors
/// The promise that was not kept.
pub async fn releases_after_an_unanswered_renewal<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::releases_after_an_unanswered_renewal").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership, Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 7)?;
    stage.renew("a", lease, at(10)).await?;
    stage.release("a", &[lease]).await?;
    let next = stage.acquire(Round::of("b", 11)).await?;
    stage.holds("the next owner", &next.leases, [7])?;
    stage.audit(12).await?;
    Ok(Ran::Passed)
}

/// Whatever names the relay is found and freed, and nothing else: it need not know what it holds.
///
/// # Errors
/// The promise that was not kept.
pub async fn finds_strays<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::finds_strays").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    for seconds in 0..3 {
        for id in ["a", "b"] {
            stage.acquire(Round::of(id, seconds)).await?;
        }
    }
    stage.release_strays("a").await?;
    stage.release_strays("a").await?;
    stage.release_strays("nobody").await?;
    // A third finds the first's free, and the second's not; and wants none of them.
    let third = stage.acquire(Round::of("c", 3).wanting(buckets([6, 7]))).await?;
    stage.holds("a third", &third.leases, [])?;
    let second = stage.acquire(Round::of("b", 3)).await?;
    stage.holds("the other", &second.leases, 4..7)?;
    // Its strays were freed; its membership goes on, and with it its share.
    stage.equal("what was freed, and what it hands back", &second.available, &buckets([0, 1, 2, 3, 7]))?;
    stage.audit(4).await?;
    Ok(Ran::Passed)
}

/// A stop ends the membership and frees every lease, those too that the relay does not know of; and a heartbeat that was
/// sent before it and lands behind it is refused.
///
/// # Errors
/// The promise that was not kept.
pub async fn stops_for_good<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::stops_for_good").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let known = acquired.leases.get(..5).unwrap_or_default();
    let stamp = at(1).now;
    stage.stop("a", known, stamp).await?;
    for late in [0, 1] {
        let acquired = stage.acquire(Round::of("a", late)).await?;
        stage.ensure(acquired.clock_behind, "a late heartbeat to be refused", &acquired)?;
    }
    // Nobody leaves it a share, and nothing is its own.
    let peer = stage.acquire(Round::of("b", 2)).await?;
    stage.holds("the peer", &peer.leases, 0..8)?;
    // One that has nothing, or is unknown, stops too.
    stage.stop("a", known, at(3).now).await?;
    stage.stop("nobody", &[], at(3).now).await?;
    let peer = stage.acquire(Round::of("b", 4)).await?;
    stage.holds("the peer", &peer.leases, 0..8)?;
    stage.audit(5).await?;
    Ok(Ran::Passed)
}

/// A claim that lands behind the stop took a bucket for a relay that is gone: it is found and handed back.
///
/// # Errors
/// The promise that was not kept.
pub async fn hands_back_what_a_late_claim_took<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::hands_back_what_a_late_claim_took").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership, Needs::NamedClaims]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    stage.stop("a", &acquired.leases, at(1).now).await?;
    let late = stage.claim("a", buckets([2, 3]), at(0)).await?;
    stage.holds("the relay that is gone", &late, [2, 3])?;
    stage.release_strays("a").await?;
    let peer = stage.acquire(Round::of("b", 1).wanting(buckets([2, 3]))).await?;
    stage.holds("the peer, of what was taken late", &peer.leases, [2, 3])?;
    stage.claim("a", buckets([4]), at(0)).await?;
    stage.stop("a", &[], at(2).now).await?;
    let peer = stage.acquire(Round::of("b", 2)).await?;
    stage.holds("the peer", &peer.leases, 0..8)?;
    stage.audit(3).await?;
    Ok(Ran::Passed)
}

/// A stopped relay's record stays for one lease duration, for a late heartbeat to be refused by; then whoever acquires
/// removes it.
///
/// # Errors
/// The promise that was not kept.
pub async fn keeps_the_stamp_for_one_duration<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "ownership::keeps_the_stamp_for_one_duration").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    if harness.heartbeats(&stage.store).await.is_none() {
        return Ok(Ran::Skipped { lacks: "heartbeats hook" });
    }
    for id in ["a", "b", "c"] {
        stage.acquire(Round::of(id, 0)).await?;
        stage.stop(id, &[], at(1).now).await?;
    }
    for (seconds, expected) in [(LAPSE, 4), (LAPSE + 1, 1)] {
        stage.acquire(Round::of("alive", seconds)).await?;
        let left = harness.heartbeats(&stage.store).await;
        stage.equal("the heartbeats that are stored", &left, &Some(expected))?;
    }
    stage.audit(LAPSE + 2).await?;
    Ok(Ran::Passed)
}

/// The look at a bucket after its release sees what was committed before it.
///
/// # Errors
/// The promise that was not kept.
pub async fn sees_a_message_at_once<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "ownership::sees_a_message_at_once").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Ownership]) {
        return Ok(skipped);
    }
    for _ in 0..20 {
        looks(&stage, 3, false).await?;
        let put = stage.put(stage.message(3)).await?;
        looks(&stage, 3, true).await?;
        looks(&stage, 4, false).await?;
        let rows = stage.expect_messages(3, &[put]).await?;
        stage.delete(3, &rows).await?;
    }
    Ok(Ran::Passed)
}

async fn looks<H: Harness>(stage: &Stage<'_, H>, bucket: u32, expected: bool) -> Result<(), Violation> {
    let found = stage.ownership()?.has_message(Bucket::new(bucket), LIMIT).await;
    let found = stage.succeeds("a look at a bucket", found)?;
    stage.equal(&format!("whether bucket {bucket} has a message"), &found, &expected)
}

/// That every lease is free for a newcomer: what remains to be seen after a call whose reply was lost.
pub(super) async fn all_free<H: Harness>(
    stage: &mut Stage<'_, H>,
    gone: &str,
    seconds: i64,
) -> Result<(), Violation> {
    stage.note_stopped(&relay(gone), at(seconds).now);
    let next = stage.acquire(Round::of("next", seconds)).await?;
    stage.holds("the next relay", &next.leases, 0..8)
}
