//! A small template with every form that is read, and the project's own.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{Template, TemplateError};
use crate::lambda::RecursiveLoop;
use crate::schedule::ScheduleSource;

const FIXTURE: &str = r#"
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Parameters:
  TableName: { Type: String, Default: outbox }
  Prefix: { Type: String, Default: OUTBOX }
  Buckets: { Type: Number, Default: 8 }
  Brokers: { Type: String }
  Endpoint: { Type: String, Default: "" }
  Subnets: { Type: CommaDelimitedList, Default: "" }
  Concurrency: { Type: Number, Default: 0 }
Conditions:
  HasEndpoint: !Not [!Equals [!Ref Endpoint, ""]]
  InVpc: !Not [!Equals [!Join ["", !Ref Subnets], ""]]
  Both: !And [!Condition HasEndpoint, !Condition InVpc]
  IsBounded: !Not [!Equals [!Ref Concurrency, 0]]
Globals:
  Function:
    Timeout: 30
    Environment:
      Variables:
        TABLE: !Ref Table
        BUCKETS: !Ref Buckets
        ENDPOINT: !If [HasEndpoint, !Ref Endpoint, !Ref AWS::NoValue]
        WHERE: !If [Both, both, not both]
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties: { TableName: !Ref TableName, Other: !Transform { Name: unknown } }
  Streamed:
    Type: AWS::Serverless::Function
    Properties:
      MemorySize: 256
      ReservedConcurrentExecutions: 4
      Role: !GetAtt [Role, Arn]
      Environment:
        Variables:
          BROKERS: !Sub "${Brokers},${AWS::Region},${!literal},${Table.Arn}"
          TABLE: !Sub ["${Name}-${TableName}", { Name: own }]
      Events:
        Messages:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt Table.StreamArn
            StartingPosition: TRIM_HORIZON
            BatchSize: "50"
            MaximumBatchingWindowInSeconds: 2
            MaximumRetryAttempts: 3
            FunctionResponseTypes: [ReportBatchItemFailures]
            FilterCriteria:
              Filters:
                - Pattern: !Sub '{"dynamodb":{"Keys":{"PK":{"S":[{"prefix":"${Prefix}#"}]}}}}'
        Queue: { Type: SQS, Properties: { Queue: !GetAtt Queue.Arn } }
        Rule:
          Type: Schedule
          Properties: { Schedule: rate(5 minutes), Input: '{"a": 1}' }
  Plain:
    Type: AWS::Serverless::Function
    Properties: { Timeout: 9 }
  Recursive:
    Type: AWS::Serverless::Function
    Properties:
      ReservedConcurrentExecutions: !If [IsBounded, !Ref Concurrency, !Ref AWS::NoValue]
      RecursiveLoop: Allow
      EventInvokeConfig: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 60 }
"#;

fn fixture() -> Template {
    Template::parse(FIXTURE).unwrap()
}

fn with_brokers() -> Template {
    fixture().with_parameter("Brokers", "b:9092").unwrap()
}

