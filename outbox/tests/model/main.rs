//! Model.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod checker;
mod describe;
mod guards;
mod holds;
mod model;
mod properties;
mod relay;
mod state;
mod steps;
mod table;
mod times;
mod without;

use std::time::Instant;

use checker::{Checked, check};
use model::{Config, Protocol};

/// More states than any check here has: past this, something that bounds the model is broken.
const MOST_STATES: usize = 1_500_000;

/// Checks a configuration to the end, and says what it took.
fn run(config: Config) -> Checked {
    let began = Instant::now();
    let checked = check(&Protocol::new(config), MOST_STATES);
    let Checked { states, steps, depth, .. } = &checked;
    let took = began.elapsed().as_secs_f32();
    eprintln!("model: {}: {states} states, {steps} steps, {depth} deep, {took:.1} s", config.name);
    checked
}
