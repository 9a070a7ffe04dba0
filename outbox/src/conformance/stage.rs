//! What the scenarios share: one fresh store, messages for it, and times.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use super::model::Model;
use super::report::{Ran, Violation};
use super::{BUCKET_COUNT, Harness};
use crate::quarantine::Quarantine;
use crate::store::{BacklogMetrics, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal, NamedClaims};
use crate::{Bucket, Chain, Chance, LeaseTimes, Message, MessageId, OutboxStore, RelayId, StoreError, Ticks};

/// What every store call may take: long enough for any store that works.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// The time that the scenarios count from.
const START: Ticks = Ticks::from_raw(639_316_345_534_567_890);
/// How long leases last.
pub(super) const DURATION: Duration = Duration::from_secs(30);
/// More than any scenario puts into a bucket.
const ALL: usize = 1_000;

/// The times of a lease that is asked for so many seconds after the start, or before it.
pub(super) fn at(seconds: i64) -> LeaseTimes {
    let apart = Duration::from_secs(seconds.unsigned_abs());
    let now = if seconds < 0 { START.minus(apart) } else { START.plus(apart) };
    LeaseTimes { now, duration: DURATION }
}

pub(super) fn buckets(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<Bucket> {
    numbers.into_iter().map(Bucket::new).collect()
}

pub(super) fn all_buckets() -> BTreeSet<Bucket> {
    BUCKET_COUNT.buckets().collect()
}

#[expect(clippy::expect_used, reason = "the scenarios' own names are neither empty nor too long")]
pub(super) fn relay(id: &str) -> RelayId {
    RelayId::new(id).expect("a relay id of a scenario")
}

/// One scenario with its own store.
pub(super) struct Stage<'h, H: Harness> {
    pub(super) scenario: &'static str,
    pub(super) harness: &'h H,
    pub(super) store: H::Store,
    /// What the store's leases and heartbeats must be now.
    pub(super) model: Model,
    chance: Chance,
}

/// What a scenario cannot do without.
#[derive(Clone, Copy, Debug)]
pub(super) enum Needs {
    Renewal,
    Ownership,
    NamedClaims,
    Backlog,
    Quarantine,
    IndividualDeletes,
}

impl<'h, H: Harness> Stage<'h, H> {
    pub(super) async fn fresh(harness: &'h H, scenario: &'static str) -> Result<Self, Violation> {
        let store = harness.fresh().await.map_err(|error| Violation {
            scenario,
            expected: "a fresh store from the harness".to_owned(),
            found: Chain(error.as_ref()).to_string(),
        })?;
        Ok(Self { scenario, harness, store, model: Model::default(), chance: Chance::seeded(1) })
    }

    /// Why the scenario is to be skipped, if it is.
    pub(super) fn lacks(&self, needs: &[Needs]) -> Option<Ran> {
        let lacks = needs.iter().find_map(|need| match need {
            Needs::Renewal => self.store.renewal().is_none().then_some("lease renewal"),
            Needs::Ownership => self.store.ownership().is_none().then_some("lease ownership"),
            Needs::NamedClaims => self.store.named_claims().is_none().then_some("named claims"),
            Needs::Backlog => self.store.backlog().is_none().then_some("backlog metrics"),
            Needs::Quarantine => self.store.quarantine().is_none().then_some("quarantine"),
            Needs::IndividualDeletes => (!self.store.deletes_individually()).then_some("individual deletes"),
        })?;
        Some(Ran::Skipped { lacks })
    }

    pub(super) fn violation(&self, expected: impl Into<String>, found: impl Into<String>) -> Violation {
        Violation { scenario: self.scenario, expected: expected.into(), found: found.into() }
    }

    /// That what was found is what was expected; `what` says of what.
    pub(super) fn equal<T: Debug + PartialEq>(
        &self,
        what: &str,
        found: &T,
        expected: &T,
    ) -> Result<(), Violation> {
        if found == expected {
            return Ok(());
        }
        Err(self.violation(format!("{what}: {expected:?}"), format!("{found:?}")))
    }

