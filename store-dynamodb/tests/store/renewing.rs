//! The HTTP client for processes that are frozen between requests, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use futures::future::{BoxFuture, join_all};
use outbox::{Clock, Monotonic, SystemClock, Ticks};
use outbox_store_dynamodb::http_client;

use crate::server::{Answer, Server};

/// Short, because some are meant to run out.
const ATTEMPT: Duration = Duration::from_millis(500);

/// The machine's clocks, each of which can be moved.
#[derive(Debug, Default)]
struct Movable {
    clock: SystemClock,
    monotonic_secs: AtomicU64,
    wall_secs: AtomicI64,
}

impl Clock for Movable {
    fn now_utc(&self) -> Ticks {
        let by = self.wall_secs.load(Ordering::SeqCst);
        let (now, by, back) = (self.clock.now_utc(), Duration::from_secs(by.unsigned_abs()), by < 0);
        if back { now.minus(by) } else { now.plus(by) }
    }

    fn monotonic(&self) -> Monotonic {
        self.clock.monotonic().plus(Duration::from_secs(self.monotonic_secs.load(Ordering::SeqCst)))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

/// A client whose requests are tried twice.
fn client(server: &Server, clock: Arc<dyn Clock>) -> Client {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build();
    let retries =
        RetryConfig::standard().with_max_attempts(2).with_initial_backoff(Duration::from_millis(10));
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(server.endpoint())
        .http_client(http_client(clock))
        .timeout_config(timeouts)
        .retry_config(retries);
    Client::from_conf(config.build())
}

async fn ask(client: &Client) -> Result<(), String> {
    let asked = client.list_tables().send().await;
    asked.map(drop).map_err(|error| format!("{}", outbox::Chain(&error)))
}

/// As many connections as requests at once.
async fn fill_pool(client: &Client, server: &Server, count: usize) {
    let before = server.connections();
    server.answer(Answer::Late(Duration::from_millis(200)));
    for asked in join_all((0..count).map(|_| ask(client))).await {
        asked.unwrap();
    }
    server.answer(Answer::Nothing);
    assert_eq!(server.connections(), before + count);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_was_unused_is_replaced_by_either_clock() {
    let server = Server::start(Answer::Nothing).await;
    let clock = Arc::new(Movable::default());
    let client = client(&server, Arc::clone(&clock) as Arc<dyn Clock>);
    for _ in 0..10 {
        ask(&client).await.unwrap();
    }
    // A connection is back in the pool a moment after its answer: one or two requests may come before that.
    assert!(server.connections() < 5, "{} connections: a warm one is used again", server.connections());
    let frozen = |monotonic, wall| {
        clock.monotonic_secs.fetch_add(monotonic, Ordering::SeqCst);
        clock.wall_secs.fetch_add(wall, Ordering::SeqCst);
        // Were the pool not replaced, the request would be lost with its connection.
        server.strand();
    };
    for (monotonic, wall) in [(900, 900), (0, 900), (900, -3600)] {
        let before = server.connections();
        frozen(monotonic, wall);
        ask(&client).await.unwrap();
        assert_eq!(server.connections(), before + 1);
    }
    assert_eq!(server.lost(), 0, "no request was given to a dead connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_attempt_never_gets_another_dead_connection() {
    let server = Server::start(Answer::Nothing).await;
    let client = client(&server, Arc::new(SystemClock::new()));
    fill_pool(&client, &server, 6).await;
    server.strand();
    ask(&client).await.unwrap();
    assert_eq!(server.lost(), 1, "one attempt was lost");
    assert_eq!(server.connections(), 7, "and the next had a new connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_run_into_dead_connections_together_replace_the_pool_once() {
    let server = Server::start(Answer::Nothing).await;
    let client = client(&server, Arc::new(SystemClock::new()));
    fill_pool(&client, &server, 6).await;
    server.strand();
    for asked in join_all((0..6).map(|_| ask(&client))).await {
        asked.unwrap();
    }
    assert_eq!(server.lost(), 6);
    let made = server.connections();
    assert!(made <= 12, "{made} connections");
    ask(&client).await.unwrap();
    assert_eq!(server.connections(), made, "a failure on the old pool is none of the new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_closed_takes_the_pool_with_it() {
    let server = Server::start(Answer::Nothing).await;
    let client = client(&server, Arc::new(SystemClock::new()));
    fill_pool(&client, &server, 3).await;
    server.answer(Answer::Closed);
    assert!(ask(&client).await.is_err());
    server.answer(Answer::Nothing);
    let before = server.connections();
    ask(&client).await.unwrap();
    assert_eq!(server.connections(), before + 1, "none of the other two was taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_keep_their_connections() {
    let server = Server::start(Answer::Late(ATTEMPT / 2)).await;
    let clock = Arc::new(Movable::default());
    let client = client(&server, Arc::clone(&clock) as Arc<dyn Clock>);
    let under_way = tokio::spawn({
        let client = client.clone();
        async move { ask(&client).await }
    });
    while server.requests() < 1 {
        tokio::task::yield_now().await;
    }
    clock.wall_secs.store(900, Ordering::SeqCst);
    server.answer(Answer::Nothing);
    ask(&client).await.unwrap();
    assert_eq!(server.connections(), 2);
    under_way.await.unwrap().unwrap();
    assert_eq!(server.requests(), 2, "it was answered, not sent again");
}
