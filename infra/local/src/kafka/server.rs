//! One Apache Kafka broker of our own: KRaft, broker and controller in one process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::client::Probe;
use super::error::BrokerError;
use super::jars::{self, Jars};
use super::java;
use super::options::BrokerOptions;
use super::properties::{Linked, Ports, properties};
use super::secured::Secured;
use super::{Unavailable, client};
use crate::guarded::{self, Guarded};
use crate::link::Link;
use crate::ports::free_port;

/// A cluster of one that never meets another needs no cluster id of its own.
const CLUSTER_ID: &str = "b3V0Ym94LWxvY2FsLTAwMQ";
/// Another process may take a port between our look and the broker's.
const PORT_ATTEMPTS: usize = 3;
/// A stop writes snapshots and closes logs: a third of a second here.
const STOP_BOUND: Duration = Duration::from_secs(20);
const TAIL_LINES: usize = 20;
const TAIL_BYTES: u64 = 16 * 1024;

/// Quick to start rather than quick at its peak, and small.
const JVM: [&str; 5] =
    ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"];

const LOG4J: &str = "\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
# Hundreds of lines of settings at every start.
logger.config.name = org.apache.kafka.common.config
logger.config.level = WARN
logger.kafkaconfig.name = kafka.server.KafkaConfig
logger.kafkaconfig.level = WARN
";

/// The broker's process, its port and its data. Dropping it ends the process and removes the data.
#[derive(Debug)]
pub(super) struct Server {
    java: PathBuf,
    jars: Jars,
    address: String,
    /// Where clients speak what `secured` says.
    secure_address: Option<String>,
    secured: Option<Secured>,
    /// In front of a listener of its own, whose clients are told to use the link. It outlives stops and kills.
    link: Option<Arc<Link>>,
    bound: Duration,
    /// Before `directory`: the process ends before its data goes.
    process: Option<Guarded>,
    directory: TempDir,
}

/// Java and the jars: what a broker needs from this machine.
pub(super) async fn find_parts(options: &BrokerOptions) -> Result<(PathBuf, Jars), Unavailable> {
    let java = java::find().await?;
    let jars = jars::ensure(options.download_bound).await?;
    Ok((java, jars))
}

