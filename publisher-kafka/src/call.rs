//! One publish call: from the batch to the outcome of each message.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use outbox::{Message, MessageId, Outcome, PublishError, PublishErrorKind};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::{Client, SendError};
use crate::config::{BATCH_BYTES, KafkaConfig, MAX_LIMIT, MAX_RECORD_BYTES};
use crate::context::{Report, Ticket};
use crate::error::{is_remembered, kind_of, kind_of_error, refuses_the_batch};
use crate::record::largest_size;

/// How long all brokers may have been down, with nothing acknowledged, before a call gives up.
///
/// Long enough for a broker to be reached through a slow handshake or to be restarted behind an address that another
/// one still answers on; short enough that even a function with the shortest timeout, 10 s, can say why it failed.
pub(crate) const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);

/// What of the limit is kept for taking back what was not acknowledged: a quarter, and a second at most.
const RESERVE: Duration = Duration::from_secs(1);
/// How long taking back may last before it is an error. A purge is answered within milliseconds, except by a thread of
/// the client's that resolves a name at the time.
const PURGE_BOUND: Duration = Duration::from_secs(2);
/// How often the log says that it still lasts.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// A record that was changing queues while they were purged is caught by the next purge.
const PURGE_AGAIN: Duration = Duration::from_millis(100);
/// How many records are handed over before other tasks get their turn.
const TURN: usize = 256;
/// How many of the client's lines an error quotes.
const QUOTED_LINES: usize = 3;

/// Why a call ends before everything is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// Its time is up.
    Limit,
    /// No broker can be reached.
    Unreachable,
    /// The client will never send again.
    Fatal,
    /// Another call on the same client took everything back.
    Purged,
}

#[derive(Debug)]
enum Slot {
    Waiting,
    Sent,
    Done(Outcome),
}

