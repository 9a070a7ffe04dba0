//! How many records are not accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The records of one publisher that are not accounted for, over all clients that it has had.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Counts one record, for as long as the answer lives: from before it is handed to a client until its delivery
    /// report, or until the client refuses it.
    pub(crate) fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(Self(Arc::clone(&self.0)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// One record that counts as in flight.
#[derive(Debug)]
pub(crate) struct Counted(InFlight);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
