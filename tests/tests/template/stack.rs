//! The table, the names, the retries, and the examples.

use std::time::Duration;

use outbox_local::template::Template;
use serde_json::Value;

use crate::{list, repository, resources, template};

/// A time to live would turn a message that waits into one that is lost, and a local index bounds what a bucket holds to
/// 10 GB.
#[test]
fn the_table_has_no_time_to_live_and_no_local_index_and_outlives_the_stack() {
    let tables = resources(&[], "AWS::DynamoDB::Table");
    assert_eq!(tables.len(), 1);
    let table = &tables["OutboxTable"];
    for never in ["TimeToLiveSpecification", "LocalSecondaryIndexes"] {
        assert!(table["Properties"][never].is_null(), "{never}");
    }
    assert_eq!(table["DeletionPolicy"], "RetainExceptOnCreate");
    assert_eq!(table["UpdateReplacePolicy"], "Retain");
    assert_eq!(table["Properties"]["StreamSpecification"]["StreamViewType"], "KEYS_ONLY");
}

/// Two stacks of one account do not meet: a name is made up by CloudFormation, or has the stack's in it, or is given.
#[test]
fn names_contain_the_stacks_name_or_are_parameters() {
    let template = template(&[]);
    let source = template.source();
    let check = |at: &str, name: &Value| {
        let is_parameter = name["Ref"].as_str().is_some_and(|name| !source["Parameters"][name].is_null());
        let has_the_stacks = name["Fn::Sub"].as_str().is_some_and(|text| text.contains("${AWS::StackName}"));
        assert!(is_parameter || has_the_stacks, "{at} is {name}");
    };
    for (id, resource) in source["Resources"].as_object().unwrap() {
        let named_by = match resource["Type"].as_str().unwrap() {
            "AWS::DynamoDB::Table" => "TableName",
            "AWS::Serverless::Function" => "FunctionName",
            "AWS::IAM::Role" => "RoleName",
            "AWS::Logs::LogGroup" => "LogGroupName",
            "AWS::SQS::Queue" => "QueueName",
            "AWS::CloudWatch::Alarm" => "AlarmName",
            "AWS::CloudWatch::Dashboard" => "DashboardName",
            // Within its roles, which are this stack's.
            "AWS::IAM::Policy" => continue,
            other => panic!("{id}: what names a resource of type {other}?"),
        };
        if let Some(name) = resource["Properties"].get(named_by) {
            check(id, name);
        }
        for (event, source) in resource["Properties"]["Events"].as_object().into_iter().flatten() {
            if source["Type"] == "ScheduleV2" {
                check(&format!("{id}'s {event}"), &source["Properties"]["Name"]);
            }
        }
    }
}

/// Lambda's defaults try a stream batch for a day, which holds up all of its shard.
#[test]
fn retries_and_ages_are_finite_and_what_is_given_up_is_kept() {
    let functions = resources(&[], "AWS::Serverless::Function");
    let is_kept =
        |config: &Value| config["DestinationConfig"]["OnFailure"]["Destination"] == "FailureQueue.Arn";
    let stream = &functions["StreamRelayFunction"]["Properties"]["Events"]["Messages"]["Properties"];
    assert!(stream["MaximumRetryAttempts"].as_u64().unwrap() <= 10);
    assert!((60..=86_400).contains(&stream["MaximumRecordAgeInSeconds"].as_u64().unwrap()));
    assert!(is_kept(stream));
    // The function answers with this form, and an answer of another would count as a failure of the batch.
    assert_eq!(list(&stream["FunctionResponseTypes"]), ["ReportBatchItemFailures"]);
    assert_eq!(stream["StartingPosition"], "TRIM_HORIZON");

    let invoked = &functions["ScheduledRelayFunction"]["Properties"]["EventInvokeConfig"];
    assert!(is_kept(invoked));
    let sweeping = template(&[]).function("ScheduledRelayFunction").unwrap();
    assert_eq!((sweeping.async_retries, sweeping.max_event_age), (0, Duration::from_secs(60)));
    let queue = &resources(&[], "AWS::SQS::Queue")["FailureQueue"]["Properties"];
    assert_eq!(queue["MessageRetentionPeriod"], 14 * 24 * 60 * 60);
}

#[test]
fn every_parameter_is_grouped_labelled_and_explained() {
    let template = template(&[]);
    let source = template.source();
    let interface = &source["Metadata"]["AWS::CloudFormation::Interface"];
    let groups = interface["ParameterGroups"].as_array().unwrap();
    let mut grouped: Vec<&str> = groups.iter().flat_map(|group| list(&group["Parameters"])).collect();
    let mut declared: Vec<&str> = Vec::new();
    for (name, parameter) in source["Parameters"].as_object().unwrap() {
        assert!(parameter["Description"].is_string(), "{name}");
        assert!(interface["ParameterLabels"][name]["default"].is_string(), "{name}");
        declared.push(name);
    }
    grouped.sort_unstable();
    declared.sort_unstable();
    assert_eq!(grouped, declared);
}

/// The examples hand the template what it takes, and all that has no default.
#[test]
fn the_examples_give_parameters_that_the_template_has() {
    let template = template(&[]);
    let declared = template.source()["Parameters"].as_object().unwrap();
    for example in ["new-outbox", "existing-table", "several-outboxes"] {
        let path = repository().join(format!("infra/examples/{example}.yaml"));
        let example_source = Template::load(&path).unwrap();
        let resources = example_source.source()["Resources"].as_object().unwrap();
        let mut outboxes =
            resources.iter().filter(|(_, it)| it["Type"] == "AWS::Serverless::Application").peekable();
        assert!(outboxes.peek().is_some(), "{example}");
        for (id, outbox) in outboxes {
            let location = outbox["Properties"]["Location"].as_str().unwrap();
            assert!(path.parent().unwrap().join(location).exists(), "{example}: {location}");
            let given = outbox["Properties"]["Parameters"].as_object().unwrap();
            for (name, value) in given {
                let allowed =
                    declared.get(name).unwrap_or_else(|| panic!("{example}: {id}: no parameter {name}"));
                if let (Some(allowed), Some(value)) = (allowed["AllowedValues"].as_array(), value.as_str()) {
                    let is_value =
                        |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned) == *value;
                    assert!(allowed.iter().any(is_value), "{example}: {id}: {name} is {value}");
                }
            }
            for (name, parameter) in declared {
                let has_default = parameter.get("Default").is_some();
                assert!(has_default || given.contains_key(name), "{example}: {id}: {name} is missing");
            }
        }
    }
}