impl Server {
    /// Formats a data directory and starts a broker on it; returns once the broker answers.
    pub(super) async fn start(
        java: PathBuf,
        jars: Jars,
        options: &BrokerOptions,
    ) -> Result<Self, BrokerError> {
        let directory = tempfile::Builder::new()
            .prefix("outbox-kafka-")
            .tempdir()
            .map_err(BrokerError::io("create a directory"))?;
        let mut server = Self {
            java,
            jars,
            address: String::new(),
            secure_address: None,
            secured: Secured::new(options, directory.path())?,
            link: None,
            bound: options.start_bound,
            process: None,
            directory,
        };
        server.write("log4j2.properties", LOG4J)?;
        let mut attempt = 1;
        loop {
            server.configure(options)?;
            // The ports are not part of what is formatted: once is enough.
            if attempt == 1 {
                server.format().await?;
            }
            match server.launch().await {
                Err(BrokerError::Ended { tail }) if attempt < PORT_ATTEMPTS && is_port_taken(&tail) => {
                    attempt += 1
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn secure_address(&self) -> Option<&str> {
        self.secure_address.as_deref()
    }

    pub(super) fn secured(&self) -> Option<&Secured> {
        self.secured.as_ref()
    }

    pub(super) fn link(&self) -> Option<&Arc<Link>> {
        self.link.as_ref()
    }

    /// Starts the stopped broker again, on its port and its data.
    pub(super) async fn restart(&mut self) -> Result<(), BrokerError> {
        match self.process {
            Some(_) => Ok(()),
            None => self.launch().await,
        }
    }

    /// Ends the broker the way an operator does; kills it when it takes too long.
    pub(super) async fn stop(&mut self) -> Result<(), BrokerError> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.signal(Signal::SIGTERM).map_err(BrokerError::io("send SIGTERM"))?;
        // What is still running after the bound is killed by its drop.
        process.wait(STOP_BOUND).await.map_err(BrokerError::io("wait for the end"))?;
        Ok(())
    }

    /// Ends the broker the way a power cut does.
    pub(super) fn kill(&mut self) -> Result<(), BrokerError> {
        match self.process.take() {
            Some(mut process) => process.kill().map_err(BrokerError::io("send SIGKILL")),
            None => Ok(()),
        }
    }

    /// Stops (or continues) the process where it is: connections stay open, and nothing answers.
    pub(super) fn freeze(&self, frozen: bool) -> Result<(), BrokerError> {
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        match &self.process {
            Some(process) => process.signal(signal).map_err(BrokerError::io("send SIGSTOP or SIGCONT")),
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> Result<(), BrokerError> {
        std::fs::write(self.path(name), content).map_err(BrokerError::io("write a file"))
    }

    fn configure(&mut self, options: &BrokerOptions) -> Result<(), BrokerError> {
        let port = || free_port().map_err(BrokerError::io("find a port"));
        let mut ports = Ports { plaintext: port()?, controller: port()?, secure: None, linked: None };
        if self.secured.is_some() {
            ports.secure = Some(port()?);
        }
        self.link = None;
        if options.behind_link {
            let link = Link::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port()?)))
                .map_err(BrokerError::io("start a link"))?;
            ports.linked = Some(Linked { target: link.target(), address: link.address() });
            self.link = Some(Arc::new(link));
        }
        self.address = address(ports.plaintext);
        self.secure_address = ports.secure.map(address);
        let properties = properties(&ports, options.security, self.directory.path());
        self.write("server.properties", &properties)
    }

    fn java(&self, class: &str, log: &str) -> Result<Command, BrokerError> {
        let log = File::create(self.path(log)).map_err(BrokerError::io("create a log"))?;
        let mut command = guarded::command(&self.java, Some(self.directory.path()));
        command
            .args(JVM)
            .arg(format!("-Dlog4j2.configurationFile={}", self.path("log4j2.properties").display()))
            // Compression libraries unpack themselves there; in our directory they go with it.
            .arg(format!("-Djava.io.tmpdir={}", self.directory.path().display()))
            .arg("-cp")
            .arg(self.jars.directory.join("*"))
            .arg(class)
            .stdout(log.try_clone().map_err(BrokerError::io("create a log"))?)
            .stderr(log)
            .current_dir(self.directory.path());
        Ok(command)
    }

    async fn format(&self) -> Result<(), BrokerError> {
        let mut format = self.java("kafka.tools.StorageTool", "format.log")?;
        format.args(["format", "--cluster-id", CLUSTER_ID, "--config", "server.properties"]);
        for user in self.secured.iter().flat_map(Secured::scram) {
            format.args(["--add-scram", &user]);
        }
        let mut format = Guarded::spawn(format).map_err(BrokerError::io("start java"))?;
        let tail = || tail_of(&self.path("format.log"));
        // A Java to be started, as the broker is.
        match format.wait(self.bound).await.map_err(BrokerError::io("wait for the formatting"))? {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(BrokerError::Ended { tail: tail() }),
            None => Err(BrokerError::NotReady { bound: self.bound, tail: tail() }),
        }
    }

    async fn launch(&mut self) -> Result<(), BrokerError> {
        let mut broker = self.java("kafka.Kafka", "broker.log")?;
        broker.arg("server.properties").stdin(Stdio::null());
        let mut process = Guarded::spawn(broker).map_err(BrokerError::io("start java"))?;
        let tail = || tail_of(&self.path("broker.log"));
        let probe = Probe::new(&self.address)?;
        let deadline = Instant::now() + self.bound;
        while let Err(_not_yet) = probe.answers(client::PROBE_BOUND).await? {
            if process.ended().map_err(BrokerError::io("look after the process"))?.is_some() {
                return Err(BrokerError::Ended { tail: tail() });
            }
            if Instant::now() >= deadline {
                return Err(BrokerError::NotReady { bound: self.bound, tail: tail() });
            }
        }
        self.process = Some(process);
        Ok(())
    }
}

fn is_port_taken(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("BindException")
}

/// The last lines of a log, for an error message; what is wrong with reading it, when that fails.
pub(super) fn tail_of(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
    };
    read().unwrap_or_else(|error| format!("(its output could not be read: {error})"))
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        let tail = tail_of(&log);
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.starts_with("line 9980\n") && tail.ends_with("line 9999"), "{tail}");
        assert!(tail_of(&dir.path().join("none")).contains("could not be read"));
    }
}
