//! What became of the scenarios.

use std::fmt;

/// A promise that a store did not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scenario}: expected {expected}; found {found}")]
pub struct Violation {
    /// The scenario that saw it.
    pub scenario: &'static str,
    /// What the contract says.
    pub expected: String,
    /// What the store did.
    pub found: String,
}

/// How a scenario ended that saw no promise broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ran {
    /// All of it ran.
    Passed,
    /// It did not run.
    Skipped {
        /// What the store or the harness lacks.
        lacks: &'static str,
    },
}

/// What became of every scenario. `Display` has one line for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Report {
    /// Each scenario, in the order in which they ran.
    pub scenarios: Vec<(&'static str, Result<Ran, Violation>)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, ran: Result<Ran, Violation>) {
        self.scenarios.push((name, ran));
    }

    /// The promises that were broken: at most one a scenario.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.scenarios.iter().filter_map(|(_, ran)| ran.as_ref().err())
    }

    /// The scenarios that did not run, each with what the store or the harness lacks.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.scenarios.iter().filter_map(|(name, ran)| match ran {
            Ok(Ran::Skipped { lacks }) => Some((*name, *lacks)),
            _ => None,
        })
    }

    /// The scenarios that ran and saw no promise broken.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.scenarios.iter().filter(|(_, ran)| *ran == Ok(Ran::Passed)).map(|(name, _)| *name)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, ran) in &self.scenarios {
            match ran {
                Ok(Ran::Passed) => writeln!(f, "passed    {name}")?,
                Ok(Ran::Skipped { lacks }) => writeln!(f, "skipped   {name} (no {lacks})")?,
                Err(violation) => writeln!(f, "VIOLATED  {violation}")?,
            }
        }
        let (passed, skipped) = (self.passed().count(), self.skipped().count());
        write!(f, "{passed} passed, {skipped} skipped, {} violated", self.violations().count())
    }
}
