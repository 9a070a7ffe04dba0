//! One direction of a connection: what is read waits in a bounded queue until it is due.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::counters::add;
use super::mode::Mode;

/// What may be on its way: with a delay of 100 ms, this carries 20 MB a second.
const QUEUE_BYTES: usize = 2 * 1024 * 1024;
const READ_BYTES: u16 = 32 * 1024;
/// What a queued chunk costs beside its bytes, so that many small ones are bounded too.
const CHUNK_COST: u16 = 128;

/// A side has reset its connection.
#[derive(Debug)]
pub(super) struct Broken;

struct Chunk {
    arrived: Instant,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>, OwnedSemaphorePermit),
    End,
    Broken,
}

/// Forwards until the end of `from`, which is passed on, or until `to` takes no more.
///
/// # Errors
/// `from` is broken, and everything before that has been forwarded.
pub(super) async fn pump(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    mode: watch::Receiver<Mode>,
    count: &AtomicU64,
) -> Result<(), Broken> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let filling_mode = mode.clone();
    let filling = async {
        fill(from, sender, filling_mode).await;
        std::future::pending::<Result<(), Broken>>().await
    };
    tokio::select! {
        biased;
        end = drain(receiver, to, mode, count) => end,
        never = filling => never,
    }
}

async fn fill(
    mut from: impl AsyncRead + Unpin,
    queue: mpsc::UnboundedSender<Chunk>,
    mut mode: watch::Receiver<Mode>,
) {
    let room = Arc::new(Semaphore::new(QUEUE_BYTES));
    let mut buffer = vec![0; READ_BYTES.into()];
    loop {
        // Without its sender the link is being dropped, and this with it.
        if mode.wait_for(|mode| *mode != Mode::Clog).await.is_err() {
            return;
        }
        let read = tokio::select! {
            biased;
            _ = mode.changed() => continue,
            read = from.read(&mut buffer) => read,
        };
        let arrived = Instant::now();
        let content = match read {
            Ok(0) => Content::End,
            Err(_) => Content::Broken,
            Ok(length) => {
                let cost = u32::try_from(length).unwrap_or(u32::MAX).saturating_add(CHUNK_COST.into());
                let Ok(permit) = Arc::clone(&room).acquire_many_owned(cost).await else {
                    return;
                };
                Content::Bytes(buffer[..length].to_vec(), permit)
            }
        };
        let is_last = !matches!(content, Content::Bytes(..));
        if queue.send(Chunk { arrived, content }).is_err() || is_last {
            return;
        }
    }
}

async fn drain(
    mut queue: mpsc::UnboundedReceiver<Chunk>,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<Mode>,
    count: &AtomicU64,
) -> Result<(), Broken> {
    while let Some(Chunk { arrived, content }) = queue.recv().await {
        due(&mut mode, arrived).await;
        match content {
            Content::Broken => return Err(Broken),
            Content::End => {
                // An error means that it is closed already.
                let _ = to.shutdown().await;
                return Ok(());
            }
            Content::Bytes(bytes, _permit) => {
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    tokio::select! {
                        biased;
                        // The rest of a chunk obeys a new mode too.
                        _ = mode.changed() => due(&mut mode, arrived).await,
                        written = to.write(rest) => match written {
                            Ok(length @ 1..) => {
                                add(count, length);
                                rest = &rest[length..];
                            }
                            // Whoever closed or reset it says so on its other direction, which ends both.
                            _ => return Ok(()),
                        },
                    }
                }
            }
        }
    }
    Ok(())
}

/// Waits until what arrived then may go on.
async fn due(mode: &mut watch::Receiver<Mode>, arrived: Instant) {
    loop {
        let due = match *mode.borrow_and_update() {
            Mode::Hold | Mode::Clog => None,
            // A time beyond all times never comes.
            Mode::Delay(delay) => arrived.checked_add(delay),
            // The other two end the connection before this is asked.
            Mode::Pass | Mode::Silent | Mode::Refuse => return,
        };
        let passed = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passed => return,
            // Without its sender the link is being dropped, and this with it.
            changed = mode.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }
}
