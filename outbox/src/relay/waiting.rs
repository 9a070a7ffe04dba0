//! The messages of a bucket that wait, for the rest of a run, so that others can go past them.

use std::collections::HashMap;

use bytes::Bytes;

use crate::store::OutboxStore;
use crate::store::{Fetched, Malformed, OrderKey, Stored};

/// How many waiting messages a run reads past in one bucket, and how many bytes of them. Past that the rest of the bucket
/// waits too, and a warning says so.
pub(super) const MAX_WAITING: usize = 2_000;
pub(super) const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// How long a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The bucket's next turn: what failed may pass by itself.
    NextTurn,
    /// The end of the run: it would be refused again.
    RunEnds,
}

/// Keys and rows that wait.
#[derive(Debug)]
pub(super) struct Waiting<S: OutboxStore> {
    keys: HashMap<Bytes, Until>,
    rows: HashMap<S::Row, Until>,
    /// How many rows of the last fetch waited, and their bytes: the next one reads this much more.
    skipped: usize,
    skipped_bytes: usize,
    /// A message whose key cannot be read: everything behind it waits.
    blocked: bool,
    /// Whether a waiting message holds back its key alone, or all that is behind it.
    individually: bool,
}

/// What can be published of a fetched batch.
pub(super) struct Selected<R> {
    pub(super) batch: Vec<Stored<R>>,
    /// Malformed messages that were met for the first time.
    pub(super) malformed: Vec<Malformed>,
    /// Whether messages lie behind those that were read, and may be read.
    pub(super) more: bool,
    /// Whether messages lie behind more waiting ones than a run reads past.
    pub(super) hidden: bool,
}

impl<S: OutboxStore> Waiting<S> {
    /// `individually`: whether the store can delete what lies behind a waiting message.
    pub(super) fn new(individually: bool) -> Self {
        Self {
            keys: HashMap::new(),
            rows: HashMap::new(),
            skipped: 0,
            skipped_bytes: 0,
            blocked: false,
            individually,
        }
    }

    /// How many rows were passed over in the last fetch.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// How many bytes of them there were.
    pub(super) fn skipped_bytes(&self) -> usize {
        self.skipped_bytes
    }

    /// Makes a message wait, and everything of its key that is behind it.
    pub(super) fn hold(&mut self, message: &Stored<S::Row>, until: Until) {
        match message.order_key() {
            // What is behind a message shares its fate.
            OrderKey::Key(key) => {
                self.keys.entry(key.clone()).or_insert(until);
            }
            OrderKey::None => {
                self.rows.insert(message.row.clone(), until);
            }
            OrderKey::Unreadable => self.blocked = true,
        }
    }

    /// Lets go of what waited for this turn.
    pub(super) fn begin_turn(&mut self) {
        self.keys.retain(|_, until| *until == Until::RunEnds);
        self.rows.retain(|_, until| *until == Until::RunEnds);
    }

    /// Picks what can be published, in order, `batch_size` at most.
    pub(super) fn select(&mut self, fetched: Fetched<S::Row>, batch_size: usize) -> Selected<S::Row> {
        let mut selected =
            Selected { batch: Vec::new(), malformed: Vec::new(), more: fetched.more, hidden: false };
        (self.skipped, self.skipped_bytes) = (0, 0);
        for stored in fetched.messages {
            if selected.batch.len() == batch_size {
                selected.more = true;
                break;
            }
            let waits = self.rows.contains_key(&stored.row)
                || matches!(stored.order_key(), OrderKey::Key(key) if self.keys.contains_key(key));
            if waits {
                self.skip(&stored);
                if !self.individually {
                    selected.more = false;
                    break;
                }
                continue;
            }
            if let Err(malformed) = &stored.message {
                if !(self.blocked && matches!(stored.order_key(), OrderKey::Unreadable)) {
                    selected.malformed.push(malformed.clone());
                }
                self.hold(&stored, Until::RunEnds);
                self.skip(&stored);
                if matches!(stored.order_key(), OrderKey::Unreadable) || !self.individually {
                    selected.more = false;
                    break;
                }
                continue;
            }
            selected.batch.push(stored);
        }
        if selected.more && (self.skipped >= MAX_WAITING || self.skipped_bytes >= MAX_WAITING_BYTES) {
            selected.more = false;
            selected.hidden = true;
        }
        selected
    }

    fn skip(&mut self, stored: &Stored<S::Row>) {
        self.skipped += 1;
        self.skipped_bytes += stored.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::MalformedKey;
    use crate::{Chance, Message, Ticks};

    type Rows = Waiting<MemoryStore>;

    fn stored(row: i64, key: Option<&'static str>) -> Stored<i64> {
        let mut message = Message::new(Chance::seeded(1).message_id(Ticks::from_raw(0)), "t");
        message.key = key.map(Bytes::from_static_str);
        Stored { row, size: message.size(), message: Ok(message) }
    }

    trait FromStr {
        fn from_static_str(text: &'static str) -> Bytes;
    }
    impl FromStr for Bytes {
        fn from_static_str(text: &'static str) -> Bytes {
            Bytes::from_static(text.as_bytes())
        }
    }

    fn malformed(row: i64, key: MalformedKey) -> Stored<i64> {
        Stored { row, size: 1, message: Err(Malformed { reason: "test".to_owned(), key }) }
    }

    fn rows(selected: &Selected<i64>) -> Vec<i64> {
        selected.batch.iter().map(|stored| stored.row).collect()
    }

    #[test]
    fn a_malformed_message_holds_back_its_key_and_no_other() {
        let key = MalformedKey::Readable(Some(Bytes::from_static(b"a")));
        let messages = vec![stored(1, Some("b")), malformed(2, key), stored(3, Some("a")), stored(4, None)];
        let mut waiting = Rows::new(true);
        let fetched = Fetched { messages: messages.clone(), more: false, fault: None };
        let selected = waiting.select(fetched, 10);
        assert_eq!(rows(&selected), [1, 4]);
        assert_eq!(selected.malformed.len(), 1);
        assert_eq!(waiting.skipped(), 2);

        // Reported once a run, though it is read again with every batch.
        let again = waiting.select(Fetched { messages, more: false, fault: None }, 10);
        assert!(again.malformed.is_empty());
    }

    #[test]
    fn an_unreadable_key_holds_back_all_that_is_behind_it() {
        let messages =
            vec![stored(1, Some("a")), malformed(2, MalformedKey::Unreadable), stored(3, Some("b"))];
        let mut waiting = Rows::new(true);
        let selected = waiting.select(Fetched { messages: messages.clone(), more: true, fault: None }, 10);
        assert_eq!(rows(&selected), [1]);
        assert!(!selected.more);
        assert!(waiting.select(Fetched { messages, more: true, fault: None }, 10).malformed.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut waiting = Rows::new(true);
        waiting.hold(&stored(0, Some("a")), Until::RunEnds);
        let messages = (0..2_000).map(|row| stored(row, Some("a"))).collect();
        assert!(!waiting.select(Fetched { messages, more: true, fault: None }, 500).more);
    }
}
