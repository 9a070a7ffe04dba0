//! A child process that cannot outlive us, whatever ends us.
//!
//! `kill_on_drop` is not enough: a SIGKILL runs no destructor. `PR_SET_PDEATHSIG` is not either: it fires
//! when the *thread* that forked ends, and runtimes end threads. So the child is started through a shell that
//! leaves a small watcher behind, reading a pipe of ours: when the pipe ends without a word, we are gone, and
//! the watcher kills the child (also a stopped one) and removes its directory.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `$$` is the shell's process id also inside the subshell, and `exec` makes it the child's.
const SCRIPT: &str = r#"
dir=$1; shift
exec 3<&0 </dev/null
(
  trap '' INT TERM HUP
  exec >/dev/null 2>&1
  word=
  read -r word <&3
  [ "$word" = done ] && exit 0
  kill -KILL $$
  [ -n "$dir" ] && rm -rf -- "$dir"
) &
exec 3<&- "$@"
"#;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A command for [`Guarded::spawn`]. `remove` is a directory that goes when we die without having removed it.
///
/// Add arguments, environment and output as usual; standard input belongs to the guard.
pub fn command(program: impl AsRef<std::ffi::OsStr>, remove: Option<&Path>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]);
    command.arg(remove.map_or("".as_ref(), Path::as_os_str));
    command.arg(program);
    command
}

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    /// Its end without the word `done` is what the watcher waits for.
    pipe: Option<ChildStdin>,
}

impl Guarded {
    /// Starts a command made by [`command`], in a process group of its own: a terminal's Ctrl-C reaches us
    /// and not it, so that we end our children in the right order.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; a child that has ended already is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let Ok(id) = i32::try_from(self.child.id()) else {
            return Err(io::Error::other("a process id beyond i32"));
        };
        match kill(Pid::from_raw(id), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The exit status, once the child has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.dismiss_watcher();
        }
        Ok(status)
    }

    /// Waits for the child's end, at most `bound`; `None` when it is still running then.
    pub async fn wait(&mut self, bound: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + bound;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Kills the child and waits for its end. Nobody survives SIGKILL, so this blocks for moments only.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.dismiss_watcher();
        Ok(())
    }

    /// Called once the child is reaped: from then on its process id may be somebody else's.
    fn dismiss_watcher(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // An error means that the watcher is gone, which is what we want.
            let _ = pipe.write_all(b"done\n");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(%error, id = self.child.id(), "a child process could not be ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn alive(id: u32) -> bool {
        // A zombie still answers signal 0; its state says otherwise.
        std::fs::read_to_string(format!("/proc/{id}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    }

    async fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "not within 10 s: {what}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn sleeper(remove: Option<&Path>) -> Guarded {
        let mut sleep = command("sleep", remove);
        sleep.arg("600");
        Guarded::spawn(sleep).unwrap()
    }

    #[tokio::test]
    async fn dropping_ends_the_child() {
        let child = sleeper(None);
        let id = child.id();
        assert!(alive(id));
        drop(child);
        assert!(!alive(id));
    }

    #[tokio::test]
    async fn a_lost_pipe_ends_even_a_stopped_child_and_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = sleeper(Some(dir.path()));
        let id = child.id();
        // Stopped earlier, it would still be the shell, without its watcher.
        let name = format!("/proc/{id}/comm");
        until("the child is itself", || std::fs::read_to_string(&name).is_ok_and(|it| it == "sleep\n")).await;
        child.signal(Signal::SIGSTOP).unwrap();
        // What the kernel does when we are killed.
        drop(child.pipe.take());
        until("the child is gone", || child.ended().unwrap().is_some()).await;
        until("its directory is gone", || !dir.path().exists()).await;
        assert!(!alive(id));
    }

    #[tokio::test]
    async fn a_dismissed_watcher_leaves_the_directory_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut exit = command("sh", Some(dir.path()));
        exit.args(["-c", "exit 7"]);
        let mut child = Guarded::spawn(exit).unwrap();
        // A second end of its pipe, which breaks when the watcher, its only reader, has ended.
        let pipe = child.pipe.as_ref().unwrap().as_fd().try_clone_to_owned().unwrap();
        let mut pipe = std::fs::File::from(pipe);
        let status = child.wait(Duration::from_secs(10)).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(7));
        drop(child);
        until("the watcher is gone", || pipe.write_all(b"\n").is_err()).await;
        assert!(dir.path().exists());
    }
}
