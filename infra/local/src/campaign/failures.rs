//! What must not be in a segment, in words: with the ids involved and the rounds they fall into.

use std::collections::HashMap;
use std::time::Instant;

use outbox::MessageId;

use super::diary::Diary;
use super::outcomes::{Causes, Outcomes, Role};
use crate::environment::Environment;
use crate::lambda::InvocationRecord;
use crate::shop::{Books, Verdict};

/// Failures of one segment that are told one by one.
const TOLD: usize = 20;
const LONGEST_OUTCOME: usize = 200;

/// Leaves the first ones, and says how many there were.
pub(super) fn shorten(failures: &mut Vec<String>) {
    let untold = failures.len().saturating_sub(TOLD);
    failures.truncate(TOLD);
    if untold > 0 {
        failures.push(format!("and {untold} more"));
    }
}

/// Every invocation ended in an answer, or a round is the reason; and no answer named a failed record.
pub(super) fn against_invocations(
    environment: &Environment,
    causes: &Causes,
    diary: &Diary,
    failures: &mut Vec<String>,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut unanswered = 0;
    for (role, host) in
        [(Role::Stream, environment.stream_relay()), (Role::Scheduled, environment.scheduled_relay())]
    {
        for record in host.records() {
            unanswered += u64::from(role == Role::Stream && !record.outcome.is_response());
            if outcomes.count(role, &record, causes) {
                let during = diary.during(record.ended);
                failures.push(format!("{} ({during})", unexpected(role, &record)));
            }
        }
    }
    // The poller counts an attempt after the host has recorded it: never more of them without a reason.
    let failed = environment.poller().map_or(0, |poller| poller.counters().failed_attempts);
    if failed > unanswered {
        failures.push(format!("{} answers of stream-relay named a failed record", failed - unanswered));
    }
    outcomes
}

fn unexpected(role: Role, record: &InvocationRecord) -> String {
    let (id, ms) = (&record.request_id, record.duration.as_millis());
    // An error's text has the client's last words, at length; all of it is in what is kept.
    let outcome: String = record.outcome.to_string().chars().take(LONGEST_OUTCOME).collect();
    format!("{role} {id} after {ms} ms, and no round was the reason: {outcome}")
}

/// What the verdict has against the segment, by ids, and the rounds in which the messages were committed.
pub(super) fn against_messages(verdict: &Verdict, books: &Books, diary: &Diary, failures: &mut Vec<String>) {
    let committed: HashMap<MessageId, Instant> =
        books.orders().iter().map(|order| (order.message, order.committed)).collect();
    let during = |id: MessageId| committed.get(&id).map_or("", |at| diary.during_moment(*at));
    failures
        .extend(verdict.lost.iter().map(|id| format!("message {id} of {} was not delivered", during(*id))));
    failures.extend(verdict.out_of_order.iter().map(|late| {
        let (id, customer, during) = (late.message, late.customer, during(late.message));
        let (later, earlier) = (late.later, late.earlier);
        format!("message {id} of {during}: order {later} of customer {customer} arrived after {earlier}")
    }));
    let scattered = verdict.scattered.iter();
    failures.extend(scattered.map(|customer| format!("customer {customer} came through several partitions")));
    if verdict.altered > 0 {
        failures.push(format!("{} records were altered", verdict.altered));
    }
    if verdict.strangers > 0 {
        failures.push(format!("{} records came from nowhere", verdict.strangers));
    }
}
