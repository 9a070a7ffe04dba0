//! What lives as long as the process: the relay with its clients, and what an invocation is measured by.

use std::sync::Arc;
use std::time::Duration;

use lambda_runtime::Context;
use outbox::{Budget, Chance, Clock, Relay, RelayId};

use crate::TableIdentity;

/// The function's parts, over any store and any publisher.
///
/// Lives outside the handler: a client that were dropped with a delivery outstanding would take it back.
#[derive(Debug)]
pub struct App<S, P> {
    /// The engine.
    pub relay: Relay<S, P>,
    /// What tells this outbox's records from others.
    pub table: TableIdentity,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The source of relay ids.
    pub chance: Chance,
}

impl<S, P> App<S, P> {
    /// The time this invocation has: its deadline is read here, once, and counted on the monotonic clock from then on.
    pub(crate) fn budget(&self, context: &Context) -> Budget {
        let left = context.deadline.saturating_sub(self.clock.now_utc().unix_millis());
        Budget::new(Arc::clone(&self.clock), Duration::from_millis(left))
    }

    /// A relay id for this invocation only: a thawed process must not be taken for the owner it was.
    pub(crate) fn relay_id(&self, role: &str) -> RelayId {
        self.chance.relay_id(role, self.clock.now_utc())
    }
}
