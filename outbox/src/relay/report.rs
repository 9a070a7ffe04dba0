//! What a run did: values for logs, metrics and the function's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use super::durations::Durations;
use super::failure::Failures;
use super::sampling::BacklogSample;
use crate::publisher::{PublishError, PublishErrorKind};
use crate::{Bucket, StoreError};

/// What one run did.
#[derive(Debug, Default)]
pub struct RunReport {
    /// What was done in each bucket that the run owned for a time.
    pub buckets: BTreeMap<Bucket, BucketReport>,
    /// Buckets with work that another relay held: that one sees to them.
    pub held_elsewhere: BTreeSet<Bucket>,
    /// What failed outside any one bucket: probes, acquisition, release.
    pub errors: Vec<RunError>,
    /// The relay's clock is behind what it announced or others saw: it claimed nothing.
    pub clock_behind: bool,
    /// Conditional writes that were refused.
    pub refused_writes: u32,
    /// Buckets that a sweep leaves with work in them, and free, because its time is over.
    pub unfinished: BTreeSet<Bucket>,
    /// Further sweeps that were asked for, beside this one and to go on after it.
    pub workers: usize,
    /// A sweep's: the store has said which buckets have work. What fails after that does not mean that it is away.
    pub probed: bool,
    /// How long each call of the publisher took.
    pub publishes: Durations,
    /// How much waited before this run did anything about it, in a run that was to sample it.
    pub backlog: BacklogSample,
    /// How many keys were parked, in all buckets, before this run did anything. `None`: it was not to look, or nobody
    /// knows.
    pub parked_keys: Option<u64>,
}

/// What was done in one bucket.
#[derive(Debug, Default)]
pub struct BucketReport {
    /// Records that the broker acknowledged.
    pub acknowledged: u64,
    /// Messages that were deleted.
    pub deleted: u64,
    /// Messages that were not acknowledged when they were sent.
    pub failed: u64,
    /// Messages that can never be published, as they are: their keys wait.
    pub malformed: u64,
    /// Messages that were set aside, to be redriven by somebody.
    pub quarantined: u64,
    /// Those that were not acknowledged and those that can never be, by what became of them.
    pub failures: Failures,
    /// How often its lease was lost while the bucket was worked on.
    pub lease_losses: u64,
    /// How the bucket's run ended.
    pub end: BucketEnd,
    /// Why, if it was not for want of messages.
    pub error: Option<RunError>,
}

/// How the run of one bucket ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketEnd {
    /// No message is left.
    #[default]
    Empty,
    /// Only messages are left that wait.
    Waiting,
    /// Its turn was over; it is taken up again.
    TurnOver,
    /// The deadline was near. A later run goes on.
    OutOfTime,
    /// The store cannot renew leases, and too little of this one was left for a whole publish. It is acquired anew.
    LeaseTooShort,
    /// Another relay has it, or may have.
    LeaseLost,
    /// The broker or the store is not available. A later run tries again.
    RetryLater,
    /// It fails until somebody changes a setting, a table or a permission.
    Misconfigured,
}

/// A failure of a store or of the publisher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The publisher failed.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A publish took longer than the bound that the relay was given for stores that cannot renew a lease. Nothing that
    /// rests on the bound holds any more: this relay starts no further run.
    #[error(
        "a publish took {took:?}, longer than its bound of {bound:?} (max_publish_duration): the bound is wrong"
    )]
    PublishOutlastedBound {
        /// The bound.
        bound: std::time::Duration,
        /// How long it took.
        took: std::time::Duration,
    },
}

impl RunError {
    /// Whether only a change of settings, table or permissions helps.
    pub fn is_misconfiguration(&self) -> bool {
        match self {
            Self::Store(error) => error.is_misconfiguration(),
            Self::Publish(error) => error.kind() == PublishErrorKind::Misconfigured,
            Self::PublishOutlastedBound { .. } => true,
        }
    }
}

impl RunReport {
    /// The first failure that only a change of settings, table or permissions mends: what an invocation ends in.
    pub fn misconfiguration(&self) -> Option<&(dyn Error + 'static)> {
        let of_buckets = self.buckets.values().filter_map(|report| report.error.as_ref());
        let first = self.errors.iter().chain(of_buckets).find(|error| error.is_misconfiguration())?;
        Some(match first {
            RunError::Store(error) => error,
            RunError::Publish(error) => error,
            RunError::PublishOutlastedBound { .. } => first,
        })
    }

    /// Records acknowledged in all buckets.
    pub fn acknowledged(&self) -> u64 {
        self.buckets.values().map(|report| report.acknowledged).sum()
    }

    /// Messages deleted in all buckets.
    pub fn deleted(&self) -> u64 {
        self.buckets.values().map(|report| report.deleted).sum()
    }

    /// Messages set aside in all buckets.
    pub fn quarantined(&self) -> u64 {
        self.buckets.values().map(|report| report.quarantined).sum()
    }

    /// Leases lost in all buckets.
    pub fn lease_losses(&self) -> u64 {
        self.buckets.values().map(|report| report.lease_losses).sum()
    }

    /// Buckets in which only messages are left that wait.
    pub fn waiting_buckets(&self) -> usize {
        self.buckets.values().filter(|report| report.end == BucketEnd::Waiting).count()
    }

    /// What was not acknowledged in all buckets.
    pub fn failures(&self) -> Failures {
        let mut total = Failures::default();
        self.buckets.values().for_each(|report| total.append(&report.failures));
        total
    }

    /// Notes a failure outside any one bucket. The first ones are kept; a long run must not collect them without end.
    pub(super) fn note(&mut self, error: RunError) {
        const KEPT: usize = 32;
        if self.errors.len() < KEPT || error.is_misconfiguration() && self.misconfiguration().is_none() {
            self.errors.push(error);
        }
    }

    /// Adds what one turn of a bucket did to what earlier turns of this run did.
    pub(super) fn add(&mut self, bucket: Bucket, turn: BucketReport) {
        let total = self.buckets.entry(bucket).or_default();
        total.acknowledged += turn.acknowledged;
        total.deleted += turn.deleted;
        total.failed += turn.failed;
        total.malformed += turn.malformed;
        total.quarantined += turn.quarantined;
        total.failures.append(&turn.failures);
        total.lease_losses += turn.lease_losses;
        total.end = turn.end;
        if turn.error.is_some() {
            total.error = turn.error;
        }
    }
}
