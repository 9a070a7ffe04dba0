//! Free ports for servers that must be told their port before they start.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below the range that systems hand out for outgoing connections (Linux: 32768 and up): a port of a server
/// that is stopped and started again stays free meanwhile.
const RANGE: Range<u16> = 20_000..32_000;
const ATTEMPTS: u16 = 200;

/// A port of 127.0.0.1 that was free just now. Two callers may be told the same one: whoever starts a server
/// on it tries again with another.
pub(crate) fn free_port() -> io::Result<u16> {
    (0..ATTEMPTS)
        .map(|_| rand::random_range(RANGE))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free port of 127.0.0.1 found"))
}
