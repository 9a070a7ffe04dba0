//! What came of the invocations, and which of it a round explains.

use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::lambda::{InvocationRecord, Outcome};

/// What scheduled-relay reports when it cannot reach the table.
const UNAVAILABLE: &str = "Outbox.Unavailable";
/// SIGKILL.
const KILLED: Option<i32> = Some(9);
/// A process's end is seen a little after the signal.
const SEEN_LATE: Duration = Duration::from_secs(1);

/// Which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    Stream,
    Scheduled,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "stream-relay",
            Self::Scheduled => "scheduled-relay",
        })
    }
}

/// What a round has done to processes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    /// This one was killed.
    Killed { role: Role, pid: u32 },
    /// This one was stopped for longer than its invocation may take.
    Stopped { role: Role, pid: u32 },
    /// DynamoDB could not be reached, or was no use, in this time.
    TableAway { from: SystemTime, to: SystemTime },
    /// All were killed in this time, those included that were only starting.
    AllKilled { from: SystemTime, to: SystemTime },
}

impl Cause {
    fn explains(self, role: Role, record: &InvocationRecord) -> bool {
        let is = |other, pid| role == other && record.pid == Some(pid);
        match (self, &record.outcome) {
            (Self::Killed { role, pid }, Outcome::Crashed { exit, .. }) => {
                exit.signal == KILLED && is(role, pid)
            }
            (Self::Stopped { role, pid }, Outcome::TimedOut) => is(role, pid),
            (Self::AllKilled { from, to }, Outcome::Crashed { exit, .. }) => {
                exit.signal == KILLED && record.ended >= from && record.ended <= to + SEEN_LATE
            }
            // A sweep that sees nothing of the table says so, for the sake of whoever watches its errors.
            (Self::TableAway { from, to }, Outcome::FunctionError { error_type, .. }) => {
                let during = record.started <= to && record.ended >= from;
                role == Role::Scheduled && error_type == UNAVAILABLE && during
            }
            _ => false,
        }
    }
}

/// What the rounds of a segment have done to processes.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<Vec<Cause>>);

impl Causes {
    /// To be said before it is done: the outcome may be there at once.
    pub(super) fn note(&self, cause: Cause) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(cause);
    }

    /// Notes when the last thing that lasts was over. Until then it has no end.
    pub(super) fn over(&self) {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Cause::AllKilled { to, .. } | Cause::TableAway { to, .. }) = causes.last_mut() {
            *to = SystemTime::now();
        }
    }

    fn explain(&self, role: Role, record: &InvocationRecord) -> bool {
        let causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        causes.iter().any(|cause| cause.explains(role, record))
    }
}

/// What came of the invocations of both functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// They answered.
    pub answered: u64,
    /// A round killed their process.
    pub killed: u64,
    /// A round stopped their process for longer than their timeout.
    pub stopped: u64,
    /// They reported that the table could not be reached, while a round kept it away.
    pub told: u64,
    /// They failed, timed out or crashed, and no round was the reason.
    pub unexpected: u64,
    /// The longest that ended in an answer.
    pub longest: Duration,
}

impl Outcomes {
    /// Counts one, and says whether it is one that must not be.
    pub(super) fn count(&mut self, role: Role, record: &InvocationRecord, causes: &Causes) -> bool {
        let expected = match &record.outcome {
            Outcome::Response(_) => {
                self.answered += 1;
                self.longest = self.longest.max(record.duration);
                true
            }
            outcome if causes.explain(role, record) => {
                *match outcome {
                    Outcome::TimedOut => &mut self.stopped,
                    Outcome::FunctionError { .. } => &mut self.told,
                    _ => &mut self.killed,
                } += 1;
                true
            }
            _ => {
                self.unexpected += 1;
                false
            }
        };
        !expected
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.answered + self.killed + self.stopped + self.told + self.unexpected
    }
}

impl AddAssign<&Outcomes> for Outcomes {
    fn add_assign(&mut self, other: &Self) {
        self.answered += other.answered;
        self.killed += other.killed;
        self.stopped += other.stopped;
        self.told += other.told;
        self.unexpected += other.unexpected;
        self.longest = self.longest.max(other.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lambda::{Exit, Phase};

    fn record(pid: u32, outcome: Outcome) -> InvocationRecord {
        InvocationRecord {
            request_id: "request".to_owned(),
            attempt: 1,
            pid: Some(pid),
            cold_start: false,
            started: SystemTime::UNIX_EPOCH,
            ended: SystemTime::UNIX_EPOCH + Duration::from_secs(10),
            duration: Duration::from_secs(10),
            outcome,
        }
    }

    fn crashed(signal: i32) -> Outcome {
        Outcome::Crashed { exit: Exit { code: None, signal: Some(signal) }, phase: Phase::Invoke }
    }

    #[test]
    fn only_what_a_round_did_to_that_very_process_is_explained() {
        let causes = Causes::default();
        causes.note(Cause::Killed { role: Role::Stream, pid: 1 });
        causes.note(Cause::Stopped { role: Role::Scheduled, pid: 2 });
        let mut outcomes = Outcomes::default();
        for (role, pid, outcome, unexpected) in [
            (Role::Stream, 1, crashed(9), false),
            (Role::Stream, 1, crashed(11), true),
            (Role::Stream, 1, Outcome::TimedOut, true),
            (Role::Stream, 7, crashed(9), true),
            (Role::Scheduled, 1, crashed(9), true),
            (Role::Scheduled, 2, Outcome::TimedOut, false),
            (Role::Scheduled, 2, crashed(9), true),
            (Role::Stream, 2, Outcome::TimedOut, true),
            (Role::Stream, 1, Outcome::Response(serde_json::Value::Null), false),
        ] {
            let record = record(pid, outcome);
            assert_eq!(outcomes.count(role, &record, &causes), unexpected, "{role} {record:?}");
        }
        let longest = Duration::from_secs(10);
        let expected = Outcomes { answered: 1, killed: 1, stopped: 1, told: 0, unexpected: 6, longest };
        assert_eq!(outcomes, expected);
        assert_eq!(outcomes.total(), 9);
    }

    #[test]
    fn a_kill_of_all_explains_what_died_of_it_then() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (from, to, explained) in [(9, 10, true), (8, 9, true), (11, 12, false), (6, 8, false)] {
            let causes = Causes::default();
            causes.note(Cause::AllKilled { from: at(from), to: at(to) });
            let unexpected = Outcomes::default().count(Role::Stream, &record(3, crashed(9)), &causes);
            assert_eq!(!unexpected, explained, "{from} to {to}");
        }
    }

    #[test]
    fn only_a_sweep_may_say_that_the_table_is_away_and_only_while_it_is() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let failed = |error_type: &str| Outcome::FunctionError {
            error_type: error_type.to_owned(),
            message: String::new(),
        };
        for (role, error_type, from, to, explained) in [
            (Role::Scheduled, UNAVAILABLE, 9, 20, true),
            (Role::Scheduled, UNAVAILABLE, 11, 20, false),
            (Role::Scheduled, "Outbox.Misconfigured", 9, 20, false),
            (Role::Stream, UNAVAILABLE, 9, 20, false),
        ] {
            let causes = Causes::default();
            causes.note(Cause::TableAway { from: at(from), to: at(to) });
            let unexpected = Outcomes::default().count(role, &record(3, failed(error_type)), &causes);
            assert_eq!(!unexpected, explained, "{role} {error_type} {from} to {to}");
        }
    }
}
