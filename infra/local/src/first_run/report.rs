//! What a run ends with.

use std::fmt;
use std::time::Duration;

use crate::dynamodb::Usage;
use crate::lambda::Counters;
use crate::shop::{Verdict, milliseconds, seconds, thousands};

/// A finished run. `Display` is the report that a person reads.
#[derive(Debug, Clone)]
pub struct Report {
    /// What held and what did not.
    pub verdict: Verdict,
    /// Customers that orders were placed for.
    pub customers: u32,
    /// From the first order to the last commit.
    pub placing: Duration,
    /// From the first order to the last first delivery.
    pub relaying: Duration,
    /// Messages still in the outbox at the end, after it was given time to empty.
    pub left: u64,
    /// DynamoDB's work from the first order to the end; `None` where it is not measured.
    pub usage: Option<Usage>,
    /// Which broker it was.
    pub broker: String,
    /// Which DynamoDB it was.
    pub database: String,
    /// What stream-relay did.
    pub stream_relay: Counters,
    /// What scheduled-relay did.
    pub scheduled_relay: Counters,
}

impl Report {
    /// Whether nothing was lost, altered or out of order, and the outbox is empty.
    pub fn holds(&self) -> bool {
        self.verdict.holds() && self.left == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = &self.verdict;
        let mut line = |name: &str, text: String| writeln!(f, "  {name:<22}{text}");
        line(
            "orders placed",
            format!(
                "{} over {} customers in {}",
                thousands(verdict.placed),
                thousands(self.customers),
                seconds(self.placing)
            ),
        )?;
        line("records consumed", format!("{} in {}", thousands(verdict.records), seconds(self.relaying)))?;
        line("lost", thousands(verdict.lost.len()))?;
        line("duplicates", thousands(verdict.duplicates))?;
        if verdict.strangers > 0 || verdict.altered > 0 {
            line(
                "unknown, altered",
                format!("{}, {}", thousands(verdict.strangers), thousands(verdict.altered)),
            )?;
        }
        line("order per customer", order(verdict))?;
        line(
            "commit to consumer",
            match verdict.latency {
                Some(latency) => format!(
                    "median {}, p99 {}, largest {}",
                    milliseconds(latency.median),
                    milliseconds(latency.p99),
                    milliseconds(latency.largest)
                ),
                None => "nothing arrived".to_owned(),
            },
        )?;
        line(
            "outbox at the end",
            match self.left {
                0 => "empty".to_owned(),
                left => format!("{} messages left", thousands(left)),
            },
        )?;
        line(
            "DynamoDB units",
            match &self.usage {
                Some(usage) => format!(
                    "{} write, {} read, in {} requests",
                    units(usage.write_units()),
                    units(usage.read_units()),
                    thousands(usage.requests())
                ),
                None => "not measured".to_owned(),
            },
        )?;
        line("stream-relay", function(&self.stream_relay))?;
        line("scheduled-relay", function(&self.scheduled_relay))?;
        line("DynamoDB", self.database.clone())?;
        line("Kafka", self.broker.clone())?;
        write!(
            f,
            "  {:<22}{}",
            "result",
            if self.holds() { "all orders arrived, in order" } else { "FAILED" }
        )
    }
}

fn order(verdict: &Verdict) -> String {
    if verdict.order_kept() {
        return "kept".to_owned();
    }
    let mut text = format!("NOT KEPT: {} first deliveries too late", thousands(verdict.out_of_order.len()));
    if let Some(first) = verdict.out_of_order.first() {
        text += &format!(" (customer {}: {} after {})", first.customer, first.later, first.earlier);
    }
    if !verdict.scattered.is_empty() {
        text += &format!(", {} customers in several partitions", thousands(verdict.scattered.len()));
    }
    text
}

fn function(counters: &Counters) -> String {
    let mut text = format!(
        "{} invocations, {} cold starts",
        thousands(counters.invocations),
        thousands(counters.cold_starts)
    );
    for (count, what) in [
        (counters.errors, "failed"),
        (counters.timeouts, "timed out"),
        (counters.crashes, "crashed"),
        (counters.throttles, "throttled"),
    ] {
        if count > 0 {
            text += &format!(", {} {what}", thousands(count));
        }
    }
    text
}

fn units(units: f64) -> String {
    thousands(format!("{units:.0}"))
}

#[cfg(test)]
mod tests {
    use outbox::MessageId;
    use uuid::Uuid;

    use super::*;
    use crate::shop::{Latency, OutOfOrder};

    fn report() -> Report {
        let ms = Duration::from_millis;
        Report {
            verdict: Verdict {
                placed: 1000,
                records: 1000,
                latency: Some(Latency { median: ms(12), p99: ms(34), largest: ms(1234) }),
                ..Verdict::default()
            },
            customers: 50,
            placing: ms(4321),
            relaying: ms(4400),
            left: 0,
            usage: Some(Usage::default()),
            broker: "Apache Kafka".to_owned(),
            database: "embedded".to_owned(),
            stream_relay: Counters { invocations: 7, cold_starts: 1, ..Counters::default() },
            scheduled_relay: Counters::default(),
        }
    }

    #[test]
    fn a_good_run_says_so() {
        let text = report().to_string();
        for expected in [
            "orders placed         1,000 over 50 customers in 4.3 s",
            "order per customer    kept",
            "median 12 ms, p99 34 ms, largest 1,234 ms",
            "outbox at the end     empty",
            "stream-relay          7 invocations, 1 cold starts\n",
            "result                all orders arrived, in order",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing from\n{text}");
        }
    }

    #[test]
    fn whatever_is_wrong_fails_the_run_and_is_named() {
        let id = MessageId::from_uuid(Uuid::nil());
        let lost = Verdict { lost: vec![id], ..report().verdict };
        let late = OutOfOrder { customer: 3, earlier: 9, later: 8, message: id };
        let disorder = Verdict { out_of_order: vec![late], ..report().verdict };
        for (bad, expected) in [
            (Report { verdict: lost, ..report() }, "lost                  1"),
            (
                Report { verdict: disorder, ..report() },
                "NOT KEPT: 1 first deliveries too late (customer 3: 8 after 9)",
            ),
            (Report { left: 2, ..report() }, "2 messages left"),
        ] {
            assert!(!bad.holds());
            let text = bad.to_string();
            assert!(text.contains(expected) && text.ends_with("FAILED"), "{text}");
        }
    }

    #[test]
    fn duplicates_alone_are_within_the_promise() {
        let mut report = report();
        report.verdict.duplicates = 3;
        assert!(report.holds());
    }

    #[test]
    fn what_is_not_measured_says_so() {
        assert!(Report { usage: None, ..report() }.to_string().contains("not measured"));
    }
}
