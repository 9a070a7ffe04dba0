use std::collections::{BTreeMap, BTreeSet};

use outbox::relay::{BucketReport, Durations};
use outbox::{Bucket, BucketEnd};
use proptest::prelude::*;

use super::*;

const AT: u64 = 1_796_037_753_123;

fn lines(report: &RunReport) -> Vec<Value> {
    let took = Duration::from_micros(1_234_567);
    let told =
        Told { name: "orders", request_id: "8476a536", at_unix_millis: AT, took, client_rebuilds: 2, report };
    emf_lines(&told).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The metrics of a line, by name, with their unit.
fn metrics(line: &Value) -> BTreeMap<String, (String, Value)> {
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    let metric = |metric: &Value| {
        let name = metric["Name"].as_str().unwrap();
        (name.to_owned(), (metric["Unit"].as_str().unwrap().to_owned(), line[name].clone()))
    };
    metrics.iter().map(metric).collect()
}

fn value(line: &Value, name: &str) -> Option<Value> {
    metrics(line).remove(name).map(|(_, value)| value)
}

fn bucket(end: BucketEnd) -> BucketReport {
    BucketReport { acknowledged: 3, quarantined: 1, lease_losses: 1, end, ..BucketReport::default() }
}

fn publishes(count: u64) -> Durations {
    let mut durations = Durations::default();
    (0..count).for_each(|n| durations.note(Duration::from_micros(1_000 + n)));
    durations
}

#[test]
fn a_line_is_as_cloudwatch_wants_it() {
    let mut report = RunReport::default();
    report.buckets.insert(Bucket::new(0), bucket(BucketEnd::Empty));
    report.buckets.insert(Bucket::new(5), bucket(BucketEnd::Waiting));
    report.publishes = publishes(2);
    let line = &lines(&report)[0];
    assert_eq!(line["_aws"]["Timestamp"], AT);
    assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Outbox");
    assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["outbox.name"]]));
    assert_eq!((&line["outbox.name"], &line["requestId"]), (&json!("orders"), &json!("8476a536")));
    let expected = [
        ("outbox.client.rebuilds", "Count", json!(2)),
        ("outbox.lease.losses", "Count", json!(2)),
        ("outbox.owned_buckets", "Count", json!(2)),
        ("outbox.publish.acknowledged", "Count", json!(6)),
        ("outbox.publish.duration", "Seconds", json!([0.001, 0.001_001])),
        ("outbox.publish.failures", "Count", json!(0)),
        ("outbox.quarantined.messages", "Count", json!(2)),
        ("outbox.run.duration", "Seconds", json!(1.234_567)),
        ("outbox.waiting.buckets", "Count", json!(1)),
    ];
    let expected = expected.map(|(name, unit, value)| (name.to_owned(), (unit.to_owned(), value)));
    assert_eq!(metrics(line), BTreeMap::from(expected));
}

#[test]
fn an_unknown_backlog_is_never_a_number() {
    let unknown = BacklogSample::Unknown { reason: "throttled".to_owned() };
    let line = &lines(&RunReport { backlog: unknown, ..RunReport::default() })[0];
    assert_eq!(value(line, "outbox.pending.available"), Some(json!(0)));
    for name in ["outbox.pending.messages", "outbox.pending.oldest_age"] {
        assert!(value(line, name).is_none() && line.get(name).is_none(), "{line}");
    }
}

#[test]
fn a_known_backlog_is_told_with_what_is_known_of_it() {
    let sampled = |pending, is_exact, oldest_age| {
        let backlog = BacklogSample::Known { pending, is_exact, oldest_age };
        let line = lines(&RunReport { backlog, ..RunReport::default() }).remove(0);
        ["available", "messages", "oldest_age"].map(|name| value(&line, &format!("outbox.pending.{name}")))
    };
    let age = Duration::from_millis(2_500);
    assert_eq!(sampled(0, true, Some(Duration::ZERO)), [json!(1), json!(0), json!(0.0)].map(Some));
    assert_eq!(sampled(900, false, Some(age)), [json!(1), json!(900), json!(2.5)].map(Some));
    assert_eq!(sampled(1, true, None), [Some(json!(1)), Some(json!(1)), None], "its date cannot be read");
}

#[test]
fn what_was_not_sampled_is_not_mentioned() {
    let line = lines(&RunReport::default()).remove(0);
    assert!(!line.to_string().contains("outbox.pending"), "{line}");
    assert!(!line.to_string().contains("outbox.quarantine.keys"), "{line}");
    let line = lines(&RunReport { parked_keys: Some(7), ..RunReport::default() }).remove(0);
    assert_eq!(value(&line, "outbox.quarantine.keys"), Some(json!(7)));
}

#[test]
fn failures_are_told_together_and_each_kind_by_itself() {
    let mut report = RunReport::default();
    for number in [1, 2] {
        let mut failed = BucketReport::default();
        failed.failures.add(FailureKind::Rejected);
        failed.failures.add(FailureKind::Behind);
        report.buckets.insert(Bucket::new(number), failed);
    }
    let lines = lines(&report);
    assert_eq!(value(&lines[0], "outbox.publish.failures"), Some(json!(4)));
    let kinds: Vec<_> =
        lines[1..].iter().map(|line| (line["kind"].as_str().unwrap(), metrics(line))).collect();
    let two = BTreeMap::from([("outbox.publish.failures".to_owned(), ("Count".to_owned(), json!(2)))]);
    assert_eq!(kinds, [("rejected", two.clone()), ("behind", two)]);
    for line in &lines[1..] {
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["outbox.name", "kind"]]));
    }
}

proptest! {
    #[test]
    fn every_line_is_valid_and_their_number_is_bounded(
        calls in prop_oneof![0..5_u64, 95..205_u64, Just(1_000_000)],
        pending: Option<u64>,
        failed in proptest::collection::vec(0..7_usize, 0..20),
    ) {
        let backlog = match pending {
            Some(pending) => BacklogSample::Known { pending, is_exact: false, oldest_age: None },
            None => BacklogSample::Unknown { reason: "\"\n{".to_owned() },
        };
        let mut report = RunReport { publishes: publishes(calls), backlog, ..RunReport::default() };
        let bucket = report.buckets.entry(Bucket::new(3)).or_default();
        failed.iter().for_each(|kind| bucket.failures.add(FailureKind::ALL[*kind]));
        let lines = lines(&report);
        prop_assert!(lines.len() <= 1 + FailureKind::ALL.len() + Durations::MOST / MOST_VALUES);
        let mut durations = 0;
        for line in &lines {
            prop_assert!(!line.to_string().contains('\n'));
            let directive = &line["_aws"]["CloudWatchMetrics"][0];
            let dimensions: Vec<_> = directive["Dimensions"][0].as_array().unwrap().iter().collect();
            prop_assert!(dimensions.iter().all(|name| line[name.as_str().unwrap()].is_string()));
            let named = directive["Metrics"].as_array().unwrap();
            prop_assert!(!named.is_empty() && named.len() <= 100);
            let names: BTreeSet<_> = named.iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
            prop_assert_eq!(names.len(), named.len());
            for name in names {
                let values = match &line[name] {
                    Value::Array(values) => values.clone(),
                    value => vec![value.clone()],
                };
                // The format takes no more.
                prop_assert!((1..=100).contains(&values.len()));
                prop_assert!(values.iter().all(Value::is_number), "{name}: {values:?}");
                durations += if name == "outbox.publish.duration" { values.len() } else { 0 };
            }
        }
        prop_assert_eq!(durations, report.publishes.values().count());
    }
}
