//! What the functions print, kept for tests and passed on to tracing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::lock;

/// Lines kept; older ones are dropped.
const KEPT_LINES: usize = 10_000;
/// The longest line, in bytes; the rest of a longer one is dropped.
const LONGEST_LINE: usize = 64 * 1024;

/// Where a line was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line that a function printed.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// When it was read.
    pub time: SystemTime,
    /// The process that printed it.
    pub pid: u32,
    /// Where it was printed.
    pub stream: LogStream,
    /// The line without its end, bytes that are no UTF-8 replaced.
    pub text: String,
}

/// The newest entries of an endless sequence.
#[derive(Debug)]
pub(super) struct Ring<T> {
    entries: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T: Clone> Ring<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::new(VecDeque::new()), capacity }
    }

    pub(super) fn push(&self, entry: T) {
        let mut entries = lock(&self.entries);
        if entries.len() == self.capacity {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub(super) fn snapshot(&self) -> Vec<T> {
        lock(&self.entries).iter().cloned().collect()
    }
}

/// The log of one function, all its processes together.
#[derive(Debug, Clone)]
pub(super) struct Log {
    function: Arc<str>,
    lines: Arc<Ring<LogLine>>,
}

impl Log {
    pub(super) fn new(function: &str) -> Self {
        Self { function: function.into(), lines: Arc::new(Ring::new(KEPT_LINES)) }
    }

    pub(super) fn snapshot(&self) -> Vec<LogLine> {
        self.lines.snapshot()
    }

    /// Reads `output` to its end.
    pub(super) async fn follow(self, pid: u32, stream: LogStream, output: impl AsyncRead + Unpin + Send) {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            let read = match output.fill_buf().await {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(function = %self.function, pid, %error, "output lost");
                    return;
                }
            };
            if read.is_empty() {
                break;
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            // What does not fit is dropped: a function that never ends its line must not fill our memory.
            let room = LONGEST_LINE - line.len();
            line.extend_from_slice(&part[..part.len().min(room)]);
            let consumed = part.len() + usize::from(end.is_some());
            output.consume(consumed);
            if end.is_some() {
                self.add(pid, stream, &line);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.add(pid, stream, &line);
        }
    }

    fn add(&self, pid: u32, stream: LogStream, line: &[u8]) {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        tracing::info!(target: "outbox_local::function", function = %self.function, pid, "{text}");
        self.lines.push(LogLine { time: SystemTime::now(), pid, stream, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_newest() {
        let ring = Ring::new(2);
        for entry in 1..=3 {
            ring.push(entry);
        }
        assert_eq!(ring.snapshot(), [2, 3]);
    }

    #[tokio::test]
    async fn lines_are_split_and_long_ones_bounded() {
        let log = Log::new("relay");
        let mut output = b"one\ntwo \xff\r\n".to_vec();
        output.extend(std::iter::repeat_n(b'x', 3 * LONGEST_LINE));
        output.extend(b"\nlast without an end");
        log.clone().follow(7, LogStream::Stderr, output.as_slice()).await;
        let lines: Vec<_> = log.snapshot().into_iter().map(|line| line.text).collect();
        assert_eq!(lines[0], "one");
        assert_eq!(lines[1], "two \u{fffd}");
        assert_eq!(lines[2].len(), LONGEST_LINE);
        assert_eq!(lines[3], "last without an end");
        assert_eq!(lines.len(), 4);
    }
}
