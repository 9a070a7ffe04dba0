//! The client's connections, to take back what only the kernel still holds.
//!
//! A purge empties the client's queues. What it has written by then is in the kernel's send buffer, megabytes perhaps
//! where the network took nothing, and the kernel sends it whenever the network takes it again: while the process is
//! frozen, after it, and after the client is closed. Records that were given up would reach the broker minutes later.
//! Only ending the connection with a reset discards that buffer.
//!
//! librdkafka keeps its sockets to itself: what tells of them is the debug line it writes before it connects. A socket
//! found by that line is duplicated for a moment, to be told from any other that has its number by then.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{connect_unspec, getpeername, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The debug context that has librdkafka write the line, and the line's facility.
pub(crate) const DEBUG: &str = "broker";
const FACILITY: &str = "CONNECT";

/// Whether it was said that the kernel forbids this: once a process, for it will not change.
static SAID: AtomicBool = AtomicBool::new(false);

/// A connection, as librdkafka told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    number: RawFd,
    peer: SocketAddr,
}

/// A connection that was found: numbers are used again, cookies never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    line: Line,
    cookie: u64,
}

/// The connections of one client. At most one for each number, so that there are no more than were open at once.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Mutex<Vec<Found>>);

impl Sockets {
    /// Takes note of a connection, if the line tells of one, and has its kernel buffer discarded whenever it is closed.
    ///
    /// Lines come a moment after they were written: the number may be another socket's by then. One that is connected
    /// elsewhere is left alone; another that is connecting still loses nothing but an orderly close.
    pub(crate) fn told(&self, facility: &str, line: &str) {
        if facility != FACILITY {
            return;
        }
        let Some(line) = parse(line) else { return };
        let mut found = self.lock();
        found.retain(|other| other.line.number != line.number);
        match find(line) {
            Ok(Some(cookie)) => found.push(Found { line, cookie }),
            Ok(None) => {}
            Err(error) => say(error),
        }
    }

