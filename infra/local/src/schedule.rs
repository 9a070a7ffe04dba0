//! The scheduler: invokes a function at an interval, as EventBridge does.

use std::time::{Duration, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::lambda::LambdaHost;

/// Which service calls: they send different events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleSource {
    /// EventBridge Scheduler, the template's `ScheduleV2`.
    Scheduler,
    /// An EventBridge rule, the template's `Schedule`.
    Rule,
}

/// A schedule of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRule {
    /// The schedule's name.
    pub name: String,
    /// Which service calls.
    pub source: ScheduleSource,
    /// When, such as `rate(1 minute)`.
    pub expression: String,
    /// The event's text, if it is not the service's own.
    pub input: Option<String>,
}

/// Why a schedule cannot be run here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The expression is no rate, or not one of EventBridge's.
    #[error("schedule {name}: {expression} is not of the form rate(5 minutes); give an interval instead")]
    Expression {
        /// The schedule.
        name: String,
        /// Its expression.
        expression: String,
    },
    /// The input is no JSON, which EventBridge would refuse.
    #[error("schedule {name}: its input is not JSON")]
    Input {
        /// The schedule.
        name: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The interval is zero.
    #[error("schedule {name}: the interval must not be zero")]
    Interval {
        /// The schedule.
        name: String,
    },
}

impl ScheduleRule {
    /// The interval that the expression states.
    ///
    /// # Errors
    /// It states none: a `cron` expression, or a malformed one.
    pub fn rate(&self) -> Result<Duration, ScheduleError> {
        parse_rate(&self.expression).ok_or_else(|| ScheduleError::Expression {
            name: self.name.clone(),
            expression: self.expression.clone(),
        })
    }

    /// The event that is sent at `time`.
    ///
    /// # Errors
    /// The input is no JSON.
    pub fn event(&self, time: SystemTime) -> Result<Value, ScheduleError> {
        if let Some(input) = &self.input {
            return serde_json::from_str(input)
                .map_err(|source| ScheduleError::Input { name: self.name.clone(), source });
        }
        let seconds = DateTime::from_secs(DateTime::from(time).secs());
        // Scheduler's detail is a text, a rule's is an object: so they are.
        let (source, resource, detail) = match self.source {
            ScheduleSource::Scheduler => {
                ("aws.scheduler", "scheduler:us-east-1:000000000000:schedule/default", json!("{}"))
            }
            ScheduleSource::Rule => ("aws.events", "events:us-east-1:000000000000:rule", json!({})),
        };
        Ok(json!({
            "version": "0",
            "id": Uuid::new_v4().to_string(),
            "detail-type": "Scheduled Event",
            "source": source,
            "account": "000000000000",
            "time": seconds.fmt(Format::DateTime).unwrap_or_default(),
            "region": "us-east-1",
            "resources": [format!("arn:aws:{resource}/{}", self.name)],
            "detail": detail,
        }))
    }
}

/// `rate(1 minute)`, `rate(5 minutes)`, and the same with hours and days.
fn parse_rate(expression: &str) -> Option<Duration> {
    let rate = expression.trim().strip_prefix("rate(")?.strip_suffix(')')?;
    let (count, unit) = rate.trim().split_once(' ')?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
    // EventBridge insists on the plural.
    let unit = match (unit.trim(), count) {
        ("minute", 1) | ("minutes", 2..) => 60,
        ("hour", 1) | ("hours", 2..) => 3_600,
        ("day", 1) | ("days", 2..) => 86_400,
        _ => return None,
    };
    count.checked_mul(unit).map(Duration::from_secs)
}

/// A running schedule; it stops when this is dropped. The events it has sent are run to their end.
#[derive(Debug)]
pub struct Scheduler {
    _stop: DropGuard,
}

impl Scheduler {
    /// Sends the rule's event to the function now and at every interval, the rule's own or another. An event
    /// does not wait for the one before.
    ///
    /// # Errors
    /// The rule's expression is no rate and no interval is given; the interval is zero; the input is no JSON.
    pub fn start(
        rule: ScheduleRule,
        other_interval: Option<Duration>,
        function: LambdaHost,
    ) -> Result<Self, ScheduleError> {
        let period = match other_interval {
            Some(period) => period,
            None => rule.rate()?,
        };
        if period.is_zero() {
            return Err(ScheduleError::Interval { name: rule.name });
        }
        rule.event(SystemTime::now())?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let mut ticks = interval(period);
            // After a pause of this machine one sweep is as good as many.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let Ok(event) = rule.event(SystemTime::now()) else {
                    return;
                };
                if let Err(error) = function.invoke_async(&event) {
                    tracing::warn!(%error, schedule = rule.name, "an event was not sent");
                }
            }
        });
        Ok(Self { _stop: stop.drop_guard() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: ScheduleSource, input: Option<&str>) -> ScheduleRule {
        ScheduleRule {
            name: "sweep".to_owned(),
            source,
            expression: "rate(1 minute)".to_owned(),
            input: input.map(str::to_owned),
        }
    }

    #[test]
    fn rates() {
        for (expression, seconds) in [
            ("rate(1 minute)", Some(60)),
            ("rate(5 minutes)", Some(300)),
            (" rate( 2 hours ) ", Some(7_200)),
            ("rate(1 day)", Some(86_400)),
            ("rate(1 minutes)", None),
            ("rate(5 minute)", None),
            ("rate(0 minutes)", None),
            ("rate(-1 minutes)", None),
            ("rate(1 second)", None),
            ("rate(1minute)", None),
            ("cron(0 8 * * ? *)", None),
            ("rate(18446744073709551615 days)", None),
        ] {
            assert_eq!(parse_rate(expression), seconds.map(Duration::from_secs), "{expression}");
        }
        let cron =
            ScheduleRule { expression: "cron(0 8 * * ? *)".to_owned(), ..rule(ScheduleSource::Rule, None) };
        assert!(cron.rate().unwrap_err().to_string().starts_with("schedule sweep: cron(0 8 * * ? *)"));
    }

    #[test]
    fn events_are_those_of_their_service() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_999);
        let event = rule(ScheduleSource::Scheduler, None).event(time).unwrap();
        assert_eq!(event["source"], "aws.scheduler");
        assert_eq!(event["detail"], "{}");
        assert_eq!(event["time"], "2023-11-14T22:13:20Z");
        assert_eq!(event["resources"][0], "arn:aws:scheduler:us-east-1:000000000000:schedule/default/sweep");
        let event = rule(ScheduleSource::Rule, None).event(time).unwrap();
        assert_eq!((&event["source"], &event["detail"]), (&json!("aws.events"), &json!({})));
        let event = rule(ScheduleSource::Rule, Some(r#"{"own": true}"#)).event(time).unwrap();
        assert_eq!(event, json!({"own": true}));
        let refused = rule(ScheduleSource::Rule, Some("{")).event(time).unwrap_err();
        assert_eq!(refused.to_string(), "schedule sweep: its input is not JSON");
    }
}
