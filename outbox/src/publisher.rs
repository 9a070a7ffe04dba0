//! The publisher contract: what the relay asks of whatever sends to the broker.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::Message;

/// Sends messages to the broker.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes `batch`, in order, and returns one outcome for each message, in the same order.
    ///
    /// Messages of one key are appended in the order given, unless the broker refuses one of them for good: what had
    /// been sent behind it may be appended all the same. Every send that was started has ended, one way or the other,
    /// when this returns; what could not be sent within `limit` was taken back.
    ///
    /// # Cancellation
    /// Not to be cancelled: dropping the future leaves sends under way whose outcome nobody learns.
    fn publish(&self, batch: &[&Message], limit: Duration) -> impl Future<Output = Vec<Outcome>> + Send;

    /// How many sends are under way, or not accounted for yet. Zero whenever no [`publish`](Self::publish) is: whoever
    /// ends a run may check that it leaves nothing behind which a process could still send after a freeze. A publisher
    /// that cannot tell says zero.
    fn in_flight(&self) -> usize {
        0
    }

    /// How often it has replaced the client that it sends with, since it was made. A publisher that has none says zero.
    fn replaced_clients(&self) -> u64 {
        0
    }
}

/// What became of one message.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every in-sync replica has it: it may be deleted.
    Acknowledged,
    /// It is not known to be stored: it stays.
    Failed(PublishError),
}

/// What the relay does about a message that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// It was not stored. To be sent again later.
    Unavailable,
    /// It was not stored, for want of its topic or partition (not there yet, or without a leader). To be sent again later;
    /// messages for other topics are none the worse.
    TopicUnavailable,
    /// It may have been stored: sending it again may make a duplicate. To be sent again later.
    MayHaveHappened,
    /// This message will be refused every time. Its key waits.
    Rejected,
    /// Every message will be refused until somebody changes a setting or a permission.
    Misconfigured,
}

/// Why a message was not acknowledged.
#[derive(Clone, Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl PublishError {
    /// A failure; `message` says what failed, where (topic, broker), without key or payload.
    pub fn new(kind: PublishErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The failure, with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What the relay does next.
    pub const fn kind(&self) -> PublishErrorKind {
        self.kind
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
