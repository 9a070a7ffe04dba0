//! Metrics in CloudWatch's embedded format: JSON lines on standard output, of which CloudWatch makes metrics while it keeps
//! them as log lines. No request of the function's own, and nothing to flush before a freeze.

use std::io::Write as _;
use std::time::Duration;

use outbox::RunReport;
use outbox::relay::{BacklogSample, FailureKind};
use serde_json::{Map, Value, json};

/// The namespace in CloudWatch.
const NAMESPACE: &str = "Outbox";
/// The dimension that every metric has: the logical name of the outbox.
const NAME: &str = "outbox.name";
/// The dimension that failures have besides.
const KIND: &str = "kind";
/// The most values that a metric may have in one line.
const MOST_VALUES: usize = 100;

/// Where metrics go (`OUTBOX_METRICS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metrics {
    /// To standard output, in the embedded metric format.
    Emf,
    /// Nowhere; what only they need is not read either.
    Off,
}

/// What there is to tell of a run.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    /// The outbox's logical name.
    pub(crate) name: &'a str,
    /// The invocation's, so that its other lines can be found.
    pub(crate) request_id: &'a str,
    pub(crate) at_unix_millis: u64,
    /// How long the run took.
    pub(crate) took: Duration,
    /// How often the publisher has replaced its client since the last run ended.
    pub(crate) client_rebuilds: u64,
    pub(crate) report: &'a RunReport,
}

/// The lines of a run: one with everything, one for each kind of failure that there was, and one for each further hundred
/// durations. [`Durations::MOST`](outbox::relay::Durations::MOST) bounds those, whatever a run does.
pub(crate) fn emf_lines(told: &Told<'_>) -> Vec<String> {
    let report = told.report;
    let durations: Vec<f64> = report.publishes.values().map(seconds).collect();
    let mut durations = durations.chunks(MOST_VALUES);
    let failures = report.failures();

    let mut line = Line::new(told);
    line.count("outbox.owned_buckets", number(report.buckets.len()));
    line.count("outbox.publish.acknowledged", report.acknowledged());
    line.count("outbox.publish.failures", failures.total());
    line.count("outbox.lease.losses", report.lease_losses());
    line.seconds("outbox.publish.duration", durations.next().unwrap_or_default());
    line.seconds("outbox.run.duration", &[seconds(told.took)]);
    line.count("outbox.quarantined.messages", report.quarantined());
    line.count("outbox.waiting.buckets", number(report.waiting_buckets()));
    line.count("outbox.client.rebuilds", told.client_rebuilds);
    if let Some(keys) = report.parked_keys {
        line.count("outbox.quarantine.keys", keys);
    }
    match &report.backlog {
        BacklogSample::NotSampled => {}
        // No zero, nor any other number: that would be an empty outbox, or an old one.
        BacklogSample::Unknown { .. } => line.count("outbox.pending.available", 0),
        BacklogSample::Known { pending, oldest_age, .. } => {
            line.count("outbox.pending.available", 1);
            line.count("outbox.pending.messages", *pending);
            line.seconds("outbox.pending.oldest_age", oldest_age.map(seconds).as_slice());
        }
    }
    let mut lines = vec![line.end()];

    for kind in FailureKind::ALL {
        let count = failures.of(kind);
        if count > 0 {
            let mut line = Line::new(told);
            line.dimension(KIND, kind.name());
            line.count("outbox.publish.failures", count);
            lines.push(line.end());
        }
    }
    for more in durations {
        let mut line = Line::new(told);
        line.seconds("outbox.publish.duration", more);
        lines.push(line.end());
    }
    lines
}

/// Writes lines to standard output, each at once: the log is written there too, and one must not end up inside another.
/// What cannot be written is lost, and no reason to fail.
pub(crate) fn write_lines(lines: &[String]) {
    for line in lines {
        let line = format!("{line}\n");
        // The lock is held until all of it is written.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// One line in the making.
struct Line {
    timestamp: u64,
    dimensions: Vec<&'static str>,
    metrics: Vec<Value>,
    members: Map<String, Value>,
}

impl Line {
    fn new(told: &Told<'_>) -> Self {
        let mut members = Map::new();
        members.insert("requestId".to_owned(), told.request_id.into());
        let mut line =
            Self { timestamp: told.at_unix_millis, dimensions: Vec::new(), metrics: Vec::new(), members };
        line.dimension(NAME, told.name);
        line
    }

    fn dimension(&mut self, name: &'static str, value: &str) {
        self.dimensions.push(name);
        self.members.insert(name.to_owned(), value.into());
    }

    fn count(&mut self, name: &'static str, count: u64) {
        self.metric(name, "Count", count.into());
    }

    /// Without values the metric is left out.
    fn seconds(&mut self, name: &'static str, values: &[f64]) {
        match values {
            [] => {}
            [value] => self.metric(name, "Seconds", json!(value)),
            values => self.metric(name, "Seconds", json!(values)),
        }
    }

    fn metric(&mut self, name: &'static str, unit: &'static str, value: Value) {
        self.metrics.push(json!({ "Name": name, "Unit": unit }));
        self.members.insert(name.to_owned(), value);
    }

    fn end(mut self) -> String {
        let directive =
            json!({ "Namespace": NAMESPACE, "Dimensions": [self.dimensions], "Metrics": self.metrics });
        let aws = json!({ "Timestamp": self.timestamp, "CloudWatchMetrics": [directive] });
        self.members.insert("_aws".to_owned(), aws);
        Value::Object(self.members).to_string()
    }
}

/// To the microsecond.
fn seconds(duration: Duration) -> f64 {
    Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)).as_secs_f64()
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
