//! The SDK's HTTP client, made so that it survives its process being frozen.
//!
//! The SDK trusts the connections in its pool. Those of a process that was frozen may be dead without a word, every one
//! of them: a request on one costs a whole attempt, and the attempt after it picks the next. Here a pool is replaced as
//! a whole, before a request that comes long after the last one, and after a request that ended without an answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::{RuntimeComponents, RuntimeComponentsBuilder};
use aws_smithy_types::config_bag::ConfigBag;
use outbox::Clock;
use outbox::lease_age::Moment;

/// How long a connection may be unused, or its process asleep, before it is replaced rather than trusted.
///
/// DynamoDB closes a connection that was idle for 60 s, as far as anybody has seen (it promises nothing); NAT gateways
/// and load balancers forget one after 350 s, without a word. A new one costs a TCP and a TLS handshake: milliseconds,
/// once in this time at most. A dead one costs an attempt: seconds.
const MAX_IDLE: Duration = Duration::from_secs(50);

/// An HTTP client for the SDK, the one it has by default but for its pool of connections, which is replaced
/// - before a request that comes 50 s or more after the last one, by either of `clock`'s clocks (a freeze may stop the
///   monotonic one), or once the process has been asleep for as long in all;
/// - after a request that ended without an answer: by an error of the connection, by a timeout, or by being dropped,
///   which is how the SDK ends an attempt that took too long. Whatever killed one connection during a freeze has killed
///   the others too, so the next attempt gets a new one.
///
/// Requests that are under way keep the connections they have.
///
/// For a process that may be frozen between requests, such as a Lambda function, `Writer`'s included: given to
/// `aws_config`'s loader, it serves the providers of credentials as well, whose connections sleep even longer.
pub fn http_client(clock: Arc<dyn Clock>) -> SharedHttpClient {
    SharedHttpClient::new(RenewingClient { clock, current: Mutex::default() })
}

/// The client. Its pool is made by the first request.
#[derive(Debug)]
struct RenewingClient {
    clock: Arc<dyn Clock>,
    current: Mutex<Option<Arc<Pool>>>,
}

/// To connect, and to read.
type Timeouts = (Option<Duration>, Option<Duration>);

/// The connections that were made since the last renewal.
struct Pool {
    made: Moment,
    last_used: Mutex<Moment>,
    /// A request on it ended without an answer.
    suspect: AtomicBool,
    /// The SDK's connectors, each with its connections: one for each pair of timeouts.
    connectors: Mutex<HashMap<Timeouts, SharedHttpConnector>>,
}

impl RenewingClient {
    /// The pool for a request that is made now.
    fn pool(&self) -> Arc<Pool> {
        let now = Moment::now(self.clock.as_ref());
        let mut current = lock(&self.current);
        let pool = match current.take() {
            Some(pool) if pool.serves(now) => pool,
            _ => Arc::new(Pool {
                made: now,
                last_used: Mutex::new(now),
                suspect: AtomicBool::new(false),
                connectors: Mutex::default(),
            }),
        };
        *current = Some(Arc::clone(&pool));
        *lock(&pool.last_used) = now;
        pool
    }
}

impl Pool {
    /// Whether a request that is made now may take a connection of it.
    fn serves(&self, now: Moment) -> bool {
        let last_used = *lock(&self.last_used);
        !self.suspect.load(Ordering::Acquire) && !is_old(self.made, last_used, now)
    }

    fn connector(
        &self,
        settings: &HttpConnectorSettings,
        make: impl Fn() -> Connector,
    ) -> SharedHttpConnector {
        let timeouts = (settings.connect_timeout(), settings.read_timeout());
        let mut connectors = lock(&self.connectors);
        connectors.entry(timeouts).or_insert_with(|| SharedHttpConnector::new(make())).clone()
    }
}

