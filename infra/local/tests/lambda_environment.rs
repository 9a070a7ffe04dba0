//! The functions of the whole environment, invoked from outside with what it prints.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_lambda::types::InvocationType;
use outbox_local::environment::{Environment, EnvironmentOptions};
use outbox_local::lambda::AWS_ENDPOINT_URL_LAMBDA;
use uuid::Uuid;

const FUNCTION: &str = "ScheduledRelayFunction";

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_can_be_invoked_by_what_is_printed() {
    let table = format!("invoked-{}", Uuid::new_v4().simple());
    let options = EnvironmentOptions {
        table,
        // Nobody else invokes it, but for once at the start.
        sweep_interval: Some(Duration::from_secs(3_600)),
        ..EnvironmentOptions::from_env().unwrap()
    };
    let environment = Environment::start(options).await.unwrap();
    let variables: BTreeMap<_, _> = environment.variables().into_iter().collect();
    let endpoint = &variables[AWS_ENDPOINT_URL_LAMBDA];
    let config = aws_sdk_lambda::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new(variables["AWS_REGION"].clone()))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .build();
    let client = Client::from_conf(config);
    let function = environment.scheduled_relay();

    let answer = client.invoke().function_name(FUNCTION).send().await.unwrap();
    assert_eq!((answer.status_code(), answer.function_error()), (200, None));
    let queued = client.invoke().function_name(FUNCTION).invocation_type(InvocationType::Event);
    assert_eq!(queued.send().await.unwrap().status_code(), 202);
    function.wait_until_idle().await;
    let records = function.records();
    assert!(records.len() >= 2 && records.iter().all(|record| record.outcome.is_response()), "{records:#?}");
    let asked = environment.invoke_api().requests(FUNCTION);
    assert_eq!((asked.event, asked.request_response), (1, 1));
    let other = client.invoke().function_name("StreamRelayFunction").invocation_type(InvocationType::DryRun);
    assert_eq!(other.send().await.unwrap().status_code(), 204);

    // And by itself: it has been told where.
    let process = function.processes().first().unwrap().pid;
    let told = std::fs::read(format!("/proc/{process}/environ")).unwrap();
    let expected = format!("{AWS_ENDPOINT_URL_LAMBDA}={endpoint}");
    assert!(told.split(|byte| *byte == 0).any(|variable| variable == expected.as_bytes()));

    let address: SocketAddr = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    assert!(TcpStream::connect(address).is_ok());
    environment.stop().await;
    assert!(TcpStream::connect(address).is_err());
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
}
