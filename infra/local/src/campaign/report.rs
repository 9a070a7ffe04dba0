//! What a campaign ends with.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use super::outcomes::Outcomes;
use super::scenario::Scenario;
use crate::shop::{Verdict, milliseconds, seconds, thousands};

/// Failures that the report shows; all are in what was kept.
const SHOWN: usize = 50;

/// Rounds of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Carried out.
    pub rounds: u32,
    /// Those of them that caught what they aimed at.
    pub hits: u32,
}

/// Messages of one segment, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Messages {
    /// Committed.
    pub committed: usize,
    /// Records consumed, duplicates included.
    pub records: usize,
    /// Records of a message that had arrived before.
    pub duplicates: usize,
    /// Committed, and never consumed.
    pub lost: usize,
    /// First deliveries behind a later order of their customer, and customers in several partitions.
    pub out_of_order: usize,
    /// Records with another topic, key or value than was placed.
    pub altered: usize,
    /// Records that nobody placed.
    pub strangers: usize,
}

impl Messages {
    pub(super) fn of(verdict: &Verdict) -> Self {
        Self {
            committed: verdict.placed,
            records: verdict.records,
            duplicates: verdict.duplicates,
            lost: verdict.lost.len(),
            out_of_order: verdict.out_of_order.len() + verdict.scattered.len(),
            altered: verdict.altered,
            strangers: verdict.strangers,
        }
    }
}

impl AddAssign for Messages {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.records += other.records;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.out_of_order += other.out_of_order;
        self.altered += other.altered;
        self.strangers += other.strangers;
    }
}

/// How an outbox emptied once nothing was broken and nothing was placed any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drain {
    /// Until it was empty, or given up.
    pub took: Duration,
    /// Messages still in it when it was given up.
    pub left: u64,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In which segment.
    pub segment: String,
    /// What, with the ids involved.
    pub what: String,
}

/// What came of one segment.
#[derive(Debug, Clone)]
pub struct SegmentReport {
    /// Its rounds, or its outage.
    pub name: String,
    /// Its messages.
    pub messages: Messages,
    /// Its invocations.
    pub outcomes: Outcomes,
    /// How its outbox emptied.
    pub drain: Drain,
    /// What must not be.
    pub failures: Vec<Failure>,
    /// From its first order to its verdict.
    pub took: Duration,
    /// Where what explains its failures is.
    pub kept: Option<PathBuf>,
}

/// A finished campaign. `Display` is the report that a person reads.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What decided the choices.
    pub seed: u64,
    /// By kind, in the order of [`Kind::ALL`].
    pub tallies: BTreeMap<Kind, Tally>,
    /// What was asked for and could not be done here, and why.
    pub skipped: Vec<String>,
    /// Segments of rounds.
    pub segments: u32,
    /// All messages.
    pub messages: Messages,
    /// All invocations.
    pub outcomes: Outcomes,
    /// The slowest drain after rounds.
    pub longest_drain: Duration,
    /// The longest invocation of a round that ended in an answer.
    pub longest_invocation: Duration,
    /// The outages, with how each drained and the longest invocation that ended by itself.
    pub scenarios: Vec<(Scenario, Drain, Duration)>,
    /// What must not be.
    pub failures: Vec<Failure>,
    /// Where what explains the failures is.
    pub kept: Vec<PathBuf>,
    /// From the start to the end, building excluded.
    pub took: Duration,
}

impl Report {
    /// Whether everything that must hold did, and every kind of round hit something.
    pub fn holds(&self) -> bool {
        self.failures.is_empty() && self.blunt().is_empty()
    }

    /// The kinds that were tried and never hit: they have tested nothing.
    pub fn blunt(&self) -> Vec<Kind> {
        let blunt = self.tallies.iter().filter(|(_, tally)| tally.rounds > 0 && tally.hits == 0);
        blunt.map(|(kind, _)| *kind).collect()
    }

    /// All rounds.
    pub fn rounds(&self) -> Tally {
        let mut all = Tally::default();
        for tally in self.tallies.values() {
            all.rounds += tally.rounds;
            all.hits += tally.hits;
        }
        all
    }

