//! MiniStack for one test: started on a free port, gone with the test, however it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

const START_BOUND: Duration = Duration::from_secs(90);
const DEPLOY_BOUND: Duration = Duration::from_secs(180);
const STOP_BOUND: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How much of MiniStack's log, which holds the functions' logs too, is shown when the test fails.
const LOG_LINES: usize = 80;

/// What the SDK that the Python tools bring along is asked to do; prints JSON.
const PREAMBLE: &str = r#"
import json, os, sys, boto3
from botocore.exceptions import ClientError
def client(service):
    return boto3.client(
        service, endpoint_url=sys.argv[1], region_name=os.environ.get("AWS_REGION", "us-east-1"),
        aws_access_key_id="test", aws_secret_access_key="test"
    )
"#;
const SWITCH_STREAMS_OFF: &str = r#"
mappings = client("lambda").list_event_source_mappings()["EventSourceMappings"]
assert mappings, "there is no mapping"
for mapping in mappings:
    client("lambda").update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
print("null")
"#;
const STACK_STATUS: &str = r#"
try:
    status = client("cloudformation").describe_stacks(StackName=sys.argv[2])["Stacks"][0]["StackStatus"]
except ClientError:
    status = "gone"
print(json.dumps("gone" if status == "DELETE_COMPLETE" else status))
"#;
/// The variables of each.
const FUNCTIONS: &str = r#"
functions = client("lambda").list_functions()["Functions"]
print(json.dumps([function.get("Environment", {}).get("Variables", {}) for function in functions]))
"#;
/// Fails by itself after a second, when the functions have been updated: nobody signals it.
const NEVER_COMES: &str = "
  NeverComesHandle:
    Type: AWS::CloudFormation::WaitConditionHandle
  NeverComes:
    Type: AWS::CloudFormation::WaitCondition
    DependsOn: [StreamRelayFunction, ScheduledRelayFunction]
    Properties:
      Handle: !Ref NeverComesHandle
      Timeout: '1'
";

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

    /// Deploys what `infra/deploy/build` has built, or another build.
    pub(crate) async fn deploy(
        &self,
        stack: &str,
        parameters: &[(String, String)],
        build: Option<&Path>,
    ) -> Deployed {
        let mut command = tokio::process::Command::new(repository().join("infra/deploy/deploy"));
        command.arg(&self.url).arg(stack);
        command.args(parameters.iter().map(|(name, value)| format!("{name}={value}")));
        if let Some(build) = build {
            command.env("SAM_BUILD_DIR", build);
        }
        run(command).await
    }

    /// Deletes a stack.
    pub(crate) async fn delete(&self, stack: &str) -> Deployed {
        let mut command = tokio::process::Command::new(repository().join("infra/deploy/delete"));
        command.arg(&self.url).arg(stack);
        run(command).await
    }

    /// The build, with a resource that fails once the functions have been updated.
    #[expect(clippy::unused_self, reason = "it is for a deployment onto this")]
    pub(crate) fn build_with_a_resource_that_never_comes(&self) -> tempfile::TempDir {
        let build = repository().join(".aws-sam/build");
        let broken = tempfile::tempdir().expect("a temporary directory");
        for entry in std::fs::read_dir(&build).expect("there is a build") {
            let entry = entry.expect("it can be read");
            std::os::unix::fs::symlink(entry.path(), broken.path().join(entry.file_name())).expect("a link");
        }
        let (from, to) = (build.join("template.yaml"), broken.path().join("template.yaml"));
        let template = std::fs::read_to_string(from).expect("the build has a template");
        let (head, tail) = template.split_once("\nResources:\n").expect("it has resources");
        std::fs::remove_file(&to).expect("the link goes");
        std::fs::write(&to, format!("{head}\nResources:{NEVER_COMES}{tail}")).expect("it can be written");
        broken
    }

    /// The status of a stack, as CloudFormation calls it; `gone` without one.
    pub(crate) async fn stack_status(&self, stack: &str) -> String {
        self.ask(STACK_STATUS, &[stack]).await.as_str().expect("a status").to_owned()
    }

    /// The variables of each function there is.
    pub(crate) async fn functions(&self) -> Vec<Value> {
        self.ask(FUNCTIONS, &[]).await.as_array().expect("a list").clone()
    }

    /// Switches every stream mapping off: from here on only a schedule wakes a function.
    pub(crate) async fn switch_streams_off(&self) {
        self.ask(SWITCH_STREAMS_OFF, &[]).await;
    }

    async fn ask(&self, script: &str, arguments: &[&str]) -> Value {
        let tools =
            tokio::process::Command::new(repository().join("infra/tools/venv")).arg("--check").output();
        let tools = tools.await.expect("infra/tools/venv starts").stdout;
        let python = Path::new(String::from_utf8_lossy(&tools).trim()).join("bin/python");
        let script = format!("{PREAMBLE}{script}");
        let output =
            tokio::process::Command::new(python).args(["-c", &script, &self.url]).args(arguments).output();
        let output = output.await.expect("Python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("it prints JSON")
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

async fn run(mut command: tokio::process::Command) -> Deployed {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(DEPLOY_BOUND, output)
        .await
        .unwrap_or_else(|_| panic!("{command:?} was not done within {DEPLOY_BOUND:?}"))
        .expect("the script starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Deployed { is_success: output.status.success(), said: text(&output.stderr) + &text(&output.stdout) }
}

/// How a deployment ended, and what it said.
#[must_use]
pub(crate) struct Deployed {
    is_success: bool,
    said: String,
}

impl Deployed {
    pub(crate) fn succeeded(self) {
        assert!(self.is_success, "it failed: {}", self.said);
    }

    pub(crate) fn failed(self) -> String {
        assert!(!self.is_success, "it succeeded: {}", self.said);
        self.said
    }
}

/// The root of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
