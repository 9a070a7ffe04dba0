//! How a command looks while it runs, on standard error: bars on a terminal, lines elsewhere.

mod campaign;
mod first_run;

pub(crate) use campaign::Campaign;
pub(crate) use first_run::FirstRun;
