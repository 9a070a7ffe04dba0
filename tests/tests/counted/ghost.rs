//! A relay that keeps its heartbeat fresh and its leases renewed, and publishes nothing.

use std::time::Duration;

use outbox::{Budget, Clock as _, LeaseTimes, OutboxStore as _};

use crate::support::{Bench, DURATION, Fake, INTERVAL, LIMIT, relay};

/// Its leases look healthy, and no peer may take them. What gives it away is the age of the oldest message.
#[tokio::test]
async fn a_relay_that_never_publishes_shows_in_the_age_of_the_oldest_message() {
    let bench = Bench::new().await;
    let times = || LeaseTimes { now: bench.clock.now_utc(), duration: DURATION };
    let ghost = relay("ghost");
    let all = bench.count.buckets().collect();
    let held = bench.acquire("ghost", times()).await.leases;
    assert_eq!(held.len(), 8);
    let created = bench.clock.now_utc();
    let id = bench.enqueue("21").await;
    let (backlog, renewal) = (bench.store.backlog().unwrap(), bench.store.renewal().unwrap());
    let publisher = Fake::instant();
    let mut ages = Vec::new();
    for _ in 0..6 {
        bench.clock.step_wall(i64::try_from(INTERVAL.as_millis()).unwrap());
        // It says that all its buckets are busy, and renews them.
        let acquired = bench.try_acquire(&ghost, times(), &all, &all).await.unwrap();
        assert_eq!(acquired.refused_writes, 0);
        for lease in &held {
            assert!(renewal.renew(&ghost, *lease, times(), LIMIT).await.unwrap().is_some());
        }
        let sample = backlog.sample(&all, LIMIT).await.unwrap();
        assert_eq!((sample.pending, sample.is_exact), (1, true));
        ages.push(bench.clock.now_utc().since(sample.oldest.unwrap()));
    }
    // A healthy peer can do nothing about it, and its run is over before the ghost's leases could lapse.
    let short = Budget::new(bench.clock.clone(), Duration::from_secs(7));
    let report = bench.relay(&publisher).sweep(&bench.relay_id(), &short).await;
    assert!(publisher.published().is_empty() && !report.held_elsewhere.is_empty(), "{report:?}");
    eprintln!("age of the oldest message while a ghost holds its bucket, every {INTERVAL:?}: {ages:.1?}");
    assert!(ages.windows(2).all(|pair| pair[1] >= pair[0] + INTERVAL), "the age stands still: {ages:?}");
    assert!(ages[5] >= Duration::from_mins(1), "{ages:?}");
    let oldest = backlog.sample(&all, LIMIT).await.unwrap().oldest.unwrap();
    assert!(oldest.since(created) < INTERVAL, "it is the message's own age, whoever was to publish it");

    // The ghost dies, and its bucket is served: the age is gone.
    bench.clock.step_wall(i64::try_from(DURATION.as_millis()).unwrap());
    bench.relay(&publisher).sweep(&bench.relay_id(), &bench.budget()).await;
    assert_eq!(publisher.published(), [id]);
    assert_eq!(backlog.sample(&all, LIMIT).await.unwrap().oldest, None);
}
