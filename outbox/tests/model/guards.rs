//! The guards of the protocol, each of which a test takes away to see that the model finds out.

/// One thing that the protocol does so that nothing goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A claim is conditional on the lease as it was read.
    ClaimVersion,
    /// A keep is conditional on the owner and the version.
    KeepVersion,
    /// A renewal is conditional on the owner, on not having expired, and on going forward.
    RenewCondition,
    /// A release is conditional on the owner and the version.
    ReleaseCondition,
    /// A release is conditional on the version, and not on the owner alone.
    ReleaseVersion,
    /// A heartbeat moves strictly forward.
    StrictHeartbeat,
    /// The stop stamp is written before the leases are freed.
    StopBeforeFreeing,
    /// The leases are read back after the stop, and what a late claim took is handed back.
    ReadBackAfterStop,
    /// Whoever frees a bucket at the end of its work reads its head once more.
    RereadAfterRelease,
    /// It does so, and takes the bucket again, also where its own turn brought nothing through.
    RereadAfterEmptyTurn,
    /// So does a sweep with what its stop frees.
    RereadAfterStop,
    /// A sweep that hands a bucket back waits to see it taken.
    WaitAfterHandBack,
    /// A publish starts under a fresh lease only; under one that is due, after a renewal.
    FreshBeforePublish,
    /// The lease is looked at again between the fetch and the publish.
    RecheckAfterFetch,
    /// A renewal that took long is not taken for fresh.
    RecheckAfterRenewal,
    /// The age of a lease counts from before it was asked for.
    AgeFromBeforeAsking,
    /// A round plans for all members, and not for its own relay alone.
    CommonPlan,
    /// A refused write that finds itself done has succeeded.
    OwnAttempt,
    /// Nothing is deleted under a lease that has lapsed.
    DeleteUnderLease,
}
