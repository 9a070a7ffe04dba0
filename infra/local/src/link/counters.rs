//! Counting what goes over a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has gone over a link so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Connections accepted, ever; those that the system refused for us are not known.
    pub opened: u64,
    /// Connections that clients have open now.
    pub open: u64,
    /// Connections forgotten, by a call or by silence; those accepted in silence included.
    pub forgotten: u64,
    /// Connections reset by a call or by a refusal, or because the target was not there or reset them.
    pub reset: u64,
    /// Connections reset at once because there were too many.
    pub turned_away: u64,
    /// Bytes that went from clients to the target.
    pub to_target: u64,
    /// Bytes that went from the target to clients.
    pub to_client: u64,
    /// Bytes of forgotten connections that were read and thrown away, of both directions. Those that were on their
    /// way when it was forgotten are lost uncounted.
    pub swallowed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) opened: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) forgotten: AtomicU64,
    pub(super) reset: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) to_target: AtomicU64,
    pub(super) to_client: AtomicU64,
    pub(super) swallowed: AtomicU64,
}

impl Counting {
    pub(super) fn read(&self) -> LinkCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkCounters {
            opened: read(&self.opened),
            open: read(&self.open),
            forgotten: read(&self.forgotten),
            reset: read(&self.reset),
            turned_away: read(&self.turned_away),
            to_target: read(&self.to_target),
            to_client: read(&self.to_client),
            swallowed: read(&self.swallowed),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Counts one client as connected, for as long as it lives.
#[derive(Debug)]
pub(super) struct Connected(Arc<Counting>);

impl Connected {
    pub(super) fn new(counting: &Arc<Counting>) -> Self {
        add(&counting.opened, 1);
        add(&counting.open, 1);
        Self(Arc::clone(counting))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
