//! A container's credentials, that run out, and what requests to the table were signed with.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox_local::link::Link;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::network::Network;

/// The endpoint of a container's credentials, behind a link, and a listener on the way to the table.
pub(crate) struct Credentials {
    link: Link,
    given: Arc<Mutex<Vec<String>>>,
    used: Arc<Mutex<Vec<String>>>,
    table: SocketAddr,
}

impl Credentials {
    /// Every answer has other credentials, which last for `lifetime`.
    pub(crate) async fn start(network: &Network, lifetime: Duration) -> Self {
        let (given, used) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::start(listener.local_addr().unwrap()).unwrap();
        tokio::spawn(give(listener, lifetime, Arc::clone(&given)));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let table = listener.local_addr().unwrap();
        tokio::spawn(listen_in(listener, network.dynamodb().address(), Arc::clone(&used)));
        Self { link, given, used, table }
    }

    /// What makes a function use both.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        [
            // Blank: set, they would win.
            ("AWS_ACCESS_KEY_ID", " ".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", " ".to_owned()),
            ("AWS_SESSION_TOKEN", " ".to_owned()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{}/credentials", self.link.address())),
            ("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", self.table)),
        ]
    }

    /// Forgets the connections to the endpoint of credentials.
    pub(crate) fn strand(&self) {
        self.link.strand();
    }

    /// The key ids that were handed out.
    pub(crate) fn given(&self) -> Vec<String> {
        self.given.lock().unwrap().clone()
    }

    /// The key ids that requests to the table were signed with, each once, in the order in which they came into use.
    pub(crate) fn used(&self) -> Vec<String> {
        self.used.lock().unwrap().clone()
    }
}

async fn give(listener: TcpListener, lifetime: Duration, given: Arc<Mutex<Vec<String>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let given = Arc::clone(&given);
        tokio::spawn(async move {
            let mut request = Vec::new();
            while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                // A GET has no body.
                if !request.ends_with(b"\r\n\r\n") {
                    continue;
                }
                request.clear();
                let id = {
                    let mut given = given.lock().unwrap();
                    let id = format!("KEY{}", given.len() + 1);
                    given.push(id.clone());
                    id
                };
                let body = serde_json::json!({
                    "AccessKeyId": id, "SecretAccessKey": "secret", "Token": "token",
                    "Expiration": timestamp(SystemTime::now() + lifetime),
                });
                let body = body.to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
                let answer = format!("{head}: {}\r\n\r\n{body}", body.len());
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// ISO 8601, to the second.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    aws_smithy_types::DateTime::from_secs(i64::try_from(seconds).unwrap())
        .fmt(aws_smithy_types::date_time::Format::DateTime)
        .unwrap()
}

/// Forwards to `target`, and notes whose signature each request carries.
async fn listen_in(listener: TcpListener, target: SocketAddr, used: Arc<Mutex<Vec<String>>>) {
    while let Ok((client, _)) = listener.accept().await {
        let used = Arc::clone(&used);
        tokio::spawn(async move {
            let Ok(target) = TcpStream::connect(target).await else { return };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_target, mut to_target) = target.into_split();
            let back = tokio::spawn(async move { tokio::io::copy(&mut from_target, &mut to_client).await });
            let mut request = Vec::new();
            while from_client.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                note(&request, &used);
                if to_target.write_all(&request).await.is_err() {
                    break;
                }
                request.clear();
            }
            back.abort();
        });
    }
}

/// A request's head comes in one piece over loopback.
fn note(request: &[u8], used: &Mutex<Vec<String>>) {
    let text = String::from_utf8_lossy(request);
    let Some((_, rest)) = text.split_once("Credential=") else { return };
    let id = rest.split('/').next().unwrap().to_owned();
    let mut used = used.lock().unwrap();
    if !used.contains(&id) {
        used.push(id);
    }
}