    /// Ends the connections, and discards what the kernel has not sent. The client sees them fail, and connects again
    /// where it has something to send: everything is to have been purged before.
    pub(crate) fn cut(&self) {
        for found in std::mem::take(&mut *self.lock()) {
            match cut(found) {
                Ok(()) => {}
                Err(error) => say(error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `Connecting to ipv4#127.0.0.1:9092 (plaintext) with socket 12`, whatever is before it.
fn parse(line: &str) -> Option<Line> {
    let (_, rest) = line.split_once("Connecting to ")?;
    let (peer, rest) = rest.split_once(' ')?;
    let (_, number) = rest.rsplit_once("with socket ")?;
    let (_, peer) = peer.split_once('#')?;
    // No descriptor is negative.
    let number = number.trim().parse().ok().filter(|number: &RawFd| *number >= 0)?;
    Some(Line { number, peer: peer.parse().ok()? })
}

/// Finds the connection of the line; `None`: it is gone. Whoever closes it discards its buffer from now on.
fn find(line: Line) -> Result<Option<u64>, Errno> {
    let Some(socket) = duplicate(line.number)? else {
        return Ok(None);
    };
    match getpeername(&socket) {
        Ok(peer) if peer.as_ref().is_some_and(|peer| !is(peer, line.peer)) => return Ok(None),
        // It is connecting, or has failed to.
        Ok(_) | Err(Errno::NOTCONN | Errno::INVAL) => {}
        // Another kind of file has the number.
        Err(_) => return Ok(None),
    }
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    sockopt::socket_cookie(&socket).map(Some)
}

fn cut(found: Found) -> Result<(), Errno> {
    let Some(socket) = duplicate(found.line.number)? else {
        return Ok(());
    };
    let is_the_same = sockopt::socket_cookie(&socket) == Ok(found.cookie);
    if is_the_same { connect_unspec(&socket) } else { Ok(()) }
}

/// Another descriptor of the open file with this number; `None`: there is none.
///
/// A number is not enough to use a file safely, for its owner may close it at any time. This asks for it as a debugger
/// does of another process, which a process may always do of itself.
fn duplicate(number: RawFd) -> Result<Option<OwnedFd>, Errno> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::BADF) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is(peer: &rustix::net::SocketAddrAny, expected: SocketAddr) -> bool {
    SocketAddr::try_from(peer.clone())
        .is_ok_and(|peer| peer.ip() == expected.ip() && peer.port() == expected.port())
}

fn say(error: Errno) {
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            %error,
            "a Kafka connection's send buffer cannot be discarded here (pidfd_getfd, Linux 5.6): after a publish that \
             was given up the kernel may still send what it holds, and records come twice"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn line(stream: &TcpStream) -> String {
        let (peer, number) = (stream.peer_addr().unwrap(), stream.as_raw_fd());
        format!("[thrd:{peer}/1]: {peer}/1: Connecting to ipv4#{peer} (plaintext) with socket {number}")
    }

    /// Whether the peer gets to see a reset rather than an end.
    fn is_reset(mut peer: TcpStream) -> bool {
        peer.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }

    #[test]
    fn lines_are_read() {
        for (text, expected) in [
            (
                "[thrd:b:1/bootstrap]: b:1/bootstrap: Connecting to ipv4#127.0.0.1:9092 (sasl_ssl) with socket 12",
                Some((12, "127.0.0.1:9092")),
            ),
            ("Connecting to ipv6#[::1]:9092 (plaintext) with socket 7", Some((7, "[::1]:9092"))),
            ("b:1/1: broker in state TRY_CONNECT connecting", None),
            ("Connecting to ipv4#127.0.0.1:9092 (plaintext) with socket x", None),
            ("Connecting to somewhere (plaintext) with socket 7", None),
            ("Connecting to ", None),
        ] {
            let expected = expected.map(|(number, peer)| Line { number, peer: peer.parse().unwrap() });
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_connection_is_reset_when_it_is_closed_and_when_it_is_cut() {
        let sockets = Sockets::default();
        let (client, peer) = connection();
        sockets.told("CONNECT", &line(&client));
        drop(client);
        assert!(is_reset(peer));

        let (mut client, peer) = connection();
        sockets.told("CONNECT", &line(&client));
        sockets.cut();
        assert!(is_reset(peer));
        assert!(client.write(&[0]).is_err(), "it is no connection any more");
        assert!(sockets.lock().is_empty());
    }

    #[test]
    fn another_connection_with_the_number_is_left_alone() {
        let sockets = Sockets::default();
        let (client, _peer) = connection();
        let told = line(&client);
        sockets.told("CONNECT", &told);
        let number = client.as_raw_fd();
        // As if it had been closed, and its number used again.
        let (mut other, mut other_peer) = connection();
        sockets.lock()[0].line.number = other.as_raw_fd();
        sockets.cut();
        // So too when the line came late.
        sockets.told(
            "CONNECT",
            &told.replace(&format!("socket {number}"), &format!("socket {}", other.as_raw_fd())),
        );
        assert!(sockets.lock().is_empty());
        other.write_all(b"x").unwrap();
        other_peer.read_exact(&mut [0]).unwrap();
        drop(other);
        assert!(!is_reset(other_peer));
    }

    #[test]
    fn a_number_has_one_connection_and_other_lines_none() {
        let sockets = Sockets::default();
        let (client, _peer) = connection();
        for _ in 0..3 {
            sockets.told("CONNECT", &line(&client));
        }
        sockets.told("BROKER", &line(&client));
        sockets.told("CONNECT", "Received CONNECT op");
        assert_eq!(sockets.lock().len(), 1);
        sockets.told("CONNECT", "Connecting to ipv4#127.0.0.1:9092 (plaintext) with socket 99999");
        sockets.told("CONNECT", "Connecting to ipv4#127.0.0.1:9092 (plaintext) with socket -1");
        assert_eq!(sockets.lock().len(), 1);
    }
}
