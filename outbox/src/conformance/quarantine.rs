//! The quarantine: what is set aside, what follows it, and how often something was tried.

use super::Harness;
use super::report::{Ran, Violation};
use super::stage::{LIMIT, Needs, Row, Stage, at, buckets, relay, request};
use crate::quarantine::{Move, Moved, Parking, Why};
use crate::store::Claimed;
use crate::{Bucket, Lease};

const NEEDS: &[Needs] = &[Needs::Quarantine, Needs::NamedClaims, Needs::Ownership, Needs::IndividualDeletes];

/// A message that is set aside is among its bucket's messages no more; its key is parked, the lease is extended by the same
/// write, and whoever claims the bucket next is told that it has parked keys.
///
/// # Errors
/// The promise that was not kept.
pub async fn moves_poison_and_parks_its_key<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "quarantine::moves_poison_and_parks_its_key").await?;
    if let Some(skipped) = stage.lacks(NEEDS) {
        return Ok(skipped);
    }
    let messages = stage.fill(2, 3).await?;
    let rows = stage.expect_messages(2, &messages).await?;
    let lease = claim(&stage, "a", 0).await?;
    let moved = park(&stage, "a", lease, &[poison(&rows[1])]).await?;
    stage.equal("what was moved", &moved.rows, &vec![rows[1].clone()])?;
    let extended = moved.lease.is_some_and(|extended| extended.expires_at > lease.expires_at);
    stage.ensure(extended, "a move to extend the lease", moved.lease)?;
    stage.expect_messages(2, &[messages[0].clone(), messages[2].clone()]).await?;

    let parked = stage.quarantine()?.parked(Bucket::new(2), LIMIT).await;
    let parked = stage.succeeds("a look at the parked keys", parked)?;
    let expected = messages[1].key.clone().map(|key| (key, Parking::Parked));
    stage.equal("the parked keys", &parked, &expected.into_iter().collect())?;
    let again = park(&stage, "a", moved.lease.unwrap_or(lease), &[poison(&rows[1])]).await?;
    let counted = stage.quarantine()?.count_parked(LIMIT).await;
    stage.equal("how many keys are parked", &stage.succeeds("a count of parked keys", counted)?, &1)?;
    stage.equal("what is moved a second time", &again.rows, &vec![rows[1].clone()])?;

    let leases: Vec<Lease> = again.lease.into_iter().collect();
    let released = stage.ownership()?.release(&relay("a"), &leases, LIMIT).await;
    stage.succeeds("a release", released)?;
    let next = claims(&stage, "b", 1).await?;
    stage.equal("who is told of parked keys", &next.parked, &buckets([2]))?;
    Ok(Ran::Passed)
}

/// What comes later with a parked key can be set aside too; what has a key that is not parked stays.
///
/// # Errors
/// The promise that was not kept.
pub async fn follows_parked_keys_alone<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "quarantine::follows_parked_keys_alone").await?;
    if let Some(skipped) = stage.lacks(NEEDS) {
        return Ok(skipped);
    }
    let messages = stage.fill(2, 3).await?;
    let rows = stage.expect_messages(2, &messages).await?;
    let lease = claim(&stage, "a", 0).await?;
    let moved = park(&stage, "a", lease, &[follows(&rows[0])]).await?;
    stage.equal("what follows a key that is not parked", &moved.rows, &Vec::new())?;
    stage.expect_messages(2, &messages).await?;
    let lease = moved.lease.unwrap_or(lease);
    let all = [poison(&rows[0]), follows(&rows[1]), follows(&rows[2])];
    let moved = park(&stage, "a", lease, &all).await?;
    stage.equal("what follows a parked key", &moved.rows, &rows)?;
    stage.expect_messages(2, &[]).await?;
    Ok(Ran::Passed)
}

/// Nothing is set aside for a relay that has lost its lease.
///
/// # Errors
/// The promise that was not kept.
pub async fn moves_nothing_under_a_lost_lease<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "quarantine::moves_nothing_under_a_lost_lease").await?;
    if let Some(skipped) = stage.lacks(NEEDS) {
        return Ok(skipped);
    }
    let messages = stage.fill(2, 1).await?;
    let rows = stage.expect_messages(2, &messages).await?;
    let lease = claim(&stage, "a", 0).await?;
    // It has lapsed, and another has claimed it.
    claim(&stage, "b", 100).await?;
    let moved = stage.quarantine()?.park(&relay("a"), lease, at(101), &[poison(&rows[0])], LIMIT).await;
    stage.ensure(moved.lease.is_none() && moved.rows.is_empty(), "a lost lease to be lost", &moved)?;
    stage.expect_messages(2, &messages).await?;
    let parked = stage.quarantine()?.parked(Bucket::new(2), LIMIT).await;
    let parked = stage.succeeds("a look at the parked keys", parked)?;
    stage.ensure(parked.is_empty(), "no key to be parked", parked.len())?;
    Ok(Ran::Passed)
}

/// Attempts add up, at messages that are there; what is gone does not come back by it.
///
/// # Errors
/// The promise that was not kept.
pub async fn counts_attempts<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "quarantine::counts_attempts").await?;
    if let Some(skipped) = stage.lacks(NEEDS) {
        return Ok(skipped);
    }
    let messages = stage.fill(2, 3).await?;
    let rows = stage.expect_messages(2, &messages).await?;
    stage.delete(2, &rows[..1]).await?;
    for _ in 0..2 {
        let counted = stage.quarantine()?.count_attempts(Bucket::new(2), &rows[..2], LIMIT).await;
        stage.succeeds("a count of attempts", counted)?;
    }
    stage.expect_messages(2, &messages[1..]).await?;
    let fetched = stage.fetch(request(2, 10)).await?;
    let attempts: Vec<u32> = fetched.messages.iter().map(|stored| stored.attempts).collect();
    stage.equal("the attempts", &attempts, &vec![2, 0])?;
    Ok(Ran::Passed)
}

fn poison<Row: Clone>(row: &Row) -> Move<Row> {
    Move { row: row.clone(), why: Why::Poison { reason: "it is too large".to_owned(), was_sent: true } }
}

fn follows<Row: Clone>(row: &Row) -> Move<Row> {
    Move { row: row.clone(), why: Why::KeyIsParked }
}

async fn claims<H: Harness>(stage: &Stage<'_, H>, id: &str, seconds: i64) -> Result<Claimed, Violation> {
    let claimed = stage.named_claims()?.claim(&relay(id), &buckets([2]), at(seconds), LIMIT).await;
    stage.succeeds("a claim", claimed)
}

async fn claim<H: Harness>(stage: &Stage<'_, H>, id: &str, seconds: i64) -> Result<Lease, Violation> {
    let claimed = claims(stage, id, seconds).await?;
    let lease = claimed.leases.first().copied();
    lease.ok_or_else(|| stage.violation("a free bucket to be claimed", format!("{claimed:?}")))
}

/// Sets aside, one second after the start.
async fn park<H: Harness>(
    stage: &Stage<'_, H>,
    id: &str,
    lease: Lease,
    moves: &[Move<Row<H>>],
) -> Result<Moved<Row<H>>, Violation> {
    let mut moved = stage.quarantine()?.park(&relay(id), lease, at(1), moves, LIMIT).await;
    let error = moved.error.take();
    stage.succeeds("a move to the quarantine", error.map_or(Ok(()), Err))?;
    Ok(moved)
}
