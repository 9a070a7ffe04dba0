//! MiniStack for one test: started on a free port, gone with the test, however it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};

const START_BOUND: Duration = Duration::from_secs(90);
const DEPLOY_BOUND: Duration = Duration::from_secs(180);
const STOP_BOUND: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How much of MiniStack's log, which holds the functions' logs too, is shown when the test fails.
const LOG_LINES: usize = 80;

/// The Lambda API is asked for nothing else here, so the SDK that the Python tools bring along is enough.
const SWITCH_STREAMS_OFF: &str = r#"
import os, sys, boto3
region = os.environ.get("AWS_REGION", "us-east-1")
client = boto3.client(
    "lambda", endpoint_url=sys.argv[1], region_name=region, aws_access_key_id="test", aws_secret_access_key="test"
)
mappings = client.list_event_source_mappings()["EventSourceMappings"]
assert mappings, "there is no mapping"
for mapping in mappings:
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
"#;

/// A running MiniStack.
///
/// Its script ends, and takes everything along that it started, when its standard input ends: that is when this is
/// dropped, and also when this process is killed.
pub(crate) struct MiniStack {
    script: Child,
    url: String,
    directory: tempfile::TempDir,
}

impl MiniStack {
    /// Starts it and waits until it answers.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut script = Command::new(repository().join("infra/deploy/ministack"))
            .arg(log_path(&directory))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("infra/deploy/ministack starts");
        let stdout = script.stdout.take().expect("its output is piped");
        let stdout = tokio::process::ChildStdout::from_std(stdout).expect("its output can be waited for");
        let mut ministack = Self { script, url: String::new(), directory };
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_BOUND, lines.next_line())
            .await
            .unwrap_or_else(|_| panic!("MiniStack was not ready within {START_BOUND:?}"));
        // A script that ends without a word has said why on standard error.
        let line = line.expect("its output can be read").expect("infra/deploy/ministack failed, see above");
        line.strip_prefix("ready ").expect("it says where it is").clone_into(&mut ministack.url);
        ministack
    }

    /// Where it answers.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Deploys what `infra/deploy/build` has built.
    pub(crate) async fn deploy(&self, stack: &str, parameters: &[(&str, &str)]) {
        let command = tokio::process::Command::new(repository().join("infra/deploy/deploy"))
            .arg(&self.url)
            .arg(stack)
            .args(parameters.iter().map(|(name, value)| format!("{name}={value}")))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(DEPLOY_BOUND, command)
            .await
            .unwrap_or_else(|_| panic!("sam deploy was not done within {DEPLOY_BOUND:?}"))
            .expect("infra/deploy/deploy starts");
        assert!(
            output.status.success(),
            "infra/deploy/deploy failed: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
    }

    /// Switches every stream mapping off: from here on only a schedule wakes a function.
    pub(crate) async fn switch_streams_off(&self) {
        let tools =
            tokio::process::Command::new(repository().join("infra/tools/venv")).arg("--check").output();
        let tools = tools.await.expect("infra/tools/venv starts").stdout;
        let python = Path::new(String::from_utf8_lossy(&tools).trim()).join("bin/python");
        let output =
            tokio::process::Command::new(python).args(["-c", SWITCH_STREAMS_OFF, &self.url]).output();
        let output = output.await.expect("Python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn log(&self) -> String {
        let log = std::fs::read(log_path(&self.directory)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for MiniStack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
            eprintln!("the end of MiniStack's log:\n{}", tail.join("\n"));
        }
        drop(self.script.stdin.take());
        let deadline = Instant::now() + STOP_BOUND;
        while Instant::now() < deadline {
            if !matches!(self.script.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        eprintln!("MiniStack did not end within {STOP_BOUND:?} and is killed");
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn log_path(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("ministack.log")
}

/// The root of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
