//! The HTTP client under the SDK: it counts every request by what it is for, and mistreats those it is told to.
//!
//! It sits below the SDK's retries, so what it sees is what DynamoDB would.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::kind::Kind;

/// What one kind of request was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Requests that were sent, retries among them.
    pub(crate) requests: u64,
    /// Those that were refused because their condition did not hold.
    pub(crate) refused: u64,
    /// Capacity units of those that were carried out.
    pub(crate) units: f64,
}

/// What is done to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is carried out, and the connection breaks before the answer arrives.
    ReplyLost,
    /// The connection breaks before it arrives. [`Wire::land`] lets it arrive all the same, later.
    Underway,
    /// It is answered with DynamoDB's throttling error, and not carried out.
    Throttled,
}

type Action = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// The client. Clones share the counts and the faults.
#[derive(Clone)]
pub(crate) struct Wire {
    inner: SharedHttpClient,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    tallies: BTreeMap<Kind, Tally>,
    /// The kinds of the requests in the order they were sent.
    sent: Vec<Kind>,
    /// The next `u32` requests of a kind meet a fault.
    faults: Vec<(Kind, u32, Fault)>,
    /// What happens just before the next request of a kind is sent.
    before: Vec<(Kind, Action)>,
    underway: Vec<(SharedHttpConnector, HttpRequest)>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let inner = aws_smithy_http_client::Builder::new().build_http();
        Self { inner, state: Arc::default() }
    }

    /// Lets the next `times` requests of a kind meet a fault.
    pub(crate) fn fail(&self, kind: Kind, times: u32, fault: Fault) {
        self.state.lock().unwrap().faults.push((kind, times, fault));
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// Does something just before the next request of a kind is sent, once.
    pub(crate) fn before(
        &self,
        kind: Kind,
        action: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        self.state.lock().unwrap().before.push((kind, Box::new(action)));
    }

    /// Lets the requests arrive whose senders gave up on them, and says how many of them were carried out.
    pub(crate) async fn land(&self) -> usize {
        let underway = std::mem::take(&mut self.state.lock().unwrap().underway);
        let mut landed = 0;
        for (connector, request) in underway {
            landed += usize::from(connector.call(request).await.unwrap().status().is_success());
        }
        landed
    }

    /// The counts up to now.
    pub(crate) fn counts(&self) -> Counts {
        Counts(self.state.lock().unwrap().tallies.clone())
    }

    /// The kinds of the requests since `first` were sent, in order.
    pub(crate) fn sent_since(&self, first: usize) -> Vec<Kind> {
        self.state.lock().unwrap().sent[first..].to_vec()
    }

    /// How many requests were sent.
    pub(crate) fn sent(&self) -> usize {
        self.state.lock().unwrap().sent.len()
    }

    async fn carry(
        self,
        connector: SharedHttpConnector,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let kind = Kind::of(&request);
        let (action, fault) = {
            let mut state = self.state.lock().unwrap();
            let action = state.before.iter().position(|(of, _)| *of == kind);
            let action = action.map(|position| state.before.remove(position).1);
            let fault = state.faults.iter_mut().find(|(of, times, _)| *of == kind && *times > 0);
            let fault = fault.map(|(_, times, fault)| {
                *times -= 1;
                *fault
            });
            (action, fault)
        };
        if let Some(action) = action {
            action().await;
        }
        {
            let mut state = self.state.lock().unwrap();
            state.sent.push(kind);
            state.tallies.entry(kind).or_default().requests += 1;
            if fault == Some(Fault::Underway) {
                state.underway.push((connector.clone(), request.try_clone().unwrap()));
            }
        }
        match fault {
            None => self.send(connector, kind, request).await,
            Some(Fault::ReplyLost) => {
                self.send(connector, kind, request).await?;
                Err(broken())
            }
            Some(Fault::Underway) => Err(broken()),
            Some(Fault::Throttled) => Ok(throttled()),
        }
    }

    /// Sends a request and reads what its answer says of it.
    async fn send(
        &self,
        connector: SharedHttpConnector,
        kind: Kind,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let mut response = connector.call(request).await?;
        let body = ByteStream::new(response.take_body()).collect().await.unwrap().into_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let refused =
            answer["__type"].as_str().is_some_and(|kind| kind.ends_with("ConditionalCheckFailedException"));
        let consumed = &answer["ConsumedCapacity"];
        let one = std::slice::from_ref(consumed);
        let units =
            consumed.as_array().map_or(one, Vec::as_slice).iter().filter_map(|c| c["CapacityUnits"].as_f64());
        {
            let mut state = self.state.lock().unwrap();
            let tally = state.tallies.entry(kind).or_default();
            tally.refused += u64::from(refused);
            tally.units += units.sum::<f64>();
        }
        *response.body_mut() = SdkBody::from(body);
        Ok(response)
    }
}

fn broken() -> ConnectorError {
    ConnectorError::io("the connection broke".into())
}

fn throttled() -> HttpResponse {
    let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slower"}"#;
    HttpResponse::new(400.try_into().unwrap(), SdkBody::from(body))
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Connector { inner, wire: self.clone() })
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    wire: Wire,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.wire.clone().carry(self.inner.clone(), request))
    }
}

/// Counts by kind. `Display` is the table that a person reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts(BTreeMap<Kind, Tally>);

impl Counts {
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let used = self.0.iter().map(|(kind, now)| {
            let then = earlier.of(*kind);
            let used = Tally {
                requests: now.requests - then.requests,
                refused: now.refused - then.refused,
                units: now.units - then.units,
            };
            (*kind, used)
        });
        Self(used.filter(|(_, used)| used.requests > 0).collect())
    }

    pub(crate) fn of(&self, kind: Kind) -> Tally {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.values().map(|tally| tally.requests).sum()
    }

    /// Requests that write, refused or not.
    pub(crate) fn writes(&self) -> u64 {
        self.0.iter().filter(|(kind, _)| kind.writes()).map(|(_, tally)| tally.requests).sum()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.0.values().map(|tally| tally.refused).sum()
    }

    pub(crate) fn write_units(&self) -> f64 {
        self.0
            .iter()
            .filter(|(kind, _)| kind.writes())
            .map(|(_, tally)| tally.units)
            .fold(0.0, |sum, units| sum + units)
    }

    pub(crate) fn read_units(&self) -> f64 {
        self.0
            .iter()
            .filter(|(kind, _)| !kind.writes())
            .map(|(_, tally)| tally.units)
            .fold(0.0, |sum, units| sum + units)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, Tally { requests, refused, units }) in &self.0 {
            let kind = format!("{kind:?}");
            writeln!(f, "  {kind:<18} {requests:>7} requests {refused:>5} refused {units:>9} units")?;
        }
        let (requests, refused) = (self.requests(), self.refused());
        let (written, read) = (self.write_units(), self.read_units());
        write!(f, "  in all {requests} requests, {refused} refused; {written} write units, {read} read units")
    }
}
