//! Waking a continuous relay: by commits of its own process, and by hints from others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::{Notify, broadcast};

use crate::{Bucket, BucketCount, Message};

/// Tells the relay of this process which buckets have had a commit, so that it fetches exactly those at once. Clones
/// share it.
///
/// Advisory: what nobody announces is found by polling. Announce after the commit and not before it, or the relay
/// looks too early. Holds a set of buckets, so it is bounded whatever the rate of commits.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    buckets: Mutex<BTreeSet<Bucket>>,
    wake: Notify,
}

impl Notifier {
    /// A notifier that nobody has told anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces buckets in which messages were committed.
    pub fn announce(&self, buckets: impl IntoIterator<Item = Bucket>) {
        self.shared.buckets.lock().unwrap_or_else(PoisonError::into_inner).extend(buckets);
        self.shared.wake.notify_one();
    }

    /// Announces messages that were committed. Returns their buckets, for whoever hands them to a [`HintBroadcast`].
    pub fn committed(&self, messages: &[Message], count: BucketCount) -> BTreeSet<Bucket> {
        let buckets: BTreeSet<Bucket> = messages.iter().filter_map(|message| message.bucket(count)).collect();
        self.announce(buckets.iter().copied());
        buckets
    }

    /// Waits for the next announcement and takes all there are. One waiter at a time: a second one would share them.
    ///
    /// # Cancellation
    /// Dropping the future loses no announcement.
    pub async fn announced(&self) -> BTreeSet<Bucket> {
        loop {
            let taken =
                std::mem::take(&mut *self.shared.buckets.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            // An announcement between the look and the wait leaves a permit, which ends the wait at once.
            self.shared.wake.notified().await;
        }
    }
}

/// Carries hints between processes: one commits a message, another holds its bucket. Optional, and advisory like every
/// hint; a transport may lose, repeat and reorder them.
pub trait HintBroadcast: Send + Sync {
    /// Tells the other processes of commits. Must not wait for them.
    fn send(&self, buckets: &BTreeSet<Bucket>);

    /// Waits for hints from other processes. Never resolves once the transport has ended.
    ///
    /// # Cancellation
    /// Dropping the future may lose a hint.
    fn receive(&self) -> BoxFuture<'_, BTreeSet<Bucket>>;
}

/// Hints between relays of one process: an example of a [`HintBroadcast`], and what tests use.
#[derive(Debug)]
pub struct InProcessHints {
    sender: broadcast::Sender<BTreeSet<Bucket>>,
    receiver: tokio::sync::Mutex<broadcast::Receiver<BTreeSet<Bucket>>>,
}

impl InProcessHints {
    /// How many hints a slow receiver may be behind before it loses the oldest.
    const CAPACITY: usize = 256;

    /// A first member.
    pub fn new() -> Self {
        let (sender, receiver) = broadcast::channel(Self::CAPACITY);
        Self { sender, receiver: tokio::sync::Mutex::new(receiver) }
    }

    /// One more member, which receives what any member sends from now on.
    #[must_use]
    pub fn join(&self) -> Self {
        Self { sender: self.sender.clone(), receiver: tokio::sync::Mutex::new(self.sender.subscribe()) }
    }
}

impl Default for InProcessHints {
    fn default() -> Self {
        Self::new()
    }
}

impl HintBroadcast for InProcessHints {
    fn send(&self, buckets: &BTreeSet<Bucket>) {
        // Nobody listening is no error: hints are advisory.
        let _ = self.sender.send(buckets.clone());
    }

    fn receive(&self) -> BoxFuture<'_, BTreeSet<Bucket>> {
        Box::pin(async {
            let mut receiver = self.receiver.lock().await;
            loop {
                match receiver.recv().await {
                    Ok(buckets) => return buckets,
                    // Some were lost; those that are left are as good.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(numbers: &[u32]) -> BTreeSet<Bucket> {
        numbers.iter().map(|number| Bucket::new(*number)).collect()
    }

    #[tokio::test]
    async fn an_announcement_before_the_wait_is_not_lost() {
        let notifier = Notifier::new();
        notifier.announce(buckets(&[1]));
        notifier.announce(buckets(&[1, 2]));
        assert_eq!(notifier.announced().await, buckets(&[1, 2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_loses_no_announcement() {
        let notifier = Notifier::new();
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), notifier.announced()).await;
        assert!(waited.is_err());
        notifier.announce(buckets(&[3]));
        assert_eq!(notifier.announced().await, buckets(&[3]));
    }

    #[tokio::test]
    async fn members_hear_each_other() {
        let first = InProcessHints::new();
        let second = first.join();
        second.send(&buckets(&[5]));
        assert_eq!(first.receive().await, buckets(&[5]));
        assert_eq!(second.receive().await, buckets(&[5]));
    }
}
