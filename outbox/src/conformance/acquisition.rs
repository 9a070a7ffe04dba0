//! Acquisition: fair share by the plan, and what a round leaves alone.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::Harness;
use super::model::{LAPSE, Round, just_before};
use super::report::{Ran, Violation};
use super::stage::{Stage, all_buckets, at, buckets, relay};
use crate::coordination::MAX_PRUNED;
use crate::{OutboxStore as _, fair_share};

/// A relay that is alone takes every bucket, and keeps them round by round.
///
/// # Errors
/// The promise that was not kept.
pub async fn takes_all_for_one_relay<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::takes_all_for_one_relay").await?;
    for seconds in [0, 10, 20, 49] {
        let acquired = stage.acquire(Round::of("a", seconds)).await?;
        stage.holds("the only relay", &acquired.leases, 0..8)?;
    }
    stage.audit(50).await?;
    Ok(Ran::Passed)
}

/// Relays that join one after another settle on the shares of [`fair_share`], disjoint and without a refused write.
///
/// # Errors
/// The promise that was not kept.
pub async fn shares_by_the_plan<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::shares_by_the_plan").await?;
    let ids = ["d", "b", "a", "e", "c"];
    let mut seconds = 0;
    for members in 1..=ids.len() {
        let members: Vec<&str> = ids.into_iter().take(members).collect();
        // Two rounds hand back and claim; in the third each must hold its share.
        let mut settled = Vec::new();
        for _ in 0..3 {
            settled.clear();
            for id in &members {
                seconds += 1;
                settled.push((*id, stage.acquire(Round::of(id, seconds)).await?));
            }
        }
        let held = settled.iter().map(|(id, acquired)| (relay(id), acquired.leases.len()));
        let counts = held.clone().filter_map(|(id, held)| Some((id, u32::try_from(held).ok()?))).collect();
        let active = members.iter().map(|id| relay(id)).collect();
        let shares = fair_share::shares(super::BUCKET_COUNT, &active, &counts);
        stage.equal(&format!("the shares of {members:?}"), &counts, &shares)?;
        let granted = settled.iter().flat_map(|(_, acquired)| &acquired.leases).map(|lease| lease.bucket);
        stage.equal("every bucket with one owner", &sorted(granted), &all_buckets().into_iter().collect())?;
    }
    stage.audit(seconds).await?;
    Ok(Ran::Passed)
}

/// Of what the plan gives it a relay takes what it wants. What it holds it keeps, wanted or not.
///
/// # Errors
/// The promise that was not kept.
pub async fn claims_only_what_is_wanted<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::claims_only_what_is_wanted").await?;
    let none = stage.acquire(Round::of("a", 0).wanting(BTreeSet::new())).await?;
    stage.holds("a relay that wants none", &none.leases, [])?;
    let some = stage.acquire(Round::of("a", 1).wanting(buckets([2, 5]))).await?;
    stage.holds("a relay that wants two", &some.leases, [2, 5])?;
    let more = stage.acquire(Round::of("a", 2).wanting(buckets([3]))).await?;
    stage.holds("a relay that wants another", &more.leases, [2, 3, 5])?;
    stage.audit(3).await?;
    Ok(Ran::Passed)
}

/// A bucket that another relay holds is not granted, up to the very tick in which its lease lapses.
///
/// # Errors
/// The promise that was not kept.
pub async fn passes_over_what_is_held<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::passes_over_what_is_held").await?;
    stage.acquire(Round::of("a", 0)).await?;
    let second = stage.acquire(Round::of("b", 1)).await?;
    stage.holds("a relay that finds all held", &second.leases, [])?;
    stage.equal("no bucket that is free", &second.available, &BTreeSet::new())?;
    let before = stage.acquire(Round::of("b", LAPSE).at(just_before(at(LAPSE)))).await?;
    stage.holds("a relay just before they lapse", &before.leases, [])?;
    let lapsed = stage.acquire(Round::of("b", LAPSE)).await?;
    stage.holds("a relay once they have lapsed", &lapsed.leases, 0..8)?;
    stage.audit(LAPSE + 1).await?;
    Ok(Ran::Passed)
}

