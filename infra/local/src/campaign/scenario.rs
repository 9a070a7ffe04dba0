//! Outages as long as real ones.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::kind::{Needs, UnknownName};
use super::options::Timing;
use super::strike::Field;
use crate::dynamodb::{Fault, Rule};
use crate::kafka::BrokerError;
use crate::stream::StreamFaults;

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
    /// DynamoDB refuses every request of the functions: each invocation ends by itself before its deadline, and
    /// everything drains afterwards.
    ThrottledWholly,
    /// DynamoDB refuses seven of ten requests of the functions, and as much of each batch of deletes: as above.
    ThrottledMostly,
    /// No event of the stream arrives: the schedule alone delivers everything.
    StreamDropped,
}

/// From here on an outage is told with the times that the template deploys.
const LONG: Duration = Duration::from_secs(180);
const FULL: Duration = Duration::from_secs(300);

impl ScenarioKind {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 4] =
        [Self::BrokerAway, Self::ThrottledWholly, Self::ThrottledMostly, Self::StreamDropped];

    /// Its name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::BrokerAway => "broker-away",
            Self::ThrottledWholly => "throttled-wholly",
            Self::ThrottledMostly => "throttled-mostly",
            Self::StreamDropped => "stream-dropped",
        }
    }

    pub(super) fn needs(self) -> Needs {
        match self {
            Self::BrokerAway => Needs::OwnBroker,
            Self::ThrottledWholly | Self::ThrottledMostly => Needs::Emulator,
            Self::StreamDropped => Needs::Nothing,
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
        let short = Timing { sweep_interval: Duration::from_secs(5), ..Timing::SHORTEST };
        Self { kind, length, timing: if length >= LONG { Timing::DEPLOYED } else { short } }
    }

    /// All, five minutes each.
    pub fn all_full() -> Vec<Self> {
        ScenarioKind::ALL.map(|kind| Self::new(kind, FULL)).into()
    }

    /// Whether it leaves the broker, which all segments share, alone: such outages can be at the same time.
    pub(super) fn leaves_broker_alone(&self) -> bool {
        self.kind.needs() != Needs::OwnBroker
    }

    /// How long the outbox may take to be empty after it.
    pub(super) fn drain_bound(&self) -> Duration {
        match self.kind {
            // The next sweep comes within one interval, and needs the time to send what has gathered.
            ScenarioKind::BrokerAway | ScenarioKind::StreamDropped => self.timing.sweep_interval + SENDING,
            // Releases are refused too, so that leases must lapse.
            ScenarioKind::ThrottledWholly | ScenarioKind::ThrottledMostly => {
                self.timing.drain_bound() + SENDING
            }
        }
    }

    /// Orders a second while it lasts, at most `rate`: what gathers in a long one is as much as in a short one, because
    /// the time to send it counts against the drain.
    pub(super) fn rate(&self, rate: u32) -> u32 {
        let seconds = u32::try_from(self.length.as_secs()).unwrap_or(u32::MAX).max(1);
        rate.min(GATHERED / seconds).max(1)
    }

    /// What becomes of the stream's batches, from the first order to the last.
    pub(super) fn stream_faults(&self) -> StreamFaults {
        let drop = if self.kind == ScenarioKind::StreamDropped { 1.0 } else { 0.0 };
        StreamFaults { drop, ..StreamFaults::default() }
    }

    /// Takes it away, waits, and brings it back. Returns what is wrong with the test itself: nothing has met it.
    pub(super) async fn carry_out(&self, field: &Field<'_>) -> Result<Option<String>, BrokerError> {
        let unmet = |met: u64, what: &str| (met == 0).then(|| format!("no {what}, so nothing was tested"));
        Ok(match self.kind {
            ScenarioKind::BrokerAway => {
                let before = invocations(field);
                field.broker.stop().await?;
                tokio::time::sleep(self.length).await;
                let met = invocations(field) - before;
                field.broker.restart().await?;
                unmet(met, "invocation met a broker that was away")
            }
            ScenarioKind::ThrottledWholly => unmet(self.throttle(field, 1.0).await, "request was throttled"),
            ScenarioKind::ThrottledMostly => unmet(self.throttle(field, 0.7).await, "request was throttled"),
            ScenarioKind::StreamDropped => {
                tokio::time::sleep(self.length).await;
                let dropped = field.environment.poller().map_or(0, |poller| poller.counters().dropped);
                let arrived = field.environment.stream_relay().counters().invocations;
                match arrived {
                    0 => unmet(dropped, "batch was dropped"),
                    _ => Some(format!("{arrived} batches were not dropped")),
                }
            }
        })
    }

    async fn throttle(&self, field: &Field<'_>, share: f64) -> u64 {
        let Some(faults) = field.environment.dynamodb_faults() else { return 0 };
        let refused = faults.set(Rule::new(Fault::Throttle).with_share(share));
        let left = faults.add(Rule::new(Fault::Unprocessed(share)));
        tokio::time::sleep(self.length).await;
        faults.clear();
        refused.injected() + left.injected()
    }
}

/// Invocations that have ended, of both functions.
fn invocations(field: &Field<'_>) -> u64 {
    let hosts = [field.environment.stream_relay(), field.environment.scheduled_relay()];
    hosts.iter().map(|host| host.counters().invocations).sum()
}

/// Orders that gather during an outage.
const GATHERED: u32 = 1_500;
/// For the work itself: some thousands of messages through an unoptimised relay and the embedded database, which are
/// slower than what they stand for.
const SENDING: Duration = Duration::from_secs(30);

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.kind, self.length.as_secs())
    }
}
