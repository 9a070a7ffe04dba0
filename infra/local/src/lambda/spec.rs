//! What a function is: its binary, its limits and its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most that Lambda keeps an asynchronous event, and what it keeps it for if nothing else is said: 6 hours.
pub(super) const LONGEST_EVENT_AGE: Duration = Duration::from_secs(6 * 60 * 60);

/// The account of every function here, which does not exist.
pub(super) const ACCOUNT: &str = "000000000000";

/// What happens when a function keeps coming back in one chain of requests, each caused by the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecursiveLoop {
    /// It is run all the same.
    Allow,
    /// It is run 16 times; a further invocation is dropped.
    #[default]
    Terminate,
}

/// One function, as its template describes it.
#[derive(Debug, Clone)]
pub struct FunctionSpec {
    pub(super) name: String,
    pub(super) binary: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) timeout: Duration,
    pub(super) init_timeout: Duration,
    pub(super) reserved_concurrency: usize,
    pub(super) queue_limit: usize,
    pub(super) memory_mib: u32,
    pub(super) region: String,
    pub(super) freeze_when_idle: bool,
    pub(super) async_retries: u32,
    pub(super) async_retry_delay: Duration,
    pub(super) max_event_age: Duration,
    pub(super) recursive_loop: RecursiveLoop,
}

impl FunctionSpec {
    /// A function with Lambda's own limits: 3 s timeout, 10 s for the init phase, 128 MiB (told to the
    /// function, not enforced), two retries of asynchronous events after 60 s and 120 s, which are dropped
    /// after 6 hours; loops are terminated; at most 10 environments and 1,000 waiting invocations; processes
    /// are not frozen between invocations.
    pub fn new(name: impl Into<String>, binary: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            binary: binary.into(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(3),
            init_timeout: Duration::from_secs(10),
            reserved_concurrency: 10,
            queue_limit: 1_000,
            memory_mib: 128,
            region: "us-east-1".to_owned(),
            freeze_when_idle: false,
            async_retries: 2,
            async_retry_delay: Duration::from_secs(60),
            max_event_age: LONGEST_EVENT_AGE,
            recursive_loop: RecursiveLoop::default(),
        }
    }

    /// One environment variable of the function. It wins over what the host sets itself.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Several environment variables of the function.
    #[must_use]
    pub fn with_variables<N: Into<String>, V: Into<String>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.environment.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// How long one invocation may take before its process is killed.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a new process may take until it asks for its first event.
    #[must_use]
    pub fn with_init_timeout(mut self, timeout: Duration) -> Self {
        self.init_timeout = timeout;
        self
    }

    /// The most environments that run at once; at least 1.
    #[must_use]
    pub fn with_reserved_concurrency(mut self, environments: usize) -> Self {
        self.reserved_concurrency = environments.max(1);
        self
    }

    /// The most invocations that wait for an environment; one more is throttled.
    #[must_use]
    pub fn with_queue_limit(mut self, invocations: usize) -> Self {
        self.queue_limit = invocations;
        self
    }

    /// The memory size told to the function, in MiB.
    #[must_use]
    pub fn with_memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// The region told to the function and used in its ARN.
    #[must_use]
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// Whether a process is stopped (SIGSTOP) as soon as it asks for its next event, and goes on (SIGCONT)
    /// when there is one: what Lambda does between invocations.
    #[must_use]
    pub fn with_freeze_when_idle(mut self, freeze: bool) -> Self {
        self.freeze_when_idle = freeze;
        self
    }

    /// How often a failed asynchronous event is run again, and how long to wait before the first retry; the
    /// wait doubles with every further one.
    #[must_use]
    pub fn with_async_retries(mut self, retries: u32, first_delay: Duration) -> Self {
        self.async_retries = retries;
        self.async_retry_delay = first_delay;
        self
    }

    /// How old an asynchronous event may be when an attempt at it begins, 6 hours at most. One that has waited
    /// longer for an environment, or whose next retry would come later, is dropped.
    #[must_use]
    pub fn with_max_event_age(mut self, age: Duration) -> Self {
        self.max_event_age = age.min(LONGEST_EVENT_AGE);
        self
    }

    /// What happens when the function keeps coming back in one chain of requests.
    #[must_use]
    pub fn with_recursive_loop(mut self, recursive_loop: RecursiveLoop) -> Self {
        self.recursive_loop = recursive_loop;
        self
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The executable.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// How long one invocation may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The function's ARN, in an account that does not exist.
    pub fn arn(&self) -> String {
        format!("arn:aws:lambda:{}:{ACCOUNT}:function:{}", self.region, self.name)
    }

    /// The whole environment of a process: what Lambda sets, then the function's own variables.
    pub(super) fn process_environment(&self, runtime_api: &str) -> BTreeMap<OsString, OsString> {
        let task_root = self.binary.parent().unwrap_or(Path::new("/"));
        let log_group = format!("/aws/lambda/{}", self.name);
        let memory = self.memory_mib.to_string();
        let set_by_lambda: [(&str, &str); 17] = [
            ("AWS_LAMBDA_RUNTIME_API", runtime_api),
            ("AWS_LAMBDA_FUNCTION_NAME", &self.name),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", &memory),
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", &log_group),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "local"),
            ("AWS_REGION", &self.region),
            ("AWS_DEFAULT_REGION", &self.region),
            // Credentials of nobody: local endpoints want some, and no check of theirs looks at them.
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            ("AWS_SESSION_TOKEN", "local"),
            ("_HANDLER", "bootstrap"),
            ("LAMBDA_RUNTIME_DIR", "/var/runtime"),
            ("LANG", "en_US.UTF-8"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/opt/bin"),
            ("TZ", ":UTC"),
        ];
        let mut environment: BTreeMap<OsString, OsString> =
            set_by_lambda.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        environment.insert("LAMBDA_TASK_ROOT".into(), task_root.into());
        environment.extend(self.environment.iter().map(|(name, value)| (name.into(), value.into())));
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_own_variables_win() {
        let spec = FunctionSpec::new("relay", "/opt/relay/bootstrap")
            .with_variable("AWS_ACCESS_KEY_ID", "mine")
            .with_variable("OUTBOX_TABLE_NAME", "orders");
        let environment = spec.process_environment("127.0.0.1:9001");
        let value = |name: &str| environment[&OsString::from(name)].to_str().unwrap();
        assert_eq!(value("AWS_ACCESS_KEY_ID"), "mine");
        assert_eq!(value("OUTBOX_TABLE_NAME"), "orders");
        assert_eq!(value("AWS_LAMBDA_RUNTIME_API"), "127.0.0.1:9001");
        assert_eq!(value("LAMBDA_TASK_ROOT"), "/opt/relay");
        assert_eq!(spec.arn(), "arn:aws:lambda:us-east-1:000000000000:function:relay");
    }
}
