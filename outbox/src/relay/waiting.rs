//! The messages of a bucket that wait, for the rest of a run, so that others can go past them.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

use crate::quarantine::{Move, Parking, Why};
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

/// What a run does about messages that cannot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// A waiting message holds back its key alone, and not all that is behind it.
    pub(super) individually: bool,
    /// Messages are tried that were refused in earlier runs: once a sweep is often enough for those.
    pub(super) retries: bool,
    /// What can never be published is set aside.
    pub(super) quarantines: bool,
}

/// Keys and rows that wait.
#[derive(Debug)]
pub(super) struct Waiting<S: OutboxStore> {
    rules: Rules,
    keys: HashMap<Bytes, Until>,
    rows: HashMap<S::Row, Until>,
    /// Keys of which messages are set aside.
    parked: BTreeMap<Bytes, Parking>,
    /// Keys of which only the first message is sent, because it failed, and what was behind it went.
    alone: HashSet<Bytes>,
    /// How many rows of the last fetch waited, and their bytes: the next one reads this much more.
    skipped: usize,
    skipped_bytes: usize,
    /// A message whose key cannot be read: everything behind it waits.
    blocked: bool,
}

/// What can be done with a fetched batch.
pub(super) struct Selected<R> {
    pub(super) batch: Vec<Stored<R>>,
    /// What is to be set aside, in order.
    pub(super) moves: Vec<Move<R>>,
    /// Malformed messages that were met for the first time.
    pub(super) malformed: Vec<Malformed>,
    /// Whether messages lie behind those that were read, and may be read.
    pub(super) more: bool,
    /// Whether messages lie behind more waiting ones than a run reads past.
    pub(super) hidden: bool,
}

