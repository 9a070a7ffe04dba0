//! Outages as long as real ones.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::kind::{Needs, UnknownName};
use super::options::Timing;
use super::strike::Field;
use crate::kafka::BrokerError;

/// What is away, for how long, and with which timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// What is away.
    pub kind: ScenarioKind,
    /// For how long.
    pub length: Duration,
    /// The functions' times.
    pub timing: Timing,
}

/// What is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScenarioKind {
    /// The broker: every invocation succeeds, no batch is reported failed, and everything drains within one schedule
    /// interval of its return.
    BrokerAway,
}

/// From here on an outage is told with the times that the template deploys.
const LONG: Duration = Duration::from_secs(180);
const FULL: Duration = Duration::from_secs(300);

impl ScenarioKind {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 1] = [Self::BrokerAway];

    /// Its name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::BrokerAway => "broker-away",
        }
    }

    pub(super) fn needs(self) -> Needs {
        match self {
            Self::BrokerAway => Needs::OwnBroker,
        }
    }
}

impl fmt::Display for ScenarioKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ScenarioKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownName { name: name.to_owned(), known: known() })
    }
}

impl Scenario {
    /// One of that length: with the template's times if it is three minutes or more, else with short ones, so that
    /// several invocations, leases and sweeps fit in.
    pub fn new(kind: ScenarioKind, length: Duration) -> Self {
        let short = Timing { sweep_interval: Duration::from_secs(5), ..Timing::SHORT };
        Self { kind, length, timing: if length >= LONG { Timing::DEPLOYED } else { short } }
    }

    /// All, five minutes each.
    pub fn all_full() -> Vec<Self> {
        ScenarioKind::ALL.map(|kind| Self::new(kind, FULL)).into()
    }

    /// How long the outbox may take to be empty after it.
    pub(super) fn drain_bound(&self) -> Duration {
        match self.kind {
            // The next sweep comes within one interval, and needs the time to send what has gathered.
            ScenarioKind::BrokerAway => self.timing.sweep_interval + SENDING,
        }
    }

    /// Takes it away, waits, and brings it back.
    pub(super) async fn carry_out(&self, field: &Field<'_>) -> Result<(), BrokerError> {
        match self.kind {
            ScenarioKind::BrokerAway => {
                field.broker.stop().await?;
                tokio::time::sleep(self.length).await;
                field.broker.restart().await
            }
        }
    }
}

/// For the work itself: some thousands of messages through an unoptimised relay and the embedded database, which are
/// slower than what they stand for.
const SENDING: Duration = Duration::from_secs(30);

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.kind, self.length.as_secs())
    }
}
