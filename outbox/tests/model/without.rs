//! That the model can fail: every guard is taken away once, and must be missed.

use crate::checker::STUCK;
use crate::guards::Guard;
use crate::holds::{BEYOND, HINTED, LONGER, MIXED, NO_FAULTS, PAIR};
use crate::model::Config;
use crate::run;
use crate::state::Faults;

const TWO_OWNERS: &str = "two relays believe at once that they may publish from a bucket";
const NOT_THE_OWNER: &str = "a publish was started without the bucket being its relay's";
const FORGOTTEN: &str = "somebody had been told of a message, and it was forgotten";
const MEMBER: &str = "a relay counts as a member that frees its leases or has stopped";
const LEFT: &str = "a relay leaves with a bucket that it could have known of";
const REFUSED: &str = "two sweeps that read the same wrote the same lease";
const LAPSED: &str = "a relay deletes under a lease that has lapsed";

/// Where the absence of a guard shows, and as what. A new guard does not compile without.
fn missed(guard: Guard) -> (&'static str, Config) {
    let twice = Config { faults: Faults { repeats: 1, ..NO_FAULTS }, ..HINTED };
    let late = Config { messages: &[0, 0], faults: Faults { late: 1, units: 3, ..NO_FAULTS }, ..HINTED };
    let late_sweeps =
        Config { messages: &[0], loaded: 1, faults: Faults { late: 1, units: 1, ..NO_FAULTS }, ..PAIR };
    let wake_ups = Config { messages: &[0, 0], keeps_wake_ups: true, may_freeze: false, ..HINTED };
    match guard {
        Guard::ClaimVersion => (TWO_OWNERS, twice),
        Guard::RenewCondition => (TWO_OWNERS, twice),
        Guard::KeepVersion => (NOT_THE_OWNER, Config { faults: Faults { units: 2, ..NO_FAULTS }, ..PAIR }),
        Guard::ReleaseCondition | Guard::ReleaseVersion => (NOT_THE_OWNER, late),
        Guard::StrictHeartbeat | Guard::StopBeforeFreeing => (MEMBER, late_sweeps),
        Guard::ReadBackAfterStop => (LEFT, late_sweeps),
        Guard::RereadAfterRelease => (FORGOTTEN, wake_ups),
        Guard::RereadAfterEmptyTurn => (FORGOTTEN, Config { faults: twice.faults, ..wake_ups }),
        Guard::RereadAfterStop => {
            let faults = Faults { units: 1, ..NO_FAULTS };
            let sweeps = Config { keeps_wake_ups: true, may_freeze: false, ..MIXED };
            (FORGOTTEN, Config { messages: &[0, 0], loaded: 1, faults, ..sweeps })
        }
        Guard::WaitAfterHandBack => {
            let faults = Faults { units: 2, ..NO_FAULTS };
            let sweeps = Config { keeps_wake_ups: true, may_freeze: false, ..PAIR };
            (FORGOTTEN, Config { messages: &[0, 1, 1], faults, ..sweeps })
        }
        Guard::CommonPlan => {
            let faults = Faults { units: 0, ..NO_FAULTS };
            (REFUSED, Config { counts_refusals: true, may_freeze: false, faults, ..PAIR })
        }
        Guard::OwnAttempt => (FORGOTTEN, Config { faults: Faults { replies: 1, ..NO_FAULTS }, ..wake_ups }),
        // Takes a lease with more than one unit between its renewal and its end.
        Guard::FreshBeforePublish => (NOT_THE_OWNER, LONGER),
        Guard::RecheckAfterFetch | Guard::RecheckAfterRenewal | Guard::AgeFromBeforeAsking => {
            (NOT_THE_OWNER, HINTED)
        }
        Guard::DeleteUnderLease => (LAPSED, HINTED),
    }
}

fn is_missed(guard: Guard) {
    let (expected, config) = missed(guard);
    let without = run(Config { name: "a counterexample", without: Some(guard), ..config }).counterexample;
    let Some(counterexample) = without else { panic!("nobody misses {guard:?}") };
    let trace = counterexample.trace.join("\n");
    assert_eq!(counterexample.violated, expected, "without {guard:?}\n{trace}");
    if guard == Guard::WaitAfterHandBack {
        // The same as `nor_among_sweeps_alone`, and long.
        return;
    }
    let with = run(Config { name: "the same", ..config }).counterexample;
    assert!(with.is_none(), "{guard:?} or not, something is wrong: {with:?}");
}

#[test]
fn the_condition_of_each_write_is_missed() {
    is_missed(Guard::ClaimVersion);
    is_missed(Guard::KeepVersion);
    is_missed(Guard::RenewCondition);
    is_missed(Guard::ReleaseCondition);
    is_missed(Guard::ReleaseVersion);
    is_missed(Guard::StrictHeartbeat);
}

#[test]
fn the_order_of_a_stop_is_missed() {
    // By the property that states it alone. A run that is cut short between the two leaves the bucket to a relay that
    // is gone either way: by its lease with the order kept, by its share without. What the order spares is the time
    // in which peers leave freed buckets to it, and all of these properties are blind to delay.
    is_missed(Guard::StopBeforeFreeing);
    is_missed(Guard::ReadBackAfterStop);
}

#[test]
fn every_part_of_the_lost_wake_up_rule_is_missed() {
    is_missed(Guard::RereadAfterRelease);
    is_missed(Guard::RereadAfterEmptyTurn);
    is_missed(Guard::RereadAfterStop);
    is_missed(Guard::WaitAfterHandBack);
    is_missed(Guard::OwnAttempt);
}

#[test]
fn the_common_plan_is_missed() {
    is_missed(Guard::CommonPlan);
}

#[test]
fn sweeps_are_missed_when_hints_are_lost() {
    let faults = Faults { hints: 1, ..NO_FAULTS };
    let config =
        Config { name: "hinted runs alone, one hint lost", must_deliver: true, restarts: true, ..HINTED };
    let alone = run(Config { faults, ..config }).counterexample;
    assert_eq!(alone.unwrap().violated, STUCK);
}

#[test]
fn clocks_too_far_apart_are_noticed() {
    let config = Config { name: "clocks beyond the bound", one_owner: true, ..BEYOND };
    assert_eq!(run(config).counterexample.unwrap().violated, NOT_THE_OWNER);
}

#[test]
fn what_is_asked_of_a_lease_before_its_use_is_missed() {
    is_missed(Guard::FreshBeforePublish);
    is_missed(Guard::RecheckAfterFetch);
    is_missed(Guard::RecheckAfterRenewal);
    is_missed(Guard::AgeFromBeforeAsking);
    is_missed(Guard::DeleteUnderLease);
}
