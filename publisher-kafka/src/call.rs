//! One publish call: from the batch to the outcome of each message.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::time::{Duration, Instant};

use outbox::{Message, Outcome, PublishError};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::{Client, SendError};
use crate::config::{BATCH_BYTES, KafkaConfig, MAX_LIMIT};
use crate::context::{Report, Ticket};
use crate::error::{answer_to_error, is_a_refused_size, missing_permission};
use crate::limits::Limits;
use crate::record::{batch_of_one, largest_size};

mod check;
mod give_up;
mod order;

pub(crate) use give_up::GiveUp;
use order::{Next, Order};

/// How long all brokers may have been down, with nothing acknowledged, before a call gives up.
///
/// Long enough for a broker to be reached through a slow handshake or to be restarted behind an address that another
/// one still answers on; short enough that even a function with the shortest timeout, 10 s, can say why it failed.
pub(crate) const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);

/// What of the limit is kept for taking back what was not acknowledged: a quarter, and a second at most.
const RESERVE: Duration = Duration::from_secs(1);
/// How many records are handed over before other tasks get their turn.
const TURN: usize = 256;

/// A batch on its way.
pub(crate) struct Call<'a> {
    config: &'a KafkaConfig,
    order: Order<'a>,
    /// Whether the client is of no use to the next call, by an error it gave.
    outdates_the_client: bool,
    /// Whether the brokers refused credentials that were not obtained just now: whose fault that is shows next time.
    was_shown_something_old: bool,
    /// Topics of which a broker refused a record or a batch for its size.
    refused_a_size: BTreeSet<&'a str>,
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
            order: Order::new(batch),
            outdates_the_client: false,
            was_shown_something_old: false,
            refused_a_size: BTreeSet::new(),
            tickets,
            reports,
            started: Instant::now(),
            limit: limit.min(MAX_LIMIT),
        }
    }

    /// The brokers have refused credentials that may have been renewed since they were obtained: nobody is to blame yet.
    pub(crate) const fn showed_something_old(&mut self) {
        self.was_shown_something_old = true;
    }

    /// Refuses what is known to be refused wherever it is sent, before anything is.
    pub(crate) fn check(&mut self) {
        self.order.refuse(|message| check::fault(message, self.config.message_id_header()));
    }

    /// Refuses what its topic does not take, before anything is sent, and decides which keys have one record under way
    /// at a time.
    ///
    /// So have, unless all have it anyway, those of topics that take less than a full batch: there a batch is refused that
    /// has no record at fault in it, and what was sent behind it would be stored before it.
    pub(crate) fn heed(&mut self, limits: &Limits) {
        let id_header = self.config.message_id_header();
        self.order.refuse(|message| check::too_large(message, id_header, limits.of(&message.topic)));
        let takes_less =
            |message: &Message| limits.of(&message.topic).is_some_and(|limit| limit < BATCH_BYTES);
        self.order.pace(|message| self.config.strict_key_order() || takes_less(message));
    }

    /// Whether anything is left to send.
    pub(crate) fn has_work(&self) -> bool {
        self.order.waiting().next().is_some()
    }

    /// A topic that is to be published to.
    pub(crate) fn topic(&self) -> &'a str {
        self.order.waiting().next().map_or("", |message| &message.topic)
    }

    /// The topics that are to be published to, each with the size of its largest record.
    pub(crate) fn largest_of_topics(&self) -> HashMap<&'a str, usize> {
        let mut largest = HashMap::new();
        for message in self.order.waiting() {
            let size = batch_of_one(message, self.config.message_id_header());
            let of_topic = largest.entry(message.topic.as_str()).or_insert(size);
            *of_topic = size.max(*of_topic);
        }
        largest
    }

    /// Sends what is left, in order, and waits for every report. If it gives up, records may still be under way:
    /// [`Self::take_back`] is to follow.
    pub(crate) async fn send(&mut self, client: &Client) -> Option<GiveUp> {
        let mut sent = 0;
        loop {
            // Listening before looking: what comes in between is not missed.
            let (mut room, mut news) =
                (pin!(client.context().room.notified()), pin!(client.context().news.notified()));
            room.as_mut().enable();
            news.as_mut().enable();
            self.take_reports();
            let next = self.order.next();
            if next == Next::End {
                return None;
            }
            if let Some(reason) = self.must_give_up(client) {
                return Some(reason);
            }
            if let Next::Send(index) = next {
                match self.hand_over(client, index) {
                    Ok(Handed::Over) => {
                        sent += 1;
                        if sent % TURN == 0 {
                            tokio::task::yield_now().await;
                        }
                        continue;
                    }
                    // No other message is tried meanwhile: a later one of its key must not overtake it.
                    Ok(Handed::NoRoom) => {}
                    Err(reason) => return Some(reason),
                }
            }
            let check = self.next_check(client);
            tokio::select! {
                Some(report) = self.reports.recv() => self.take(report),
                () = room => {}
                () = news => {}
                () = tokio::time::sleep_until(check.into()) => {}
            }
        }
    }

    /// Hands one message to the client.
    fn hand_over(&mut self, client: &Client, index: usize) -> Result<Handed, GiveUp> {
        let (reports, counted) = (self.tickets.clone(), client.in_flight().one());
        let ticket = Ticket { index, reports, counted };
        match client.send(self.order.message(index), ticket) {
            Ok(()) => self.order.sent(index),
            Err(SendError::Full) => return Ok(Handed::NoRoom),
            Err(SendError::Purged) => return Err(GiveUp::Purged),
            Err(SendError::Refused(error)) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    return Err(GiveUp::Fatal);
                }
                let error = self.refusal(index, error);
                self.order.fail(index, error);
            }
        }
        Ok(Handed::Over)
    }

    fn must_give_up(&self, client: &Client) -> Option<GiveUp> {
        let now = Instant::now();
        if client.context().health().fatal {
            Some(GiveUp::Fatal)
        } else if self.order.was_taken_back() {
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
        use RDKafkaErrorCode::{PurgeInflight, PurgeQueue};
        match result {
            Ok(()) => self.order.acknowledged(index),
            Err(error) if matches!(error.rdkafka_error_code(), Some(PurgeInflight | PurgeQueue)) => {
                self.order.taken_back(index);
            }
            Err(error) => {
                if is_a_refused_size(&error) {
                    self.refused_a_size.insert(&self.order.message(index).topic);
                }
                let again = answer_to_error(&error).refuses_the_batch()
                    && self.may_have_had_neighbours(index)
                    && self.order.again_alone(index);
                if !again {
                    let error = self.refusal(index, error);
                    self.order.came_back(index, error);
                }
            }
        }
    }

    /// Whether the record was small enough to share a batch.
    fn may_have_had_neighbours(&self, index: usize) -> bool {
        largest_size(self.order.message(index), self.config.message_id_header()) <= BATCH_BYTES
    }

    /// What a message failed with, by what the client or a broker said of its record.
    fn refusal(&mut self, index: usize, error: KafkaError) -> PublishError {
        let answer = answer_to_error(&error);
        self.outdates_the_client |= answer.replaces_the_client();
        let message = self.order.message(index);
        let mut text =
            format!("message {} for topic {:?}: Kafka did not take its record", message.id, message.topic);
        if let Some(permission) = error.rdkafka_error_code().and_then(missing_permission) {
            text.push_str(": ");
            text.push_str(permission);
        }
        PublishError::new(answer.kind(), text).because(error)
    }

    /// Whether the client holds on to an answer that may have changed by the next call. It asks again in the background,
    /// once a second, but a process that is frozen between calls may never get to that.
    pub(crate) const fn leaves_the_client_outdated(&self) -> bool {
        self.outdates_the_client
    }

    /// Fails everything that has no outcome yet, of which nothing was sent.
    pub(crate) fn fail_the_rest(&mut self, error: &PublishError) {
        self.order.give_up(|_, _| error.clone());
    }

    /// The topics of which a broker refused a record or a batch for its size.
    pub(crate) fn topics_that_refused_a_size(&self) -> impl Iterator<Item = &'a str> {
        self.refused_a_size.iter().copied()
    }

    /// The outcomes, in the batch's order.
    pub(crate) fn outcomes(self) -> Vec<Outcome> {
        self.order.outcomes()
    }
}

/// What became of a message that was to be handed to the client.
enum Handed {
    Over,
    /// The queue is full.
    NoRoom,
}
