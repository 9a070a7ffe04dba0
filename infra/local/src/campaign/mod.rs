//! The campaign: real processes, a real broker and the Lambda host under load, while rounds of faults strike at moments
//! that a seed decides; and outages as long as real ones.
//!
//! One round's way: `deck.rs` deals it, `strike.rs` carries it out (`outage.rs` what lasts), on the field that a segment (`segment.rs`) keeps
//! under load and judges at its end. `run.rs` goes from segment to segment, each with a database, functions and topics of
//! its own: the embedded database slows down with the length of its stream.
//!
//! The seed reproduces the choices (kinds, victims' ranks, delays, lengths); processes, brokers and the network keep
//! their own time, so two runs of one seed are not the same.

mod deck;
mod diary;
mod failures;
mod kept;
mod kind;
mod leases;
mod options;
mod outage;
mod outcomes;
mod report;
mod run;
mod scenario;
mod segment;
mod strike;

pub use deck::Round;
pub use kind::{Kind, UnknownName};
pub use options::{CampaignOptions, Timing};
pub use outcomes::Outcomes;
pub use report::{Drain, Failure, Messages, Report, SegmentReport, Tally};
pub use run::{CampaignError, Observer, Silent, run};
pub use scenario::{Scenario, ScenarioKind};
pub use strike::Struck;
