//! One function process: start, signals, end.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::FunctionSpec;
use super::logs::{Log, LogStream};
use super::outcome::Exit;
use crate::guarded;

/// How long the end of a process may wait for the last of its output. A grandchild can keep a pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// How long a stopped process may take to be seen stopped; it is a matter of microseconds.
const STOP_SEEN: Duration = Duration::from_secs(5);
/// How long a killed process may take to be reaped before the host says so and goes on.
const KILL_SEEN: Duration = Duration::from_secs(10);

/// A handle to a process; clones name the same process. When the last one is dropped the process is killed.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pid: u32,
    signals: mpsc::Sender<(Signal, oneshot::Sender<bool>)>,
    /// Kills the process: synchronous, and heard even if the signal queue is full.
    kill: CancellationToken,
    exit: watch::Receiver<Option<Exit>>,
    stopped: Arc<AtomicBool>,
}

impl Process {
    /// Starts the function's binary against the Runtime API at `runtime_api` (host and port).
    pub(super) fn start(spec: &FunctionSpec, runtime_api: &str, log: &Log) -> io::Result<Self> {
        let mut command = guarded::command(&spec.binary, None);
        command
            .env_clear()
            .envs(spec.process_environment(runtime_api))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(task_root) = spec.binary.parent().filter(|dir| dir.is_dir()) {
            command.current_dir(task_root);
        }
        // A group of its own: a terminal's Ctrl-C reaches the host, which then ends its processes in order.
        let mut child = Command::from(command).process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("the process has no id"))?;

        let mut output = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            output.spawn(log.clone().follow(pid, LogStream::Stdout, stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            output.spawn(log.clone().follow(pid, LogStream::Stderr, stderr));
        }
        let (signals, signal_requests) = mpsc::channel(16);
        let (exit_seen, exit) = watch::channel(None);
        let kill = CancellationToken::new();
        let supervisor = Supervisor {
            pid: raw_pid(pid)?,
            // Taken here because `Child::wait` would close it, and its end tells the guard to kill.
            guard: child.stdin.take(),
            child,
            signal_requests,
            kill: kill.clone(),
            output,
        };
        tokio::spawn(supervisor.run(exit_seen));
        Ok(Self { pid, signals, kill, exit, stopped: Arc::new(AtomicBool::new(false)) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How the process ended, if it has.
    pub(super) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits for the end of the process. Cancellation safe.
    pub(super) async fn wait(&mut self) -> Exit {
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(UNKNOWN_EXIT),
            // The supervisor went with its runtime, and took the process along.
            Err(_) => UNKNOWN_EXIT,
        }
    }

    /// SIGKILL, without waiting. It works on a stopped process too.
    pub(super) fn kill(&self) {
        self.kill.cancel();
    }

    /// SIGKILL, then waits for the end.
    pub(super) async fn kill_and_wait(&mut self) -> Exit {
        self.kill();
        match timeout(KILL_SEEN, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                tracing::warn!(pid = self.pid, "a killed process has not ended");
                UNKNOWN_EXIT
            }
        }
    }

    /// SIGSTOP, then waits until the process is seen stopped. False: it had ended.
    pub(super) async fn freeze(&self) -> bool {
        self.stopped.store(true, Ordering::Release);
        if !self.signal(Signal::SIGSTOP).await {
            return false;
        }
        let deadline = Instant::now() + STOP_SEEN;
        while self.exit().is_none() && process_state(self.pid).is_some_and(|state| state != 'T') {
            if Instant::now() >= deadline {
                tracing::warn!(pid = self.pid, "a stopped process is still running");
                return true;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.exit().is_none()
    }

    /// SIGCONT. False: the process had ended.
    pub(super) async fn thaw(&self) -> bool {
        self.stopped.store(false, Ordering::Release);
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> bool {
        let (sent, seen) = oneshot::channel();
        if self.signals.send((signal, sent)).await.is_err() {
            return false;
        }
        seen.await.unwrap_or(false)
    }
}

/// The word that [`guarded::command`]'s watcher waits for: without it, the end of its pipe is our death.
const GUARD_DISMISSAL: &[u8] = b"done\n";
const UNKNOWN_EXIT: Exit = Exit { code: None, signal: None };

/// Owns the child. All signals go through it, because it alone knows that the process id is still the
/// child's: it is the one that reaps.
struct Supervisor {
    pid: Pid,
    child: Child,
    guard: Option<ChildStdin>,
    signal_requests: mpsc::Receiver<(Signal, oneshot::Sender<bool>)>,
    kill: CancellationToken,
    output: JoinSet<()>,
}

impl Supervisor {
    async fn run(mut self, exit_seen: watch::Sender<Option<Exit>>) {
        let mut killed = false;
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                () = self.kill.cancelled(), if !killed => {
                    killed = true;
                    self.kill_group();
                }
                request = self.signal_requests.recv(), if !killed => match request {
                    Some((signal, done)) => {
                        // The process alone, not its group: the guard must be able to act meanwhile.
                        let sent = kill(self.pid, signal);
                        if let Err(error) = sent {
                            tracing::warn!(pid = %self.pid, %signal, %error, "a signal was not sent");
                        }
                        let _ = done.send(sent.is_ok());
                    }
                    // Nobody is left to use the process.
                    None => self.kill.cancel(),
                },
            }
        };
        // From here on the process id may be somebody else's: dismiss the guard, which would kill by it.
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.write_all(GUARD_DISMISSAL).await;
        }
        // The log is complete before anybody hears of the end.
        let deadline = Instant::now() + LAST_OUTPUT;
        while let Ok(Some(_)) = timeout_at(deadline, self.output.join_next()).await {}
        let exit = match status {
            Ok(status) => Exit::from(status),
            Err(error) => {
                tracing::warn!(pid = %self.pid, %error, "the end of a process was not seen");
                UNKNOWN_EXIT
            }
        };
        exit_seen.send_replace(Some(exit));
    }

    fn kill_group(&self) {
        // The group too: what a function has started goes with it, as its sandbox would.
        let group = Pid::from_raw(-self.pid.as_raw());
        if let Err(error) = kill(group, Signal::SIGKILL).or_else(|_| kill(self.pid, Signal::SIGKILL)) {
            tracing::warn!(pid = %self.pid, %error, "a process was not killed");
        }
    }
}

fn raw_pid(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid).map(Pid::from_raw).map_err(io::Error::other)
}

/// The state letter of a process as Linux shows it, or none where that cannot be read.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, and may itself contain any character.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
