//! What the client tells us: its log, its errors, and what became of each record.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tracing::Span;

use outbox::PublishErrorKind;

use crate::blame::{Step, broker_of, is_passing, step_of};
use crate::cache::{Cache, Held};
use crate::credentials::Credential;
use crate::error::answer_to;
use crate::in_flight::Counted;
use crate::sockets::Sockets;

/// How many of the client's lines are kept, and how much of each.
const KEPT_LINES: usize = 8;
const KEPT_BYTES: usize = 400;

/// What librdkafka is told when it asks for a token and the one that is kept is old: nobody has published for a while.
/// Not an error: a client with an old token is replaced before the next record.
const NO_NEW_TOKEN: &str = "there will be a new one before the next record is sent";

/// Where a delivery report goes. Unbounded, but one call's channel never holds more than its batch.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// The message's place in its batch.
    pub(crate) index: usize,
    pub(crate) reports: UnboundedSender<Report>,
    pub(crate) counted: Counted,
}

/// What became of one record.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) index: usize,
    pub(crate) result: Result<(), KafkaError>,
}

/// What is known of a client's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Every broker was down at some time since the last acknowledgement.
    pub(crate) all_down: bool,
    /// The last error that only another setting or permission can mend, since the last acknowledgement.
    pub(crate) misconfigured: Option<RDKafkaErrorCode>,
    /// It will never send again.
    pub(crate) fatal: bool,
    /// When a record was last acknowledged; at first, when the client was made.
    pub(crate) progress: Instant,
}

/// How many brokers are remembered that do not take the client.
const MOST_REFUSALS: usize = 64;

/// Shared by a client and its callbacks.
#[derive(Debug)]
pub(crate) struct Context {
    health: Mutex<Health>,
    lines: Mutex<VecDeque<String>>,
    /// Why the last connection got no further, if that is known.
    step: Mutex<Option<Step>>,
    /// Which brokers have not taken the client, and at which step: what other brokers answer does not mend that.
    refusals: Mutex<HashMap<String, Step>>,
    credentials: Option<Credentials>,
    /// Of the call that used the client last: its threads know of none, and what they log belongs to an invocation.
    span: Mutex<Span>,
    /// The client's connections.
    pub(crate) sockets: Sockets,
    /// A record has left the queue: there may be room.
    pub(crate) room: Notify,
    /// The health has got worse.
    pub(crate) news: Notify,
}

/// What the client proves with who it is.
#[derive(Debug)]
struct Credentials {
    cache: Arc<Cache>,
    /// What it connects with: from its making, or what it was given for a token since.
    held: Mutex<Held>,
}

impl Context {
    /// The context of a client that connects with what was found in a cache, if it needs any.
    pub(crate) fn new(credentials: Option<(Arc<Cache>, Held)>) -> Self {
        let credentials = credentials.map(|(cache, held)| Credentials { cache, held: Mutex::new(held) });
        Self {
            health: Mutex::new(Health {
                all_down: false,
                misconfigured: None,
                fatal: false,
                progress: Instant::now(),
            }),
            lines: Mutex::default(),
            step: Mutex::default(),
            refusals: Mutex::default(),
            credentials,
            span: Mutex::new(Span::current()),
            sockets: Sockets::default(),
            room: Notify::new(),
            news: Notify::new(),
        }
    }

    /// What is logged from now on is logged on behalf of the caller.
    pub(crate) fn log_for_caller(&self) {
        *lock(&self.span) = Span::current();
    }

    fn span(&self) -> Span {
        lock(&self.span).clone()
    }

    pub(crate) fn health(&self) -> Health {
        *lock(&self.health)
    }

    /// A broker has answered: what was wrong while nobody used the client is over, and is no reason to give up early.
    pub(crate) fn answered(&self) {
        let mut health = lock(&self.health);
        health.all_down = false;
        health.misconfigured = None;
        *lock(&self.step) = None;
    }

    /// What the client connects with, if it needs any.
    pub(crate) fn credential(&self) -> Option<Held> {
        self.credentials.as_ref().map(|credentials| lock(&credentials.held).clone())
    }

    /// Whether a broker would take what it connects with.
    pub(crate) fn can_connect(&self) -> bool {
        self.credentials.as_ref().is_none_or(|Credentials { cache, held }| cache.can_use(&lock(held)))
    }

    /// Why no broker takes the client, if it is not for the network.
    pub(crate) fn step(&self) -> Option<Step> {
        let last = *lock(&self.step);
        last.or_else(|| self.refusal())
    }

    /// Why some broker does not take the client, until somebody changes something, whatever others do.
    pub(crate) fn refusal(&self) -> Option<Step> {
        lock(&self.refusals).values().next().copied()
    }

    /// A connection got no further, as these words have it. Returns the step that they tell of.
    fn connection_failed(&self, words: &str) -> Option<Step> {
        let step = step_of(words);
        let mut last = lock(&self.step);
        // One that was but guessed is over when something else fails: it was a broker that went away.
        if step.is_some() || last.is_some_and(|step| !step.is_final()) {
            *last = step;
        }
        if let (Some(step), Some(broker)) = (step.filter(|step| step.is_final()), broker_of(words)) {
            let mut refusals = lock(&self.refusals);
            if refusals.len() < MOST_REFUSALS {
                refusals.insert(broker.to_owned(), step);
            }
        }
        step
    }

