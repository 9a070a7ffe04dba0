//! What is away or misbehaves during a round, and whether anything met it.

use std::time::{Duration, Instant};

use super::deck::Round;
use super::kind::{Kind, Means};
use super::strike::Field;
use crate::dynamodb::{Fault, Faults, InForce, Rule};
use crate::kafka::BrokerError;
use crate::link::{Link, Mode};
use crate::stream::{StreamFaults, StreamPoller};

/// The share of requests that are throttled, lost or late, from the least to the most.
const SHARE: (f64, f64) = (0.3, 0.9);
/// The writes of a relay.
const WRITES: [&str; 3] = ["BatchWriteItem", "PutItem", "UpdateItem"];

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// One outage, from its beginning to its end.
pub(super) struct Outage {
    /// How long it is to last.
    pub(super) length: Duration,
    evidence: Evidence,
}

/// What tells that anything met it.
enum Evidence {
    /// The invocations themselves.
    Invocations,
    /// Connections to the broker or to DynamoDB that were cut, of so many before.
    Broker(u64),
    DynamoDb(u64),
    /// Requests to DynamoDB.
    Requests(Vec<InForce>),
    /// Batches of the stream, of so many before.
    Batches(u64),
}

impl Outage {
    /// Takes it away.
    pub(super) async fn begin(field: &Field<'_>, round: &Round) -> Result<Self, BrokerError> {
        let evidence = match round.kind.means() {
            Means::Signals => Evidence::Invocations,
            Means::Broker => {
                match round.kind {
                    Kind::BrokerFrozen => field.broker.freeze(true).await?,
                    Kind::BrokerKill => field.broker.kill().await?,
                    _ => field.broker.stop().await?,
                }
                Evidence::Invocations
            }
            Means::BrokerLink => {
                let before = cut(field.broker.link());
                break_link(field.broker.link(), round.kind);
                // What is held back is cut nowhere.
                if round.kind == Kind::BrokerHeld { Evidence::Invocations } else { Evidence::Broker(before) }
            }
            Means::DynamoDbLink => {
                let before = cut(field.environment.dynamodb_link());
                break_link(field.environment.dynamodb_link(), round.kind);
                Evidence::DynamoDb(before)
            }
            Means::DynamoDbFaults => {
                let rules = field.environment.dynamodb_faults().map(|faults| misbehave(faults, round, field));
                Evidence::Requests(rules.unwrap_or_default())
            }
            Means::StreamFaults => {
                let before = mistreated(field.environment.poller());
                if let Some(poller) = field.environment.poller() {
                    poller.set_faults(stream_faults(round));
                }
                Evidence::Batches(before)
            }
        };
        Ok(Self { length: length(field, round), evidence })
    }

    /// Goes on, for as long as a timeout if it must, until something has met it: processes that have just been started
    /// have no connections to be cut, and a stream that is waiting for an answer sends no batch.
    pub(super) async fn until_met(&self, field: &Field<'_>, round: &Round) {
        let deadline = Instant::now() + field.timing.function_timeout;
        while self.affected(field) == Some(0) && Instant::now() < deadline {
            tokio::time::sleep(LOOK_INTERVAL).await;
            match round.kind.means() {
                Means::BrokerLink => break_link(field.broker.link(), round.kind),
                Means::DynamoDbLink => break_link(field.environment.dynamodb_link(), round.kind),
                Means::Signals | Means::Broker | Means::DynamoDbFaults | Means::StreamFaults => {}
            }
        }
    }

    /// Brings it back.
    pub(super) async fn end(&self, field: &Field<'_>, round: &Round) -> Result<(), BrokerError> {
        match round.kind.means() {
            Means::Signals => {}
            Means::Broker if round.kind == Kind::BrokerFrozen => field.broker.freeze(false).await?,
            Means::Broker => field.broker.restart().await?,
            Means::BrokerLink => mend_link(field.broker.link(), round.kind),
            Means::DynamoDbLink => mend_link(field.environment.dynamodb_link(), round.kind),
            Means::DynamoDbFaults => {
                if let Some(faults) = field.environment.dynamodb_faults() {
                    faults.clear();
                }
            }
            Means::StreamFaults => {
                if let Some(poller) = field.environment.poller() {
                    poller.set_faults(StreamFaults::default());
                }
            }
        }
        Ok(())
    }

