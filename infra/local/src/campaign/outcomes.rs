//! What came of the invocations, and which of it a round explains.

use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::lambda::{InvocationRecord, Outcome};

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

    /// When the last kill of all was over.
    pub(super) fn end_all_killed(&self, end: SystemTime) {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Cause::AllKilled { to, .. }) =
            causes.iter_mut().rev().find(|cause| matches!(cause, Cause::AllKilled { .. }))
        {
            *to = end;
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
                let stopped = *outcome == Outcome::TimedOut;
                *(if stopped { &mut self.stopped } else { &mut self.killed }) += 1;
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
        self.answered + self.killed + self.stopped + self.unexpected
    }
}

impl AddAssign<&Outcomes> for Outcomes {
    fn add_assign(&mut self, other: &Self) {
        self.answered += other.answered;
        self.killed += other.killed;
        self.stopped += other.stopped;
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
        assert_eq!(outcomes, Outcomes { answered: 1, killed: 1, stopped: 1, unexpected: 6, longest });
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
}
