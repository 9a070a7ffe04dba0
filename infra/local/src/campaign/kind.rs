//! What a round can do.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL of one process in the middle of an invocation.
    Kill,
    /// SIGKILL of every process of both functions at once, as a deployment does; one of them in an invocation.
    KillAll,
    /// SIGSTOP in the middle of an invocation for longer than the lease, then SIGCONT: it goes on with a lease that it
    /// does not have any more.
    Freeze,
    /// SIGSTOP in the middle of an invocation until the host kills the process for its timeout.
    FreezePastTimeout,
    /// The broker's process stopped (SIGSTOP) until invocations come near their deadline.
    BrokerFrozen,
    /// The broker stopped in good order and started again.
    BrokerRestart,
    /// SIGKILL of the broker, and a start on what it left.
    BrokerKill,
    /// A network to the broker that swallows everything, for some seconds to a whole timeout; its connections stay dead.
    BrokerSilent,
    /// Every connection to the broker reset, several times.
    BrokerReset,
    /// Every connection to the broker forgotten by the network, without a word; new ones work.
    BrokerStranded,
    /// A network to the broker that keeps everything back and then delivers it, long after the lease.
    BrokerHeld,
    /// The same to DynamoDB as [`BrokerSilent`](Self::BrokerSilent).
    DynamoDbSilent,
    /// The same to DynamoDB as [`BrokerReset`](Self::BrokerReset).
    DynamoDbReset,
    /// The same to DynamoDB as [`BrokerStranded`](Self::BrokerStranded).
    DynamoDbStranded,
    /// Most requests to DynamoDB refused as too many, and batches carried out in part.
    DynamoDbThrottled,
    /// Requests that DynamoDB carries out without an answer.
    DynamoDbLostReplies,
    /// A DynamoDB that does not answer for some seconds.
    DynamoDbHanging,
    /// Writes that reach DynamoDB late, also when whoever sent them has given them up, or is dead.
    DynamoDbLate,
    /// The stream's batches dropped: only the schedule delivers.
    StreamDropped,
    /// The stream's batches sent twice.
    StreamDoubled,
    /// The stream's batches, and the records in them, out of order.
    StreamReordered,
}

/// By what means a kind strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    /// Signals to the functions' processes.
    Signals,
    /// The broker's process.
    Broker,
    /// The network between the functions and the broker.
    BrokerLink,
    /// The network between the functions and DynamoDB.
    DynamoDbLink,
    /// What DynamoDB makes of requests.
    DynamoDbFaults,
    /// What becomes of the stream's batches.
    StreamFaults,
}

impl Means {
    /// What has to be there.
    pub(super) fn needs(self) -> Needs {
        match self {
            Self::Signals | Self::StreamFaults => Needs::Nothing,
            Self::Broker | Self::BrokerLink => Needs::OwnBroker,
            Self::DynamoDbLink | Self::DynamoDbFaults => Needs::Emulator,
        }
    }
}

/// What has to be there for a kind or a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A broker that was started here.
    OwnBroker,
    /// A DynamoDB that stands in for AWS.
    Emulator,
}

impl Kind {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 21] = [
        Self::Kill,
        Self::KillAll,
        Self::Freeze,
        Self::FreezePastTimeout,
        Self::BrokerFrozen,
        Self::BrokerRestart,
        Self::BrokerKill,
        Self::BrokerSilent,
        Self::BrokerReset,
        Self::BrokerStranded,
        Self::BrokerHeld,
        Self::DynamoDbSilent,
        Self::DynamoDbReset,
        Self::DynamoDbStranded,
        Self::DynamoDbThrottled,
        Self::DynamoDbLostReplies,
        Self::DynamoDbHanging,
        Self::DynamoDbLate,
        Self::StreamDropped,
        Self::StreamDoubled,
        Self::StreamReordered,
    ];

    /// Its name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill-all",
            Self::Freeze => "freeze",
            Self::FreezePastTimeout => "freeze-past-timeout",
            Self::BrokerFrozen => "broker-frozen",
            Self::BrokerRestart => "broker-restart",
            Self::BrokerKill => "broker-kill",
            Self::BrokerSilent => "broker-silent",
            Self::BrokerReset => "broker-reset",
            Self::BrokerStranded => "broker-stranded",
            Self::BrokerHeld => "broker-held",
            Self::DynamoDbSilent => "dynamodb-silent",
            Self::DynamoDbReset => "dynamodb-reset",
            Self::DynamoDbStranded => "dynamodb-stranded",
            Self::DynamoDbThrottled => "dynamodb-throttled",
            Self::DynamoDbLostReplies => "dynamodb-lost-replies",
            Self::DynamoDbHanging => "dynamodb-hanging",
            Self::DynamoDbLate => "dynamodb-late",
            Self::StreamDropped => "stream-dropped",
            Self::StreamDoubled => "stream-doubled",
            Self::StreamReordered => "stream-reordered",
        }
    }

    /// How many of its cards a deck has: the quick ones more, those that take a whole timeout one.
    pub(super) fn cards(self) -> usize {
        match self {
            Self::Kill | Self::KillAll => 8,
            Self::Freeze => 6,
            Self::BrokerRestart
            | Self::BrokerKill
            | Self::BrokerReset
            | Self::BrokerStranded
            | Self::BrokerHeld
            | Self::DynamoDbReset
            | Self::DynamoDbStranded
            | Self::DynamoDbThrottled
            | Self::DynamoDbLostReplies
            | Self::DynamoDbHanging
            | Self::DynamoDbLate
            | Self::StreamDropped
            | Self::StreamDoubled
            | Self::StreamReordered => 2,
            Self::FreezePastTimeout | Self::BrokerFrozen | Self::BrokerSilent | Self::DynamoDbSilent => 1,
        }
    }

    pub(super) fn means(self) -> Means {
        match self {
            Self::Kill | Self::KillAll | Self::Freeze | Self::FreezePastTimeout => Means::Signals,
            Self::BrokerFrozen | Self::BrokerRestart | Self::BrokerKill => Means::Broker,
            Self::BrokerSilent | Self::BrokerReset | Self::BrokerStranded | Self::BrokerHeld => {
                Means::BrokerLink
            }
            Self::DynamoDbSilent | Self::DynamoDbReset | Self::DynamoDbStranded => Means::DynamoDbLink,
            Self::DynamoDbThrottled
            | Self::DynamoDbLostReplies
            | Self::DynamoDbHanging
            | Self::DynamoDbLate => Means::DynamoDbFaults,
            Self::StreamDropped | Self::StreamDoubled | Self::StreamReordered => Means::StreamFaults,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no kind or scenario of that name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no {name:?}; there are: {known}")]
pub struct UnknownName {
    pub(super) name: String,
    pub(super) known: String,
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownName { name: name.to_owned(), known: known() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused_with_what_there_is() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let refused = "killl".parse::<Kind>().unwrap_err().to_string();
        assert!(refused.contains("\"killl\"") && refused.contains("kill-all"), "{refused}");
    }
}
