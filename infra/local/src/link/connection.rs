//! One connection of a link, from its acceptance to its end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::counters::{Connected, Counting, add};
use super::mode::{Fate, Mode};
use super::pump::{Broken, pump};

/// How long the target's half of a forgotten connection is kept once its client has closed: a target that notices
/// a close cancels what it does, and one behind a network that forgets does not notice.
const FORGOTTEN_KEPT: Duration = Duration::from_secs(60);
const SWALLOW_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) connected: Connected,
    pub(super) target: SocketAddr,
    pub(super) mode: watch::Receiver<Mode>,
    pub(super) counting: Arc<Counting>,
}

/// The other half. A connection that is forgotten while it is being made may exist for the target already.
#[derive(Default)]
enum Target {
    #[default]
    None,
    Dialled(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Connected(TcpStream),
}

impl Connection {
    /// Runs until both sides are done, or `fate` ends it.
    pub(super) async fn run(mut self, fate: &mut oneshot::Receiver<Fate>) {
        let mut target = Target::None;
        // First the fate: what is ready to be forwarded at that moment is not.
        let fate = tokio::select! {
            biased;
            fate = told(fate) => Some(fate),
            end = forward(&mut self, &mut target) => end.err().map(|Broken| Fate::Reset),
        };
        match fate {
            None => {}
            Some(Fate::Reset) => {
                add(&self.counting.reset, 1);
                // An error means that it is closed already. The reset is what the drop then sends.
                let _ = self.client.set_zero_linger();
                if let Target::Connected(target) = &target {
                    let _ = target.set_zero_linger();
                }
            }
            Some(Fate::Forgotten) => {
                add(&self.counting.forgotten, 1);
                swallow(self, target).await;
            }
        }
    }
}

async fn told(fate: &mut oneshot::Receiver<Fate>) -> Fate {
    match fate.await {
        Ok(fate) => fate,
        // The link is being dropped, and this with it.
        Err(_) => std::future::pending().await,
    }
}

async fn forward(connection: &mut Connection, target: &mut Target) -> Result<(), Broken> {
    let Connection { client, mode, counting, target: address, .. } = connection;
    // A network that stalls brings no connection to the target either.
    mode.wait_for(|mode| !matches!(mode, Mode::Hold | Mode::Clog)).await.map_err(|_| Broken)?;
    *target = Target::Dialled(Box::pin(TcpStream::connect(*address)));
    if let Target::Dialled(dialled) = target {
        *target = Target::Connected(dialled.await.map_err(|_| Broken)?);
    }
    let Target::Connected(target) = target else {
        return Err(Broken);
    };
    // A link is to add no delay of its own; where it cannot be had, the delay is all that is lost.
    let _ = (client.set_nodelay(true), target.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_target, to_target) = target.split();
    tokio::try_join!(
        pump(from_client, to_target, mode.clone(), &counting.to_target),
        pump(from_target, to_client, mode.clone(), &counting.to_client),
    )?;
    Ok(())
}

/// Reads and throws away what either side sends, and tells neither of the other's end.
async fn swallow(connection: Connection, target: Target) {
    let Connection { mut client, connected, counting, .. } = connection;
    let (closed, seen) = oneshot::channel::<()>();
    tokio::join!(
        async {
            discard(&mut client, &counting.swallowed).await;
            drop((connected, closed));
        },
        async {
            let mut target = match target {
                Target::Connected(target) => target,
                Target::Dialled(dialled) => match dialled.await {
                    Ok(target) => target,
                    Err(_) => return,
                },
                Target::None => return,
            };
            let long_closed = async {
                // An error is what a dropped sender is told by.
                let _ = seen.await;
                sleep(FORGOTTEN_KEPT).await;
            };
            tokio::select! {
                () = discard(&mut target, &counting.swallowed) => {}
                () = long_closed => {}
            }
        },
    );
}

/// Until the sender has closed, in whatever way.
async fn discard(from: &mut (impl AsyncRead + Unpin), count: &AtomicU64) {
    let mut buffer = vec![0; SWALLOW_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        add(count, read);
    }
}
