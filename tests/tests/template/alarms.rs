//! The alarms and the dashboard: what they look at exists, and an alarm's reader is sent to a section that does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::documents::anchors;
use crate::{list, read, resources, texts};

const ALARM: &str = "AWS::CloudWatch::Alarm";
const RUNBOOK: &str = "docs/runbook.md";

/// What the functions report, and nothing else: a name that is written wrong is a graph that is empty for ever.
const OWN_METRICS: [&str; 13] = [
    "outbox.owned_buckets",
    "outbox.publish.acknowledged",
    "outbox.publish.failures",
    "outbox.lease.losses",
    "outbox.publish.duration",
    "outbox.run.duration",
    "outbox.pending.messages",
    "outbox.pending.oldest_age",
    "outbox.pending.available",
    "outbox.quarantined.messages",
    "outbox.quarantine.keys",
    "outbox.waiting.buckets",
    "outbox.client.rebuilds",
];
/// What AWS reports, as far as it is of use here, with its dimension.
const AWS_METRICS: [(&str, &str, &[&str]); 2] = [
    ("AWS/Lambda", "FunctionName", &["Invocations", "Errors", "Throttles", "Duration", "IteratorAge"]),
    ("AWS/SQS", "QueueName", &["ApproximateNumberOfMessagesVisible"]),
];
const QUARANTINING: [(&str, &str); 1] = [("PoisonPolicy", "quarantine")];

/// Namespace, name, dimension and what it is of, of a metric that somebody looks at.
#[derive(Debug)]
struct Metric<'a> {
    namespace: &'a str,
    name: &'a str,
    dimension: &'a str,
    of: &'a str,
}

impl Metric<'_> {
    fn check(&self, by: &str) {
        let known = match self.namespace {
            "Outbox" => {
                self.dimension == "outbox.name" && self.of == "outbox" && OWN_METRICS.contains(&self.name)
            }
            _ => AWS_METRICS.iter().any(|(namespace, dimension, names)| {
                (*namespace, *dimension) == (self.namespace, self.dimension) && names.contains(&self.name)
            }),
        };
        assert!(known, "{by} looks at {self:?}");
    }
}

/// All that an alarm looks at.
fn metrics_of(alarm: &Value) -> Vec<Metric<'_>> {
    fn metric(value: &Value) -> Metric<'_> {
        let [dimension] = value["Dimensions"].as_array().unwrap().as_slice() else {
            panic!("one dimension: {value}")
        };
        Metric {
            namespace: value["Namespace"].as_str().unwrap(),
            name: value["MetricName"].as_str().unwrap(),
            dimension: dimension["Name"].as_str().unwrap(),
            of: dimension["Value"].as_str().unwrap(),
        }
    }
    match alarm["Metrics"].as_array() {
        Some(metrics) => {
            let stats = metrics.iter().map(|it| &it["MetricStat"]["Metric"]);
            stats.filter(|it| !it.is_null()).map(metric).collect()
        }
        None => vec![metric(alarm)],
    }
}

#[test]
fn every_alarm_sends_its_reader_to_a_section_of_the_runbook_that_names_it() {
    let (runbook, anchors) = (read(RUNBOOK), anchors(RUNBOOK));
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, alarm) in resources(&QUARANTINING, ALARM) {
        let description = alarm["Properties"]["AlarmDescription"].as_str().unwrap();
        let address = description.rsplit(' ').next().unwrap();
        let anchor =
            address.strip_prefix("docs/runbook.md#").unwrap_or_else(|| panic!("{id}: {description}"));
        assert!(anchors.contains(anchor), "{id}: the runbook has no heading {anchor:?}");
        let name =
            alarm["Properties"]["AlarmName"].as_str().unwrap().strip_prefix("local-").unwrap().to_owned();
        named.entry(anchor.to_owned()).or_default().insert(name);
    }
    for section in runbook.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap();
        let anchor = heading.to_lowercase().replace(' ', "-");
        // The names after the word Alarm, up to the colon that says what it means.
        let first = text.trim_start().strip_prefix("**Alarm** ").map(|rest| rest.split_once(':').unwrap().0);
        let names: BTreeSet<String> = first
            .into_iter()
            .flat_map(|names| names.split('`').filter_map(|it| it.strip_prefix('…')?.strip_prefix('-')))
            .map(str::to_owned)
            .collect();
        assert_eq!(names, named.remove(&anchor).unwrap_or_default(), "the section {heading:?}");
    }
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn alarms_look_at_metrics_that_exist_and_say_what_a_missing_one_means() {
    for (id, alarm) in resources(&QUARANTINING, ALARM) {
        let alarm = &alarm["Properties"];
        let metrics = metrics_of(alarm);
        assert!(!metrics.is_empty(), "{id}");
        for metric in &metrics {
            metric.check(&id);
        }
        // Unknown is not zero: one alarm says so itself, and the others on what waits stay as they are.
        let missing = alarm["TreatMissingData"].as_str().unwrap();
        let expected = match metrics[0].name {
            "outbox.pending.available" => "breaching",
            name if name.starts_with("outbox.") => "ignore",
            _ => "notBreaching",
        };
        assert_eq!(missing, expected, "{id}");
    }
}

