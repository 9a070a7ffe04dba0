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
}

/// What has to be there for a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A broker that was started here.
    OwnBroker,
}

impl Kind {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 7] = [
        Self::Kill,
        Self::KillAll,
        Self::Freeze,
        Self::FreezePastTimeout,
        Self::BrokerFrozen,
        Self::BrokerRestart,
        Self::BrokerKill,
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
        }
    }

    /// How many of its cards a deck has: the quick ones more, those that take a whole timeout one.
    pub(super) fn cards(self) -> usize {
        match self {
            Self::Kill | Self::KillAll => 6,
            Self::Freeze => 4,
            Self::BrokerRestart | Self::BrokerKill => 2,
            Self::FreezePastTimeout | Self::BrokerFrozen => 1,
        }
    }

    pub(super) fn needs(self) -> Needs {
        match self {
            Self::Kill | Self::KillAll | Self::Freeze | Self::FreezePastTimeout => Needs::Nothing,
            Self::BrokerFrozen | Self::BrokerRestart | Self::BrokerKill => Needs::OwnBroker,
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
