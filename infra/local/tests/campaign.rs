//! The campaign in its short form: each kind of round at least once, and short outages.
//!
//! `cargo run --bin outbox-local -- campaign` is the long one.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::time::Duration;

use outbox_local::campaign::{
    CampaignOptions, Kind, Observer, Round, Scenario, ScenarioKind, SegmentReport, Struck, run,
};
use outbox_local::environment::EnvironmentOptions;

const OUTAGE: Duration = Duration::from_secs(15);
/// CI's machines are slower, and do other things.
const RATE: u32 = 15;

/// Tells a reader of the test's output how far it is, and what failed.
struct Told;

impl Observer for Told {
    fn round_ended(&mut self, round: &Round, struck: &Struck) {
        println!("round {} {}: hit {}, {}", round.number, round.kind, struck.hit, struck.what);
    }

    fn segment_ended(&mut self, segment: &SegmentReport) {
        println!("{segment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_round_and_every_outage_loses_nothing_and_keeps_the_order() {
    let options = CampaignOptions {
        environment: EnvironmentOptions::from_env().unwrap(),
        rounds: Kind::ALL.len().try_into().unwrap(),
        scenarios: ScenarioKind::ALL.map(|kind| Scenario::new(kind, OUTAGE)).into(),
        rate: RATE,
        ..CampaignOptions::default()
    };
    let seed = options.seed;
    println!("seed {seed}");
    let report = run(options, &mut Told).await.unwrap();
    println!("{report}");
    assert!(report.holds(), "seed {seed}");
    // What could not be done here is named; with a broker of our own there is nothing of the kind.
    assert!(report.skipped.is_empty() || report.tallies.len() < Kind::ALL.len());
    assert!(report.messages.committed > 0);
}
