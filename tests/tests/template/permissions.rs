//! What the functions may do, against what they do: nothing missing, and nothing unused.
//!
//! What they do is what reaches DynamoDB from the store, over all that makes it send something else: a first message, gaps,
//! poison that is counted or set aside, keys that are parked, records of relays that are gone, the sample of the backlog.
//! Sending messages back from the quarantine is an operator's, and not the functions'.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use outbox::{
    BucketCount, Budget, Chance, Clock as _, Message, OutboxStore as _, Outcome, PoisonPolicy, PublishError,
    PublishErrorKind, Publisher, Relay, RelayId, RelayOptions, RunReport, Ticks, TokioClock,
};
use outbox_local::dynamodb::Database;
use outbox_local::template::Template;
use outbox_store_dynamodb::{DynamoDbStore, StoreOptions, Writer, client_timeouts, table};
use serde_json::Value;

use crate::recorder::{Asked, Recorder};
use crate::{list, repository, resources, template};

const NOW: Ticks = Ticks::from_raw(639_316_345_534_567_890);
/// Refused by the publisher below.
const POISON: &str = "poison";

/// What a role's policies say of the table: actions, and patterns of partition keys.
fn allowed(role: &str) -> BTreeSet<Asked> {
    let mut allowed = BTreeSet::new();
    for statement in statements(&[]).remove(role).unwrap() {
        if statement["Resource"] != "OutboxTable.Arn" {
            continue;
        }
        allowed.extend(of_statement(&statement));
    }
    allowed
}

fn of_statement(statement: &Value) -> BTreeSet<Asked> {
    let condition = statement["Condition"].as_object().unwrap();
    assert_eq!(condition.keys().collect::<Vec<_>>(), ["ForAllValues:StringLike"]);
    let patterns = list(&condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]);
    let pairs = list(&statement["Action"])
        .into_iter()
        .flat_map(|action| patterns.iter().map(move |pattern| (action, (*pattern).to_owned())));
    pairs.map(|(action, pattern)| (action.strip_prefix("dynamodb:").unwrap().to_owned(), pattern)).collect()
}

/// All statements of each role, its own policies' and those that are attached to it.
fn statements(parameters: &[(&str, &str)]) -> BTreeMap<String, Vec<Value>> {
    let of = |policy: &Value| {
        let statements = policy["PolicyDocument"]["Statement"].as_array().unwrap().clone();
        for statement in &statements {
            assert_eq!(statement["Effect"], "Allow");
        }
        statements
    };
    let mut roles: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (id, role) in resources(parameters, "AWS::IAM::Role") {
        let policies = role["Properties"]["Policies"].as_array().unwrap();
        roles.insert(id, policies.iter().flat_map(of).collect());
    }
    for policy in resources(parameters, "AWS::IAM::Policy").values() {
        for role in list(&policy["Properties"]["Roles"]) {
            roles.get_mut(role).unwrap().extend(of(&policy["Properties"]));
        }
    }
    roles
}

fn matches(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    }
}

fn compare(who: &str, asked: &BTreeSet<Asked>, allowed: &BTreeSet<Asked>) {
    let is_covered =
        |(action, key): &Asked, (allowed, pattern): &Asked| action == allowed && matches(pattern, key);
    let missing: Vec<_> = asked.iter().filter(|it| !allowed.iter().any(|by| is_covered(it, by))).collect();
    let unused: Vec<_> = allowed.iter().filter(|by| !asked.iter().any(|it| is_covered(it, by))).collect();
    assert!(missing.is_empty(), "{who} does what it may not: {missing:?}");
    assert!(unused.is_empty(), "{who} may do what it does not: {unused:?}");
}

/// Refuses what has the poisoned value, and acknowledges the rest.
#[derive(Clone)]
struct Refusing;