/// A newcomer takes nothing where the split is as fair as it can be, whatever its id sorts as.
///
/// # Errors
/// The promise that was not kept.
pub async fn takes_nothing_from_a_fair_split<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::takes_nothing_from_a_fair_split").await?;
    let incumbents: Vec<String> = (0..8).map(|number| format!("m{number}")).collect();
    for seconds in 0..16 {
        for id in &incumbents {
            stage.acquire(Round::of(id, seconds)).await?;
        }
    }
    let newcomer = stage.acquire(Round::of("a", 16)).await?;
    stage.holds("a newcomer", &newcomer.leases, [])?;
    stage.equal("its place among those who wait", &newcomer.standby_rank, &Some(0))?;
    for (bucket, id) in (0..).zip(&incumbents) {
        let kept = stage.acquire(Round::of(id, 17)).await?;
        stage.holds(id, &kept.leases, [bucket])?;
    }
    stage.audit(18).await?;
    Ok(Ran::Passed)
}

/// A relay without a share is told how far back it waits.
///
/// # Errors
/// The promise that was not kept.
pub async fn ranks_those_who_wait<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::ranks_those_who_wait").await?;
    let ids: Vec<String> = (0..12).map(|number| format!("r{number:02}")).collect();
    for seconds in 0..12 {
        for id in &ids {
            stage.acquire(Round::of(id, seconds)).await?;
        }
    }
    for (number, id) in ids.iter().enumerate() {
        let acquired = stage.acquire(Round::of(id, 12)).await?;
        stage.equal(&format!("the standby rank of {id}"), &acquired.standby_rank, &number.checked_sub(8))?;
    }
    stage.audit(13).await?;
    Ok(Ran::Passed)
}

/// When a peer joins, what exceeds the share is freed by whoever holds it, and taken by the peer the next time.
///
/// # Errors
/// The promise that was not kept.
pub async fn hands_back_what_exceeds_the_share<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::hands_back_what_exceeds_the_share").await?;
    stage.acquire(Round::of("a", 0)).await?;
    stage.acquire(Round::of("b", 1)).await?;
    let first = stage.acquire(Round::of("a", 2)).await?;
    stage.holds("the first", &first.leases, 0..4)?;
    let second = stage.acquire(Round::of("b", 3)).await?;
    stage.holds("the second", &second.leases, 4..8)?;
    // What nobody has taken yet is another's by the plan.
    stage.acquire(Round::of("c", 4)).await?;
    let first = stage.acquire(Round::of("a", 5)).await?;
    stage.holds("the first of three", &first.leases, 0..3)?;
    let second = stage.acquire(Round::of("b", 6)).await?;
    stage.equal(
        "what a peer freed and what it hands back itself to be available",
        &second.available,
        &buckets([3, 7]),
    )?;
    stage.audit(7).await?;
    Ok(Ran::Passed)
}

/// A busy bucket's lease is left exactly as it is; where it exceeds the share it is named.
///
/// # Errors
/// The promise that was not kept.
pub async fn leaves_busy_buckets_alone<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::leaves_busy_buckets_alone").await?;
    stage.acquire(Round::of("a", 0)).await?;
    stage.acquire(Round::of("b", 1)).await?;
    let acquired = stage.acquire(Round::of("a", 2).busy_in(buckets([0, 7]))).await?;
    stage.holds("a relay, but for its busy buckets", &acquired.leases, 1..4)?;
    stage.equal("the busy bucket to hand back", &acquired.excess, &buckets([7]))?;
    let second = stage.acquire(Round::of("b", 3)).await?;
    stage.holds("the peer, but for the busy bucket", &second.leases, 4..7)?;
    // Neither freed nor extended: at the tick in which the first round's leases lapse, and not before.
    let before = stage.acquire(Round::of("b", LAPSE).at(just_before(at(LAPSE)))).await?;
    stage.holds("the peer before the busy lease lapses", &before.leases, 4..7)?;
    let lapsed = stage.acquire(Round::of("b", LAPSE)).await?;
    stage.holds("the peer once it has", &lapsed.leases, 4..8)?;
    stage.audit(LAPSE + 1).await?;
    Ok(Ran::Passed)
}

/// A relay that falls silent is counted for one lease duration; then its share goes to those who are left.
///
/// # Errors
/// The promise that was not kept.
pub async fn gives_out_a_crashed_relays_share<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::gives_out_a_crashed_relays_share").await?;
    for seconds in 0..3 {
        for id in ["a", "b"] {
            stage.acquire(Round::of(id, seconds)).await?;
        }
    }
    // `a` was heard last at 2.
    for seconds in [12, 22, 31] {
        let left = stage.acquire(Round::of("b", seconds)).await?;
        stage.holds("the relay that is left", &left.leases, 4..8)?;
    }
    let left = stage.acquire(Round::of("b", 2 + LAPSE)).await?;
    stage.holds("the relay that is left", &left.leases, 0..8)?;
    stage.audit(2 + LAPSE).await?;
    Ok(Ran::Passed)
}

