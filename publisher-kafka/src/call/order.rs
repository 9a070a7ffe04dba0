//! Which message of a batch may be sent next, and which waits: one call's account, without a client.

use std::collections::{BTreeSet, HashMap, HashSet};

use outbox::{Message, Outcome, PublishError, PublishErrorKind};

/// What a call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This message may be sent: no other of its key goes before it.
    Send(usize),
    /// Nothing may be sent until something is known of what is under way.
    Wait,
    /// Every message has an outcome.
    End,
}

#[derive(Debug)]
enum Slot {
    Waiting,
    Sent,
    Done(Outcome),
}

/// A batch, and how far each message of it has come.
#[derive(Debug)]
pub(super) struct Order<'a> {
    batch: &'a [&'a Message],
    slots: Vec<Slot>,
    /// What may be sent as soon as there is room, if nothing of its key has failed meanwhile.
    ready: BTreeSet<usize>,
    /// The next message of a message's key, which is ready when that one's outcome is known.
    next_of_key: HashMap<usize, usize>,
    /// Keys of which a message failed, and the first one that did: what is behind it is not sent.
    blocked: HashMap<&'a [u8], usize>,
    /// Messages that are to be sent one by one, because a batch with them in it was refused, and what is behind them.
    again: BTreeSet<usize>,
    again_keys: HashSet<&'a [u8]>,
    one_by_one: bool,
    /// Messages whose records were taken back.
    taken_back: Vec<usize>,
    outstanding: usize,
}

