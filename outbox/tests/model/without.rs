//! Each guard taken away.

use crate::checker::Checked;
use crate::guards::Guard;
use crate::holds::{HINTED, MIXED, NO_FAULTS, SKEW, SWEEPS};
use crate::model::Config;
use crate::run;
use crate::state::Faults;

fn fails(guard: Guard, config: Config) {
    let Checked { counterexample, .. } = run(Config { without: Some(guard), ..config });
    match counterexample {
        Some(c) => eprintln!(
            "{}: {}\n{}",
            config.name,
            c.violated,
            c.trace.iter().map(|l| l.split(" -> ").next().unwrap().to_owned()).collect::<Vec<_>>().join("\n")
        ),
        None => eprintln!("NOT FOUND {}", config.name),
    }
}
#[test]
fn m1() {
    let late = Faults { late: 1, units: 3, ..NO_FAULTS };
    let two = Config { sweeps: [true, true, false], ..SWEEPS };
    fails(
        Guard::StrictHeartbeat,
        Config { name: "strict heartbeat", faults: late, messages: &[0], loaded: 1, ..two },
    );
    fails(
        Guard::StopBeforeFreeing,
        Config { name: "stop first", faults: late, messages: &[0], loaded: 1, ..two },
    );
    fails(
        Guard::ReadBackAfterStop,
        Config { name: "read back", faults: late, messages: &[0], loaded: 1, ..two },
    );
    fails(Guard::KeepVersion, Config { name: "keep", faults: Faults { units: 3, ..NO_FAULTS }, ..two });
}
#[test]
fn m3() {
    let faults = Faults { repeats: 1, ..NO_FAULTS };
    let config = Config { may_freeze: false, keeps_wake_ups: true, messages: &[0, 0], faults, ..HINTED };
    fails(Guard::RereadAfterEmptyTurn, Config { name: "empty turn", ..config });
    let faults = Faults { units: 1, ..NO_FAULTS };
    let config =
        Config { may_freeze: false, keeps_wake_ups: true, messages: &[0, 0], loaded: 1, faults, ..MIXED };
    fails(Guard::RereadAfterStop, Config { name: "stop", ..config });
    fails(
        Guard::RereadAfterEmptyTurn,
        Config { name: "empty turn of a sweep", messages: &[0, 0, 0], ..config },
    );
}

#[test]
fn m4() {
    let faults = Faults { units: 2, ..NO_FAULTS };
    let sweeps = [true, true, false];
    let config =
        Config { may_freeze: false, keeps_wake_ups: true, messages: &[0, 1, 1], sweeps, faults, ..SWEEPS };
    fails(Guard::WaitAfterHandBack, Config { name: "hand back", ..config });
}
