//! Finding a Java that is new enough.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::error::Unavailable;

/// What Kafka 4's broker needs.
const OLDEST: u32 = 17;
/// `java -version` takes a tenth of a second; a wedged one must not hold up the rest.
const BOUND: Duration = Duration::from_secs(20);

/// A `java` to start the broker with: that of `JAVA_HOME`, else the first of `PATH`.
pub(super) async fn find() -> Result<PathBuf, Unavailable> {
    first_usable(candidates(std::env::var_os("JAVA_HOME"))).await
}

fn candidates(java_home: Option<OsString>) -> Vec<PathBuf> {
    java_home
        .filter(|home| !home.is_empty())
        .map(|home| PathBuf::from(home).join("bin/java"))
        .into_iter()
        .chain([PathBuf::from("java")])
        .collect()
}

async fn first_usable(candidates: Vec<PathBuf>) -> Result<PathBuf, Unavailable> {
    let mut found = Vec::new();
    for java in candidates {
        match release(&java).await {
            Ok(release) if release >= OLDEST => return Ok(java),
            Ok(release) => found.push(format!("Java {release} ({})", java.display())),
            Err(why) => found.push(format!("no Java at {} ({why})", java.display())),
        }
    }
    Err(Unavailable::Java { needed: OLDEST, found: found.join(", ") })
}

async fn release(java: &PathBuf) -> Result<u32, String> {
    let run = Command::new(java).arg("-version").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match tokio::time::timeout(BOUND, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_elapsed) => return Err(format!("no answer within {} s", BOUND.as_secs())),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    parse_release(&text).ok_or_else(|| "its version could not be read".to_owned())
}

/// `17` of `openjdk version "17.0.15" 2025-04-15`, `8` of `java version "1.8.0_402"`, `25` of `"25-ea"`.
fn parse_release(text: &str) -> Option<u32> {
    let quoted = text.split("version \"").nth(1)?.split('"').next()?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        release => Some(release),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn releases_are_read_from_every_known_form() {
        for (text, expected) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime", Some(17)),
            ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"21\" 2023-09-19", Some(21)),
            ("java version \"1.8.0_402\"", Some(8)),
            ("openjdk version \"25-ea\" 2025-09-16", Some(25)),
            ("command not found", None),
            ("version \"\"", None),
        ] {
            assert_eq!(parse_release(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn an_old_java_is_refused_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let java = dir.path().join("java");
        std::fs::write(&java, "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n").unwrap();
        std::fs::set_permissions(&java, std::fs::Permissions::from_mode(0o755)).unwrap();
        let missing = dir.path().join("none");
        let error = first_usable(vec![java, missing]).await.unwrap_err().to_string();
        assert!(error.contains("Java 17") && error.contains("Java 11") && error.contains("none"), "{error}");
    }

    #[test]
    fn java_home_comes_before_the_path() {
        assert_eq!(candidates(Some("/opt/jdk".into())), [PathBuf::from("/opt/jdk/bin/java"), "java".into()]);
        assert_eq!(candidates(None), [PathBuf::from("java")]);
    }
}
