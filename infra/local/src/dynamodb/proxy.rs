//! A proxy in front of a DynamoDB that speaks plain HTTP and verifies no signatures: every local one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use axum::http::{Request, Response, StatusCode, Uri, request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::faults::{Drawn, Fault, Faults, refusal};

/// DynamoDB's own limit of a request.
const LARGEST_REQUEST: usize = 16 * 1024 * 1024;
/// A page is 1 MB and a batch 16 MB; base64 and JSON make more of it.
const LARGEST_RESPONSE: usize = 64 * 1024 * 1024;
/// Requests that go on without a client; more wait for their turn.
const MOST_DETACHED: usize = 1_000;
/// After an accept that failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Sees every request and every answer on its way.
pub(super) trait Tap: Send + Sync + 'static {
    /// The body to send on.
    fn request(&self, operation: &str, body: Bytes) -> Bytes;
    /// An answer that is on its way back.
    fn response(&self, operation: &str, status: StatusCode, body: &[u8]);
}

struct Proxy<T> {
    upstream: String,
    client: Client<HttpConnector, Body>,
    tap: Arc<T>,
    faults: Arc<Faults>,
    detached: Arc<Semaphore>,
}

/// The client is to hear nothing: its connection is closed without an answer.
#[derive(Debug, Error)]
#[error("the connection was closed on purpose")]
struct Lost;

/// Serves `listener` until the runtime ends; `upstream` is `http://host:port`.
///
/// `faults` are looked for by requests that arrive here, before the tap sees them: it counts what the database, or
/// a fault in its place, has answered.
pub(super) async fn serve<T: Tap>(
    listener: TcpListener,
    upstream: String,
    tap: Arc<T>,
    faults: Arc<Faults>,
) -> Infallible {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let detached = Arc::new(Semaphore::new(MOST_DETACHED));
    let proxy = Arc::new(Proxy { upstream, client, tap, faults, detached });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(Arc::clone(&proxy).serve_one(stream))),
            Err(error) => {
                tracing::warn!(%error, "the proxy in front of DynamoDB did not accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl<T: Tap> Proxy<T> {
    async fn serve_one(self: Arc<Self>, stream: TcpStream) {
        // Without it small answers wait for the peer's delayed acknowledgement; an error costs that wait only.
        let _ = stream.set_nodelay(true);
        // An error of the service closes the connection without an answer, which is more than axum can do.
        let service = service_fn(|request| Arc::clone(&self).answer(request));
        if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a connection to DynamoDB ended");
        }
    }

    /// A client that hangs up cancels this, and with it what is not detached.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Lost> {
        let (parts, body) = request.into_parts();
        let operation = operation(&parts).to_owned();
        let body = match to_bytes(Body::new(body), LARGEST_REQUEST).await {
            Ok(body) => body,
            Err(error) => return Ok(bad_gateway(&error)),
        };
        let drawn = self.faults.draw(&operation, &body);
        let asked = Asked { parts, operation, body };
        match drawn {
            None => Ok(self.forward(asked).await),
            Some(drawn) => self.mistreat(&drawn, asked).await,
        }
    }

    async fn mistreat(self: Arc<Self>, drawn: &Drawn, asked: Asked) -> Result<Response<Body>, Lost> {
        let fault = drawn.fault();
        tracing::debug!(operation = asked.operation, fault = fault.name(), "a request meets a fault");
        match fault {
            Fault::LoseRequest => Err(Lost),
            Fault::LoseReply => {
                self.detach(Duration::ZERO, asked).await?;
                Err(Lost)
            }
            Fault::Late(delay) => self.detach(delay, asked).await,
            Fault::Hang => {
                self.faults.lifted(drawn).await;
                Ok(self.forward(asked).await)
            }
            Fault::Unprocessed(left) => Ok(self.forward_part(drawn, left, asked).await),
            Fault::Throttle | Fault::ThrottleProvisioned | Fault::InternalError => {
                let (status, answer) = refusal(fault).ok_or(Lost)?;
                Ok(self.answered_here(asked, status, answer.into_bytes()))
            }
        }
    }

    /// Forwards after a while, whether or not the client is still there.
    async fn detach(self: Arc<Self>, delay: Duration, asked: Asked) -> Result<Response<Body>, Lost> {
        let permit = Arc::clone(&self.detached).acquire_owned().await.map_err(|_| Lost)?;
        let forwarding = tokio::spawn(async move {
            sleep(delay).await;
            let answer = self.forward(asked).await;
            drop(permit);
            answer
        });
        forwarding.await.map_err(|_| Lost)
    }

    /// Forwards a part of a batch, and answers for the rest.
    async fn forward_part(&self, drawn: &Drawn, left: f64, mut asked: Asked) -> Response<Body> {
        let Some(mut split) = drawn.split(&asked.body, left) else {
            // The database knows best what is wrong with it.
            return self.forward(asked).await;
        };
        let Some(request) = split.request.take() else {
            return self.answered_here(asked, StatusCode::OK, split.answer(b"{}"));
        };
        asked.body = request.into();
        let (mut parts, body) = self.forward(asked).await.into_parts();
        match to_bytes(body, LARGEST_RESPONSE).await {
            Ok(body) if parts.status.is_success() => {
                parts.headers.remove(CONTENT_LENGTH);
                // The database's checksum is that of its own answer.
                parts.headers.remove("x-amz-crc32");
                Response::from_parts(parts, Body::from(split.answer(&body)))
            }
            Ok(body) => Response::from_parts(parts, Body::from(body)),
            Err(error) => bad_gateway(&error),
        }
    }

    fn answered_here(&self, asked: Asked, status: StatusCode, answer: Vec<u8>) -> Response<Body> {
        self.tap.request(&asked.operation, asked.body);
        self.tap.response(&asked.operation, status, &answer);
        let mut response = Response::new(Body::from(answer));
        *response.status_mut() = status;
        let kind = axum::http::HeaderValue::from_static("application/x-amz-json-1.0");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    async fn forward(&self, asked: Asked) -> Response<Body> {
        // The SDK reads an error as a server fault and tries again, as it would with a real one.
        self.try_forward(asked).await.unwrap_or_else(|error| bad_gateway(&*error))
    }

    async fn try_forward(&self, asked: Asked) -> Result<Response<Body>, AnyError> {
        let Asked { mut parts, operation, body } = asked;
        let body = self.tap.request(&operation, body);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = format!("{}{path}", self.upstream).parse::<Uri>()?;
        // The client writes these anew; the tap may have changed the length.
        for header in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING] {
            parts.headers.remove(header);
        }
        let answer = self.client.request(Request::from_parts(parts, Body::from(body))).await?;
        let (mut parts, body) = answer.into_parts();
        let body = to_bytes(Body::new(body), LARGEST_RESPONSE).await?;
        self.tap.response(&operation, parts.status, &body);
        parts.headers.remove(TRANSFER_ENCODING);
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

/// A request that has been read.
struct Asked {
    parts: request::Parts,
    operation: String,
    body: Bytes,
}

fn bad_gateway(error: &(dyn std::error::Error + '_)) -> Response<Body> {
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// `PutItem` of `DynamoDB_20120810.PutItem`.
fn operation(parts: &request::Parts) -> &str {
    parts
        .headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok())
        .and_then(|target| target.rsplit('.').next())
        .unwrap_or("unknown")
}

/// A listener of 127.0.0.1 on any free port.
pub(super) async fn listen() -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