    /// A broker has taken the client.
    fn connected(&self, line: &str) {
        if let Some(broker) = broker_of(line) {
            lock(&self.refusals).remove(broker);
        }
    }

    /// The client's last lines, oldest first.
    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        let lines = lock(&self.lines);
        let skipped = lines.len().saturating_sub(count);
        lines.iter().skip(skipped).cloned().collect()
    }

    /// Keeps a line for the next error's text. An error comes twice, as a log line and as an event: once is enough.
    fn keep(&self, line: &str) {
        // "[thrd:main]: " says which thread it was.
        let line = match line.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: ")) {
            Some((_, line)) => line,
            None => line,
        };
        let mut line = line.to_owned();
        line.truncate(line.floor_char_boundary(KEPT_BYTES));
        let mut lines = lock(&self.lines);
        if lines.contains(&line) {
            return;
        }
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        let span = self.span();
        let _caller = span.enter();
        // Of a connection that a broker closes there is this line, and no error.
        if facility == "FAIL" {
            self.connection_failed(line);
        } else if facility == "STATE" && line.ends_with("-> UP") {
            self.connected(line);
        }
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => tracing::error!(target: "librdkafka", facility, "{line}"),
            RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{line}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "librdkafka", facility, "{line}");
            }
            RDKafkaLogLevel::Debug => {
                self.sockets.told(facility, line);
                tracing::debug!(target: "librdkafka", facility, "{line}");
                return;
            }
        }
        self.keep(line);
    }

    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// Called by the client's thread, at the client's start and again before a token runs out: answers at once, with the
    /// token that is kept. Making one here would hold up every delivery report, and the end of the client.
    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let Some(Credentials { cache, held }) = &self.credentials else {
            return Err("this client has no tokens".into());
        };
        // Nothing is kept where another client's was refused a moment ago.
        let own = || Some(lock(held).clone()).filter(|own| cache.can_use(own));
        let kept = cache.kept().or_else(own).ok_or(NO_NEW_TOKEN)?;
        let Credential::Token { value, principal, life } = kept.credential.as_ref() else {
            return Err("this client has no tokens".into());
        };
        let token = OAuthToken {
            token: value.clone(),
            principal_name: principal.clone(),
            lifetime_ms: i64::try_from(kept.usable_until(*life).unix_millis())?,
        };
        *lock(held) = kept;
        Ok(token)
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else {
            return;
        };
        if code == RDKafkaErrorCode::Authentication && reason.ends_with(NO_NEW_TOKEN) {
            return;
        }
        let step = match code {
            RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SSL
            | RDKafkaErrorCode::BrokerTransportFailure => self.connection_failed(reason),
            _ => None,
        };
        // "1/1 brokers are down" says less than the lines before it.
        if code != RDKafkaErrorCode::AllBrokersDown {
            self.keep(reason);
        }
        let mut health = lock(&self.health);
        let before = *health;
        match code {
            RDKafkaErrorCode::AllBrokersDown => health.all_down = true,
            RDKafkaErrorCode::Fatal => health.fatal = true,
            // There is no other code for it.
            RDKafkaErrorCode::Authentication if is_passing(reason) => {}
            // A certificate that is not accepted is none tomorrow either, whatever code it has.
            _ if step.is_some_and(Step::is_final) => {
                health.misconfigured = Some(RDKafkaErrorCode::Authentication);
            }
            code if answer_to(code).kind() == PublishErrorKind::Misconfigured => {
                health.misconfigured = Some(code)
            }
            // One broker's trouble: the client tries again, or another one.
            _ => {}
        }
        // An event comes twice, too.
        if *health == before {
            return;
        }
        drop(health);
        self.span().in_scope(|| tracing::warn!(target: "librdkafka", %code, "{reason}"));
        self.news.notify_waiters();
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, delivered: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let result = match delivered {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.clone()),
        };
        if result.is_ok() {
            let mut health = lock(&self.health);
            health.all_down = false;
            health.misconfigured = None;
            health.progress = Instant::now();
            drop(health);
            *lock(&self.step) = None;
        }
        let Ticket { index, reports, counted } = *ticket;
        // Before the report: whoever has the last one finds nothing in flight.
        drop(counted);
        // Nobody listens where a call was cancelled, against its contract.
        let _ = reports.send(Report { index, result });
        self.room.notify_waiters();
    }
}

