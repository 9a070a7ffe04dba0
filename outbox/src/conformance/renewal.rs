//! Renewal: of what is held, while it is held, never backwards.

use super::Harness;
use super::model::{LAPSE, Round, just_before};
use super::report::{Ran, Violation};
use super::stage::{Needs, Stage, at, buckets};

/// The owner's renewal extends the lease to now plus its duration; another's does nothing.
///
/// # Errors
/// The promise that was not kept.
pub async fn extends_its_own<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::extends_its_own").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0).wanting(buckets([3, 5]))).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    let renewed = stage.renew("a", lease, at(10)).await?;
    stage.equal("the renewed expiry", &renewed.map(|lease| lease.expires_at), &Some(at(10).expires_at()))?;
    let stranger = stage.renew("b", lease, at(11)).await?;
    stage.equal("what is renewed for another", &stranger, &None)?;
    // Both leases were taken at 0; one was renewed at 10. The owner is not heard again.
    let other = stage.acquire(Round::of("b", LAPSE)).await?;
    stage.holds("another once the rest has lapsed", &other.leases, [0, 1, 2, 4, 5, 6, 7])?;
    let other = stage.acquire(Round::of("b", 10 + LAPSE)).await?;
    stage.holds("another once all has", &other.leases, 0..8)?;
    stage.audit(11 + LAPSE).await?;
    Ok(Ran::Passed)
}

/// A lease that another relay has taken is lost, and stays the other's.
///
/// # Errors
/// The promise that was not kept.
pub async fn ends_where_another_took_over<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::ends_where_another_took_over").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let first = stage.acquire(Round::of("a", 0)).await?;
    let lost = stage.lease_of(&first.leases, 3)?;
    let second = stage.acquire(Round::of("b", LAPSE)).await?;
    let taken = stage.lease_of(&second.leases, 3)?;
    // Also with a clock by which the old lease would still last.
    for times in [at(LAPSE + 1), at(LAPSE - 1)] {
        let renewed = stage.renew("a", lost, times).await?;
        stage.equal("what is renewed of a lost lease", &renewed, &None)?;
    }
    let renewed = stage.renew("b", taken, at(LAPSE + 2)).await?;
    stage.ensure(renewed.is_some(), "the new owner to hold it still", renewed)?;
    stage.audit(LAPSE + 3).await?;
    Ok(Ran::Passed)
}

/// A lease that has lapsed is lost, though nobody has claimed it: somebody may be about to.
///
/// # Errors
/// The promise that was not kept.
pub async fn ends_once_the_lease_has_lapsed<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::ends_once_the_lease_has_lapsed").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    for times in [at(LAPSE), at(LAPSE + 100)] {
        let lapsed = stage.renew("a", lease, times).await?;
        stage.equal("what is renewed of a lapsed lease", &lapsed, &None)?;
    }
    let in_time = stage.renew("a", stage.lease_of(&acquired.leases, 4)?, just_before(at(LAPSE))).await?;
    stage.ensure(in_time.is_some(), "a renewal in the last tick to be in time", in_time)?;
    stage.audit(LAPSE).await?;
    Ok(Ran::Passed)
}

/// A renewal by a clock that has gone back leaves the lease as it is: held, until its later expiry.
///
/// # Errors
/// The promise that was not kept.
pub async fn never_moves_backwards<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::never_moves_backwards").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    let renewed = stage.renew("a", lease, at(20)).await?;
    for seconds in [19, 5, -100] {
        let back = stage.renew("a", lease, at(seconds)).await?;
        stage.equal("the lease as it was", &back, &renewed)?;
    }
    let other = stage.acquire(Round::of("b", 19 + LAPSE)).await?;
    stage.holds("another, before the later expiry", &other.leases, [0, 1, 2, 4, 5, 6, 7])?;
    stage.audit(20 + LAPSE).await?;
    Ok(Ran::Passed)
}

/// A renewal goes by owner and time, not by the version that the relay knows: one whose reply was lost has moved it on.
///
/// # Errors
/// The promise that was not kept.
pub async fn goes_on_after_an_unanswered_one<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::goes_on_after_an_unanswered_one").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    for seconds in [10, 10, 20, 45] {
        let renewed = stage.renew("a", lease, at(seconds)).await?;
        let expiry = renewed.map(|lease| lease.expires_at);
        stage.equal("the renewed expiry", &expiry, &Some(at(seconds).expires_at()))?;
    }
    stage.audit(50).await?;
    Ok(Ran::Passed)
}

/// What has been released is not renewed any more, though it is nobody's yet.
///
/// # Errors
/// The promise that was not kept.
pub async fn ends_with_a_release<H: Harness>(harness: &H) -> Result<Ran, Violation> {
    let mut stage = Stage::fresh(harness, "renewal::ends_with_a_release").await?;
    if let Some(skipped) = stage.lacks(&[Needs::Renewal, Needs::Ownership]) {
        return Ok(skipped);
    }
    let acquired = stage.acquire(Round::of("a", 0)).await?;
    let lease = stage.lease_of(&acquired.leases, 3)?;
    stage.release("a", &[lease]).await?;
    let late = stage.renew("a", lease, at(1)).await?;
    stage.equal("what is renewed of a released lease", &late, &None)?;
    stage.audit(2).await?;
    Ok(Ran::Passed)
}
