//! A healthy fleet makes no refused conditional write (invariant 5), and its coordination stays small.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outbox::LeaseTimes;
use outbox::store::Acquired;

use crate::kind::Kind;
use crate::support::{Bench, DURATION, INTERVAL, NOW, numbers};

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:03}")).collect()
}

/// Whether every bucket is held once, and no relay holds more or less than the fair share.
fn is_settled(round: &BTreeMap<String, Acquired>, buckets: usize) -> bool {
    let held: BTreeSet<u32> = round.values().flat_map(numbers).collect();
    let (floor, ceiling) = (buckets / round.len(), buckets.div_ceil(round.len()));
    let fair = |acquired: &Acquired| (floor..=ceiling).contains(&acquired.leases.len());
    held.len() == buckets && round.values().all(fair) && held_in_all(round) == buckets
}

fn held_in_all(round: &BTreeMap<String, Acquired>) -> usize {
    round.values().map(|acquired| acquired.leases.len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_relays_and_eight_buckets_make_no_refused_write_in_a_hundred_rounds() {
    let bench = Bench::new().await;
    let ids = ids("r", 3);
    let mut now = NOW;
    let mut settled_after = 0;
    while !is_settled(&bench.round(&ids, now).await, 8) {
        settled_after += 1;
        assert!(settled_after < 3, "not settled after three rounds");
        now = now.plus(INTERVAL);
    }
    let (settling, metered) = (bench.wire.counts(), bench.usage());
    for round in 0..100 {
        now = now.plus(INTERVAL);
        let held = bench.round(&ids, now).await;
        assert!(is_settled(&held, 8), "round {round}: {held:?}");
        assert!(held.values().all(|acquired| acquired.refused_writes == 0), "round {round}: {held:?}");
    }
    let counts = bench.wire.counts().since(&settling);
    eprintln!(
        "3 relays, 8 buckets: settled after {} rounds with {} refused writes; then 100 rounds:\n{counts}",
        settled_after + 1,
        settling.refused()
    );
    assert_eq!(counts.refused(), 0, "refused writes in 100 rounds of 3 relays and 8 buckets:\n{counts}");
    assert_eq!(
        bench.usage().since(&metered).failed_conditions(),
        0,
        "refused writes by the database's own meter"
    );
    // A heartbeat and a read for each relay, and one extension for each bucket: nothing is claimed or handed back.
    let requests = [Kind::Heartbeat, Kind::Coordination, Kind::Keep].map(|kind| counts.of(kind).requests);
    assert_eq!((requests, counts.requests()), ([300, 300, 800], 1_400), "{counts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_relays_that_join_at_once_settle_within_three_rounds() {
    let bench = Bench::with_buckets(256).await;
    let ids = ids("r", 64);
    let mut now = NOW;
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let before = bench.wire.counts();
        let held = bench.round(&ids, now).await;
        let counts = bench.wire.counts().since(&before);
        rounds.push((held_in_all(&held), counts.refused()));
        eprintln!("256 buckets, 64 relays, round {}: {} held\n{counts}", rounds.len(), held_in_all(&held));
        now = now.plus(INTERVAL);
        if is_settled(&held, 256) {
            break;
        }
    }
    assert_eq!(rounds.last().map(|(held, _)| *held), Some(256), "(held, refused) of each round: {rounds:?}");
    let settling = bench.wire.counts();
    for round in 0..5 {
        let held = bench.round(&ids, now).await;
        assert!(is_settled(&held, 256), "round {round} after settling");
        now = now.plus(INTERVAL);
    }
    let counts = bench.wire.counts().since(&settling);
    eprintln!(
        "256 buckets, 64 relays, settled after {} rounds {rounds:?} (held, refused); then 5 rounds:\n{counts}",
        rounds.len()
    );
    assert_eq!(counts.refused(), 0, "refused writes in 5 rounds of 64 relays and 256 buckets:\n{counts}");
    let requests = [Kind::Heartbeat, Kind::Coordination, Kind::Keep].map(|kind| counts.of(kind).requests);
    assert_eq!((requests, counts.requests()), ([320, 320, 1_280], 1_920), "{counts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_whose_id_sorts_first_takes_nothing_from_a_fair_split() {
    let bench = Bench::new().await;
    // Three hold 3, 3 and 2 of 8; with a fourth that would be 2 each, so that is no fair split for four. Eight hold one
    // each, and with a ninth it is still one each for eight of them.
    let mut ids = ids("m", 8);
    let mut now = NOW;
    for _ in 0..3 {
        bench.round(&ids, now).await;
        now = now.plus(INTERVAL);
    }
    let before = bench.round(&ids, now).await;
    assert!(is_settled(&before, 8), "{before:?}");
    ids.insert(0, "a-newcomer".to_owned());
    let settled = bench.wire.counts();
    for _ in 0..5 {
        now = now.plus(INTERVAL);
        let held = bench.round(&ids, now).await;
        assert!(held["a-newcomer"].leases.is_empty(), "the newcomer took {:?}", held["a-newcomer"].leases);
        assert_eq!(held["a-newcomer"].standby_rank, Some(0));
        for (id, acquired) in &before {
            assert_eq!(numbers(&held[id]), numbers(acquired), "{id} holds other buckets than before");
        }
    }
    let counts = bench.wire.counts().since(&settled);
    eprintln!("a newcomer beside 8 relays of 8 buckets, 5 rounds:\n{counts}");
    let moved = [Kind::Claim, Kind::Release].map(|kind| counts.of(kind).requests);
    assert_eq!((moved, counts.refused()), ([0, 0], 0), "claims, releases and refused writes:\n{counts}");
}

/// Each takes part once and dies, with no word to anybody: as functions do that are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_relays_killed_one_after_another_leave_a_bounded_coordination() {
    let bench = Bench::new().await;
    let mut most_records = 0;
    for (nth, id) in (0_u32..).zip(ids("dead", 500)) {
        let now = NOW.plus(Duration::from_secs(2) * nth);
        bench.acquire(&id, LeaseTimes { now, duration: DURATION }).await;
        if nth % 25 == 24 {
            let items = bench.partition("OUTBOX#COORDINATION").await;
            let relays = items.iter().filter(|item| item["SK"].as_s().unwrap().starts_with("RELAY#"));
            most_records = most_records.max(relays.count());
        }
    }
    let counts = bench.wire.counts();
    let reads = counts.of(Kind::Coordination);
    eprintln!("500 relays killed, one each 2 s: at most {most_records} relay records\n{counts}");
    // A crashed relay's record is kept for ten lease durations, 300 s: that is 150 of them.
    assert!((140..=152).contains(&most_records), "{most_records} relay records after 500 relays");
    assert_eq!(reads.requests, 500, "one page for each coordination read:\n{counts}");
    assert!(reads.units <= 500.0 * 4.0, "{} read units for 500 reads", reads.units);
    assert!(counts.of(Kind::Prune).requests <= 500, "{counts}");
    assert_eq!(counts.refused(), 0, "{counts}");
}
