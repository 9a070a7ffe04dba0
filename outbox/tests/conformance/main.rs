//! The conformance suite over the store in memory, and over stores that break one promise each: it must be able to fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod broken;
mod fault;
mod faulty;
mod faulty_capabilities;

use outbox::conformance::{self, Harness, HarnessError, Report, SCENARIOS};
use outbox::memory::MemoryStore;
use outbox::{Bucket, Message};

/// What the suite needs besides the store in memory itself.
struct InMemory<F>(F);

impl<F: Fn() -> MemoryStore + Sync> Harness for InMemory<F> {
    type Store = MemoryStore;

    async fn fresh(&self) -> Result<MemoryStore, HarnessError> {
        Ok((self.0)())
    }

    async fn put(&self, store: &MemoryStore, _: Bucket, message: Message) -> Result<(), HarnessError> {
        Ok(store.enqueue(message, conformance::BUCKET_COUNT)?)
    }

    async fn heartbeats(&self, store: &MemoryStore) -> Option<usize> {
        Some(store.coordination().heartbeats.len())
    }
}

async fn run(make: impl Fn() -> MemoryStore + Sync) -> Report {
    let report = conformance::run_all(&InMemory(make)).await;
    println!("{report}");
    assert_eq!(report.scenarios.len(), SCENARIOS.len());
    assert_eq!(report.violations().next(), None, "{report}");
    report
}

/// The scenarios that were skipped, without those that need a hook.
fn lacking(report: &Report) -> Vec<&'static str> {
    report.skipped().filter(|(_, lacks)| !lacks.ends_with("hook")).map(|(name, _)| name).collect()
}

#[tokio::test]
async fn the_store_in_memory_keeps_the_contract() {
    let report = run(MemoryStore::new).await;
    assert_eq!(lacking(&report), [""; 0]);
    let hooks = ["backlog::is_an_error_where_it_is_unknown"];
    let replies = SCENARIOS.iter().copied().filter(|name| name.starts_with("replies::"));
    let expected: Vec<_> = hooks.into_iter().chain(replies).collect();
    assert_eq!(report.skipped().map(|(name, _)| name).collect::<Vec<_>>(), expected);
}

/// What a store lacks is skipped by name; the rest of the contract is asked of it all the same.
#[tokio::test]
async fn a_store_that_can_do_less_is_asked_for_less() {
    let report = run(|| MemoryStore::new().without_renewal()).await;
    assert!(lacking(&report).iter().all(|name| name.contains("renewal")), "{report}");
    assert_eq!(lacking(&report).len(), 8, "{report}");

    let report = run(|| MemoryStore::new().without_quarantine()).await;
    assert!(lacking(&report).iter().all(|name| name.starts_with("quarantine::")), "{report}");
    assert_eq!(lacking(&report).len(), 4, "{report}");

    let report = run(|| MemoryStore::new().deleting_prefixes_only()).await;
    let lacks = |name: &&str| !name.starts_with("quarantine::");
    assert_eq!(
        lacking(&report).into_iter().filter(lacks).collect::<Vec<_>>(),
        ["messages::are_deleted_one_by_one"]
    );

    let least = || MemoryStore::new().without_renewal().without_ownership().deleting_prefixes_only();
    let report = run(least).await;
    let ran = |name: &&str| name.starts_with("messages::") || name.starts_with("acquisition::");
    assert_eq!(report.passed().filter(ran).count(), 21, "{report}");
    assert!(report.passed().any(|name| name == "random::calls_agree_with_the_model"));
}

/// A harness that has a runtime of its own can spawn the suite on it.
#[tokio::test]
async fn the_suite_can_be_spawned() {
    let run = tokio::spawn(async { conformance::run_all(&InMemory(MemoryStore::new)).await });
    assert_eq!(run.await.unwrap().violations().next(), None);
}

/// Each scenario can be called by itself.
#[tokio::test]
async fn a_scenario_runs_alone() {
    let ran = conformance::claims::have_one_winner_each(&InMemory(MemoryStore::new)).await;
    assert_eq!(ran, Ok(conformance::Ran::Passed));
}