/// A relay whose heartbeat would go back claims nothing, and moves no expiry backwards.
///
/// # Errors
/// The promise that was not kept.
pub async fn refuses_a_clock_that_is_behind<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::refuses_a_clock_that_is_behind").await?;
    stage.acquire(Round::of("a", 10).wanting(buckets([0, 1]))).await?;
    for seconds in [9, 5, -40] {
        let behind = stage.acquire(Round::of("a", seconds)).await?;
        stage.ensure(behind.clock_behind, "to be told that the clock is behind", &behind)?;
        stage.holds("a relay whose clock is behind", &behind.leases, [])?;
    }
    let before = stage.acquire(Round::of("b", 0).at(just_before(at(10 + LAPSE)))).await?;
    stage.holds("another, while the leases last", &before.leases, 4..8)?;
    let own = stage.acquire(Round::of("a", 10 + LAPSE)).await?;
    stage.ensure(!own.clock_behind, "a clock that has caught up to be taken", &own)?;
    stage.audit(11 + LAPSE).await?;
    Ok(Ran::Passed)
}

/// A round that is asked for again, because its reply was lost, finds its own heartbeat and its own leases.
///
/// # Errors
/// The promise that was not kept.
pub async fn takes_the_same_round_again<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "acquisition::takes_the_same_round_again").await?;
    for _ in 0..3 {
        let again = stage.acquire(Round::of("a", 0)).await?;
        stage.holds("the relay", &again.leases, 0..8)?;
    }
    stage.audit(1).await?;
    Ok(Ran::Passed)
}

/// Of relays that acquire at the same time no two are granted one bucket.
///
/// # Errors
/// The promise that was not kept.
pub async fn grants_nothing_twice_at_once<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let stage = Stage::fresh(harness, "acquisition::grants_nothing_twice_at_once").await?;
    let none = BTreeSet::new();
    let rounds: Vec<Round> = (0..12).map(|number| Round::of(&format!("r{number}"), number)).collect();
    let acquisitions = rounds.iter().map(|round| {
        let request = round.request(&none);
        let store = &stage.store;
        async move { store.acquire(&request).await }
    });
    let mut granted = Vec::new();
    for acquired in join_all(acquisitions).await {
        let acquired = stage.succeeds("an acquisition beside others", acquired)?;
        granted.extend(acquired.leases.iter().map(|lease| lease.bucket));
    }
    let granted = sorted(granted);
    let mut once = granted.clone();
    once.dedup();
    stage.equal("no bucket granted twice", &granted, &once)?;
    Ok(Ran::Passed)
}

/// Heartbeats of relays that crashed long ago are removed by whoever acquires, a bounded number a round; those of relays
/// that are alive stay.
///
/// # Errors
/// The promise that was not kept.
pub async fn prunes_old_heartbeats<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    const RELAYS: usize = 60;
    const ROUNDS: i64 = 4;
    let mut stage = Stage::fresh(harness, "acquisition::prunes_old_heartbeats").await?;
    if harness.heartbeats(&stage.store).await.is_none() {
        return Ok(Ran::Skipped { lacks: "heartbeats hook" });
    }
    for number in 0..RELAYS {
        stage.acquire(Round::of(&format!("r{number}"), 0).wanting(BTreeSet::new())).await?;
    }
    stage.ensure(RELAYS < MAX_PRUNED * 3, "three rounds to be enough", RELAYS)?;
    for round in 0..ROUNDS {
        for id in ["alive", "also alive"] {
            stage.acquire(Round::of(id, 11 * LAPSE + round)).await?;
        }
    }
    let left = harness.heartbeats(&stage.store).await;
    stage.equal("the heartbeats that are left", &left, &Some(2))?;
    stage.audit(12 * LAPSE).await?;
    Ok(Ran::Passed)
}

fn sorted(buckets: impl IntoIterator<Item = crate::Bucket>) -> Vec<crate::Bucket> {
    let mut buckets: Vec<_> = buckets.into_iter().collect();
    buckets.sort_unstable();
    buckets
}