/// Whether a pool may hold connections that are dead. Those that the last requests did not need are older than it; the
/// SDK's own timer closes them, but does not run while the process is asleep, so naps are added up.
fn is_old(made: Moment, last_used: Moment, now: Moment) -> bool {
    now.since(last_used) >= MAX_IDLE || now.asleep_since(made) >= MAX_IDLE
}

impl HttpClient for RenewingClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        // Asked for by the SDK before each attempt: this is where one is given other connections than the last.
        let pool = self.pool();
        let connector = pool.connector(settings, || connector(Some(settings), Some(components)));
        SharedHttpConnector::new(WatchedConnector { pool, connector, clock: Arc::clone(&self.clock) })
    }

    fn validate_base_client_config(
        &self,
        _: &RuntimeComponentsBuilder,
        _: &ConfigBag,
    ) -> Result<(), BoxError> {
        // As the SDK's own client does: the system's certificates are read while a function starts, and not by its first
        // request.
        drop(connector(None, None));
        Ok(())
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        Some(ConnectorMetadata::new("hyper", Some("1.x".into())))
    }
}

/// What the SDK's own client makes, with a shorter life for connections.
fn connector(settings: Option<&HttpConnectorSettings>, components: Option<&RuntimeComponents>) -> Connector {
    let mut builder = Connector::builder()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .proxy_config(ProxyConfig::from_env())
        .pool_idle_timeout(MAX_IDLE);
    builder.set_connector_settings(settings.cloned());
    builder.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
    builder.build()
}

/// A connector of one pool, which learns of requests that ended without an answer.
#[derive(Debug)]
struct WatchedConnector {
    pool: Arc<Pool>,
    connector: SharedHttpConnector,
    clock: Arc<dyn Clock>,
}

impl HttpConnector for WatchedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut watch =
            Watch { pool: Arc::clone(&self.pool), clock: Arc::clone(&self.clock), answered: false };
        let call = self.connector.call(request);
        HttpConnectorFuture::new(async move {
            let result = call.await;
            watch.end(&result);
            result
        })
    }
}

/// One request. Dropped before it has ended, it was given up.
struct Watch {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    answered: bool,
}

impl Watch {
    fn end(&mut self, result: &Result<HttpResponse, ConnectorError>) {
        self.answered = match result {
            Ok(_) => true,
            // The request itself could not be sent by anybody: that says nothing of connections.
            Err(error) => error.is_user(),
        };
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.answered {
            *lock(&self.pool.last_used) = Moment::now(self.clock.as_ref());
        } else if !self.pool.suspect.swap(true, Ordering::AcqRel) {
            tracing::debug!("a request ended without an answer: the next one gets a new connection");
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("made", &self.made)
            .field("suspect", &self.suspect)
            .finish_non_exhaustive()
    }
}

/// A panic elsewhere leaves nothing half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use outbox::{Monotonic, Ticks};

    use super::*;

    /// A moment, `monotonic` and `wall` seconds from the first.
    fn at(monotonic: u64, wall: u64) -> Moment {
        Moment {
            wall: Ticks::from_raw(639_000_000_000_000_000).plus(Duration::from_secs(wall)),
            monotonic: Monotonic::from_origin(Duration::from_secs(monotonic)),
        }
    }

    #[test]
    fn a_pool_is_old_by_either_clock() {
        let first = at(0, 0);
        for (now, old) in [
            (at(49, 49), false),
            (at(50, 50), true),
            // Frozen with the monotonic clock stopped; the wall clock set back, and forward by a little.
            (at(1, 50), true),
            (at(50, 0), true),
            (at(10, 20), false),
        ] {
            assert_eq!(is_old(first, first, now), old, "{now:?}");
        }
    }

    #[test]
    fn short_naps_make_a_pool_old() {
        // Used every ten seconds, of which the monotonic clock saw one.
        let after = |naps| is_old(at(0, 0), at(naps, naps * 10), at(naps, naps * 10));
        assert!(!after(5));
        assert!(after(6));
        assert!(!is_old(at(0, 0), at(999_999, 999_999), at(1_000_000, 1_000_000)), "awake all the time");
    }
}