impl Publisher for Refusing {
    async fn publish(&self, batch: &[&Message], _: Duration) -> Vec<Outcome> {
        let refused = || Outcome::Failed(PublishError::new(PublishErrorKind::Rejected, "too large"));
        let is_poison = |message: &Message| message.value.as_deref() == Some(POISON.as_bytes());
        batch
            .iter()
            .map(|message| if is_poison(message) { refused() } else { Outcome::Acknowledged })
            .collect()
    }
}

struct Bench {
    _database: Database,
    recorder: Recorder,
    store: DynamoDbStore,
    writer: Writer,
    clock: Arc<TokioClock>,
    chance: Chance,
    count: BucketCount,
}

impl Bench {
    /// Writer and store both go through the recorder.
    async fn new() -> Self {
        let database = Database::start(None).await.unwrap();
        let count = BucketCount::new(8).unwrap();
        let options = StoreOptions::new("outbox").with_bucket_count(count);
        let definition = table::definition(&database.client().await, &options).unwrap();
        definition.set_stream_specification(None).send().await.unwrap();
        let recorder = Recorder::new();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "test"))
            .endpoint_url(database.endpoint())
            .timeout_config(client_timeouts())
            .http_client(recorder.clone());
        let client = Client::from_conf(config.build());
        let (clock, chance) = (Arc::new(TokioClock::starting_at(NOW)), Chance::seeded(7));
        let writer = Writer::with(client.clone(), options.clone(), clock.clone(), chance.clone());
        let store = DynamoDbStore::new(client, options, clock.clone(), chance.clone());
        Self { _database: database, recorder, store, writer, clock, chance, count }
    }

    /// Messages of one key, with these values.
    async fn enqueue(&self, key: &str, values: &[&str]) {
        let message = |value: &&str| {
            let id = self.chance.message_id(self.clock.now_utc());
            Message::new(id, "orders").with_key(key.to_owned()).with_value((*value).to_owned())
        };
        self.writer.enqueue(&values.iter().map(message).collect::<Vec<_>>()).await.unwrap();
    }

    async fn run(&self, as_sweep: bool, poison_policy: PoisonPolicy) -> RunReport {
        let mut options = RelayOptions::default();
        (options.bucket_count, options.poison_policy) = (self.count, poison_policy);
        let relay =
            Relay::new(self.store.clone(), Refusing, options, self.clock.clone(), self.chance.clone())
                .unwrap();
        let id: RelayId = self.chance.relay_id("test", self.clock.now_utc());
        let budget = Budget::new(self.clock.clone(), Duration::from_secs(60));
        match as_sweep {
            true => relay.sweep(&id, &budget).await,
            false => relay.hinted(&id, &self.count.buckets().collect(), &budget).await,
        }
    }

    /// Everything that a function's runs ask for.
    async fn all_of(&self, as_sweep: bool) -> BTreeSet<Asked> {
        let mut asked = BTreeSet::new();
        for (key, values, poison_policy, deleted, quarantined) in [
            // Twice: the second run looks into the gap before its message, and finds records of the first.
            ("21", &["a"][..], PoisonPolicy::Block, 1, 0),
            ("21", &["b", "c"], PoisonPolicy::Block, 2, 0),
            // It is counted, and leaves its key to the sweeps.
            ("21", &[POISON, "d"], PoisonPolicy::Block, 0, 0),
            // In another bucket: it is set aside, and what comes later for its key follows, whatever the policy.
            ("3", &[POISON, "e"], PoisonPolicy::Quarantine, 0, 2),
            ("3", &["f"], PoisonPolicy::Block, 0, 1),
        ] {
            self.enqueue(key, values).await;
            self.recorder.take();
            let report = self.run(as_sweep, poison_policy).await;
            assert_eq!(report.deleted(), deleted, "{values:?}: {report:?}");
            assert!(report.quarantined() >= quarantined, "{values:?}: {report:?}");
            asked.extend(self.recorder.take());
            // So that relays that have stopped are forgotten.
            self.clock.step_wall(3_600_000);
        }
        if as_sweep {
            let (buckets, limit) = (self.count.buckets().collect(), Duration::from_secs(5));
            self.store.backlog().unwrap().sample(&buckets, limit).await.unwrap();
            asked.extend(self.recorder.take());
        }
        asked
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_relay_may_do_what_it_does_and_no_more() {
    compare("the stream relay", &Bench::new().await.all_of(false).await, &allowed("StreamRelayRole"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scheduled_relay_may_do_what_it_does_and_no_more() {
    compare("the scheduled relay", &Bench::new().await.all_of(true).await, &allowed("ScheduledRelayRole"));
}

/// The policy that the example has for applications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_may_do_what_it_does_and_no_more() {
    let example = Template::load(&repository().join("infra/examples/new-outbox.yaml")).unwrap();
    let example = example.with_parameter("KafkaBootstrapServers", "broker:9092").unwrap();
    let policy = example.resources().unwrap().remove("WriterPolicy").unwrap();
    let statements = policy["Properties"]["PolicyDocument"]["Statement"].as_array().unwrap();
    // The prefix is an output of the stack within the stack.
    let prefix = |(action, key): Asked| (action, key.replace("Outbox.Outputs.OutboxKeyPrefix", "OUTBOX"));
    let allowed = statements.iter().flat_map(of_statement).map(prefix).collect();
    let bench = Bench::new().await;
    bench.enqueue("21", &["a", "b"]).await;
    compare("a writer", &bench.recorder.take(), &allowed);
}

/// What the emulated part cannot show: that what is beside the table is named too.
#[test]
fn nothing_is_allowed_on_everything_but_what_has_no_name_yet() {
    let in_a_vpc = [
        ("VpcSubnetIds", "subnet-0"),
        ("VpcSecurityGroupIds", "sg-0"),
        ("KafkaAuth", "scram"),
        ("KafkaSecretArn", "arn:aws:secretsmanager:us-east-1:000000000000:secret:AmazonMSK_a"),
        ("KafkaSecretKeyArn", "arn:aws:kms:us-east-1:000000000000:key/a"),
    ];
    let network = [
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    ];
    for parameters in [&[][..], &in_a_vpc] {
        for (role, statements) in statements(parameters) {
            let mut sends_failures_to = Vec::new();
            for statement in statements {
                let actions = list(&statement["Action"]);
                assert!(actions.iter().all(|action| !action.contains('*')), "{role}: {statement}");
                if list(&statement["Resource"]).contains(&"*") {
                    assert_eq!(actions, network, "{role}");
                    assert!(!parameters.is_empty(), "{role}: no network without a VPC");
                }
                if actions.iter().any(|action| action.starts_with("sqs:")) {
                    assert_eq!(actions, ["sqs:SendMessage"], "{role}");
                    sends_failures_to.extend(list(&statement["Resource"]).into_iter().map(str::to_owned));
                }
            }
            assert_eq!(sends_failures_to, ["FailureQueue.Arn"], "{role}");
        }
    }
}

/// A table that is there already has other items in it, which nobody else's policy keeps the functions from.
#[test]
fn another_prefix_and_another_table_are_in_the_policies() {
    let parameters = [
        ("ExistingTableName", "shop"),
        ("ExistingTableStreamArn", "arn:aws:dynamodb:us-east-1:000000000000:table/shop/stream/1"),
        ("KeyPrefix", "MAIL"),
    ];
    assert!(!template(&parameters).resources().unwrap().contains_key("OutboxTable"));
    for (role, statements) in statements(&parameters) {
        let table = "arn:aws:dynamodb:us-east-1:000000000000:table/shop";
        let of_table: Vec<_> = statements.iter().filter(|it| it["Resource"] == table).collect();
        assert!(!of_table.is_empty(), "{role}");
        for statement in of_table {
            assert!(
                of_statement(statement).iter().all(|(_, pattern)| pattern.starts_with("MAIL#")),
                "{role}"
            );
        }
    }
}
