//! The largest record batch that each topic takes, as far as the brokers tell: what is larger is not sent, nor is what is
//! behind it in its key.
//!
//! Without it nothing is lost: the broker refuses the record, but by then later ones of its key may be stored. So a limit
//! that cannot be read (no permission, an old broker, no answer in time) costs that check, and nothing else. It is asked
//! for when a record is large enough to matter, or when a broker has refused one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use outbox::Clock;
use outbox::lease_age::Moment;
use rdkafka::config::ClientConfig;
use tokio::time::Instant;

mod ask;

/// Smaller records are sent without asking: a topic with a lower limit is rare, and found out when it first refuses one.
const FLOOR: usize = 64 * 1024;
/// How long a limit lets records pass unasked. One that was lowered meanwhile is found out by a refusal.
const PASSES_FOR: Duration = Duration::from_mins(10);
/// How long a limit refuses records unasked: whoever raises it sees the next sweep send them.
const REFUSES_FOR: Duration = Duration::from_secs(5);
/// How long a limit that was not told is not asked for again.
const UNTOLD_FOR: Duration = Duration::from_secs(30);
/// How many topics are remembered: the one asked for longest ago makes room.
const MOST_TOPICS: usize = 1_000;

/// What the brokers have told.
pub(crate) struct Limits {
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// Held by the one call that asks: those beside it may well need the same answer.
    asking: tokio::sync::Mutex<()>,
}

