//! What must hold: each configuration is checked to its last state.

use crate::model::Config;
use crate::run;
use crate::state::{FOR_EVER, Faults, UNIT};

pub(crate) const NO_FAULTS: Faults =
    Faults { late: 0, replies: 0, lost: 0, crashes: 0, hints: 0, repeats: 0, units: FOR_EVER };

/// Three hinted runs, with a message that comes.
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

/// Two sweeps.
pub(crate) const PAIR: Config = Config { sweeps: [true, true, false], ..SWEEPS };

/// Two sweeps and a hinted run.
pub(crate) const MIXED: Config = Config { has_hints: true, hinted: [false, false, true], ..PAIR };

/// As far apart as clocks may be: a tick below the bound.
pub(crate) const SKEW: i16 = (HINTED.lease - HINTED.renew) * UNIT - 1;

/// Three hinted runs with leases of three units, by clocks as far apart as those allow.
pub(crate) const LONGER: Config = Config { lease: 3, clocks: [0, SKEW + UNIT, 0], ..HINTED };

/// Three hinted runs by clocks so far apart that one sees a lease lapsed that its owner has just taken.
pub(crate) const BEYOND: Config = Config {
    clocks: [0, HINTED.lease * UNIT, 0],
    one_owner: false,
    faults: Faults { repeats: 2, units: 3, ..NO_FAULTS },
    ..HINTED
};

fn holds(config: Config) {
    let checked = run(config);
    if let Some(counterexample) = checked.counterexample {
        panic!("{}: {}\n{}", config.name, counterexample.violated, counterexample.trace.join("\n"));
    }
}

#[test]
fn three_hinted_runs_never_own_a_bucket_at_once() {
    let faults = Faults { repeats: 2, ..NO_FAULTS };
    holds(Config { name: "three hinted runs of a bucket, time without end", faults, ..HINTED });
}

#[test]
fn nor_do_they_in_two_buckets_by_clocks_as_far_apart_as_may_be() {
    let faults = Faults { repeats: 1, units: 2, ..NO_FAULTS };
    let config = Config { messages: &[0, 1], clocks: [0, SKEW, SKEW], faults, ..HINTED };
    holds(Config { name: "three hinted runs of two buckets, skewed", ..config });
    let faults = Faults { repeats: 1, units: 4, ..NO_FAULTS };
    holds(Config { name: "two hinted runs with longer leases, skewed", faults, ..LONGER });
}

#[test]
fn nor_do_they_when_requests_land_late() {
    let faults = Faults { repeats: 2, late: 1, units: 3, ..NO_FAULTS };
    let config = Config { clocks: [0, 0, SKEW], is_coarse: true, faults, ..HINTED };
    holds(Config { name: "three hinted runs of a bucket, skewed, one request late", ..config });
    let faults = Faults { late: 1, units: 2, ..NO_FAULTS };
    let config = Config { messages: &[0, 1], clocks: [0, 0, SKEW], is_coarse: true, faults, ..HINTED };
    let faults = Faults { repeats: 1, ..faults };
    holds(Config { name: "three hinted runs of two buckets, skewed, one request late", faults, ..config });
    let faults = Faults { repeats: 1, late: 2, units: 3, ..NO_FAULTS };
    holds(Config { name: "two hinted runs of a bucket, two requests late", faults, ..HINTED });
    let faults = Faults { late: 1, lost: 1, units: 2, ..NO_FAULTS };
    let config = Config { messages: &[0, 0], faults, ..HINTED };
    holds(Config { name: "two hinted runs of two messages, one request late, one lost", ..config });
}

#[test]
fn sweeps_never_own_a_bucket_at_once() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    holds(Config { name: "three sweeps of a bucket", messages: &[0], loaded: 1, faults, ..SWEEPS });
}

#[test]
fn nor_do_sweeps_when_requests_land_late() {
    let faults = Faults { late: 1, units: 2, ..NO_FAULTS };
    holds(Config {
        name: "two sweeps of a bucket, one request late",
        messages: &[0],
        loaded: 1,
        faults,
        ..PAIR
    });
    let faults = Faults { late: 1, units: 1, ..NO_FAULTS };
    holds(Config { name: "two sweeps of two buckets, one request late", faults, ..PAIR });
}

#[test]
fn sweeps_and_hinted_runs_never_own_a_bucket_at_once() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    let config = Config { messages: &[0, 0], loaded: 1, faults, ..MIXED };
    holds(Config { name: "two sweeps and a hinted run of a bucket", ..config });
    let faults = Faults { units: 1, ..NO_FAULTS };
    let config = Config { clocks: [0, SKEW, 0], loaded: 1, faults, ..MIXED };
    holds(Config { name: "two sweeps and a hinted run of two buckets, skewed", ..config });
}

#[test]
fn clocks_beyond_the_bound_lose_nothing() {
    holds(Config { name: "three hinted runs, clocks beyond the bound", ..BEYOND });
    let faults = Faults { crashes: 1, ..NO_FAULTS };
    let config =
        Config { clocks: BEYOND.clocks, one_owner: false, messages: &[0], loaded: 1, faults, ..PAIR };
    let config = Config { must_deliver: true, restarts: true, may_freeze: false, ..config };
    holds(Config { name: "sweeps deliver, one crash, clocks beyond the bound", ..config });
}

#[test]
fn no_hint_is_both_refused_and_forgotten() {
    let config = Config { may_freeze: false, keeps_wake_ups: true, ..HINTED };
    holds(Config { name: "wake-ups of three hinted runs", messages: &[0, 0, 0], ..config });
    let faults = Faults { replies: 1, repeats: 1, ..NO_FAULTS };
    holds(Config {
        name: "wake-ups of three hinted runs, a reply lost",
        messages: &[0, 0],
        faults,
        ..config
    });
}

#[test]
fn nor_with_sweeps_among_them() {
    let faults = Faults { units: 1, ..NO_FAULTS };
    let config = Config { may_freeze: false, keeps_wake_ups: true, messages: &[0, 1, 1], faults, ..MIXED };
    holds(Config { name: "wake-ups of two sweeps and a hinted run", ..config });
}

#[test]
fn nor_among_sweeps_alone() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    let config = Config { may_freeze: false, keeps_wake_ups: true, messages: &[0, 1, 1], faults, ..PAIR };
    holds(Config { name: "wake-ups among two sweeps", ..config });
}

#[test]
fn everything_is_delivered_while_sweeps_run() {
    let faults = Faults { crashes: 1, ..NO_FAULTS };
    let config = Config { must_deliver: true, restarts: true, messages: &[0], loaded: 1, faults, ..PAIR };
    holds(Config { name: "sweeps deliver, one crash, time without end", ..config });
}

#[test]
fn everything_is_delivered_though_hints_are_lost() {
    let faults = Faults { crashes: 1, hints: 1, ..NO_FAULTS };
    let config = Config { must_deliver: true, restarts: true, may_freeze: false, ..MIXED };
    let config = Config { messages: &[0], loaded: 0, faults, ..config };
    holds(Config { name: "sweeps and hinted runs deliver, one crash, one hint lost", ..config });
}

#[test]
fn sweeps_that_read_the_same_are_never_refused() {
    let config = Config { counts_refusals: true, may_freeze: false, ..SWEEPS };
    let faults = Faults { units: 0, ..NO_FAULTS };
    holds(Config { name: "refusals among three sweeps at one time", faults, ..config });
    let faults = Faults { units: 3, ..NO_FAULTS };
    holds(Config { name: "refusals among two sweeps", sweeps: PAIR.sweeps, faults, ..config });
}
