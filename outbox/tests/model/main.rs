//! Model.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod checker;
mod describe;
mod guards;
mod model;
mod properties;
mod relay;
mod state;
mod steps;
mod table;
mod times;

use std::time::Instant;

use checker::{Checked, check};
use model::{Config, Protocol};
use state::Faults;

const PLAIN: Config = Config {
    name: "",
    lease: 3,
    renew: 1,
    clocks: [0; 3],
    messages: &[0, 1],
    has_hints: true,
    hinted: [true; 3],
    sweeps: [false; 3],
    faults: Faults { late: 0, lost: 0, crashes: 0, hints: 0 },
    may_freeze: true,
    restarts: false,
    must_deliver: false,
    keeps_wake_ups: false,
    one_owner: true,
    counts_refusals: false,
    without: None,
};

fn run(config: Config) -> Checked {
    let began = Instant::now();
    let checked = check(&Protocol::new(config), 5_000_000);
    eprintln!(
        "model {}: {} states, {} steps, depth {}, {:?}",
        config.name,
        checked.states,
        checked.steps,
        checked.depth,
        began.elapsed()
    );
    if let Some(counterexample) = &checked.counterexample {
        eprintln!("{}\n{}", counterexample.violated, counterexample.trace.join("\n"));
    }
    checked
}

#[test]
fn a() {
    assert!(run(Config { name: "hinted", ..PLAIN }).counterexample.is_none());
    assert!(run(Config { name: "hinted same bucket", messages: &[0, 0], ..PLAIN }).counterexample.is_none());
    assert!(
        run(Config { name: "wake", messages: &[0, 0], may_freeze: false, keeps_wake_ups: true, ..PLAIN })
            .counterexample
            .is_none()
    );
    assert!(
        run(Config {
            name: "hinted same bucket late skew",
            clocks: [0, 1, 0],
            messages: &[0, 0],
            faults: Faults { late: 1, ..PLAIN.faults },
            ..PLAIN
        })
        .counterexample
        .is_none()
    );
}