impl Limits {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, known: Mutex::default(), asking: tokio::sync::Mutex::new(()) }
    }

    /// The topic's limit; `None`: it is not known.
    pub(crate) fn of(&self, topic: &str) -> Option<usize> {
        self.known().limit(topic)
    }

    /// Asks for the limits that matter to these topics, each with its largest record, unless they are known: with a
    /// client of the settings that `config` gives within a time. Takes `limit` at most, and never fails.
    pub(crate) async fn learn<'a>(
        &self,
        config: impl FnOnce(Duration) -> BoxFuture<'a, Option<ClientConfig>>,
        largest: &HashMap<&str, usize>,
        limit: Duration,
    ) {
        let due = || self.known().due(largest, Moment::now(self.clock.as_ref()));
        if due().is_empty() {
            return;
        }
        let deadline = Instant::now() + limit;
        let Ok(_one) = tokio::time::timeout_at(deadline, self.asking.lock()).await else {
            return;
        };
        let due = due();
        if !due.is_empty() {
            let told = match config(deadline - Instant::now()).await {
                Some(config) => ask::ask(&config, &due, deadline - Instant::now()).await,
                None => HashMap::new(),
            };
            self.known().told(&due, &told, Moment::now(self.clock.as_ref()));
        }
    }

    /// A broker has refused a record or a batch of the topic for its size: what is known of it is not true, or not enough.
    pub(crate) fn refused(&self, topic: &str) {
        self.known().forget(topic);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("topics", &self.known().topics.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Known {
    topics: HashMap<String, Topic>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Topic {
    /// `None`: not told.
    limit: Option<usize>,
    /// `None`: to be asked for whatever the size of its records, for a broker has refused one.
    asked: Option<Moment>,
}

impl Known {
    fn limit(&self, topic: &str) -> Option<usize> {
        self.topics.get(topic)?.limit
    }

    /// The topics to ask for.
    fn due<'a>(&self, largest: &HashMap<&'a str, usize>, now: Moment) -> Vec<&'a str> {
        let due = largest.iter().filter(|(topic, largest)| self.is_due(topic, **largest, now));
        due.map(|(topic, _)| *topic).collect()
    }

    fn is_due(&self, topic: &str, largest: usize, now: Moment) -> bool {
        match self.topics.get(topic) {
            None => largest > FLOOR,
            Some(Topic { asked: None, .. }) => true,
            Some(Topic { asked: Some(asked), limit }) => {
                let age = now.since(*asked);
                match *limit {
                    None => largest > FLOOR && age >= UNTOLD_FOR,
                    Some(limit) if largest > limit => age >= REFUSES_FOR,
                    Some(_) => largest > FLOOR && age >= PASSES_FOR,
                }
            }
        }
    }

    fn told(&mut self, asked: &[&str], limits: &HashMap<String, usize>, now: Moment) {
        for topic in asked {
            self.make_room(topic);
            let told = Topic { limit: limits.get(*topic).copied(), asked: Some(now) };
            self.topics.insert((*topic).to_owned(), told);
        }
    }

    fn forget(&mut self, topic: &str) {
        self.make_room(topic);
        self.topics.insert(topic.to_owned(), Topic::default());
    }

    fn make_room(&mut self, topic: &str) {
        if self.topics.len() < MOST_TOPICS || self.topics.contains_key(topic) {
            return;
        }
        let asked = |topic: &Topic| topic.asked.map(|asked| asked.monotonic);
        let oldest = self.topics.iter().min_by_key(|(_, topic)| asked(topic)).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            self.topics.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox::{Monotonic, Ticks};

    use super::*;

    fn at(seconds: u64) -> Moment {
        let since = Duration::from_secs(seconds);
        let wall = Ticks::from_raw(639_000_000_000_000_000).plus(since);
        Moment { wall, monotonic: Monotonic::from_origin(since) }
    }

    /// What is known of a topic that was asked for at 0.
    fn told(limit: Option<usize>) -> Known {
        let mut known = Known::default();
        let limits = limit.map(|limit| ("orders".to_owned(), limit));
        known.told(&["orders"], &limits.into_iter().collect(), at(0));
        known
    }

    #[test]
    fn small_records_are_sent_without_asking() {
        let known = Known::default();
        assert!(!known.is_due("orders", FLOOR, at(0)));
        assert!(known.is_due("orders", FLOOR + 1, at(0)));
    }

    #[test]
    fn an_answer_serves_for_a_while_and_one_that_refuses_for_less() {
        let known = told(Some(100_000));
        assert_eq!(known.limit("orders"), Some(100_000));
        for (largest, seconds, due) in [
            (100_000, 599, false),
            (100_000, 600, true),
            (FLOOR, 1_000_000, false),
            (100_001, 4, false),
            (100_001, 5, true),
        ] {
            assert_eq!(known.is_due("orders", largest, at(seconds)), due, "{largest} after {seconds} s");
        }
    }

    #[test]
    fn no_answer_is_not_asked_for_at_every_publish() {
        let known = told(None);
        assert_eq!(known.limit("orders"), None);
        assert!(!known.is_due("orders", 1_000_000, at(29)));
        assert!(known.is_due("orders", 1_000_000, at(30)));
        assert!(!known.is_due("orders", 10, at(30)));
    }

    #[test]
    fn after_a_refusal_a_topic_is_asked_for_whatever_the_size() {
        let mut known = told(Some(100_000));
        known.forget("orders");
        assert_eq!(known.limit("orders"), None);
        assert!(known.is_due("orders", 1, at(0)));
        known.told(&["orders"], &HashMap::from([("orders".to_owned(), 2_000)]), at(1));
        assert!(!known.is_due("orders", 1_500, at(1_000)), "and its limit stays known");
        assert_eq!(known.limit("orders"), Some(2_000));
    }

    #[test]
    fn the_topic_asked_for_longest_ago_makes_room() {
        let mut known = Known::default();
        for n in 0..MOST_TOPICS as u64 + 5 {
            known.told(&[format!("topic-{n}").as_str()], &HashMap::new(), at(n));
        }
        assert_eq!(known.topics.len(), MOST_TOPICS);
        assert!(!known.topics.contains_key("topic-4") && known.topics.contains_key("topic-5"));
        known.forget("topic-6");
        assert_eq!(known.topics.len(), MOST_TOPICS);
    }
}