impl<S: OutboxStore> Waiting<S> {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            keys: HashMap::new(),
            rows: HashMap::new(),
            parked: BTreeMap::new(),
            alone: HashSet::new(),
            skipped: 0,
            skipped_bytes: 0,
            blocked: false,
        }
    }

    pub(super) const fn rules(&self) -> Rules {
        self.rules
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

    /// Makes a message that was to be set aside wait instead.
    pub(super) fn hold_row(&mut self, row: &S::Row) {
        self.rows.insert(row.clone(), Until::NextTurn);
    }

    /// Sends the first message of a key alone until it has gone.
    pub(super) fn send_alone(&mut self, key: &Bytes) {
        self.alone.insert(key.clone());
    }

    /// The first message of a key has gone.
    pub(super) fn has_gone(&mut self, key: &Bytes) {
        self.alone.remove(key);
    }

    /// Whether messages of any key are set aside, as far as is known.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes in which keys are parked.
    pub(super) fn set_parked(&mut self, parked: BTreeMap<Bytes, Parking>) {
        self.parked = parked;
    }

    /// A key was parked by this run: what comes with it does not wait, it follows.
    pub(super) fn park(&mut self, key: &Bytes) {
        self.keys.remove(key);
        self.parked.insert(key.clone(), Parking::Parked);
    }

    /// Lets go of what waited for this turn.
    pub(super) fn begin_turn(&mut self) {
        self.keys.retain(|_, until| *until == Until::RunEnds);
        self.rows.retain(|_, until| *until == Until::RunEnds);
    }

    /// Lets everything be tried again; what is set aside stays so.
    pub(super) fn forget(&mut self) {
        let parked = std::mem::take(&mut self.parked);
        *self = Self { parked, ..Self::new(self.rules) };
    }

    /// Picks what can be published, in order, `batch_size` at most, and what is to be set aside.
    pub(super) fn select(&mut self, fetched: Fetched<S::Row>, batch_size: usize) -> Selected<S::Row> {
        let mut selected = Selected {
            batch: Vec::new(),
            moves: Vec::new(),
            malformed: Vec::new(),
            more: fetched.more,
            hidden: false,
        };
        (self.skipped, self.skipped_bytes) = (0, 0);
        // Keys of which a message goes alone: what is behind it waits for the next batch.
        let mut alone: HashSet<Bytes> = HashSet::new();
        for stored in fetched.messages {
            if selected.batch.len() == batch_size {
                selected.more = true;
                break;
            }
            let key = stored.order_key().key().cloned();
            let parking = key.as_ref().and_then(|key| self.parked.get(key)).copied();
            let is_held = self.rows.contains_key(&stored.row)
                || key.as_ref().is_some_and(|key| self.keys.contains_key(key));
            if parking == Some(Parking::Parked) && !is_held {
                selected.moves.push(Move { row: stored.row, why: Why::KeyIsParked });
                continue;
            }
            let waits = is_held || parking == Some(Parking::Redriving);
            if !waits && let Err(malformed) = &stored.message {
                let is_unreadable = matches!(stored.order_key(), OrderKey::Unreadable);
                if !(self.blocked && is_unreadable) {
                    selected.malformed.push(malformed.clone());
                }
                if self.rules.quarantines && !is_unreadable {
                    let why = Why::Poison { reason: malformed.reason.clone(), was_sent: false };
                    self.parked.extend(key.map(|key| (key, Parking::Parked)));
                    selected.moves.push(Move { row: stored.row, why });
                    continue;
                }
                self.hold(&stored, Until::RunEnds);
                self.skip(&stored);
                if is_unreadable || !self.rules.individually {
                    selected.more = false;
                    break;
                }
                continue;
            }
            if !waits && stored.attempts > 0 && !self.rules.retries {
                self.hold(&stored, Until::RunEnds);
            }
            if waits || (stored.attempts > 0 && !self.rules.retries) {
                self.skip(&stored);
                if !self.rules.individually {
                    selected.more = false;
                    break;
                }
                continue;
            }
            if let Some(key) = key {
                if alone.contains(&key) {
                    self.skip(&stored);
                    if !self.rules.individually {
                        selected.more = true;
                        break;
                    }
                    continue;
                }
                if stored.attempts > 0 || self.alone.contains(&key) {
                    alone.insert(key);
                }
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
    use crate::{About, Chance, Message, Ticks};

    type Rows = Waiting<MemoryStore>;

    const BLOCK: Rules = Rules { individually: true, retries: true, quarantines: false };

    fn stored(row: i64, key: Option<&'static str>) -> Stored<i64> {
        let mut message = Message::new(Chance::seeded(1).message_id(Ticks::from_raw(0)), "t");
        message.key = key.map(Bytes::from_static_str);
        Stored { row, size: message.size(), attempts: 0, message: Ok(message) }
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
        Stored {
            row,
            size: 1,
            attempts: 0,
            message: Err(Malformed { reason: "test".to_owned(), key, about: About::default() }),
        }
    }

    fn rows(selected: &Selected<i64>) -> Vec<i64> {
        selected.batch.iter().map(|stored| stored.row).collect()
    }

    #[test]
    fn a_malformed_message_holds_back_its_key_and_no_other() {
        let key = MalformedKey::Readable(Some(Bytes::from_static(b"a")));
        let messages = vec![stored(1, Some("b")), malformed(2, key), stored(3, Some("a")), stored(4, None)];
        let mut waiting = Rows::new(BLOCK);
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
        let mut waiting = Rows::new(BLOCK);
        let selected = waiting.select(Fetched { messages: messages.clone(), more: true, fault: None }, 10);
        assert_eq!(rows(&selected), [1]);
        assert!(!selected.more);
        assert!(waiting.select(Fetched { messages, more: true, fault: None }, 10).malformed.is_empty());
    }

    fn fetched(messages: Vec<Stored<i64>>) -> Fetched<i64> {
        Fetched { messages, more: false, fault: None }
    }

    fn refused(row: i64, key: &'static str) -> Stored<i64> {
        Stored { attempts: 1, ..stored(row, Some(key)) }
    }

    /// Or what is behind it would be sent again with every attempt.
    #[test]
    fn a_message_that_was_refused_before_goes_alone() {
        let mut waiting = Rows::new(BLOCK);
        let messages =
            vec![refused(1, "a"), stored(2, Some("a")), stored(3, Some("b")), stored(4, Some("a"))];
        assert_eq!(rows(&waiting.select(fetched(messages.clone()), 10)), [1, 3]);
        assert_eq!(waiting.skipped(), 2);
        assert_eq!(rows(&waiting.select(fetched(messages[1..].to_vec()), 10)), [2, 3, 4], "it has gone");

        waiting.send_alone(&Bytes::from_static(b"b"));
        let again = vec![stored(3, Some("b")), stored(5, Some("b"))];
        assert_eq!(rows(&waiting.select(fetched(again.clone()), 10)), [3]);
        waiting.has_gone(&Bytes::from_static(b"b"));
        assert_eq!(rows(&waiting.select(fetched(again), 10)), [3, 5]);
    }

    #[test]
    fn a_run_that_does_not_retry_leaves_what_was_refused_before_to_one_that_does() {
        let mut waiting = Rows::new(Rules { retries: false, ..BLOCK });
        let messages = vec![refused(1, "a"), stored(2, Some("a")), stored(3, Some("b"))];
        assert_eq!(rows(&waiting.select(fetched(messages), 10)), [3]);
        assert_eq!(waiting.skipped(), 2);
    }

    #[test]
    fn what_comes_behind_a_parked_key_follows_it_and_waits_while_it_is_redriven() {
        let mut waiting = Rows::new(BLOCK);
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        waiting.set_parked([(a.clone(), Parking::Parked), (b, Parking::Redriving)].into());
        let messages =
            vec![stored(1, Some("a")), stored(2, Some("b")), stored(3, Some("c")), stored(4, None)];
        let selected = waiting.select(fetched(messages.clone()), 10);
        assert_eq!(rows(&selected), [3, 4]);
        assert_eq!(selected.moves, [Move { row: 1, why: Why::KeyIsParked }]);
        assert_eq!(waiting.skipped(), 1, "what is moved is not read again");

        // One that could not be moved waits, and the rest of its key with it.
        waiting.hold(&messages[0], Until::NextTurn);
        let selected = waiting.select(fetched(messages), 10);
        assert!(selected.moves.is_empty());
        waiting.forget();
        assert!(waiting.has_parked(), "what is set aside stays so");
    }

    #[test]
    fn where_there_is_a_quarantine_a_malformed_message_is_moved_and_its_key_follows() {
        let key = MalformedKey::Readable(Some(Bytes::from_static(b"a")));
        let messages = vec![
            malformed(1, key),
            stored(2, Some("a")),
            malformed(3, MalformedKey::Readable(None)),
            stored(4, Some("b")),
            malformed(5, MalformedKey::Unreadable),
            stored(6, Some("b")),
        ];
        let mut waiting = Rows::new(Rules { quarantines: true, ..BLOCK });
        let selected = waiting.select(fetched(messages), 10);
        let poison = || Why::Poison { reason: "test".to_owned(), was_sent: false };
        let moves = [(1, poison()), (2, Why::KeyIsParked), (3, poison())];
        assert_eq!(selected.moves, moves.map(|(row, why)| Move { row, why }));
        assert_eq!(rows(&selected), [4], "nobody knows whose the unreadable one is");
        assert_eq!(selected.malformed.len(), 3);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut waiting = Rows::new(BLOCK);
        waiting.hold(&stored(0, Some("a")), Until::RunEnds);
        let messages = (0..2_000).map(|row| stored(row, Some("a"))).collect();
        assert!(!waiting.select(Fetched { messages, more: true, fault: None }, 500).more);
    }
}
