//! A proxy in front of a DynamoDB that speaks plain HTTP and verifies no signatures: every local one.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use axum::http::{StatusCode, Uri, request};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

/// DynamoDB's own limit of a request.
const LARGEST_REQUEST: usize = 16 * 1024 * 1024;
/// A page is 1 MB and a batch 16 MB; base64 and JSON make more of it.
const LARGEST_RESPONSE: usize = 64 * 1024 * 1024;

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
}

/// Serves `listener` until the runtime ends; `upstream` is `http://host:port`.
pub(super) async fn serve<T: Tap>(
    listener: TcpListener,
    upstream: String,
    tap: Arc<T>,
) -> std::io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let proxy = Arc::new(Proxy { upstream, client, tap });
    let app = axum::Router::new().fallback(forward::<T>).with_state(proxy);
    let listener = listener.tap_io(|stream| {
        // Without it small answers wait for the peer's delayed acknowledgement; an error costs that wait only.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

async fn forward<T: Tap>(State(proxy): State<Arc<Proxy<T>>>, request: Request) -> Response {
    match try_forward(&proxy, request).await {
        Ok(response) => response,
        // The SDK reads this as a server fault and tries again, as it would with a real one.
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn try_forward<T: Tap>(proxy: &Proxy<T>, request: Request) -> Result<Response, AnyError> {
    let (mut parts, body) = request.into_parts();
    let operation = operation(&parts).to_owned();
    let body = proxy.tap.request(&operation, to_bytes(body, LARGEST_REQUEST).await?);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("{}{path}", proxy.upstream).parse::<Uri>()?;
    // The client writes these anew; the tap may have changed the length.
    for header in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let answer = proxy.client.request(Request::from_parts(parts, Body::from(body))).await?;
    let (mut parts, body) = answer.into_parts();
    let body = to_bytes(Body::new(body), LARGEST_RESPONSE).await?;
    proxy.tap.response(&operation, parts.status, &body);
    parts.headers.remove(TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, Body::from(body)))
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
