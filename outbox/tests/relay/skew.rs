//! Two relays whose clocks differ. The margin is the lease's duration less its renewal interval: 20 s by default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outbox::memory::MemoryStore;
use outbox::{Bucket, BucketCount, Continuous, MessageId, RelayId, RelayOptions, RunReport};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::Bench;

/// Two relays over one outbox, each with a clock and a publisher of its own.
struct Pair {
    benches: [Arc<Bench>; 2],
    stop: CancellationToken,
    runs: Vec<JoinHandle<RunReport>>,
    sent: Vec<MessageId>,
}

impl Pair {
    /// The second starts so many milliseconds after the first, which decides how old the other's leases are when each
    /// looks at them.
    fn start(second_after: u64) -> Self {
        let memory = MemoryStore::new();
        let benches = [(); 2].map(|()| Arc::new(Bench::over(memory.clone(), RelayOptions::default())));
        let stop = CancellationToken::new();
        let run = |(bench, id, after): (&Arc<Bench>, &str, u64)| {
            let (bench, id) = (Arc::clone(bench), RelayId::new(id).unwrap());
            let signals = Continuous::until(stop.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                bench.relay.run_continuously(&id, signals).await
            })
        };
        let runs = vec![run((&benches[0], "a", 0)), run((&benches[1], "b", second_after))];
        Self { benches, stop, runs, sent: Vec::new() }
    }

    /// Writes messages of every bucket, for so long.
    async fn load(&mut self, seconds: u64) {
        for _ in 0..seconds * 5 {
            self.sent.extend(Bench::keys().iter().map(|key| self.benches[0].enqueue(key)));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn drained(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            if self.benches[0].store.memory.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not drained within {seconds} s");
    }

    /// How often each message was published, by both.
    fn published(&self) -> BTreeMap<MessageId, usize> {
        let mut times = BTreeMap::new();
        for id in self.benches.iter().flat_map(|bench| bench.published()) {
            *times.entry(id).or_default() += 1;
        }
        times
    }

    fn owners(&self) -> Vec<Option<RelayId>> {
        BucketCount::DEFAULT.buckets().map(|bucket: Bucket| self.benches[0].owner(bucket)).collect()
    }

    async fn stop(self) -> Vec<RunReport> {
        self.stop.cancel();
        let mut reports = Vec::new();
        for run in self.runs {
            reports.push(run.await.unwrap());
        }
        reports
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_less_than_the_margin_never_steal_a_bucket() {
    // The one that is ahead looks just before the other's leases are extended.
    for (skew, second_after) in [(-19_000, 100), (-5_000, 0), (19_000, 9_900)] {
        let mut pair = Pair::start(second_after);
        pair.benches[1].clock.step_wall(skew);
        for bench in &pair.benches {
            bench.publish_takes(Duration::from_millis(900));
        }
        pair.load(60).await;
        let settled = pair.owners();
        for _ in 0..24 {
            pair.load(5).await;
            assert_eq!(pair.owners(), settled, "{skew} ms apart: a bucket changed hands");
        }
        pair.drained(60).await;
        let published = pair.published();
        assert_eq!(published.len(), pair.sent.len(), "{skew} ms apart: lost");
        assert!(published.values().all(|times| *times == 1), "{skew} ms apart: sent twice");
        let refused: u32 = pair.stop().await.iter().map(|report| report.refused_writes).sum();
        assert_eq!(refused, 0, "{skew} ms apart: refused writes");
    }
}

/// Beyond the margin the bucket is taken from under a publish: that publish is repeated. It ends there.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_more_than_the_margin_make_duplicates_no_loss_and_no_lasting_double_owner() {
    let mut pair = Pair::start(0);
    pair.benches[0].publish_takes(Duration::from_secs(3));
    pair.load(60).await;
    assert_eq!(pair.owners().iter().flatten().filter(|owner| owner.as_str() == "a").count(), 4);

    pair.benches[1].clock.step_wall(45_000);
    pair.load(60).await;
    pair.drained(60).await;
    let published = pair.published();
    assert_eq!(published.len(), pair.sent.len(), "lost while the clocks differed");
    let twice = published.values().filter(|times| **times > 1).count();
    assert!(twice > 0, "the takeover was not under a publish: this test shows nothing");
    assert!(published.values().all(|times| *times <= 2), "a takeover repeats one publish, once");

    // The clocks differ as before, and nothing more is sent twice.
    let owners = pair.owners();
    pair.load(120).await;
    pair.drained(60).await;
    assert_eq!(pair.owners(), owners, "it goes back and forth");
    let after = pair.published();
    assert_eq!(after.len(), pair.sent.len());
    assert_eq!(after.values().filter(|times| **times > 1).count(), twice, "a lasting double owner");

    // Set right, it is behind what it announced: it claims nothing until time has caught up, and its peer serves all.
    pair.benches[1].clock.step_wall(-45_000);
    pair.load(120).await;
    pair.drained(120).await;
    assert_eq!(pair.published().len(), pair.sent.len(), "lost after the clock was set right");
    let reports = pair.stop().await;
    assert!(reports[1].clock_behind, "it did not notice");
}