impl<'a> Order<'a> {
    pub(super) fn new(batch: &'a [&'a Message]) -> Self {
        Self {
            batch,
            slots: batch.iter().map(|_| Slot::Waiting).collect(),
            ready: (0..batch.len()).collect(),
            next_of_key: HashMap::new(),
            blocked: HashMap::new(),
            again: BTreeSet::new(),
            again_keys: HashSet::new(),
            one_by_one: false,
            taken_back: Vec::new(),
            outstanding: 0,
        }
    }

    pub(super) fn message(&self, index: usize) -> &'a Message {
        self.batch[index]
    }

    /// The messages that are still to be sent, in order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &'a Message> {
        let waiting = |(slot, message): (&Slot, _)| matches!(slot, Slot::Waiting).then_some(message);
        self.slots.iter().zip(self.batch.iter().copied()).filter_map(waiting)
    }

    /// Fails what has a fault, and holds back what is behind it in its key. For before anything is sent.
    pub(super) fn refuse(&mut self, fault: impl Fn(&Message) -> Option<PublishError>) {
        for index in 0..self.batch.len() {
            if !matches!(self.slots[index], Slot::Waiting) || self.hold_back(index) {
                continue;
            }
            if let Some(error) = fault(self.batch[index]) {
                self.fail(index, error);
            }
        }
    }

    /// Lets one message of a key be under way at a time, for the keys of messages that are `paced`. For before anything
    /// is sent.
    pub(super) fn pace(&mut self, paced: impl Fn(&Message) -> bool) {
        let batch = self.batch;
        let key_of = |index: usize| batch[index].key.as_deref();
        let keys: HashSet<&[u8]> = self
            .waiting()
            .filter(|message| paced(message))
            .filter_map(|message| message.key.as_deref())
            .collect();
        let mut last: HashMap<&[u8], usize> = HashMap::new();
        for index in 0..batch.len() {
            let paced = key_of(index).filter(|key| keys.contains(key));
            let (Some(key), Slot::Waiting) = (paced, &self.slots[index]) else { continue };
            if let Some(ahead) = last.insert(key, index) {
                self.next_of_key.insert(ahead, index);
                self.ready.remove(&index);
            }
        }
    }

    pub(super) fn next(&mut self) -> Next {
        loop {
            if let Some(&index) = self.ready.first() {
                if matches!(self.slots[index], Slot::Waiting) && !self.hold_back(index) {
                    return Next::Send(index);
                }
                self.ready.pop_first();
                self.make_next_ready(index);
            } else if self.outstanding > 0 || !self.taken_back.is_empty() {
                return Next::Wait;
            } else if let Some(index) = self.again.pop_first() {
                // Which record of a refused batch is at fault shows when each is alone in its batch.
                self.one_by_one = true;
                self.ready.insert(index);
            } else {
                return Next::End;
            }
        }
    }

    /// The client has the message.
    pub(super) fn sent(&mut self, index: usize) {
        self.ready.remove(&index);
        self.slots[index] = Slot::Sent;
        self.outstanding += 1;
    }

    pub(super) fn acknowledged(&mut self, index: usize) {
        self.outstanding -= 1;
        self.slots[index] = Slot::Done(Outcome::Acknowledged);
        self.make_next_ready(index);
    }

    /// The record's batch was refused. Whether the message is to be sent again, alone; if not, it was alone already.
    pub(super) fn again_alone(&mut self, index: usize) -> bool {
        if self.one_by_one {
            return false;
        }
        self.outstanding -= 1;
        self.slots[index] = Slot::Waiting;
        self.put_off(index);
        self.make_next_ready(index);
        true
    }

    /// The client took the record and gives it back with an error.
    pub(super) fn came_back(&mut self, index: usize, error: PublishError) {
        self.outstanding -= 1;
        self.fail(index, error);
    }

    pub(super) fn taken_back(&mut self, index: usize) {
        self.outstanding -= 1;
        self.taken_back.push(index);
        self.block(index);
    }

    /// The message has failed, and is not with the client.
    pub(super) fn fail(&mut self, index: usize, error: PublishError) {
        self.ready.remove(&index);
        self.slots[index] = Slot::Done(Outcome::Failed(error));
        self.block(index);
        self.make_next_ready(index);
    }

    /// How many records the client has.
    pub(super) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(super) const fn was_taken_back(&self) -> bool {
        !self.taken_back.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.batch.len()
    }

    /// Fails what has no outcome, now that the client has no record left: `error` is asked for each message, and told
    /// whether its record was taken back. Says how many were, and how many were never sent.
    pub(super) fn give_up(&mut self, error: impl Fn(&Message, bool) -> PublishError) -> (usize, usize) {
        let taken_back: HashSet<usize> = std::mem::take(&mut self.taken_back).into_iter().collect();
        let mut not_sent = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if !matches!(slot, Slot::Done(_)) {
                let was_taken_back = taken_back.contains(&index);
                not_sent += usize::from(!was_taken_back);
                *slot = Slot::Done(Outcome::Failed(error(self.batch[index], was_taken_back)));
            }
        }
        (taken_back.len(), not_sent)
    }

    /// The outcomes, in the batch's order.
    pub(super) fn outcomes(self) -> Vec<Outcome> {
        let unknown = || PublishError::new(PublishErrorKind::MayHaveHappened, "its outcome is not known");
        let outcome = |slot| match slot {
            Slot::Done(outcome) => outcome,
            Slot::Waiting | Slot::Sent => Outcome::Failed(unknown()),
        };
        self.slots.into_iter().map(outcome).collect()
    }

    /// Whether a message of the same key ahead of this one keeps it from being sent now.
    fn hold_back(&mut self, index: usize) -> bool {
        let message = self.batch[index];
        let Some(key) = message.key.as_deref() else {
            return false;
        };
        if let Some(first) = self.blocked.get(key).filter(|first| **first < index) {
            let text = format!(
                "message {} waits behind message {} of its key, which could not be published",
                message.id, self.batch[*first].id
            );
            self.slots[index] =
                Slot::Done(Outcome::Failed(PublishError::new(PublishErrorKind::Unavailable, text)));
            return true;
        }
        if !self.one_by_one && self.again_keys.contains(key) {
            self.put_off(index);
            return true;
        }
        false
    }

    fn put_off(&mut self, index: usize) {
        self.again.insert(index);
        self.again_keys.extend(self.batch[index].key.as_deref());
    }

    fn block(&mut self, index: usize) {
        if let Some(key) = self.batch[index].key.as_deref() {
            let first = self.blocked.entry(key).or_insert(index);
            *first = index.min(*first);
        }
    }

    fn make_next_ready(&mut self, index: usize) {
        self.ready.extend(self.next_of_key.remove(&index));
    }
}

#[cfg(test)]
mod tests;