    pub(super) fn add(&mut self, segment: &SegmentReport) {
        self.messages += segment.messages;
        self.outcomes += &segment.outcomes;
        self.failures.extend(segment.failures.iter().cloned());
        self.kept.extend(segment.kept.clone());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: String| writeln!(f, "  {name:<24}{text}");
        line("seed", self.seed.to_string())?;
        let hits =
            |tally: &Tally| format!("{} rounds, {} hit", thousands(tally.rounds), thousands(tally.hits));
        line("rounds", format!("{}, in {} segments", hits(&self.rounds()), self.segments))?;
        for (kind, tally) in &self.tallies {
            line(&format!("  {kind}"), hits(tally))?;
        }
        for (scenario, drain, longest) in &self.scenarios {
            let (drained, longest) = (seconds(drain.took), seconds(*longest));
            let length = scenario.length.as_secs();
            let text = format!("{length} s, then empty in {drained}; longest invocation {longest}");
            line(scenario.kind.name(), text)?;
        }
        for skipped in &self.skipped {
            line("skipped", skipped.clone())?;
        }
        let outcomes = &self.outcomes;
        line(
            "invocations",
            format!(
                "{}: {} answered, {} killed, {} timed out and {} without a table by a round, {} otherwise",
                thousands(outcomes.total()),
                thousands(outcomes.answered),
                thousands(outcomes.killed),
                thousands(outcomes.stopped),
                thousands(outcomes.told),
                thousands(outcomes.unexpected)
            ),
        )?;
        line("longest answered", format!("{}, in a round", milliseconds(self.longest_invocation)))?;
        let messages = &self.messages;
        line("messages committed", thousands(messages.committed))?;
        line("records consumed", thousands(messages.records))?;
        line("lost", thousands(messages.lost))?;
        line("out of order", thousands(messages.out_of_order))?;
        line("duplicates", thousands(messages.duplicates))?;
        line(
            "altered, unknown",
            format!("{}, {}", thousands(messages.altered), thousands(messages.strangers)),
        )?;
        line("longest drain", format!("{}, after rounds", seconds(self.longest_drain)))?;
        line("time", seconds(self.took))?;
        for failure in self.failures.iter().take(SHOWN) {
            line("FAILURE", format!("{}: {}", failure.segment, failure.what))?;
        }
        if let Some(more) = self.failures.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            line("FAILURE", format!("and {more} more"))?;
        }
        for kind in self.blunt() {
            line("FAILURE", format!("no round of {kind} hit anything"))?;
        }
        for kept in &self.kept {
            line("kept", kept.display().to_string())?;
        }
        let result = if self.holds() { "nothing lost, nothing out of order" } else { "FAILED" };
        write!(f, "  {:<24}{result}", "result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report {
            seed: 42,
            tallies: BTreeMap::from([
                (Kind::Kill, Tally { rounds: 1_200, hits: 1_100 }),
                (Kind::BrokerKill, Tally { rounds: 3, hits: 3 }),
            ]),
            segments: 49,
            messages: Messages { committed: 5_000, records: 5_010, duplicates: 10, ..Messages::default() },
            outcomes: Outcomes { answered: 90, killed: 8, stopped: 2, ..Outcomes::default() },
            ..Report::default()
        }
    }

    #[test]
    fn a_good_campaign_says_so() {
        let text = good().to_string();
        for expected in [
            "seed                    42",
            "rounds                  1,203 rounds, 1,103 hit, in 49 segments",
            "  kill                  1,200 rounds, 1,100 hit",
            "100: 90 answered, 8 killed, 2 timed out and 0 without a table by a round, 0 otherwise",
            "duplicates              10\n",
            "result                  nothing lost, nothing out of order",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing from\n{text}");
        }
    }

    #[test]
    fn a_failure_and_a_kind_that_never_hit_fail_the_campaign_and_are_named() {
        let failure = Failure { segment: "rounds 1 to 25".to_owned(), what: "message x was lost".to_owned() };
        let failed = Report { failures: vec![failure; SHOWN + 2], ..good() };
        let text = failed.to_string();
        assert!(!failed.holds() && text.ends_with("FAILED"), "{text}");
        assert!(text.contains("rounds 1 to 25: message x was lost") && text.contains("and 2 more"), "{text}");

        let mut blunt = good();
        blunt.tallies.insert(Kind::Freeze, Tally { rounds: 4, hits: 0 });
        blunt.tallies.insert(Kind::BrokerFrozen, Tally::default());
        let text = blunt.to_string();
        assert!(!blunt.holds() && text.contains("no round of freeze hit anything"), "{text}");
        assert!(!text.contains("no round of broker-frozen"), "it was not tried: {text}");
    }
}