/// A panic elsewhere leaves nothing half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_kept_once_and_the_oldest_lines_go() {
        let context = Context::new(None);
        context.log(RDKafkaLogLevel::Error, "FAIL", "[thrd:a:1/bootstrap]: a:1/bootstrap: Connect failed");
        context.error(
            KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure),
            "a:1/bootstrap: Connect failed",
        );
        assert_eq!(context.last_lines(9), ["a:1/bootstrap: Connect failed"]);
        for n in 0..20 {
            context.log(RDKafkaLogLevel::Info, "X", &format!("line {n}"));
        }
        context.log(RDKafkaLogLevel::Debug, "X", "not kept");
        assert_eq!(context.last_lines(2), ["line 18", "line 19"]);
        assert_eq!(context.last_lines(99).len(), KEPT_LINES);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let context = Context::new(None);
        context.log(RDKafkaLogLevel::Info, "X", &"ü".repeat(KEPT_BYTES));
        let kept = context.last_lines(1).remove(0);
        assert!(kept.len() <= KEPT_BYTES && kept.len() > KEPT_BYTES - 2);
    }

    #[test]
    fn only_what_concerns_every_record_is_a_matter_of_health() {
        let context = Context::new(None);
        let raise = |code| context.error(KafkaError::Global(code), "why");
        raise(RDKafkaErrorCode::BrokerTransportFailure);
        assert!(!context.health().all_down);
        raise(RDKafkaErrorCode::AllBrokersDown);
        assert!(context.health().all_down);
        raise(RDKafkaErrorCode::Authentication);
        assert_eq!(context.health().misconfigured, Some(RDKafkaErrorCode::Authentication));
        context.answered();
        assert_eq!((context.health().all_down, context.health().misconfigured), (false, None));
        raise(RDKafkaErrorCode::Fatal);
        context.answered();
        assert!(context.health().fatal, "no answer mends that");
    }

    #[test]
    fn a_refusal_is_told_from_a_broker_that_is_busy() {
        let context = Context::new(None);
        let raise = |code, reason: &str| context.error(KafkaError::Global(code), reason);
        raise(RDKafkaErrorCode::Authentication, "SASL authentication error: [1]: Too many connects");
        let no_token = format!("Failed to acquire SASL OAUTHBEARER token: {NO_NEW_TOKEN}");
        raise(RDKafkaErrorCode::Authentication, &no_token);
        raise(RDKafkaErrorCode::SSL, "SSL handshake failed: Connection reset by peer");
        // The client's own error, on a connection that broke or was too slow.
        let broken = "sasl_ssl://b:9098/bootstrap: SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure (after 0ms in state DOWN)";
        raise(RDKafkaErrorCode::BrokerTransportFailure, broken);
        let broken = "SASL OAUTHBEARER mechanism handshake failed: Local: Broker transport failure: broker's supported mechanisms: (n/a)";
        raise(RDKafkaErrorCode::Authentication, broken);
        raise(RDKafkaErrorCode::Authentication, "Failed: Must supply an unexpired token");
        assert_eq!((context.health().misconfigured, context.step()), (None, None));
        raise(RDKafkaErrorCode::BrokerTransportFailure, "Disconnected (after 0ms in state APIVERSION_QUERY)");
        assert_eq!(context.step(), Some(Step::Encryption));
        raise(RDKafkaErrorCode::BrokerTransportFailure, "Connect to b:9096 failed: Connection refused");
        assert_eq!(context.step(), None, "it was a broker that went away");
        raise(RDKafkaErrorCode::SSL, "SSL handshake failed: certificate verify failed");
        assert_eq!(context.health().misconfigured, Some(RDKafkaErrorCode::Authentication));
        assert_eq!(context.step(), Some(Step::Certificate));
        raise(RDKafkaErrorCode::BrokerTransportFailure, "Connect to b:9096 failed: Connection refused");
        assert_eq!(context.step(), Some(Step::Certificate), "nothing has mended that");
        context.answered();
        assert_eq!(context.step(), None);
        raise(RDKafkaErrorCode::Authentication, "SASL authentication error: invalid credentials");
        assert_eq!(context.step(), Some(Step::Credentials));
    }

    /// librdkafka says it once, and then only in a line of its log for half a minute.
    #[test]
    fn a_refusal_by_one_broker_stays_until_that_broker_takes_the_client() {
        let context = Context::new(None);
        let refused = "ssl://b-2:9094/2: SSL handshake failed: certificate verify failed";
        context.error(KafkaError::Global(RDKafkaErrorCode::SSL), refused);
        context.answered();
        assert_eq!((context.health().misconfigured, context.refusal()), (None, Some(Step::Certificate)));
        assert_eq!(context.step(), Some(Step::Certificate));
        context.log(
            RDKafkaLogLevel::Debug,
            "STATE",
            "ssl://b-1:9094/1: Broker changed state APIVERSION_QUERY -> UP",
        );
        assert_eq!(context.refusal(), Some(Step::Certificate));
        let up = "[thrd:ssl://b-2:9094/2]: ssl://b-2:9094/2: Broker changed state APIVERSION_QUERY -> UP";
        context.log(RDKafkaLogLevel::Debug, "STATE", up);
        assert_eq!((context.refusal(), context.step()), (None, None));
        context.log(
            RDKafkaLogLevel::Debug,
            "FAIL",
            &format!("{refused} (_SSL): identical to last error: error log suppressed"),
        );
        assert_eq!(context.refusal(), Some(Step::Certificate));
    }
}
