//! A DynamoDB of a few lines, over real sockets: it says what it is told to say, and can forget its connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing is there, and everything is done.
    Nothing,
    /// The same, that much later.
    Late(Duration),
    /// A page without items, and there are always more.
    Endless,
    /// Deletes are left unprocessed; anything else is throttled.
    Throttled,
    /// No word.
    Never,
    /// The connection is closed without one.
    Closed,
}

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Mutex<Answer>,
    /// Connections of earlier epochs are forgotten: what comes on them is read and not answered.
    epoch: watch::Sender<usize>,
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Requests that came on forgotten connections.
    lost: AtomicUsize,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    pub(crate) fn on(listener: TcpListener, answer: Answer) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Mutex::new(answer),
            epoch: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&accepting)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn answer(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = answer;
    }

    /// Forgets all connections there are.
    pub(crate) fn strand(&self) {
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Connections ever made to it.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Requests that it has read.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Of those, the ones that came on forgotten connections.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let epoch = *shared.epoch.borrow();
    let mut stream = BufReader::new(stream);
    while let Some(body) = request(&mut stream).await {
        shared.requests.fetch_add(1, Ordering::SeqCst);
        if *shared.epoch.borrow() != epoch {
            shared.lost.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let answer = *shared.answer.lock().unwrap();
        let (status, body) = match answer {
            Answer::Nothing => (200, "{}".to_owned()),
            Answer::Late(time) => {
                tokio::time::sleep(time).await;
                (200, "{}".to_owned())
            }
            Answer::Endless => {
                let key = r#"{"PK":{"S":"OUTBOX"},"SK":{"S":"0"}}"#;
                (200, format!(r#"{{"Items":[],"Count":0,"LastEvaluatedKey":{key}}}"#))
            }
            Answer::Throttled => match body.strip_prefix(r#"{"RequestItems""#) {
                Some(rest) => (200, format!(r#"{{"UnprocessedItems"{rest}"#)),
                None => {
                    let name = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
                    (400, format!(r#"{{"__type":"{name}","message":"throttled"}}"#))
                }
            },
            Answer::Never => continue,
            Answer::Closed => return,
        };
        let answer = format!(
            "HTTP/1.1 {status} -\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The body of the next request; `None`: the client has gone.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    String::from_utf8(body).ok()
}
