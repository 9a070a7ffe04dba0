//! A network that can be broken: a TCP proxy in front of one address, whose connections can be delayed, held
//! back, forgotten or reset while they are in use.
//!
//! What it cannot do: a kernel acknowledges everything that is sent into it, so a peer's TCP keep-alive and user
//! timeout, which a real black hole would trip, do not notice one made here. Only a timeout of the peer's own does.
//! And a peer whose target is down sees a connection that is made and then reset, not one that is refused.

mod accept;
mod connection;
mod counters;
mod mode;
mod pump;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::sync::{mpsc as commands, watch};

use accept::{Acceptor, Command, Order};
use counters::Counting;
pub use counters::LinkCounters;
pub use mode::Mode;

use crate::ports::free_port;

/// Another process may take a port between our look and our bind.
const PORT_ATTEMPTS: usize = 20;

/// A proxy on 127.0.0.1. Dropping it ends its listener and all its connections before it returns.
///
/// It runs on a thread of its own: it serves any number of runtimes and outlives them. Each call has taken effect
/// when it returns, also for connections that a peer has made and the link has not yet looked at: no byte is
/// forwarded against it afterwards. (Calls block for microseconds, and may be made from asynchronous code.)
///
/// Bounds: 256 connections (more are reset at once and counted), 2 MiB of bytes on their way in each direction
/// of each; what is beyond that waits in the kernel's buffers, and at last in the sender.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    target: SocketAddr,
    orders: Option<commands::UnboundedSender<Order>>,
    mode: watch::Receiver<Mode>,
    counting: Arc<Counting>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Listens on a free port below those that systems hand out for outgoing connections, so that nobody takes
    /// it while the link [refuses](Mode::Refuse).
    ///
    /// # Errors
    /// No port or no thread can be had.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..PORT_ATTEMPTS {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)) {
                Ok(listener) => return Self::on(listener, target),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    /// Listens on `listener`, whose port another process may take while the link [refuses](Mode::Refuse) if it is
    /// one that systems hand out for outgoing connections.
    ///
    /// # Errors
    /// The listener cannot be used, or no thread can be had.
    pub fn on(listener: TcpListener, target: SocketAddr) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let counting = Arc::<Counting>::default();
        let (orders, received) = commands::unbounded_channel();
        let (sender, mode) = watch::channel(Mode::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acceptor = {
            let _inside = runtime.enter();
            Acceptor::new(listener, target, sender, Arc::clone(&counting))?
        };
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn(move || runtime.block_on(acceptor.run(received)))?;
        Ok(Self { address, target, orders: Some(orders), mode, counting, thread: Some(thread) })
    }

    /// Where clients connect to. Always the same, also after [`Mode::Refuse`].
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is behind it.
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// What it does now.
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Sets what it does, with the connections that exist and with new ones.
    pub fn set(&self, mode: Mode) {
        self.order(Command::Set(mode));
    }

    /// Forgets the connections that exist now, as a NAT does: nothing is forwarded any more in either direction, and
    /// neither side is told. New connections are served as the mode says.
    ///
    /// The target's half is kept until the target closes it, or until a minute after the client has closed its own.
    pub fn strand(&self) {
        self.order(Command::Strand);
    }

    /// Resets the connections that exist now, except those that are forgotten. New ones are served as the mode says.
    pub fn reset(&self) {
        self.order(Command::Reset);
    }

    /// Connections that were ever made to it.
    pub fn opened(&self) -> u64 {
        self.counters().opened
    }

    /// Connections that clients have open now, those that were forgotten included. A close takes a moment to be
    /// noticed.
    pub fn open(&self) -> u64 {
        self.counters().open
    }

    /// Everything that is counted.
    pub fn counters(&self) -> LinkCounters {
        self.counting.read()
    }

    fn order(&self, command: Command) {
        let (done, awaited) = mpsc::sync_channel(1);
        // The thread ends only when this is dropped.
        if let Some(orders) = &self.orders
            && orders.send(Order { command, done }).is_ok()
        {
            let _ = awaited.recv();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(address = %self.address, "a link's thread had panicked");
        }
    }
}
