//! The messages of a bucket that wait, for the rest of a run, so that others can go past them.

use std::collections::HashSet;

use bytes::Bytes;

use crate::store::OutboxStore;
use crate::store::{Fetched, Malformed, OrderKey, Stored};

/// How many waiting messages a run reads past in one bucket. Past that the rest of the bucket waits too.
pub(super) const MAX_WAITING: usize = 2_000;

/// Keys and rows that wait until the run ends.
#[derive(Debug)]
pub(super) struct Waiting<S: OutboxStore> {
    keys: HashSet<Bytes>,
    rows: HashSet<S::Row>,
    /// How many rows of the last fetch waited: the next one reads this many more.
    skipped: usize,
    /// A message whose key cannot be read: everything behind it waits.
    blocked: bool,
}

/// What can be published of a fetched batch.
pub(super) struct Selected<R> {
    pub(super) batch: Vec<Stored<R>>,
    /// Malformed messages that were met for the first time.
    pub(super) malformed: Vec<Malformed>,
    /// Whether messages lie behind those that were read, and may be read.
    pub(super) more: bool,
}

impl<S: OutboxStore> Waiting<S> {
    pub(super) fn new() -> Self {
        Self { keys: HashSet::new(), rows: HashSet::new(), skipped: 0, blocked: false }
    }

    /// How many rows were passed over in the last fetch.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Makes a message wait, and everything of its key that is behind it.
    pub(super) fn hold(&mut self, message: &Stored<S::Row>) {
        match message.order_key() {
            OrderKey::Key(key) => {
                self.keys.insert(key.clone());
            }
            OrderKey::None => {
                self.rows.insert(message.row.clone());
            }
            OrderKey::Unreadable => self.blocked = true,
        }
    }

    /// Picks what can be published, in order, `batch_size` at most.
    pub(super) fn select(&mut self, fetched: Fetched<S::Row>, batch_size: usize) -> Selected<S::Row> {
        let mut selected = Selected { batch: Vec::new(), malformed: Vec::new(), more: fetched.more };
        self.skipped = 0;
        for stored in fetched.messages {
            if selected.batch.len() == batch_size {
                selected.more = true;
                break;
            }
            let waits = self.rows.contains(&stored.row)
                || matches!(stored.order_key(), OrderKey::Key(key) if self.keys.contains(key));
            if waits {
                self.skipped += 1;
                continue;
            }
            if let Err(malformed) = &stored.message {
                if !(self.blocked && matches!(stored.order_key(), OrderKey::Unreadable)) {
                    selected.malformed.push(malformed.clone());
                }
                self.hold(&stored);
                self.skipped += 1;
                if matches!(stored.order_key(), OrderKey::Unreadable) {
                    selected.more = false;
                    break;
                }
                continue;
            }
            selected.batch.push(stored);
        }
        selected.more &= self.skipped < MAX_WAITING;
        selected
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
        Stored { row, message: Ok(message) }
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
        Stored { row, message: Err(Malformed { reason: "test".to_owned(), key }) }
    }

    fn rows(selected: &Selected<i64>) -> Vec<i64> {
        selected.batch.iter().map(|stored| stored.row).collect()
    }

    #[test]
    fn a_malformed_message_holds_back_its_key_and_no_other() {
        let key = MalformedKey::Readable(Some(Bytes::from_static(b"a")));
        let messages = vec![stored(1, Some("b")), malformed(2, key), stored(3, Some("a")), stored(4, None)];
        let mut waiting = Rows::new();
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
        let mut waiting = Rows::new();
        let selected = waiting.select(Fetched { messages: messages.clone(), more: true, fault: None }, 10);
        assert_eq!(rows(&selected), [1]);
        assert!(!selected.more);
        assert!(waiting.select(Fetched { messages, more: true, fault: None }, 10).malformed.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut waiting = Rows::new();
        waiting.hold(&stored(0, Some("a")));
        let messages = (0..2_000).map(|row| stored(row, Some("a"))).collect();
        assert!(!waiting.select(Fetched { messages, more: true, fault: None }, 500).more);
    }
}
