//! A model of leases, hints and releases (design.md, sections 6 and 7), checked to the last state.
//!
//! Up to three relays, two buckets, one table. **Whatever the engine decides by a pure function, the model decides by
//! the same one**: which lease writes a round makes and what it leaves to others ([`Coordination::plan`], `available`,
//! `is_free`, `active`, `prunable`), what each write is conditional on, what it leaves and what its refusal means
//! ([`LeaseWrite`], [`HeartbeatWrite`]), how old a lease is and what may be done under it ([`Moment`], [`Belief`]). What
//! is in the relay's async code is transcribed in `relay.rs`, one request at a time.
//!
//! [`Coordination::plan`]: outbox::coordination::Coordination::plan
//! [`LeaseWrite`]: outbox::lease_write::LeaseWrite
//! [`HeartbeatWrite`]: outbox::lease_write::HeartbeatWrite
//! [`Moment`]: outbox::lease_age::Moment
//! [`Belief`]: outbox::lease_age::Belief
//!
//! # What can happen
//! - A relay takes its next step: a read, a write sent, a publish begun, its end. Between any two, others take theirs,
//!   and time goes by: a freeze is a relay that takes no step meanwhile.
//! - A write is carried out and answered; carried out, its reply lost, and sent again; lost, and given up on; or late: it
//!   lands at any time after its sender has sent it again, given it up, or crashed.
//! - A relay crashes. The writer commits; hints arrive at once, late, twice or never; sweeps start at any time.
//!
//! # What must hold
//! - A publish starts only while the table names its relay as the bucket's owner and nobody's clock says that the lease
//!   has lapsed; and never do two relays both believe that they may start one. For clocks closer than lease duration less
//!   renewal interval. (Publishes can still overlap: one that began under a sound lease and froze.)
//! - With clocks further apart too: nothing is deleted that was not published; nothing under a lapsed lease.
//! - Without faults, once all runs have ended, no message waits of which a hint or a probe had told somebody.
//! - From every state, without another fault, a state can be reached in which everything is published and deleted.
//! - Sweeps whose rounds read the same state never write the same lease.
//! - Whoever frees its leases at the end, or has, is no member by anybody's clock; nor does it leave with a bucket that it
//!   could have known of.
//!
//! # What is left out
//! - Time comes in units: a lease lasts two, and is renewed after one. So the bound on clocks is met up to a unit. Where a configuration bounds the units that go
//!   by, it says so by its `units`; times that are past for good are told apart by their order alone.
//! - A sweep works on its buckets one after the other, and its acquisition writes one lease after the other.
//! - Reads are answered at once: a slow one is one sent later. A probe is exact, and part of the step before it; so is
//!   the reading back of leases. In coarse configurations a publish is two steps instead of four, since the hinted ones
//!   have them all.
//! - The publisher acknowledges all of a batch, or the relay crashes. Deletes are not lost: rows are named by sequence,
//!   so one that lands late removes what was acknowledged. A batch is all that waits in a bucket.
//! - A crashed relay's record is never old enough to be pruned (ten durations): by then it is long not counted.
//! - A crash is a fault only where others must make up for it: for what must never happen it is a freeze without end.
//! - Sweeps have all the time they want, so none gives up waiting for what it left to others. A turn is over after any
//!   batch, some time after the acquisition.
//! - In traces, hinted runs whose clocks agree may exchange their names from step to step: they stand for each other.
//!
//! Each guard is taken away in `without.rs`, to see that the model finds out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod checker;
mod describe;
mod forget;
mod guards;
mod holds;
mod model;
mod properties;
mod relay;
mod request;
mod state;
mod steps;
mod sweep;
mod table;
mod times;
mod without;

use std::io::Write as _;
use std::time::Instant;

use checker::{Checked, check};
use model::{Config, Protocol};

/// More states than any check here has: past this, something that bounds the model is broken.
const MOST_STATES: usize = 1_000_000;

/// Checks a configuration to the end, and says what it took.
fn run(config: Config) -> Checked {
    let began = Instant::now();
    let checked = check(&Protocol::new(config), MOST_STATES);
    let Checked { states, steps, depth, .. } = &checked;
    let without = config.without.map(|guard| format!(" without {guard:?}")).unwrap_or_default();
    let took = began.elapsed().as_secs_f32();
    // Past the test runner, which would keep it to itself: how much was checked belongs to what CI prints.
    let _ = writeln!(
        std::io::stderr(),
        "model: {}{without}: {states} states, {steps} steps, {depth} deep, {took:.1} s",
        config.name
    );
    checked
}
