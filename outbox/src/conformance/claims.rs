//! Claims by name: hinted runs.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::Harness;
use super::model::{LAPSE, Round, just_before};
use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Stage, all_buckets, at, buckets, relay};

/// A claim takes those of the named buckets that are free, and no others.
///
/// # Errors
/// The promise that was not kept.
pub async fn take_what_is_free<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "claims::take_what_is_free").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims]) {
        return Ok(skipped);
    }
    stage.claim("a", buckets([]), at(0)).await?;
    let claimed = stage.claim("a", buckets([3, 5]), at(0)).await?;
    stage.holds("whoever claims", &claimed, [3, 5])?;
    stage.audit(1).await?;
    Ok(Ran::Passed)
}

/// A bucket that is held is passed over, by whoever holds it.
///
/// # Errors
/// The promise that was not kept.
pub async fn pass_over_what_is_held<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "claims::pass_over_what_is_held").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims]) {
        return Ok(skipped);
    }
    stage.claim("a", buckets([3, 5]), at(0)).await?;
    stage.acquire(Round::of("m", 0).wanting(buckets([6]))).await?;
    let claimed = stage.claim("b", buckets([3, 4, 6]), just_before(at(LAPSE))).await?;
    stage.holds("the second", &claimed, [4])?;
    let again = stage.claim("a", buckets([3]), at(1)).await?;
    stage.holds("the holder, a second time", &again, [])?;
    stage.audit(2).await?;
    Ok(Ran::Passed)
}

/// A lease is free from the very tick in which it lapses.
///
/// # Errors
/// The promise that was not kept.
pub async fn take_what_has_lapsed<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "claims::take_what_has_lapsed").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims]) {
        return Ok(skipped);
    }
    stage.claim("a", buckets([3, 5]), at(0)).await?;
    let claimed = stage.claim("b", buckets([3]), at(LAPSE)).await?;
    stage.holds("the second", &claimed, [3])?;
    // Its own that has lapsed can be claimed too.
    let claimed = stage.claim("a", buckets([3, 5]), at(LAPSE)).await?;
    stage.holds("the first, once more", &claimed, [5])?;
    stage.audit(LAPSE + 1).await?;
    Ok(Ran::Passed)
}

/// Whoever claims by name holds the buckets and has no share: peers leave the buckets alone, and divide the rest among
/// themselves.
///
/// # Errors
/// The promise that was not kept.
pub async fn are_no_members<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "claims::are_no_members").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims]) {
        return Ok(skipped);
    }
    stage.claim("hinted", buckets([0, 3]), at(0)).await?;
    let peer = stage.acquire(Round::of("a", 1)).await?;
    stage.holds("the only member", &peer.leases, [1, 2, 4, 5, 6, 7])?;
    stage.equal("no standby rank", &peer.standby_rank, &None)?;
    stage.audit(2).await?;
    Ok(Ran::Passed)
}

/// A claim's expiry is later than the one it found, also by a clock that is behind: a version never recurs.
///
/// # Errors
/// The promise that was not kept.
pub async fn make_later_versions<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "claims::make_later_versions").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims, Needs::Ownership]) {
        return Ok(skipped);
    }
    let mut version = None;
    for seconds in [0, 0, -1, -1_000, 5] {
        let claimed = stage.claim("a", buckets([3]), at(seconds)).await?;
        let lease = stage.lease_of(&claimed, 3)?;
        stage.ensure(Some(lease.expires_at) > version, "a later version", (version, lease))?;
        version = Some(lease.expires_at);
        stage.release("a", &claimed).await?;
    }
    stage.audit(6).await?;
    Ok(Ran::Passed)
}

/// Of many that claim at once each bucket has one winner, who can be sure of it.
///
/// # Errors
/// The promise that was not kept.
pub async fn have_one_winner_each<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    const CLAIMANTS: u32 = 24;
    let stage = Stage::fresh(harness, "claims::have_one_winner_each").await?;
    if let Some(skipped) = stage.lacks(&[Needs::NamedClaims]) {
        return Ok(skipped);
    }
    let claims = stage.named_claims()?;
    let all = all_buckets();
    // First of buckets that nobody ever held, then of buckets whose leases have lapsed.
    for times in [at(0), at(LAPSE)] {
        let relays: Vec<_> = (0..CLAIMANTS).map(|number| relay(&format!("r{number}"))).collect();
        let race = relays.iter().map(|relay| claims.claim(relay, &all, times, LIMIT));
        let mut winners = BTreeMap::new();
        for (claimant, claimed) in relays.iter().zip(join_all(race).await) {
            let claimed = stage.succeeds("a claim beside others", claimed)?;
            stage.succeeds("every claim beside others", claimed.error.map_or(Ok(()), Err))?;
            for lease in claimed.leases {
                let other = winners.insert(lease.bucket, claimant);
                let what = format!("one winner of bucket {}", lease.bucket);
                stage.ensure(other.is_none(), &what, (other, claimant))?;
            }
        }
        stage.equal("a winner of every bucket", &winners.keys().copied().collect(), &all)?;
    }
    Ok(Ran::Passed)
}
