//! The conformance suite: what the contract asks of a store, as scenarios that any store can run.
//!
//! Implement [`Harness`] for the store: how to make an empty one, and how to put a message into it. Then [`run_all`], in
//! a test:
//!
//! ```
//! # use outbox::conformance::{self, Harness, HarnessError};
//! # use outbox::{Bucket, Message, memory::MemoryStore};
//! struct InMemory;
//!
//! impl Harness for InMemory {
//!     type Store = MemoryStore;
//!
//!     async fn fresh(&self) -> Result<MemoryStore, HarnessError> {
//!         Ok(MemoryStore::new())
//!     }
//!
//!     async fn put(&self, store: &MemoryStore, _: Bucket, message: Message) -> Result<(), HarnessError> {
//!         Ok(store.enqueue(message, conformance::BUCKET_COUNT)?)
//!     }
//! }
//!
//! # futures::executor::block_on(async {
//! let report = conformance::run_all(&InMemory).await;
//! println!("{report}");
//! assert!(report.violations().next().is_none(), "{report}");
//! # });
//! ```
//!
//! [`crate::custom_store`] has a whole store, and the suite over it.
//!
//! The report names every scenario: passed, violated, or skipped because the store lacks a capability or the harness a
//! hook. A scenario can be run by itself: `conformance::messages::come_in_committed_order(&InMemory)`.
//!
//! How it looks: the suite keeps a model of the leases and heartbeats ([`crate::coordination`]), carries every call out
//! on it too, by the pure functions of [`crate::lease_write`] and [`crate::lease_plan`], and compares what the store
//! answered with what follows from the model. Nothing but the contract is used to look at the store. Times are values,
//! and nothing sleeps: hours pass in a moment. Nothing here ends a call that hangs: run it under a test runner that does.

use std::error::Error;
use std::future::Future;

use crate::{Bucket, BucketCount, Message, OutboxStore};

pub mod acquisition;
pub mod backlog;
pub mod claims;
pub mod messages;
mod model;
pub mod ownership;
pub mod quarantine;
pub mod random;
pub mod renewal;
pub mod replies;
mod report;
mod stage;

pub use report::{Ran, Report, Violation};

/// How many buckets the outboxes of the suite have: a fresh store must be set up for as many.
pub const BUCKET_COUNT: BucketCount = BucketCount::DEFAULT;

/// What a harness failed with.
pub type HarnessError = Box<dyn Error + Send + Sync>;

/// How the suite gets at a store. Two methods that every store has, and hooks without which some scenarios are skipped.
pub trait Harness: Sync {
    /// The store under test.
    type Store: OutboxStore;

    /// A store with nothing in it (no message, lease or heartbeat), with [`BUCKET_COUNT`] buckets. Each scenario asks for
    /// one, and none sees what another has written: a key prefix or a schema of its own is enough.
    fn fresh(&self) -> impl Future<Output = Result<Self::Store, HarnessError>> + Send;

    /// Commits a message to the outbox. `bucket` is [`Message::bucket`] of it; messages of one bucket are committed one
    /// after another, and that is the order in which they are to be fetched.
    fn put(
        &self,
        store: &Self::Store,
        bucket: Bucket,
        message: Message,
    ) -> impl Future<Output = Result<(), HarnessError>> + Send;

    /// The same outbox through a store that loses a reply: its write number `write`, counted from 1, is carried out and
    /// its sender does not learn of it. Whatever lies beneath the store may send it again, as an SDK does.
    ///
    /// `None`: the harness cannot do that.
    fn losing_a_reply(
        &self,
        store: &Self::Store,
        write: usize,
    ) -> impl Future<Output = Option<Self::Store>> + Send {
        let _ = (store, write);
        async { None }
    }

    /// A store that cannot reach its database. `None`: the harness has none.
    fn unreachable(&self) -> impl Future<Output = Option<Self::Store>> + Send {
        async { None }
    }

    /// How many heartbeats (or what the store keeps instead) are stored. `None`: the harness cannot tell.
    fn heartbeats(&self, store: &Self::Store) -> impl Future<Output = Option<usize>> + Send {
        let _ = store;
        async { None }
    }
}

macro_rules! scenarios {
    ($($module:ident: $($scenario:ident),+;)+) => {
        /// The names of all scenarios, in the order in which [`run_all`] runs them.
        pub const SCENARIOS: &[&str] =
            &[$($(concat!(stringify!($module), "::", stringify!($scenario)),)+)+];

        /// Runs every scenario, whatever becomes of the others.
        pub async fn run_all<H: Harness>(harness: &H) -> Report {
            let mut report = Report::default();
            // Boxed: all of them together would make one very large future.
            $($(
                let name = concat!(stringify!($module), "::", stringify!($scenario));
                report.add(name, Box::pin($module::$scenario(harness)).await);
            )+)+
            report
        }
    };
}

scenarios! {
    messages:
        come_in_committed_order,
        come_back_as_they_were_put,
        are_seen_at_once,
        are_fetched_up_to_a_number,
        are_fetched_up_to_a_size,
        are_deleted_alone,
        are_deleted_one_by_one,
        drain_in_order,
        are_pending;
    acquisition:
        takes_all_for_one_relay,
        shares_by_the_plan,
        claims_only_what_is_wanted,
        passes_over_what_is_held,
        takes_nothing_from_a_fair_split,
        ranks_those_who_wait,
        hands_back_what_exceeds_the_share,
        leaves_busy_buckets_alone,
        gives_out_a_crashed_relays_share,
        refuses_a_clock_that_is_behind,
        takes_the_same_round_again,
        grants_nothing_twice_at_once,
        prunes_old_heartbeats;
    renewal:
        extends_its_own,
        ends_where_another_took_over,
        ends_once_the_lease_has_lapsed,
        never_moves_backwards,
        goes_on_after_an_unanswered_one,
        ends_with_a_release;
    ownership:
        releases_at_once_and_keeps_the_version,
        releases_nothing_of_anothers,
        releases_after_an_unanswered_renewal,
        finds_strays,
        stops_for_good,
        keeps_the_stamp_for_one_duration,
        hands_back_what_a_late_claim_took,
        sees_a_message_at_once;
    claims:
        take_what_is_free,
        pass_over_what_is_held,
        take_what_has_lapsed,
        are_no_members,
        make_later_versions,
        have_one_winner_each;
    backlog:
        counts_and_dates_what_waits,
        is_an_error_where_it_is_unknown;
    quarantine:
        moves_poison_and_parks_its_key,
        follows_parked_keys_alone,
        moves_nothing_under_a_lost_lease,
        counts_attempts;
    replies:
        of_a_claim,
        of_a_renewal,
        of_a_release,
        of_a_stop,
        of_an_acquisition,
        of_a_delete;
    random:
        calls_agree_with_the_model;
}
