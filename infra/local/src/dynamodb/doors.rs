//! The ways to a local database: a plain one, one where requests can meet faults, and that one behind a link.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::error::DatabaseError;
use super::faults::Faults;
use super::meter::{Meter, Usage};
use super::proxy;
use crate::link::Link;

/// Enough to overlap the proxies with the database, which does one thing at a time anyway.
const WORKERS: usize = 2;

/// All the doors, and the runtime that serves them. Dropping it ends everything that runs there.
#[derive(Debug)]
pub(super) struct Doors {
    pub(super) plain: Door,
    pub(super) faulty: Door,
    pub(super) faults: Arc<Faults>,
    /// In front of the faulty door.
    pub(super) link: Link,
    pub(super) linked_endpoint: String,
    /// Its own, so that a busy database does not slow what is measured, nor the other way round.
    runtime: Option<Runtime>,
}

/// One proxy, with what is counted there.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) endpoint: String,
    address: SocketAddr,
    meter: Arc<Meter>,
}

impl Doors {
    /// `upstream` is the database's `http://host:port`.
    pub(super) async fn open(runtime: Runtime, upstream: &str) -> Result<Self, DatabaseError> {
        let faults = Arc::<Faults>::default();
        let plain = Door::open(&runtime, upstream, Arc::default()).await?;
        let faulty = Door::open(&runtime, upstream, Arc::clone(&faults)).await?;
        let link = Link::start(faulty.address).map_err(DatabaseError::io("start a link"))?;
        let linked_endpoint = format!("http://{}", link.address());
        Ok(Self { plain, faulty, faults, link, linked_endpoint, runtime: Some(runtime) })
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A plain drop blocks, and panics inside another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Door {
    async fn open(runtime: &Runtime, upstream: &str, faults: Arc<Faults>) -> Result<Self, DatabaseError> {
        let meter = Arc::<Meter>::default();
        let (listener, address) = listen(runtime).await?;
        let serving = proxy::serve(listener, upstream.to_owned(), Arc::clone(&meter), faults);
        runtime.spawn(async move { match serving.await {} });
        Ok(Self { endpoint: format!("http://{address}"), address, meter })
    }

    pub(super) fn usage(&self) -> Usage {
        self.meter.usage()
    }
}

pub(super) fn runtime() -> Result<Runtime, DatabaseError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("dynamodb")
        .enable_all()
        .build()
        .map_err(DatabaseError::io("start a runtime"))
}

/// Sockets belong to the runtime they are made on.
pub(super) async fn listen(runtime: &Runtime) -> Result<(TcpListener, SocketAddr), DatabaseError> {
    let joined = runtime.spawn(proxy::listen()).await.map_err(std::io::Error::other);
    joined.and_then(|result| result).map_err(DatabaseError::io("listen on 127.0.0.1"))
}
