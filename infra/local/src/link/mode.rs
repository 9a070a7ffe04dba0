//! What a link is to do.

use std::time::Duration;

/// What a link does with the bytes and connections of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Forwards everything.
    #[default]
    Pass,
    /// Forwards everything that much later, each direction for itself: order and bandwidth stay, up to 2 MiB on their
    /// way. Closing is delayed too; connecting is not. Once the mode changes, what is on its way obeys the new one.
    Delay(Duration),
    /// Keeps everything back, to forward it in order when the mode changes: a network that stalls and recovers. New
    /// connections are accepted, and reach the target then; so does what a client sent that has long given up.
    Hold,
    /// Takes nothing: what a peer sends waits in kernel buffers, a hundred KB or so of it in ours and the rest in its own,
    /// and is forwarded in order when the mode changes. New connections wait as with [`Hold`](Self::Hold).
    Clog,
    /// A black hole: accepts connections, swallows what is sent, forwards nothing and says nothing. Connections that
    /// were in it stay dead, without a word, when the mode changes.
    Silent,
    /// A host without the service: connections that exist are reset, new ones are refused.
    Refuse,
}

/// What becomes of a connection, whatever its peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Forgotten,
    Reset,
}
