//! Every call of the store ends by its limit, whatever DynamoDB does.

use std::future::Future;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use outbox::store::{AcquireRequest, FetchRequest};
use outbox::{Bucket, BucketCount, Lease, OutboxStore as _, StoreError, StoreErrorKind};
use outbox_store_dynamodb::{DynamoDbStore, Sequence, StoreOptions};
use tokio::net::TcpSocket;

use crate::server::{Answer, Server};
use crate::support::{Bench, NOW, at, buckets, relay};

const LIMIT: Duration = Duration::from_secs(2);
/// What the engine grants a call beyond its limit is 100 ms; timers of a machine that is busy with other tests may be
/// later than that.
const MARGIN: Duration = Duration::from_millis(500);

type Call<'a> = (&'static str, BoxFuture<'a, Result<(), StoreError>>);

fn call<'a, T>(
    name: &'static str,
    call: impl Future<Output = Result<T, StoreError>> + Send + 'a,
) -> Call<'a> {
    (name, call.map(|result| result.map(drop)).boxed())
}

/// Makes every call the store has, at once, and returns what became of each. All have ended in time.
async fn every_call(store: &DynamoDbStore) -> Vec<(&'static str, Result<(), StoreError>)> {
    let (me, all) = (relay("a"), buckets(0..8));
    let (wanted, none) = (all.clone(), buckets([]));
    let rows: Vec<Sequence> = (1..=300).map(|number| Sequence::new(number).unwrap()).collect();
    let leases: Vec<Lease> = all.iter().map(|bucket| Lease { bucket: *bucket, expires_at: NOW }).collect();
    let acquire = AcquireRequest {
        relay: &me,
        bucket_count: BucketCount::DEFAULT,
        times: at(0),
        wanted: &wanted,
        previous: &none,
        busy: &none,
        limit: LIMIT,
    };
    let fetch = FetchRequest {
        bucket: Bucket::new(3),
        max_messages: 10,
        max_bytes: 1 << 20,
        removed_up_to: None,
        limit: LIMIT,
    };
    let ownership = store.ownership().unwrap();
    let calls = [
        call("acquire", async {
            store.acquire(&acquire).await.and_then(|acquired| acquired.error.map_or(Ok(()), Err))
        }),
        call("pending", store.pending(&all, LIMIT)),
        call("fetch", store.fetch(&fetch)),
        call("delete", store.delete(Bucket::new(3), &rows, LIMIT)),
        call("renew", store.renewal().unwrap().renew(&me, leases[0], at(0), LIMIT)),
        call("claim", async {
            let claimed = store.named_claims().unwrap().claim(&me, &all, at(0), LIMIT).await;
            claimed.and_then(|claimed| claimed.error.map_or(Ok(()), Err))
        }),
        call("sample", store.backlog().unwrap().sample(&all, LIMIT)),
        call("release", ownership.release(&me, &leases, LIMIT)),
        call("release_strays", ownership.release_strays(&me, LIMIT)),
        call("stop", ownership.stop(&me, &leases, NOW, LIMIT)),
        call("has_message", ownership.has_message(Bucket::new(3), LIMIT)),
    ];
    let timed = calls.map(|(name, call)| async move {
        let started = Instant::now();
        let result = call.await;
        (name, result, started.elapsed())
    });
    let ended = join_all(timed).await;
    let (last, _, longest) = ended.iter().max_by_key(|(_, _, took)| *took).unwrap();
    println!(
        "the last of {} calls, {last}, ended {longest:?} after it began, with a limit of {LIMIT:?}",
        ended.len()
    );
    for (name, _, took) in &ended {
        assert!(*took <= LIMIT + MARGIN, "{name} took {took:?}");
    }
    ended.into_iter().map(|(name, result, _)| (name, result)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_outlasts_no_limit() {
    let server = Server::start(Answer::Throttled).await;
    let bench = Bench::at(server.endpoint(), StoreOptions::new("outbox"));
    for (name, result) in every_call(&bench.store).await {
        assert_eq!(result.unwrap_err().kind(), StoreErrorKind::Throttled, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_outlasts_no_limit() {
    let server = Server::start(Answer::Never).await;
    let bench = Bench::at(server.endpoint(), StoreOptions::new("outbox"));
    for (name, result) in every_call(&bench.store).await {
        assert!(!result.unwrap_err().is_misconfiguration(), "{name}");
    }
}

/// A call that makes several requests, one after the other, has one limit for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_each_in_time_outlast_no_limit_together() {
    let server = Server::start(Answer::Late(LIMIT * 2 / 5)).await;
    let bench = Bench::at(server.endpoint(), StoreOptions::new("outbox"));
    let ended = every_call(&bench.store).await;
    let one_request = ended.iter().filter(|(name, _)| ["renew", "has_message", "fetch"].contains(name));
    for (name, result) in one_request {
        assert!(result.is_ok(), "{name}: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_without_end_outlast_no_limit() {
    let server = Server::start(Answer::Endless).await;
    let bench = Bench::at(server.endpoint(), StoreOptions::new("outbox"));
    for (name, result) in every_call(&bench.store).await {
        if ["fetch", "acquire", "claim", "release_strays"].contains(&name) {
            assert!(result.is_err(), "{name} ended");
        }
    }
    assert!(server.requests() > 100);
}

/// Time for a second attempt is left also where the first is lost to a connection that does not come up.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_come_up_leaves_time_for_another() {
    const SHORT: Duration = Duration::from_secs(1);
    // Room for one connection that nobody accepts, and that one is taken: the next one hangs.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let filler = tokio::net::TcpStream::connect(address).await.unwrap();
    let store = Bench::at(format!("http://{address}"), StoreOptions::new("outbox")).store;

    let started = Instant::now();
    let asking =
        tokio::spawn(async move { store.ownership().unwrap().has_message(Bucket::new(3), SHORT).await });
    // The second attempt begins at half of the limit, and the kernel's own second attempt at a connection after a
    // second.
    tokio::time::sleep(SHORT / 4).await;
    assert!(!asking.is_finished(), "its connection was meant to hang");
    let server = Server::on(listener, Answer::Nothing);
    let answer = asking.await.unwrap();
    assert!(matches!(answer, Ok(false)), "{answer:?}");
    assert!(started.elapsed() < SHORT, "{:?}", started.elapsed());
    assert_eq!(server.requests(), 1);
    drop(filler);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_time_nothing_is_sent() {
    let server = Server::start(Answer::Nothing).await;
    let store = Bench::at(server.endpoint(), StoreOptions::new("outbox")).store;
    let error = store.delete(Bucket::new(3), &[Sequence::new(1).unwrap()], Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(server.connections(), 0);
}