    /// That `what` holds.
    pub(super) fn ensure(&self, holds: bool, what: &str, found: impl Debug) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(self.violation(what, format!("{found:?}"))) }
    }

    /// That a call which nothing speaks against succeeds.
    pub(super) fn succeeds<T>(&self, what: &str, result: Result<T, StoreError>) -> Result<T, Violation> {
        result.map_err(|error| self.violation(format!("{what} to succeed"), Chain(&error).to_string()))
    }

    fn capable<'s, T: ?Sized>(&self, what: &str, capability: Option<&'s T>) -> Result<&'s T, Violation> {
        capability.ok_or_else(|| self.violation(format!("the store to go on having {what}"), "none"))
    }

    pub(super) fn renewal(&self) -> Result<&dyn LeaseRenewal, Violation> {
        self.capable("lease renewal", self.store.renewal())
    }

    pub(super) fn ownership(&self) -> Result<&dyn LeaseOwnership, Violation> {
        self.capable("lease ownership", self.store.ownership())
    }

    pub(super) fn named_claims(&self) -> Result<&dyn NamedClaims, Violation> {
        self.capable("named claims", self.store.named_claims())
    }

    pub(super) fn backlog(&self) -> Result<&dyn BacklogMetrics, Violation> {
        self.capable("backlog metrics", self.store.backlog())
    }

    pub(super) fn quarantine(&self) -> Result<&dyn Quarantine<Row<H>>, Violation> {
        self.capable("a quarantine", self.store.quarantine())
    }

    pub(super) fn chance(&self, below: u64) -> u64 {
        self.chance.below(below)
    }

    pub(super) fn message_id(&self) -> MessageId {
        self.chance.message_id(START)
    }

    /// A message that belongs into this bucket.
    pub(super) fn message(&self, bucket: u32) -> Message {
        let keys = (0..u32::MAX).map(|number| number.to_string());
        let key = keys.into_iter().find(|key| BUCKET_COUNT.of_key(key.as_bytes()).number() == bucket);
        Message::new(self.message_id(), "orders").with_key(key.unwrap_or_default()).with_value("value")
    }

    pub(super) async fn put(&self, message: Message) -> Result<Message, Violation> {
        let Some(bucket) = message.bucket(BUCKET_COUNT) else {
            return Err(self.violation("messages of the suite to have a bucket", "one that has none"));
        };
        let put = self.harness.put(&self.store, bucket, message.clone()).await;
        let failed = |error: super::HarnessError| {
            self.violation("the harness to put a message", Chain(error.as_ref()).to_string())
        };
        put.map_err(failed)?;
        Ok(message)
    }

    /// Puts so many messages into a bucket, one after another.
    pub(super) async fn fill(&self, bucket: u32, count: usize) -> Result<Vec<Message>, Violation> {
        let mut put = Vec::with_capacity(count);
        for _ in 0..count {
            put.push(self.put(self.message(bucket)).await?);
        }
        Ok(put)
    }

    pub(super) async fn fetch(
        &self,
        request: FetchRequest<'_, Row<H>>,
    ) -> Result<Fetched<Row<H>>, Violation> {
        let fetched = self.succeeds("a fetch", self.store.fetch(&request).await)?;
        self.ensure(fetched.fault.is_none(), "a fetch without a fault", &fetched.fault)?;
        let malformed = fetched.messages.iter().find_map(|stored| stored.message.as_ref().err());
        self.ensure(malformed.is_none(), "messages that can be read", malformed)?;
        Ok(fetched)
    }

    /// Fetches all messages of a bucket, and checks that they are these, whole and in this order.
    pub(super) async fn expect_messages(
        &self,
        bucket: u32,
        expected: &[Message],
    ) -> Result<Vec<Row<H>>, Violation> {
        let fetched = self.fetch(request(bucket, ALL)).await?;
        self.equal(&format!("the messages of bucket {bucket}"), &ids(&fetched), &ids_of(expected))?;
        for (stored, expected) in fetched.messages.iter().zip(expected) {
            let same = stored.message.as_ref().is_ok_and(|message| message == expected);
            self.ensure(same, "a message as it was put", &stored.message)?;
        }
        self.ensure(!fetched.more, "no more than all messages", fetched.more)?;
        Ok(fetched.messages.into_iter().map(|stored| stored.row).collect())
    }

    pub(super) async fn delete(&self, bucket: u32, rows: &[Row<H>]) -> Result<(), Violation> {
        self.succeeds("a delete", self.store.delete(Bucket::new(bucket), rows, LIMIT).await)
    }
}

/// What the harness's store knows its messages by.
pub(super) type Row<H> = <<H as Harness>::Store as OutboxStore>::Row;

pub(super) fn request<Row>(bucket: u32, max_messages: usize) -> FetchRequest<'static, Row> {
    FetchRequest {
        bucket: Bucket::new(bucket),
        max_messages,
        max_bytes: 64 << 20,
        removed_up_to: None,
        limit: LIMIT,
    }
}

pub(super) fn ids<Row>(fetched: &Fetched<Row>) -> Vec<MessageId> {
    fetched.messages.iter().filter_map(|stored| stored.message.as_ref().ok()).map(|m| m.id).collect()
}

pub(super) fn ids_of(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id).collect()
}
