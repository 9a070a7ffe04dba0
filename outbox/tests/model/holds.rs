//! What must hold: each configuration is checked to its last state.

use crate::model::Config;
use crate::run;
use crate::state::{FOR_EVER, Faults, UNIT};

pub(crate) const NO_FAULTS: Faults =
    Faults { late: 0, replies: 0, lost: 0, crashes: 0, hints: 0, repeats: 0, units: FOR_EVER };

/// Three hinted runs.
pub(crate) const HINTED: Config = Config {
    name: "",
    lease: 2,
    renew: 1,
    clocks: [0; 3],
    messages: &[0],
    loaded: 0,
    has_hints: true,
    hinted: [true; 3],
    sweeps: [false; 3],
    faults: NO_FAULTS,
    is_coarse: false,
    may_freeze: true,
    restarts: false,
    must_deliver: false,
    keeps_wake_ups: false,
    one_owner: true,
    counts_refusals: false,
    without: None,
};

/// Three sweeps, with a message in each bucket.
pub(crate) const SWEEPS: Config = Config {
    messages: &[0, 1],
    loaded: 2,
    has_hints: false,
    hinted: [false; 3],
    sweeps: [true; 3],
    is_coarse: true,
    ..HINTED
};

/// Two sweeps and a hinted run.
pub(crate) const MIXED: Config =
    Config { has_hints: true, hinted: [false, false, true], sweeps: [true, true, false], ..SWEEPS };

/// As far apart as clocks may be: a tick below the bound.
pub(crate) const SKEW: i16 = (HINTED.lease - HINTED.renew) * UNIT - 1;

fn holds(config: Config) {
    let checked = run(config);
    if let Some(counterexample) = checked.counterexample {
        panic!("{}: {}\n{}", config.name, counterexample.violated, counterexample.trace.join("\n"));
    }
}

#[test]
fn one_owner_among_three_hinted_runs() {
    let faults = Faults { repeats: 2, ..NO_FAULTS };
    holds(Config { name: "three hinted runs of one bucket, time without end", faults, ..HINTED });
}

#[test]
fn one_owner_in_each_of_two_buckets_with_skewed_clocks() {
    let faults = Faults { repeats: 1, units: 2, ..NO_FAULTS };
    let clocks = [0, SKEW, SKEW];
    holds(Config {
        name: "three hinted runs of two buckets, skewed",
        messages: &[0, 1],
        clocks,
        faults,
        ..HINTED
    });
}

#[test]
fn one_owner_with_late_requests() {
    let faults = Faults { repeats: 2, late: 1, units: 3, ..NO_FAULTS };
    let clocks = [0, 0, SKEW];
    holds(Config { name: "three hinted runs, late, skewed", clocks, faults, is_coarse: true, ..HINTED });
}
#[test]
fn one_owner_with_late_requests2() {
    let faults = Faults { late: 1, units: 3, ..NO_FAULTS };
    holds(Config { name: "two hinted runs, two messages, late", messages: &[0, 0], faults, ..HINTED });
}
#[test]
fn one_owner_with_late_requests3() {
    let faults = Faults { repeats: 1, late: 2, units: 3, ..NO_FAULTS };
    holds(Config { name: "two hinted runs, two late", faults, ..HINTED });
}

#[test]
fn s_late() {
    let faults = Faults { late: 1, units: 3, ..NO_FAULTS };
    let sweeps = [true, true, false];
    holds(Config {
        name: "two sweeps of one message, late",
        messages: &[0],
        loaded: 1,
        sweeps,
        faults,
        ..SWEEPS
    });
}
#[test]
fn s_late2() {
    let faults = Faults { late: 1, units: 1, ..NO_FAULTS };
    let sweeps = [true, true, false];
    holds(Config { name: "two sweeps of two messages, late", sweeps, faults, ..SWEEPS });
}
#[test]
fn s_three() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    holds(Config { name: "three sweeps of one message", messages: &[0], loaded: 1, faults, ..SWEEPS });
}
#[test]
fn s_mixed() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    holds(Config { name: "two sweeps and a hinted run", messages: &[0, 0], loaded: 1, faults, ..MIXED });
}
#[test]
fn s_mixed_skewed() {
    let faults = Faults { units: 1, ..NO_FAULTS };
    holds(Config {
        name: "two sweeps and a hinted run, skewed",
        clocks: [0, SKEW, 0],
        messages: &[0, 1],
        loaded: 1,
        faults,
        ..MIXED
    });
}

#[test]
fn no_hint_is_both_refused_and_forgotten() {
    let config = Config { may_freeze: false, keeps_wake_ups: true, ..HINTED };
    holds(Config { name: "wake-ups of hinted runs", messages: &[0, 0, 0], ..config });
    let faults = Faults { replies: 1, ..NO_FAULTS };
    holds(Config { name: "wake-ups, a reply lost", messages: &[0, 0], faults, ..config });
}
#[test]
fn no_hint_is_both_refused_and_forgotten_by_a_sweep() {
    let faults = Faults { units: 1, ..NO_FAULTS };
    let config = Config { may_freeze: false, keeps_wake_ups: true, ..MIXED };
    holds(Config { name: "wake-ups of two sweeps and a hinted run", messages: &[0, 1, 1], faults, ..config });
}

#[test]
fn no_message_is_both_seen_and_forgotten_among_sweeps() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    let config = Config { may_freeze: false, keeps_wake_ups: true, sweeps: [true, true, false], ..SWEEPS };
    holds(Config { name: "wake-ups among two sweeps", messages: &[0, 1, 1], faults, ..config });
}

#[test]
fn everything_is_delivered() {
    let faults = Faults { crashes: 1, ..NO_FAULTS };
    let sweeps = [true, true, false];
    let config = Config { must_deliver: true, restarts: true, messages: &[0], loaded: 1, ..SWEEPS };
    holds(Config { name: "sweeps deliver, crash", sweeps, faults, ..config });
}
#[test]
fn everything_is_delivered2() {
    let faults = Faults { crashes: 1, hints: 1, ..NO_FAULTS };
    let config =
        Config { must_deliver: true, restarts: true, may_freeze: false, messages: &[0], loaded: 0, ..MIXED };
    holds(Config { name: "sweeps and hinted deliver, crash, hints lost", faults, ..config });
}

#[test]
fn nobody_is_refused() {
    let config = Config { counts_refusals: true, may_freeze: false, ..SWEEPS };
    let faults = Faults { units: 0, ..NO_FAULTS };
    holds(Config { name: "refusals among three sweeps", faults, ..config });
    let faults = Faults { units: 3, ..NO_FAULTS };
    holds(Config { name: "refusals among two sweeps", sweeps: [true, true, false], faults, ..config });
}

#[test]
fn beyond_the_bound() {
    let faults = Faults { repeats: 2, units: 3, ..NO_FAULTS };
    let clocks = [0, SKEW + UNIT, 0];
    holds(Config { name: "beyond the bound", clocks, faults, one_owner: false, ..HINTED });
}