/// A batch on its way.
pub(crate) struct Call<'a> {
    config: &'a KafkaConfig,
    batch: &'a [&'a Message],
    slots: Vec<Slot>,
    /// Keys of which a message failed, and which one: what is behind it is not sent.
    blocked: HashMap<&'a [u8], MessageId>,
    /// Messages that are to be sent one by one, because a batch with them in it was refused, and what is behind them.
    again: BTreeSet<usize>,
    again_keys: HashSet<&'a [u8]>,
    one_by_one: bool,
    /// Whether the client has learned that a topic is not there or not allowed.
    remembers_a_refusal: bool,
    /// Records that were taken back.
    taken_back: Vec<usize>,
    outstanding: usize,
    tickets: UnboundedSender<Report>,
    reports: UnboundedReceiver<Report>,
    started: Instant,
    limit: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(config: &'a KafkaConfig, batch: &'a [&'a Message], limit: Duration) -> Self {
        let (tickets, reports) = unbounded_channel();
        Self {
            config,
            batch,
            slots: batch.iter().map(|_| Slot::Waiting).collect(),
            blocked: HashMap::new(),
            again: BTreeSet::new(),
            again_keys: HashSet::new(),
            one_by_one: false,
            remembers_a_refusal: false,
            taken_back: Vec::new(),
            outstanding: 0,
            tickets,
            reports,
            started: Instant::now(),
            limit: limit.min(MAX_LIMIT),
        }
    }

    /// Refuses what can be known to be refused, before anything is sent, and holds back what is behind it in its key.
    /// Says whether anything is left to send.
    pub(crate) fn check(&mut self) -> bool {
        for (index, message) in self.batch.iter().enumerate() {
            let rejected = |text| PublishError::new(PublishErrorKind::Rejected, text);
            let size = largest_size(message, self.config.message_id_header());
            if self.hold_back(index) {
            } else if let Err(error) = message.validate() {
                self.fail(index, rejected(error.to_string()).because(error.fault));
            } else if size > MAX_RECORD_BYTES {
                let text = format!(
                    "message {}: its record for topic {:?} takes up to {size} bytes, more than the \
                     {MAX_RECORD_BYTES} that are sent",
                    message.id, message.topic
                );
                self.fail(index, rejected(text));
            }
        }
        self.slots.iter().any(|slot| matches!(slot, Slot::Waiting))
    }

    /// A topic that is to be published to.
    pub(crate) fn topic(&self) -> &'a str {
        let waiting = self.slots.iter().position(|slot| matches!(slot, Slot::Waiting));
        waiting.map_or("", |index| &self.batch[index].topic)
    }

    /// Sends what is left, in order, and waits for every report. If it gives up, records may still be under way:
    /// [`Self::take_back`] is to follow.
    pub(crate) async fn send(&mut self, client: &Client) -> Option<GiveUp> {
        for index in 0..self.batch.len() {
            if let Some(reason) = self.send_one(client, index).await {
                return Some(reason);
            }
            if index % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        if let Some(reason) = self.wait(client).await {
            return Some(reason);
        }
        // Which record of a refused batch is at fault shows when each is alone in its batch.
        self.one_by_one = true;
        while let Some(index) = self.again.pop_first() {
            self.slots[index] = Slot::Waiting;
            if let Some(reason) = self.send_one(client, index).await {
                return Some(reason);
            }
            if let Some(reason) = self.wait(client).await {
                return Some(reason);
            }
        }
        None
    }

    /// Hands one message to the client, waiting for room: a later one of its key never overtakes it.
    async fn send_one(&mut self, client: &Client, index: usize) -> Option<GiveUp> {
        loop {
            self.take_reports();
            if !matches!(self.slots[index], Slot::Waiting) || self.hold_back(index) {
                return None;
            }
            if let Some(reason) = self.must_give_up(client) {
                return Some(reason);
            }
            // Listening before asking: room that comes in between is not missed.
            let mut room = pin!(client.context().room.notified());
            room.as_mut().enable();
            let (reports, counted) = (self.tickets.clone(), client.in_flight().one());
            let ticket = Ticket { index, reports, counted };
            match client.send(self.batch[index], ticket) {
                Ok(()) => {
                    self.slots[index] = Slot::Sent;
                    self.outstanding += 1;
                    return None;
                }
                Err(SendError::Full) => {
                    let check = self.next_check(client);
                    tokio::select! {
                        () = room => {}
                        () = tokio::time::sleep_until(check.into()) => {}
                    }
                }
                Err(SendError::Purged) => return Some(GiveUp::Purged),
                Err(SendError::Refused(error)) => {
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                        return Some(GiveUp::Fatal);
                    }
                    self.fail_with(index, error);
                    return None;
                }
            }
        }
    }

    /// Waits until every record that was sent is accounted for.
    async fn wait(&mut self, client: &Client) -> Option<GiveUp> {
        loop {
            let mut news = pin!(client.context().news.notified());
            news.as_mut().enable();
            self.take_reports();
            if self.outstanding == 0 && self.taken_back.is_empty() {
                return None;
            }
            if let Some(reason) = self.must_give_up(client) {
                return Some(reason);
            }
            let check = self.next_check(client);
            tokio::select! {
                Some(report) = self.reports.recv() => self.take(report),
                () = news => {}
                () = tokio::time::sleep_until(check.into()) => {}
            }
        }
    }

    fn must_give_up(&self, client: &Client) -> Option<GiveUp> {
        let now = Instant::now();
        if client.context().health().fatal {
            Some(GiveUp::Fatal)
        } else if !self.taken_back.is_empty() {
            // A client that fails for good empties its queue by itself, and may say so before it says why.
            Some(if client.fatal_error().is_some() { GiveUp::Fatal } else { GiveUp::Purged })
        } else if now >= self.deadline() {
            Some(GiveUp::Limit)
        } else if self.unreachable_at(client).is_some_and(|at| now >= at) {
            Some(GiveUp::Unreachable)
        } else {
            None
        }
    }

    fn next_check(&self, client: &Client) -> Instant {
        let deadline = self.deadline();
        self.unreachable_at(client).map_or(deadline, |at| at.min(deadline))
    }

    /// When the brokers count as unreachable, if nothing changes.
    fn unreachable_at(&self, client: &Client) -> Option<Instant> {
        let health = client.context().health();
        health.all_down.then(|| health.progress.max(self.started) + UNREACHABLE_AFTER)
    }

    fn reserve(&self) -> Duration {
        RESERVE.min(self.limit / 4)
    }

    /// When to begin taking back.
    fn deadline(&self) -> Instant {
        self.started + (self.limit - self.reserve())
    }

    fn take_reports(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            self.take(report);
        }
    }

    fn take(&mut self, Report { index, result }: Report) {
        self.outstanding -= 1;
        let error = match result {
            Ok(()) => {
                self.slots[index] = Slot::Done(Outcome::Acknowledged);
                return;
            }
            Err(error) => error,
        };
        use RDKafkaErrorCode::{PurgeInflight, PurgeQueue};
        if matches!(error.rdkafka_error_code(), Some(PurgeInflight | PurgeQueue)) {
            self.taken_back.push(index);
            self.block(index);
        } else if refuses_the_batch(&error) && !self.one_by_one && self.may_have_had_neighbours(index) {
            self.again.insert(index);
            self.again_keys.extend(self.batch[index].key.as_deref());
        } else {
            self.fail_with(index, error);
        }
    }

    /// Whether the record was small enough to share a batch.
    fn may_have_had_neighbours(&self, index: usize) -> bool {
        largest_size(self.batch[index], self.config.message_id_header()) <= BATCH_BYTES
    }

    /// Whether a message of the same key ahead of this one keeps it from being sent now.
    fn hold_back(&mut self, index: usize) -> bool {
        let message = self.batch[index];
        let Some(key) = message.key.as_deref() else {
            return false;
        };
        if let Some(first) = self.blocked.get(key) {
            let text = format!(
                "message {} waits behind message {first} of its key, which could not be published",
                message.id
            );
            self.slots[index] =
                Slot::Done(Outcome::Failed(PublishError::new(PublishErrorKind::Unavailable, text)));
            return true;
        }
        if !self.one_by_one && self.again_keys.contains(key) {
            self.again.insert(index);
            return true;
        }
        false
    }

    fn fail_with(&mut self, index: usize, error: KafkaError) {
        self.remembers_a_refusal |= is_remembered(&error);
        let message = self.batch[index];
        let text =
            format!("message {} for topic {:?}: Kafka did not take its record", message.id, message.topic);
        self.fail(index, PublishError::new(kind_of_error(&error), text).because(error));
    }

    fn fail(&mut self, index: usize, error: PublishError) {
        self.slots[index] = Slot::Done(Outcome::Failed(error));
        self.block(index);
    }

    fn block(&mut self, index: usize) {
        let message = self.batch[index];
        if let Some(key) = message.key.as_deref() {
            self.blocked.entry(key).or_insert(message.id);
        }
    }

    /// Takes back what is queued or in flight, and decides what became of it.
    ///
    /// Returns when every record is accounted for, however long past the limit that is. A call that left one to the
    /// client would be followed by the end of the invocation, and that by a freeze: the client could send the record
    /// after the thaw, minutes later, behind whatever others have published of its key meanwhile. If the client never
    /// gives it back, the invocation runs into its deadline and the process is killed: a killed process sends nothing.
    pub(crate) async fn take_back(&mut self, client: &Client, reason: GiveUp) {
        let why = self.why(client, reason);
        if reason == GiveUp::Limit {
            self.let_others_finish(client).await;
        }
        let began = Instant::now();
        let mut say_at = began + PURGE_BOUND;
        while self.outstanding > 0 {
            client.purge();
            let again = tokio::time::Instant::now() + PURGE_AGAIN;
            while self.outstanding > 0 {
                match tokio::time::timeout_at(again, self.reports.recv()).await {
                    Ok(Some(report)) => self.take(report),
                    Ok(None) | Err(_) => break,
                }
            }
            let now = Instant::now();
            if self.outstanding > 0 && now >= say_at {
                say_at = now + SAY_EVERY;
                tracing::error!(
                    records = self.outstanding,
                    waited_ms = u64::try_from((now - began).as_millis()).unwrap_or(u64::MAX),
                    "the Kafka client does not give records back: waiting, because it could still send them"
                );
            }
        }
        client.cut();
        self.decide(client, reason, &why);
    }

    /// A purge takes back what other calls have under way as well: those that are well get a moment to finish.
    async fn let_others_finish(&mut self, client: &Client) {
        let end = self.deadline() + self.reserve() / 2;
        loop {
            let mut fewer = pin!(client.fewer_calls.notified());
            fewer.as_mut().enable();
            self.take_reports();
            if self.outstanding == 0 || !client.has_healthy_calls() {
                return;
            }
            tokio::select! {
                Some(report) = self.reports.recv() => self.take(report),
                () = fewer => {}
                () = tokio::time::sleep_until(end.into()) => return,
            }
        }
    }

    fn decide(&mut self, client: &Client, reason: GiveUp, why: &str) {
        let mended_by_hand = match reason {
            GiveUp::Fatal => client.fatal_error().map(|(code, _)| code),
            GiveUp::Unreachable => client.context().health().misconfigured,
            GiveUp::Limit | GiveUp::Purged => None,
        }
        .is_some_and(|code| kind_of(code) == PublishErrorKind::Misconfigured);
        let kind = |sent| match (mended_by_hand, sent) {
            (true, _) => PublishErrorKind::Misconfigured,
            (false, true) => PublishErrorKind::MayHaveHappened,
            (false, false) => PublishErrorKind::Unavailable,
        };
        // A record that was taken back from the queue may have been sent before, and have been waiting for another
        // attempt: only where no broker was ever met is it certain that it was not.
        let may_have_been_sent = client.has_met_the_cluster();
        let (mut taken_back, mut not_sent) = (0, 0);
        for index in std::mem::take(&mut self.taken_back) {
            self.fail_because(index, kind(may_have_been_sent), why);
            taken_back += 1;
        }
        for index in 0..self.slots.len() {
            match self.slots[index] {
                // Refused with its batch, and not tried alone: not stored.
                Slot::Sent => self.fail_because(index, kind(!self.again.contains(&index)), why),
                Slot::Waiting => {
                    self.fail_because(index, kind(false), why);
                    not_sent += 1;
                }
                Slot::Done(_) => {}
            }
        }
        tracing::warn!(
            ?reason,
            taken_back,
            not_sent,
            batch = self.batch.len(),
            "publishing was given up: {why}"
        );
    }

    fn fail_because(&mut self, index: usize, kind: PublishErrorKind, why: &str) {
        let message = self.batch[index];
        let text = format!("message {} for topic {:?}: {why}", message.id, message.topic);
        self.slots[index] = Slot::Done(Outcome::Failed(PublishError::new(kind, text)));
    }

    fn why(&self, client: &Client, reason: GiveUp) -> String {
        let servers = self.config.bootstrap_servers();
        let after = self.started.elapsed();
        let mut why = match reason {
            GiveUp::Limit => format!("no acknowledgement by Kafka at {servers} within {:?}", self.limit),
            GiveUp::Unreachable => {
                format!("no broker of {servers} (KAFKA_BOOTSTRAP_SERVERS) can be reached, after {after:.1?}")
            }
            GiveUp::Fatal => {
                let what = client.fatal_error().map(|(code, text)| format!(": {code:?}: {text}"));
                format!("the Kafka client has failed for good{}", what.unwrap_or_default())
            }
            GiveUp::Purged => "taken back together with another batch on the same Kafka client".to_owned(),
        };
        let lines = client.context().last_lines(QUOTED_LINES);
        if !lines.is_empty() && reason != GiveUp::Purged {
            why.push_str("; the client's last words: ");
            why.push_str(&lines.join(" | "));
        }
        why
    }

    /// Whether the client holds on to an answer about a topic that may have changed by the next call. It asks again in
    /// the background, once a second, but a process that is frozen between calls may never get to that.
    pub(crate) fn leaves_the_client_outdated(&self) -> bool {
        self.remembers_a_refusal
    }

    /// Fails everything that has no outcome yet.
    pub(crate) fn fail_the_rest(&mut self, error: &PublishError) {
        for slot in &mut self.slots {
            if !matches!(slot, Slot::Done(_)) {
                *slot = Slot::Done(Outcome::Failed(error.clone()));
            }
        }
    }

    /// The outcomes, in the batch's order.
    pub(crate) fn outcomes(self) -> Vec<Outcome> {
        let unknown = || PublishError::new(PublishErrorKind::MayHaveHappened, "its outcome is not known");
        self.slots
            .into_iter()
            .map(|slot| match slot {
                Slot::Done(outcome) => outcome,
                Slot::Waiting | Slot::Sent => Outcome::Failed(unknown()),
            })
            .collect()
    }
}
