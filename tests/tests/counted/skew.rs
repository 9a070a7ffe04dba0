//! Clocks that differ. The margin is the lease's duration less its renewal interval: 20 s by default.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::{LeaseTimes, Ticks};

use crate::support::{Bench, DURATION, INTERVAL, NOW, numbers};

/// A wall clock that is ahead by `skew`.
fn ahead(now: Ticks, skew: Duration) -> LeaseTimes {
    LeaseTimes { now: now.plus(skew), duration: DURATION }
}

/// Rounds of two relays, one of them ahead by `skew`: what each held after each round. The one that is ahead looks just
/// before the other extends its leases: when they are at their oldest.
async fn rounds(bench: &Bench, skew: Duration, count: u32) -> Vec<(BTreeSet<u32>, BTreeSet<u32>)> {
    let mut held = Vec::new();
    for round in 0..count {
        let now = NOW.plus(INTERVAL * round);
        let true_time = bench.acquire("true", ahead(now, Duration::ZERO)).await;
        let ahead =
            bench.acquire("ahead", ahead(now.plus(INTERVAL - Duration::from_millis(100)), skew)).await;
        held.push((numbers(&true_time), numbers(&ahead)));
    }
    held
}

#[tokio::test]
async fn clocks_that_differ_by_less_than_the_margin_never_steal_and_make_no_refused_write() {
    for skew in [1, 10, 19] {
        let bench = Bench::new().await;
        let held = rounds(&bench, Duration::from_secs(skew), 60).await;
        let counts = bench.wire.counts();
        eprintln!("two relays {skew} s apart, 60 rounds: {} refused writes", counts.refused());
        assert_eq!(counts.refused(), 0, "{skew} s apart:\n{counts}");
        assert_eq!((held[2].0.len(), held[2].1.len()), (4, 4), "{skew} s apart: {:?}", held[2]);
        assert!(held[2..].iter().all(|round| *round == held[2]), "{skew} s apart: buckets changed hands");
    }
}

/// Beyond the margin the one that is ahead takes what it believes to be lapsed. That ends with one owner for each
/// bucket, and does not go back and forth.
#[tokio::test]
async fn clocks_that_differ_by_more_than_the_margin_make_no_lasting_double_owner() {
    for skew in [25, 31, 45, 600] {
        let bench = Bench::new().await;
        let held = rounds(&bench, Duration::from_secs(skew), 60).await;
        let counts = bench.wire.counts();
        let moves = held.windows(2).filter(|pair| pair[0] != pair[1]).count();
        eprintln!(
            "two relays {skew} s apart, 60 rounds: {moves} changes, {} refused writes",
            counts.refused()
        );
        let (true_time, ahead) = &held[59];
        assert!(true_time.is_disjoint(ahead), "{skew} s apart, both hold {true_time:?} and {ahead:?}");
        assert_eq!(true_time.len() + ahead.len(), 8, "{skew} s apart: a bucket has nobody");
        assert!(held[10..].iter().all(|round| *round == held[59]), "{skew} s apart: it goes on: {held:?}");
        assert!(moves <= 4, "{skew} s apart: {held:?}");
    }
}