    /// How much met it; `None`: only the invocations can tell.
    pub(super) fn affected(&self, field: &Field<'_>) -> Option<u64> {
        match &self.evidence {
            Evidence::Invocations => None,
            Evidence::Broker(before) => Some(cut(field.broker.link()) - before),
            Evidence::DynamoDb(before) => Some(cut(field.environment.dynamodb_link()) - before),
            Evidence::Batches(before) => Some(mistreated(field.environment.poller()) - before),
            Evidence::Requests(rules) => Some(rules.iter().map(InForce::injected).sum()),
        }
    }
}

/// How long a round's outage lasts.
fn length(field: &Field<'_>, round: &Round) -> Duration {
    let between = |least: Duration, most: Duration| least + (most - least).mul_f64(round.length);
    let seconds = Duration::from_secs;
    let (lease, timeout) = (field.timing.lease_duration, field.timing.function_timeout);
    match round.kind {
        // An invocation that begins with it sees the broker come back only after its deadline.
        Kind::BrokerFrozen => between(timeout, timeout + seconds(2)),
        Kind::BrokerSilent | Kind::DynamoDbSilent => between(seconds(2), timeout + seconds(1)),
        Kind::BrokerHeld => between(lease / 2, 2 * lease),
        Kind::BrokerStranded | Kind::DynamoDbStranded => Duration::ZERO,
        Kind::DynamoDbHanging => between(seconds(1), 2 * lease),
        Kind::DynamoDbThrottled
        | Kind::DynamoDbLostReplies
        | Kind::DynamoDbLate
        | Kind::StreamDropped
        | Kind::StreamDoubled
        | Kind::StreamReordered => between(seconds(1), seconds(4)),
        _ => between(Duration::ZERO, seconds(2)),
    }
}

fn break_link(link: Option<&Link>, kind: Kind) {
    let Some(link) = link else { return };
    match kind {
        Kind::BrokerSilent | Kind::DynamoDbSilent => link.set(Mode::Silent),
        Kind::BrokerHeld => link.set(Mode::Hold),
        Kind::BrokerStranded | Kind::DynamoDbStranded => link.strand(),
        _ => link.reset(),
    }
}

fn mend_link(link: Option<&Link>, kind: Kind) {
    let Some(link) = link else { return };
    match kind {
        // What has connected again is met a second time.
        Kind::BrokerReset | Kind::DynamoDbReset => link.reset(),
        _ => link.set(Mode::Pass),
    }
}

/// Connections that were forgotten or reset so far.
fn cut(link: Option<&Link>) -> u64 {
    link.map(Link::counters).map_or(0, |counters| counters.forgotten + counters.reset)
}

fn misbehave(faults: &Faults, round: &Round, field: &Field<'_>) -> Vec<InForce> {
    let share = SHARE.0 + (SHARE.1 - SHARE.0) * round.length;
    let rule = |fault| Rule::new(fault).with_share(share).with_seed(round.rank.into());
    match round.kind {
        Kind::DynamoDbThrottled => {
            vec![faults.set(rule(Fault::Throttle)), faults.add(Rule::new(Fault::Unprocessed(share)))]
        }
        Kind::DynamoDbLostReplies => vec![faults.set(rule(Fault::LoseReply))],
        Kind::DynamoDbHanging => vec![faults.set(Rule::new(Fault::Hang))],
        _ => {
            // From well within a lease to after its end.
            let late = field.timing.lease_duration.mul_f64(0.2 + 1.2 * round.length);
            vec![faults.set(rule(Fault::Late(late)).with_share(SHARE.0).with_operations(WRITES))]
        }
    }
}

fn stream_faults(round: &Round) -> StreamFaults {
    let none = StreamFaults { seed: round.rank.into(), ..StreamFaults::default() };
    match round.kind {
        Kind::StreamDropped => StreamFaults { drop: 1.0, ..none },
        Kind::StreamDoubled => StreamFaults { duplicate: 1.0, ..none },
        _ => StreamFaults { reorder: 1.0, ..none },
    }
}

/// Batches that met a fault so far.
fn mistreated(poller: Option<&StreamPoller>) -> u64 {
    poller.map(StreamPoller::counters).map_or(0, |it| it.dropped + it.duplicated + it.reordered)
}
