//! What is kept of a segment that failed, so that the cause can be found: bounded by what the hosts keep.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;

use super::diary::Diary;
use super::outcomes::Role;
use crate::environment::Environment;
use crate::lambda::LambdaHost;
use crate::shop::{Books, Verdict};

/// Writes what explains a failure into a directory of the segment's own; says where, or `None` with a warning when it
/// could not be written. No payloads: ids, numbers and times.
pub(super) fn keep(
    under: &Path,
    segment: &str,
    diary: &Diary,
    failures: &[String],
    verdict: &Verdict,
    books: &Books,
    environment: &Environment,
) -> Option<PathBuf> {
    let directory = under.join(segment.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"));
    let write = || -> io::Result<()> {
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("rounds.txt"), diary.lines().join("\n"))?;
        fs::write(directory.join("failures.txt"), failures.join("\n"))?;
        fs::write(directory.join("messages.txt"), messages(verdict, books).join("\n"))?;
        for (role, host) in
            [(Role::Stream, environment.stream_relay()), (Role::Scheduled, environment.scheduled_relay())]
        {
            fs::write(directory.join(format!("{role}.log")), lines(host).join("\n"))?;
            fs::write(directory.join(format!("{role}.invocations.txt")), invocations(host).join("\n"))?;
        }
        Ok(())
    };
    match write() {
        Ok(()) => Some(directory),
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "what explains a failure could not be kept");
            None
        }
    }
}

/// As the functions' log lines have it.
pub(super) fn time(time: SystemTime) -> String {
    DateTime::from(time).fmt(Format::DateTime).unwrap_or_default()
}

fn lines(host: &LambdaHost) -> Vec<String> {
    host.logs().into_iter().map(|line| format!("{} {} {}", time(line.time), line.pid, line.text)).collect()
}

fn invocations(host: &LambdaHost) -> Vec<String> {
    let line = |record: crate::lambda::InvocationRecord| {
        let (started, ended) = (time(record.started), time(record.ended));
        let pid = record.pid.unwrap_or_default();
        let cold = if record.cold_start { "cold" } else { "warm" };
        format!("{started} {ended} {pid} {cold} {} {} {}", record.request_id, record.attempt, record.outcome)
    };
    host.records().into_iter().map(line).collect()
}

/// The story of every customer that the verdict names: commits and arrivals in the order of time.
fn messages(verdict: &Verdict, books: &Books) -> Vec<String> {
    let lost: BTreeSet<_> = verdict.lost.iter().collect();
    let mut named: BTreeSet<u32> = verdict.out_of_order.iter().map(|late| late.customer).collect();
    named.extend(&verdict.scattered);
    named.extend(
        books.orders().iter().filter(|order| lost.contains(&order.message)).map(|order| order.customer),
    );
    let (now, wall) = (Instant::now(), SystemTime::now());
    let at = |instant: Instant| time(wall - now.saturating_duration_since(instant));
    let mut story = Vec::new();
    for order in books.orders().iter().filter(|order| named.contains(&order.customer)) {
        let (id, customer, number) = (order.message, order.customer, order.number);
        let what = format!("customer {customer} order {number} topic {} message {id}", order.topic);
        story.push((order.committed, format!("{} committed {what}", at(order.committed))));
        for delivery in books.deliveries().iter().filter(|delivery| delivery.message == Some(id)) {
            let (partition, offset) = (delivery.partition, delivery.offset);
            let line = format!("{} consumed  {what} at {partition}/{offset}", at(delivery.received));
            story.push((delivery.received, line));
        }
    }
    story.sort_by_key(|(instant, _)| *instant);
    story.into_iter().map(|(_, line)| line).collect()
}