/// Every one of them is looked at by an alarm or shown.
#[test]
fn the_dashboard_shows_every_metric_and_none_that_does_not_exist() {
    let dashboards = resources(&[], "AWS::CloudWatch::Dashboard");
    let body = dashboards["OutboxDashboard"]["Properties"]["DashboardBody"].as_str().unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let mut shown: BTreeSet<String> = BTreeSet::new();
    let widgets = body["widgets"].as_array().unwrap();
    for widget in widgets.iter().filter(|widget| widget["type"] == "metric") {
        let title = widget["properties"]["title"].as_str().unwrap();
        assert_eq!(widget["properties"]["region"], "us-east-1", "{title}");
        for metric in widget["properties"]["metrics"].as_array().unwrap() {
            let parts: Vec<&str> = metric.as_array().unwrap().iter().filter_map(Value::as_str).collect();
            if let [namespace, name, dimension, of] = parts[..] {
                Metric { namespace, name, dimension, of }.check(title);
                shown.insert(name.to_owned());
            } else {
                // By kind, which a search finds.
                let expression = metric[0]["expression"].as_str().unwrap();
                assert!(expression.contains("{Outbox,\"outbox.name\",kind}"), "{title}: {expression}");
                assert!(expression.contains("\"outbox.name\"=\"outbox\""), "{title}: {expression}");
                let named = expression.split("MetricName=\"").nth(1).unwrap().split('"').next().unwrap();
                Metric { namespace: "Outbox", name: named, dimension: "outbox.name", of: "outbox" }
                    .check(title);
                shown.insert(named.to_owned());
            }
        }
    }
    for metric in OWN_METRICS {
        assert!(shown.contains(metric), "{metric} is nowhere to be seen");
        assert!(read(RUNBOOK).contains(&format!("`{metric}`")), "the runbook does not explain {metric}");
    }
}

#[test]
fn alarms_metrics_and_dashboard_are_left_out_on_their_own() {
    let of_the_functions = |alarms: BTreeMap<String, Value>| {
        let own = alarms.iter().filter(|(_, alarm)| texts(alarm).contains(&"Outbox"));
        own.map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    assert!(resources(&[("Alarms", "off")], ALARM).is_empty());
    assert!(resources(&[("Dashboard", "off")], "AWS::CloudWatch::Dashboard").is_empty());
    let without_metrics = resources(&[("Metrics", "off"), ("PoisonPolicy", "quarantine")], ALARM);
    assert!(!without_metrics.is_empty() && of_the_functions(without_metrics).is_empty());
    // The depth of a quarantine is reported only where there is one.
    assert!(!resources(&[], ALARM).contains_key("QuarantineAlarm"));
    assert!(resources(&QUARANTINING, ALARM).contains_key("QuarantineAlarm"));
    // All but the one that emulators refuse.
    let all: BTreeSet<_> = resources(&[], ALARM).into_keys().collect();
    let simple: BTreeSet<_> = resources(&[("Alarms", "simple")], ALARM).into_keys().collect();
    assert_eq!(all.difference(&simple).collect::<Vec<_>>(), ["MessagesStuckAlarm"]);
}

#[test]
fn alarms_are_sent_to_the_topic_if_there_is_one() {
    let topic = "arn:aws:sns:us-east-1:000000000000:on-call";
    for (id, alarm) in resources(&[("AlarmTopicArn", topic)], ALARM) {
        for actions in ["AlarmActions", "OKActions"] {
            assert_eq!(list(&alarm["Properties"][actions]), [topic], "{id}");
        }
    }
    for (id, alarm) in resources(&[], ALARM) {
        assert!(
            alarm["Properties"]["AlarmActions"].is_null() && alarm["Properties"]["OKActions"].is_null(),
            "{id}"
        );
    }
}

/// CloudWatch refuses an alarm that looks at more than a day, and at more than a week in periods of an hour or more.
#[test]
fn no_alarm_looks_back_for_longer_than_cloudwatch_allows() {
    let source = crate::template(&[]).source().clone();
    let periods = source["Parameters"]["AlarmPeriodSeconds"]["AllowedValues"].as_array().unwrap().clone();
    for period in periods {
        let seconds = period.as_u64().unwrap();
        for (id, alarm) in resources(&[("AlarmPeriodSeconds", &seconds.to_string())], ALARM) {
            let alarm = &alarm["Properties"];
            let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
            let own = number(&alarm["Period"]).unwrap_or(seconds);
            let looked_at = own * number(&alarm["EvaluationPeriods"]).unwrap();
            let most = if own < 3_600 { 86_400 } else { 604_800 };
            assert!(looked_at <= most && own.is_multiple_of(60), "{id}: {looked_at} s in periods of {own} s");
        }
    }
}
