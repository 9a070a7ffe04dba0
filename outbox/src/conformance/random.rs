//! Every lease call, in an order that nobody thought of.

use std::collections::BTreeSet;

use super::Harness;
use super::model::Round;
use super::report::{Ran, Violation};
use super::stage::{Stage, at, relay};
use crate::{Bucket, Lease, OutboxStore as _};

/// How many calls are made.
const CALLS: usize = 400;
/// How many relays make them: more than there are buckets, so that some have to wait.
const RELAYS: u64 = 10;

/// Acquisitions, claims, renewals, releases and stops of many relays, in a seeded random order and with clocks that are
/// apart, are answered as the model answers them. What the store lacks is left out.
///
/// # Errors
/// The promise that was not kept.
pub async fn calls_agree_with_the_model<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "random::calls_agree_with_the_model").await?;
    let mut seconds = 0_i64;
    for _ in 0..CALLS {
        // Now and then everything lapses.
        seconds += i64::try_from(stage.chance(4)).unwrap_or(0) + if stage.chance(40) == 0 { 29 } else { 0 };
        let id = format!("r{}", stage.chance(RELAYS));
        let behind = i64::try_from(stage.chance(20)).unwrap_or(0).saturating_sub(10).max(0);
        let times = at(seconds - behind);
        match stage.chance(10) {
            0 if stage.store.named_claims().is_some() => {
                let wanted = some_buckets(&stage);
                stage.claim(&id, wanted, times).await?;
            }
            1 | 2 if stage.store.renewal().is_some() => {
                if let Some(lease) = one_lease(&stage, &id) {
                    stage.renew(&id, lease, times).await?;
                }
            }
            3 if stage.store.ownership().is_some() => {
                let leases: Vec<Lease> = one_lease(&stage, &id).into_iter().collect();
                stage.release(&id, &leases).await?;
            }
            4 if stage.store.ownership().is_some() && stage.chance(3) == 0 => {
                // Later than any heartbeat it sent: none is ahead of the common clock.
                stage.stop(&id, &[], at(seconds).now.next()).await?;
            }
            5 if stage.store.ownership().is_some() && stage.chance(3) == 0 => {
                stage.release_strays(&id).await?;
            }
            6 => {
                let wanted = some_buckets(&stage);
                stage.acquire(Round::of(&id, 0).at(times).wanting(wanted)).await?;
            }
            7 => {
                let held = stage.model.held_by(&relay(&id));
                let busy = held.iter().map(|lease| lease.bucket).filter(|_| stage.chance(2) == 0).collect();
                stage.acquire(Round::of(&id, 0).at(times).busy_in(busy)).await?;
            }
            _ => drop(stage.acquire(Round::of(&id, 0).at(times)).await?),
        }
    }
    stage.audit(seconds).await?;
    Ok(Ran::Passed)
}

fn some_buckets<H: Harness>(stage: &Stage<'_, H>) -> BTreeSet<Bucket> {
    super::BUCKET_COUNT.buckets().filter(|_| stage.chance(2) == 0).collect()
}

/// One of the leases that name a relay; now and then one that it does not hold.
fn one_lease<H: Harness>(stage: &Stage<'_, H>, id: &str) -> Option<Lease> {
    let who = if stage.chance(4) == 0 { format!("r{}", stage.chance(RELAYS)) } else { id.to_owned() };
    let held = stage.model.held_by(&relay(&who));
    let count = u64::try_from(held.len()).unwrap_or(0);
    held.get(usize::try_from(stage.chance(count)).ok()?).copied()
}
