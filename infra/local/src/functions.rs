//! The project's function binaries: built by cargo, or named by a variable.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Names a ready binary of stream-relay; with both variables set nothing is built.
pub const STREAM_RELAY_VARIABLE: &str = "LOCAL_STREAM_RELAY_BINARY";
/// Names a ready binary of scheduled-relay.
pub const SCHEDULED_RELAY_VARIABLE: &str = "LOCAL_SCHEDULED_RELAY_BINARY";

const PACKAGE: &str = "outbox-functions";
const STREAM_RELAY: &str = "stream-relay";
const SCHEDULED_RELAY: &str = "scheduled-relay";

/// The executables of both functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionBinaries {
    /// Invoked by the table's stream.
    pub stream_relay: PathBuf,
    /// Invoked by the schedule.
    pub scheduled_relay: PathBuf,
}

/// How the binaries are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Fast to build.
    #[default]
    Dev,
    /// As they are deployed.
    Release,
}

/// Why there are no function binaries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionsError {
    /// A variable names something that is no file.
    #[error("{variable}={path}: no such file")]
    NotAFile {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// cargo could not be started or its output not be read.
    #[error("{cargo} could not be run (set CARGO to its path)")]
    Cargo {
        /// The program that was tried.
        cargo: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The compiler refused; what it said went to this process's error output.
    #[error("the functions do not build: cargo ended with {status}, see its messages above")]
    Build {
        /// How cargo ended.
        status: ExitStatus,
    },
    /// cargo built the package, and the package has no such binary.
    #[error("package {package} has no binary {binary}", package = PACKAGE)]
    Missing {
        /// The binary that was expected.
        binary: &'static str,
    },
}

impl FunctionBinaries {
    /// The binaries that the environment names, the others built by cargo in this workspace.
    ///
    /// cargo's own messages go to this process's error output.
    ///
    /// # Errors
    /// See [`FunctionsError`].
    ///
    /// # Cancellation
    /// Dropping the future ends cargo.
    pub async fn find_or_build(profile: Profile) -> Result<Self, FunctionsError> {
        let named = |variable| named(variable, env::var_os(variable));
        let stream_relay = named(STREAM_RELAY_VARIABLE)?;
        let scheduled_relay = named(SCHEDULED_RELAY_VARIABLE)?;
        if let (Some(stream_relay), Some(scheduled_relay)) = (&stream_relay, &scheduled_relay) {
            return Ok(Self { stream_relay: stream_relay.clone(), scheduled_relay: scheduled_relay.clone() });
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = build(cargo.into(), profile).await?;
        let take = |named: Option<PathBuf>, binary| match named {
            Some(path) => Ok(path),
            None => find(&built, binary).ok_or(FunctionsError::Missing { binary }),
        };
        Ok(Self {
            stream_relay: take(stream_relay, STREAM_RELAY)?,
            scheduled_relay: take(scheduled_relay, SCHEDULED_RELAY)?,
        })
    }
}

fn named(variable: &'static str, value: Option<OsString>) -> Result<Option<PathBuf>, FunctionsError> {
    let Some(path) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    // Absolute, because a function's process starts in another directory.
    match std::fs::canonicalize(&path) {
        Ok(absolute) if absolute.is_file() => Ok(Some(absolute)),
        _ => Err(FunctionsError::NotAFile { variable, path: path.into() }),
    }
}

/// What cargo says about a finished piece of the build; the fields that matter here.
#[derive(Debug, Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

async fn build(cargo: PathBuf, profile: Profile) -> Result<Vec<Artifact>, FunctionsError> {
    let mut command = Command::new(&cargo);
    command
        // The whole workspace, not the one package: cargo then compiles the dependencies with the same features as for
        // `cargo run --bin outbox-local`, and so only once.
        .args(["build", "--workspace", "--bins"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(workspace_root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if profile == Profile::Release {
        command.arg("--release");
    }
    let error = |source| FunctionsError::Cargo { cargo: cargo.clone(), source };
    let mut child = command.spawn().map_err(error)?;
    let mut artifacts = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.map_err(error)? {
            artifacts.extend(executable(&line));
        }
    }
    let status = child.wait().await.map_err(error)?;
    if status.success() { Ok(artifacts) } else { Err(FunctionsError::Build { status }) }
}

/// One line of cargo's output, if it is about an executable.
fn executable(line: &str) -> Option<Artifact> {
    // Lines of other kinds, also of kinds to come, are not for us.
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    artifact.executable.is_some().then_some(artifact)
}

fn find(artifacts: &[Artifact], binary: &str) -> Option<PathBuf> {
    artifacts
        .iter()
        .find(|artifact| artifact.target.as_ref().is_some_and(|it| it.name == binary))?
        .executable
        .clone()
}

/// The workspace that this crate was compiled in.
fn workspace_root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_output() {
        let output = [
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"outbox"},"executable":null}"#,
            r#"{"reason":"build-script-executed","package_id":"x"}"#,
            "a line from a build script that is no JSON",
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"stream-relay"},"executable":"/t/debug/stream-relay","fresh":true}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let artifacts: Vec<_> = output.iter().filter_map(|line| executable(line)).collect();
        assert_eq!(find(&artifacts, STREAM_RELAY), Some(PathBuf::from("/t/debug/stream-relay")));
        assert_eq!(find(&artifacts, SCHEDULED_RELAY), None);
    }

    #[tokio::test]
    async fn a_build_that_fails_says_so() {
        let refused = build("false".into(), Profile::Dev).await.unwrap_err();
        assert!(matches!(refused, FunctionsError::Build { .. }), "{refused}");
        let missing = build("/no/such/cargo".into(), Profile::Dev).await.unwrap_err();
        assert_eq!(missing.to_string(), "/no/such/cargo could not be run (set CARGO to its path)");
    }

    #[test]
    fn a_variable_names_a_file_or_nothing() {
        let named = |value: &str| named(STREAM_RELAY_VARIABLE, Some(value.into()));
        assert_eq!(named("").unwrap(), None);
        assert!(named("Cargo.toml").unwrap().unwrap().is_absolute());
        let refused = named("/no/such/relay").unwrap_err();
        assert_eq!(refused.to_string(), "LOCAL_STREAM_RELAY_BINARY=/no/such/relay: no such file");
    }

    #[test]
    fn the_workspace_is_where_the_functions_are() {
        assert!(workspace_root().join("functions/Cargo.toml").is_file());
    }
}
