//! Kafka's jars: fetched once by Maven, kept in the user's cache directory.
//!
//! The cache is filled beside its final name and then renamed, so it is whole or absent: two processes may
//! fill it at once, and either may be killed at any point.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::Unavailable;
use super::server::tail_of;
use crate::guarded::{self, Guarded};

/// Carried in the binary, so that a command that was moved away from the source tree still works.
const POM: &str = include_str!("../../pom.xml");
const OURS: &str = "outbox-relay";
const FILLING: &str = ".filling-";
/// What a filler that was killed left behind goes after this long.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// What a shell exits with when there is no such program.
const NOT_FOUND: i32 = 127;

/// A whole set of jars.
#[derive(Debug)]
pub(super) struct Jars {
    /// The directory that holds them, and nothing else.
    pub(super) directory: PathBuf,
}

/// The Kafka release that is started here, as `pom.xml` pins it.
pub fn kafka_version() -> &'static str {
    POM.split("<kafka.version>")
        .nth(1)
        .and_then(|rest| rest.split("</kafka.version>").next())
        .unwrap_or("of unknown version")
}

/// The jars from the cache, which is filled first when it has to be.
pub(super) async fn ensure(download_bound: Duration) -> Result<Jars, Unavailable> {
    let cache = cache_directory(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
    ensure_in(&cache, "mvn", download_bound).await
}

/// The XDG rule: relative paths are to be ignored.
fn cache_directory(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Unavailable> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg)
        .or_else(|| absolute(home).map(|home| home.join(".cache")))
        .map(|cache| cache.join(OURS))
        .ok_or(Unavailable::NoCacheDirectory)
}

async fn ensure_in(cache: &Path, maven: &str, bound: Duration) -> Result<Jars, Unavailable> {
    // Another pom, another directory: a changed dependency must not find the old set.
    let directory = cache.join(format!("kafka-{}-{:08x}", kafka_version(), fingerprint(POM)));
    if directory.is_dir() {
        return Ok(Jars { directory });
    }
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| Unavailable::Cache { what, path, source }
    };
    std::fs::create_dir_all(cache).map_err(failed("create", cache))?;
    remove_leftovers(cache);
    let filling =
        tempfile::Builder::new().prefix(FILLING).tempdir_in(cache).map_err(failed("write into", cache))?;
    tracing::info!(version = kafka_version(), "fetching Apache Kafka's jars, this once");
    let jars = filling.path().join("jars");
    fetch(maven, filling.path(), &jars, bound).await?;
    match std::fs::rename(&jars, &directory) {
        Ok(()) => Ok(Jars { directory }),
        // Somebody else was faster; theirs is as good.
        Err(_) if directory.is_dir() => Ok(Jars { directory }),
        Err(source) => Err(failed("fill", &directory)(source)),
    }
}

async fn fetch(maven: &str, work: &Path, jars: &Path, bound: Duration) -> Result<(), Unavailable> {
    let failed = |what| move |source| Unavailable::Cache { what, path: work.to_owned(), source };
    std::fs::write(work.join("pom.xml"), POM).map_err(failed("write pom.xml into"))?;
    let output = work.join("maven.log");
    let log = File::create(&output).map_err(failed("write a log into"))?;
    let mut command = guarded::command(maven, Some(work));
    command
        .args(["-B", "-ntp", "dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", jars.display()))
        .current_dir(work)
        .stdout(log.try_clone().map_err(failed("write a log into"))?)
        .stderr(log);
    let mut child = Guarded::spawn(command).map_err(failed("start a shell in"))?;
    match child.wait(bound).await.map_err(failed("wait for Maven in"))? {
        None => Err(Unavailable::DownloadTooSlow { bound }),
        Some(status) if status.success() && has_kafka(jars) => Ok(()),
        Some(status) if status.code() == Some(NOT_FOUND) => {
            Err(Unavailable::Maven { tail: tail_of(&output) })
        }
        Some(_) => Err(Unavailable::Download { tail: tail_of(&output) }),
    }
}

fn has_kafka(jars: &Path) -> bool {
    jars.join(format!("kafka_2.13-{}.jar", kafka_version())).is_file()
}

fn remove_leftovers(cache: &Path) {
    let old = |entry: &std::fs::DirEntry| -> io::Result<bool> {
        let age = SystemTime::now().duration_since(entry.metadata()?.modified()?);
        Ok(entry.file_name().to_string_lossy().starts_with(FILLING)
            && age.is_ok_and(|age| age > LEFTOVER_AGE))
    };
    let Ok(entries) = std::fs::read_dir(cache) else {
        return;
    };
    for entry in entries.flatten().filter(|entry| old(entry).unwrap_or(false)) {
        // Best effort: what stays costs disk space only.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// FNV-1a: short, and the same on every build, unlike the standard library's hashers.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    /// A stand-in for Maven: a shell script that finds the output directory in `$out`.
    fn maven(dir: &Path, body: &str) -> String {
        let path = dir.join("mvn");
        let script = format!(
            "#!/bin/sh\nfor a; do case $a in -DoutputDirectory=*) out=${{a#*=}};; esac; done\n{body}\n"
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn fetching(dir: &Path) -> String {
        let jar = format!("kafka_2.13-{}.jar", kafka_version());
        maven(
            dir,
            &format!("mkdir -p \"$out\" && touch \"$out/{jar}\" && echo run >> '{}/runs'", dir.display()),
        )
    }

    #[test]
    fn the_version_is_the_poms() {
        assert!(kafka_version().starts_with("4."), "{}", kafka_version());
    }

    #[test]
    fn the_cache_follows_the_xdg_rule() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            cache_directory(xdg.map(Into::into), home.map(Into::into)).ok()
        };
        assert_eq!(of(Some("/x"), Some("/h")), Some("/x/outbox-relay".into()));
        assert_eq!(of(Some("relative"), Some("/h")), Some("/h/.cache/outbox-relay".into()));
        assert_eq!(of(Some(""), None), None);
    }

    #[tokio::test]
    async fn the_cache_is_filled_once_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let maven = fetching(dir.path());
        let (one, two) = tokio::join!(ensure_in(&cache, &maven, BOUND), ensure_in(&cache, &maven, BOUND));
        assert_eq!(one.unwrap().directory, two.unwrap().directory);
        let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap();
        ensure_in(&cache, &maven, BOUND).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("runs")).unwrap(), runs, "fetched again");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_failed_fetch_says_what_maven_said_and_leaves_no_cache() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let maven = maven(dir.path(), "mkdir -p \"$out\"; touch \"$out/half.jar\"; echo 'no route'; exit 1");
        let error = ensure_in(&cache, &maven, BOUND).await.unwrap_err().to_string();
        assert!(error.contains("no route"), "{error}");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_missing_maven_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = ensure_in(dir.path(), "/nonexistent/mvn", BOUND).await.unwrap_err();
        assert!(matches!(error, Unavailable::Maven { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_fetch_that_hangs_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let maven = maven(dir.path(), "exec sleep 600");
        let error = ensure_in(&dir.path().join("c"), &maven, Duration::from_millis(200)).await.unwrap_err();
        assert!(matches!(error, Unavailable::DownloadTooSlow { .. }), "{error}");
    }
}
