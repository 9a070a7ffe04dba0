//! What answers for Secrets Manager.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Has one secret, or refuses it.
pub(crate) struct Secrets {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
enum Answer {
    Text(String),
    Refusal(&'static str),
    /// As where there is no way to it.
    Silence,
}

impl Secrets {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(Answer::Refusal("ResourceNotFoundException")));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (answers, noted) = (Arc::clone(&answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answers), Arc::clone(&noted)));
            }
        });
        Self { address, answer, asked }
    }

    /// What a function's `AWS_ENDPOINT_URL_SECRETS_MANAGER` is.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn hold(&self, text: &str) {
        *self.answer.lock().unwrap() = Answer::Text(text.to_owned());
    }

    pub(crate) fn refuse(&self, code: &'static str) {
        *self.answer.lock().unwrap() = Answer::Refusal(code);
    }

    pub(crate) fn fall_silent(&self) {
        *self.answer.lock().unwrap() = Answer::Silence;
    }

    /// The names of the secrets that were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Mutex<Answer>>, asked: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
        let Some(body) = body(&request) else { continue };
        asked.lock().unwrap().push(body["SecretId"].as_str().unwrap().to_owned());
        request.clear();
        let (status, body) = match answer.lock().unwrap().clone() {
            Answer::Text(text) => ("200 OK", json!({ "Name": "relay", "SecretString": text })),
            Answer::Silence => continue,
            Answer::Refusal(code) => ("400 Bad Request", json!({ "__type": code, "Message": "no" })),
        };
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.1\r\ncontent-length");
        if stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The body of a request, once it is whole: it is a JSON object.
fn body(request: &[u8]) -> Option<Value> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    serde_json::from_slice(&request[end + 4..]).ok()
}
