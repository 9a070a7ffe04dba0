//! The first run through the real functions: in peace, and with the functions killed under it.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use outbox_local::environment::{Environment, EnvironmentOptions};
use outbox_local::first_run::{Observer, Progress, RunOptions, Silent, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_orders_arrive_once_and_in_order() {
    let options = RunOptions::in_environment(EnvironmentOptions::from_env().unwrap());
    let report = run(options, &mut Silent).await.unwrap();
    println!("{report}");
    assert!(report.holds());
    assert_eq!((report.verdict.placed, report.verdict.records), (1_000, 1_000));
}

/// Kills every process of both functions each time so many more orders have been placed.
struct Killer {
    every: u32,
    kills: u32,
}

impl Observer for Killer {
    fn progressed(&mut self, progress: Progress, environment: &Environment) {
        if progress.placed / self.every > self.kills {
            self.kills += 1;
            for function in [environment.stream_relay().clone(), environment.scheduled_relay().clone()] {
                tokio::spawn(async move { function.kill_all().await });
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_both_functions_ten_times_loses_nothing_and_keeps_the_order() {
    let mut killer = Killer { every: 200, kills: 0 };
    let environment = EnvironmentOptions {
        // A killed owner's lease must lapse before anybody can go on; the sweep finds what was left.
        parameters: BTreeMap::from([
            ("LeaseDuration".to_owned(), "3s".to_owned()),
            ("LeaseRenewInterval".to_owned(), "1s".to_owned()),
        ]),
        sweep_interval: Some(Duration::from_secs(1)),
        ..EnvironmentOptions::from_env().unwrap()
    };
    let options = RunOptions { orders: 2_000, ..RunOptions::in_environment(environment) };
    let report = run(options, &mut killer).await.unwrap();
    println!("{report}");
    assert_eq!(killer.kills, 10);
    assert!(report.holds());
}
