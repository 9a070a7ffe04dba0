//! What it costs to tell how much waits.

use std::time::Duration;

use outbox::relay::BacklogSample;
use outbox::{OutboxStore as _, PoisonPolicy, RelayOptions};

use crate::kind::Kind;
use crate::support::{Bench, Fake, LIMIT};

/// A key of each bucket.
fn keys(bench: &Bench) -> Vec<String> {
    let of = |bucket| {
        let mut keys = (0..).map(|n: u32| n.to_string());
        keys.find(|key| bench.count.of_key(key.as_bytes()) == bucket).unwrap()
    };
    bench.count.buckets().map(of).collect()
}

/// One request for each bucket that has work, and none for the others; another sweep beside it makes none at all.
#[tokio::test]
async fn a_sample_is_one_request_for_each_bucket_with_work() {
    let bench = Bench::new().await;
    let publisher = Fake::instant();
    for sampling in [true, false] {
        for key in &keys(&bench)[..3] {
            bench.enqueue_many(key, 20).await;
        }
        let before = bench.wire.counts();
        let relay = bench.relay(&publisher);
        let (id, budget) = (bench.relay_id(), bench.budget());
        let report = match sampling {
            true => relay.sampling_sweep(&id, &budget).await,
            false => relay.sweep(&id, &budget).await,
        };
        let counts = bench.wire.counts().since(&before);
        eprintln!("a sweep that finds work in three buckets, and samples: {sampling}:\n{counts}");
        assert_eq!(report.deleted(), 60);
        assert_eq!(counts.of(Kind::Backlog).requests, if sampling { 3 } else { 0 }, "{counts}");
        if sampling {
            let BacklogSample::Known { pending, is_exact, oldest_age } = report.backlog else {
                panic!("{report:?}");
            };
            assert_eq!((pending, is_exact), (60, true));
            assert!(oldest_age.unwrap() < Duration::from_mins(1), "{oldest_age:?}");
        }
    }
}

/// Large messages in many buckets: the counting ends at its bound, each bucket's head is looked at all the same, and the
/// number is still one to go by.
#[tokio::test]
async fn a_sample_of_large_buckets_costs_no_more_than_its_bound() {
    const BUCKETS: u32 = 16;
    let bench = Bench::with_buckets(BUCKETS).await;
    for key in keys(&bench) {
        let messages: Vec<_> = (0..6).map(|_| bench.message(&key).with_value(vec![b'v'; 200_000])).collect();
        bench.enqueue_all(&messages).await;
    }
    let all = bench.count.buckets().collect();
    let (before, metered) = (bench.wire.counts(), bench.usage());
    let sample = bench.store.backlog().unwrap().sample(&all, LIMIT).await.unwrap();
    let (counts, used) = (bench.wire.counts().since(&before), bench.usage().since(&metered));
    eprintln!("a sample of {BUCKETS} buckets of 1.2 MB: {sample:?}\n{counts}");
    assert_eq!(counts.requests(), u64::from(BUCKETS), "{counts}");
    // A head of 200 KB is 25 units, and so is its probe.
    let heads = 25.0 * f64::from(BUCKETS);
    assert!(used.read_units() <= 1_024.0 + heads, "{} units: {counts}", used.read_units());
    assert!(!sample.is_exact && sample.oldest.is_some());
    assert!((8 * 5 + 8..96).contains(&sample.pending), "{sample:?}");
}

/// With the policy to set messages aside, a look at how many keys are parked is all that is added.
#[tokio::test]
async fn parked_keys_cost_an_idle_sweep_one_read() {
    let bench = Bench::new().await;
    let mut options = RelayOptions::default();
    options.poison_policy = PoisonPolicy::Quarantine;
    let relay = bench.relay_with(&Fake::instant(), options);
    let report = relay.sampling_sweep(&bench.relay_id(), &bench.budget()).await;
    let counts = bench.wire.counts();
    assert_eq!(report.parked_keys, Some(0));
    assert_eq!((counts.requests(), counts.of(Kind::Coordination).requests), (9, 1), "{counts}");
    assert!(counts.read_units() <= 5.0, "{counts}");
}