#[test]
fn a_function_is_read_with_globals_and_defaults() {
    let function = with_brokers().function("Streamed").unwrap();
    assert_eq!(function.timeout, Duration::from_secs(30));
    assert_eq!(function.memory_mib, 256);
    assert_eq!(function.reserved_concurrency, Some(4));
    assert_eq!(function.async_retries, 2);
    let variables: Vec<_> =
        function.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        variables,
        [
            ("BROKERS", "b:9092,us-east-1,${literal},Table.Arn"),
            ("BUCKETS", "8"),
            ("TABLE", "own-outbox"),
            ("WHERE", "not both"),
        ]
    );
    let stream = &function.streams["Messages"];
    assert_eq!(stream.batch_size, 50);
    assert_eq!(stream.batching_window, Duration::from_secs(2));
    assert_eq!(stream.maximum_retry_attempts, Some(3));
    assert!(stream.from_horizon && stream.reports_item_failures);
    assert!(stream.filter.matches(&json!({"dynamodb": {"Keys": {"PK": {"S": "OUTBOX#MESSAGES#1"}}}})));
    assert!(!stream.filter.matches(&json!({"dynamodb": {"Keys": {"PK": {"S": "OTHER"}}}})));
    let rule = &function.schedules["Rule"];
    assert_eq!((rule.source, rule.expression.as_str()), (ScheduleSource::Rule, "rate(5 minutes)"));
    assert_eq!(rule.input.as_deref(), Some(r#"{"a": 1}"#));

    let plain = with_brokers().function("Plain").unwrap();
    assert_eq!(plain.timeout, Duration::from_secs(9));
    assert_eq!(plain.memory_mib, 128);
    assert_eq!(plain.variables["TABLE"], "outbox");
    let spec = plain.spec(Path::new("/bin/true"));
    assert_eq!((spec.name(), spec.timeout()), ("Plain", Duration::from_secs(9)));
}

#[test]
fn how_a_function_may_be_invoked_is_read() {
    let plain = with_brokers().function("Plain").unwrap();
    assert_eq!((plain.reserved_concurrency, plain.recursive_loop), (None, RecursiveLoop::Terminate));
    assert_eq!((plain.async_retries, plain.max_event_age), (2, Duration::from_secs(6 * 3_600)));

    let recursive = with_brokers().function("Recursive").unwrap();
    assert_eq!((recursive.reserved_concurrency, recursive.recursive_loop), (None, RecursiveLoop::Allow));
    assert_eq!((recursive.async_retries, recursive.max_event_age), (0, Duration::from_secs(60)));
    let bounded = with_brokers().with_parameter("Concurrency", "5").unwrap().function("Recursive").unwrap();
    assert_eq!(bounded.reserved_concurrency, Some(5));

    // What all functions have in common, and one of them has otherwise.
    let common = "Function:\n    RecursiveLoop: Allow\n    ReservedConcurrentExecutions: 3\n    EventInvokeConfig:\n      \
                  MaximumRetryAttempts: 1\n      MaximumEventAgeInSeconds: 90";
    let template = Template::parse(&FIXTURE.replacen("Function:", common, 1)).unwrap();
    let template = template.with_parameter("Brokers", "b:9092").unwrap();
    let plain = template.function("Plain").unwrap();
    assert_eq!((plain.reserved_concurrency, plain.recursive_loop), (Some(3), RecursiveLoop::Allow));
    assert_eq!((plain.async_retries, plain.max_event_age), (1, Duration::from_secs(90)));
    let recursive = template.function("Recursive").unwrap();
    assert_eq!((recursive.async_retries, recursive.max_event_age), (0, Duration::from_secs(60)));
}

#[test]
fn parameters_replace_defaults_and_turn_conditions() {
    let template = with_brokers().with_parameter("TableName", "orders").unwrap();
    let template = template.with_parameter("Endpoint", "http://localhost:8000").unwrap();
    let template = template.with_parameter("Subnets", "a, b").unwrap();
    let plain = template.function("Plain").unwrap();
    assert_eq!(plain.variables["TABLE"], "orders");
    assert_eq!(plain.variables["ENDPOINT"], "http://localhost:8000");
    assert_eq!(plain.variables["WHERE"], "both");
}

#[test]
fn resources_are_those_whose_condition_holds_and_resolved() {
    let text = FIXTURE.replace(
        "  Plain:\n",
        "  Extra: { Type: A, Condition: HasEndpoint, Properties: { B: !Ref Buckets } }\n  Plain:\n",
    );
    // It is nobody's own resource, and stands for what only a deployment knows.
    let text = text.replace(", Other: !Transform { Name: unknown }", "");
    let template = Template::parse(&text).unwrap().with_parameter("Brokers", "b:9092").unwrap();
    assert!(!template.resources().unwrap().contains_key("Extra"));
    let template = template.with_parameter("Endpoint", "http://localhost:8000").unwrap();
    assert_eq!(template.resources().unwrap()["Extra"]["Properties"], json!({"B": 8}));
    assert_eq!(template.source()["Resources"]["Extra"]["Condition"], "HasEndpoint");
}

#[test]
fn what_is_wrong_is_named() {
    let error = fixture().with_parameter("Borkers", "x").unwrap_err();
    assert_eq!(error.to_string(), "template parameter Borkers is not declared");
    let error = fixture().function("Streamed").unwrap_err();
    assert_eq!(error.to_string(), "template parameter Brokers has no default and was not given");
    let error = fixture().function("Table").unwrap_err();
    assert_eq!(error.to_string(), "the template has no function Resources.Table");
    assert!(matches!(Template::parse("a: [").unwrap_err(), TemplateError::Yaml(_)));
    assert!(matches!(
        Template::load(Path::new("/no/such/template.yaml")).unwrap_err(),
        TemplateError::Read { .. }
    ));

    let broken_in = |function: &str, from: &str, to: &str| {
        assert!(FIXTURE.contains(from));
        let template = Template::parse(&FIXTURE.replace(from, to)).unwrap();
        template.with_parameter("Brokers", "b:1").unwrap().function(function).unwrap_err().to_string()
    };
    let broken = |from: &str, to: &str| broken_in("Streamed", from, to);
    assert_eq!(
        broken("BatchSize: \"50\"", "BatchSize: many"),
        "the template's Resources.Streamed.Properties.Events.Messages.Properties.BatchSize is \"many\", \
         which is not a whole number from 0"
    );
    assert_eq!(
        broken("StartingPosition: TRIM_HORIZON", "StartingPosition: AT_TIMESTAMP"),
        "the template's Resources.Streamed.Properties.Events.Messages.Properties.StartingPosition is \
         \"AT_TIMESTAMP\", which is not TRIM_HORIZON or LATEST"
    );
    assert_eq!(
        broken("[{\"prefix\":\"${Prefix}#\"}]", "{}"),
        "the event filter of Resources.Streamed.Properties.Events.Messages.Properties cannot be used"
    );
    for (from, to, expected) in [
        ("RecursiveLoop: Allow", "RecursiveLoop: allow", "is \"allow\", which is not Allow or Terminate"),
        ("Attempts: 0", "Attempts: 3", "is 3, which is not a number from 0 to 2"),
        ("InSeconds: 60", "InSeconds: 59", "is 59, which is not a number from 60 to 21600"),
        ("InSeconds: 60", "InSeconds: 21601", "is 21601, which is not a number from 60 to 21600"),
    ] {
        let error = broken_in("Recursive", from, to);
        assert!(error.ends_with(expected) && error.contains("Resources.Recursive.Properties."), "{error}");
    }
    assert!(broken("- Pattern:", "- Pttern:").contains("FilterCriteria"));
    assert!(broken("!Ref Table", "!ImportValue Table").contains("uses Fn::ImportValue"));
    assert!(broken("!Condition HasEndpoint", "!Condition Both").contains("free of circles"));
    assert!(broken("!Ref Buckets", "!Ref Bukets").contains("Bukets"));
}

#[test]
fn the_projects_own_template_takes_a_table_that_is_there_already() {
    let mut template = Template::of_this_workspace().unwrap();
    let stream = "arn:aws:dynamodb:us-east-1:000000000000:table/shop/stream/1";
    for (name, value) in [
        ("KafkaBootstrapServers", "localhost:9092"),
        ("ExistingTableName", "shop"),
        ("ExistingTableStreamArn", stream),
        ("PartitionKeyAttribute", "pk"),
        ("SortKeyAttribute", "sk"),
        ("KeyPrefix", "MAIL"),
    ] {
        template = template.with_parameter(name, value).unwrap();
    }
    assert!(!template.resources().unwrap().contains_key("OutboxTable"));
    for function in ["StreamRelayFunction", "ScheduledRelayFunction"] {
        let variables = template.function(function).unwrap().variables;
        assert_eq!(variables["OUTBOX_TABLE_NAME"], "shop");
        assert_eq!(variables["OUTBOX_PARTITION_KEY_ATTRIBUTE"], "pk");
    }
    let streams = template.function("StreamRelayFunction").unwrap().streams;
    let record = |attribute: &str, key: &str| json!({"eventName": "INSERT", "dynamodb": {"Keys": {attribute: {"S": key}}}});
    assert!(streams["Messages"].filter.matches(&record("pk", "MAIL#MESSAGES#3")));
    assert!(!streams["Messages"].filter.matches(&record("PK", "MAIL#MESSAGES#3")));
    assert!(!streams["Messages"].filter.matches(&record("pk", "OUTBOX#MESSAGES#3")));
}

#[test]
fn the_projects_own_template_is_understood() {
    let template = Template::of_this_workspace().unwrap();
    let template = template.with_parameter("KafkaBootstrapServers", "localhost:9092").unwrap();
    let stream_relay = template.function("StreamRelayFunction").unwrap();
    assert_eq!(stream_relay.variables["OUTBOX_TABLE_NAME"], "outbox");
    assert_eq!(stream_relay.variables["KAFKA_BOOTSTRAP_SERVERS"], "localhost:9092");
    assert!(stream_relay.timeout >= Duration::from_secs(10));
    let [mapping] = stream_relay.streams.values().collect::<Vec<_>>()[..] else {
        panic!("one stream");
    };
    assert!(mapping.maximum_retry_attempts.is_some(), "endless retries hold up a shard");
    let record =
        |event: &str, key: &str| json!({"eventName": event, "dynamodb": {"Keys": {"PK": {"S": key}}}});
    assert!(mapping.filter.matches(&record("INSERT", "OUTBOX#MESSAGES#3")));
    for (event, key) in [
        ("REMOVE", "OUTBOX#MESSAGES#3"),
        ("MODIFY", "OUTBOX#MESSAGES#3"),
        ("INSERT", "OUTBOX#SEQUENCE#3"),
        ("INSERT", "OUTBOX#COORDINATION"),
        ("INSERT", "CUSTOMER#3"),
    ] {
        assert!(!mapping.filter.matches(&record(event, key)), "{event} {key}");
    }

    let scheduled_relay = template.function("ScheduledRelayFunction").unwrap();
    let [rule] = scheduled_relay.schedules.values().collect::<Vec<_>>()[..] else {
        panic!("one schedule");
    };
    assert!(rule.rate().unwrap() >= Duration::from_secs(60));
}
