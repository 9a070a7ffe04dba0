//! Requests of an administrator that rdkafka has no call for: one connection each, in plaintext.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, encode_request_header_into_buffer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::ClientError;

/// The version of the requests about access control lists, since Kafka 3.
const VERSION: i16 = 3;
const BOUND: Duration = Duration::from_secs(20);
/// An answer is some hundred bytes; what is much longer is none.
const LONGEST_ANSWER: usize = 1 << 20;

/// A request to come: to whom, and what for, in the words of an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) servers: &'a str,
    pub(super) what: &'static str,
}

impl Call<'_> {
    /// Sends the request and returns the answer, whatever it says.
    ///
    /// An error may mean that the request was carried out all the same.
    pub(super) async fn make<A: Decodable>(
        self,
        api: ApiKey,
        request: &impl Encodable,
    ) -> Result<A, ClientError> {
        let Self { servers, what } = self;
        let exchange = async {
            let header = RequestHeader::default()
                .with_request_api_key(api as i16)
                .with_request_api_version(VERSION)
                .with_client_id(Some(StrBytes::from_static_str("outbox-local")));
            let mut body = BytesMut::new();
            encode_request_header_into_buffer(&mut body, &header).map_err(malformed)?;
            request.encode(&mut body, VERSION).map_err(malformed)?;
            let mut answer = exchange(servers, &body).await?;
            ResponseHeader::decode(&mut answer, api.response_header_version(VERSION)).map_err(malformed)?;
            A::decode(&mut answer, VERSION).map_err(malformed)
        };
        let answer = match tokio::time::timeout(BOUND, exchange).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        };
        answer.map_err(|source| ClientError::Admin { what, servers: servers.to_owned(), source })
    }
}

async fn exchange(servers: &str, request: &[u8]) -> io::Result<Bytes> {
    let mut stream = TcpStream::connect(servers).await?;
    let length = i32::try_from(request.len()).map_err(io::Error::other)?;
    let mut sent = BytesMut::with_capacity(request.len() + 4);
    sent.put_i32(length);
    sent.put_slice(request);
    stream.write_all(&sent).await?;
    let length = usize::try_from(stream.read_i32().await?).map_err(malformed)?;
    if length > LONGEST_ANSWER {
        return Err(malformed(format!("an answer of {length} bytes")));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    Ok(answer.into())
}

fn malformed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// An error, where the broker's code is one.
pub(super) fn refused(what: &'static str, code: i16, message: Option<StrBytes>) -> Result<(), ClientError> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(error) => Err(ClientError::Refused {
            what,
            code: error.code(),
            message: message.map_or_else(|| error.to_string(), |message| message.to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
    use tokio::net::TcpListener;

    use super::*;

    /// What comes of a broker that answers so and closes the connection.
    async fn answered(answer: &'static [u8]) -> io::Error {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = listener.local_addr().unwrap().to_string();
        let broker = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_i32().await.unwrap();
            stream.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).await.unwrap();
            stream.write_all(answer).await.unwrap();
        });
        let call = Call { servers: &servers, what: "ask" };
        let asked = call.make(ApiKey::DescribeAcls, &DescribeAclsRequest::default()).await;
        broker.await.unwrap();
        match asked.map(|_: DescribeAclsResponse| ()).unwrap_err() {
            ClientError::Admin { what: "ask", source, .. } => source,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_none_is_an_error() {
        // More than a gigabyte, announced; a negative length; cut off; nothing of the answer in it.
        for (answer, kind) in [
            (&[0x7f, 0, 0, 0][..], io::ErrorKind::InvalidData),
            (&[0xff, 0, 0, 0], io::ErrorKind::InvalidData),
            (&[0, 0, 0, 9, 1], io::ErrorKind::UnexpectedEof),
            (&[0, 0, 0, 1, 1], io::ErrorKind::InvalidData),
        ] {
            let error = answered(answer).await;
            assert_eq!(error.kind(), kind, "{answer:?}: {error}");
        }
    }
}
