//! The listener of a link, and the one place where orders are carried out.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc as commands, oneshot, watch};
use tokio::time::sleep;

use super::connection::Connection;
use super::counters::{Connected, Counting, add};
use super::mode::{Fate, Mode};

/// Two sockets each: far below what a process may have open.
const MOST_CONNECTIONS: usize = 256;
/// After an accept or a bind that failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) enum Command {
    Set(Mode),
    Strand,
    Reset,
}

/// A command, and whom to tell that it has been carried out.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Command,
    pub(super) done: mpsc::SyncSender<()>,
}

#[derive(Debug)]
pub(super) struct Acceptor {
    /// None while the link refuses: only a port without a listener refuses as a host without the service does.
    listener: Option<Listening>,
    address: SocketAddr,
    target: SocketAddr,
    mode: watch::Sender<Mode>,
    /// How each connection that is still served is told that it no longer is. Once, so that the first word counts.
    served: Vec<oneshot::Sender<Fate>>,
    counting: Arc<Counting>,
    room: Arc<Semaphore>,
}

impl Acceptor {
    /// Belongs to the runtime in whose context it is made.
    pub(super) fn new(
        listener: TcpListener,
        target: SocketAddr,
        mode: watch::Sender<Mode>,
        counting: Arc<Counting>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let listener = Some(Listening::new(listener)?);
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        Ok(Self { listener, address, target, mode, served: Vec::new(), counting, room })
    }

    /// Runs until the sender of orders is gone.
    pub(super) async fn run(mut self, mut orders: commands::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    None => return,
                    Some(order) => {
                        self.carry_out(&order.command);
                        // Nobody waits any more: no matter.
                        let _ = order.done.send(());
                    }
                },
                accepted = accept(self.listener.as_ref()) => {
                    let failed = accepted.is_err();
                    self.admit(accepted);
                    if failed {
                        sleep(RETRY_INTERVAL).await;
                    }
                }
                () = sleep(RETRY_INTERVAL), if self.listener.is_none() && !self.refuses() => self.listen(),
            }
        }
    }

    fn carry_out(&mut self, command: &Command) {
        // Connections that their clients have already made belong to those that exist now.
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(|listener| listener.now.accept()) {
            self.admit(stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)));
        }
        let fate = match command {
            Command::Strand | Command::Set(Mode::Silent) => Some(Fate::Forgotten),
            Command::Reset | Command::Set(Mode::Refuse) => Some(Fate::Reset),
            Command::Set(Mode::Pass | Mode::Delay(_) | Mode::Hold | Mode::Clog) => None,
        };
        if let Some(fate) = fate {
            for served in self.served.drain(..) {
                // One that has ended by itself meanwhile: no matter.
                let _ = served.send(fate);
            }
        }
        if let Command::Set(mode) = command {
            self.mode.send_replace(*mode);
        }
        if self.refuses() {
            self.listener = None;
        } else if self.listener.is_none() {
            self.listen();
        }
    }

    fn refuses(&self) -> bool {
        *self.mode.borrow() == Mode::Refuse
    }

    fn listen(&mut self) {
        match TcpListener::bind(self.address).and_then(Listening::new) {
            Ok(listener) => self.listener = Some(listener),
            // Tried again until it succeeds.
            Err(error) => tracing::warn!(%error, address = %self.address, "a link cannot listen again"),
        }
    }

    fn admit(&mut self, stream: io::Result<TcpStream>) {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, address = %self.address, "a link could not take a connection");
                return;
            }
        };
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            add(&self.counting.turned_away, 1);
            tracing::warn!(most = MOST_CONNECTIONS, address = %self.address, "a link has too many connections");
            // The reset is what the drop then sends.
            let _ = stream.set_zero_linger();
            return;
        };
        let connection = Connection {
            client: stream,
            connected: Connected::new(&self.counting),
            target: self.target,
            mode: self.mode.subscribe(),
            counting: Arc::clone(&self.counting),
        };
        let (served, mut fate) = oneshot::channel();
        if *self.mode.borrow() == Mode::Silent {
            // Its receiver is here.
            let _ = served.send(Fate::Forgotten);
        } else {
            self.served.retain(|served| !served.is_closed());
            self.served.push(served);
        }
        tokio::spawn(async move {
            connection.run(&mut fate).await;
            drop(permit);
        });
    }
}

/// One listening socket: what says that a connection is there, and what says at once that none is.
#[derive(Debug)]
struct Listening {
    awaited: tokio::net::TcpListener,
    now: TcpListener,
}

impl Listening {
    fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let now = listener.try_clone()?;
        Ok(Self { awaited: tokio::net::TcpListener::from_std(listener)?, now })
    }
}

/// The next connection; never one where nothing listens.
async fn accept(listener: Option<&Listening>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.awaited.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
