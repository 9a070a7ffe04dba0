//! Carrying out a round.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use super::deck::Round;
use super::kind::{Kind, Needs};
use super::options::Timing;
use super::outage::Outage;
use super::outcomes::{Cause, Causes, Role};
use crate::environment::Environment;
use crate::kafka::{Broker, BrokerError};
use crate::lambda::{InvocationRecord, LambdaHost, Outcome, Phase, ProcessState};

/// How long a round looks for an invocation of the right function and age before any will do.
const CHOOSY: Duration = Duration::from_secs(2);
/// How long it looks at all. The stream is asked four times a second and there is a sweep every second.
const AIM_BOUND: Duration = Duration::from_secs(15);
/// How long the record of an invocation that has ended may take to be there.
const RECORD_BOUND: Duration = Duration::from_secs(2);
/// Longer than any round.
const FAR: Duration = Duration::from_secs(600);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What came of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struck {
    /// Whether it caught what it aimed at.
    pub hit: bool,
    /// What it did, for a log: a process id, a request id, a length.
    pub what: String,
}

impl Struck {
    fn miss(what: &str) -> Self {
        Self { hit: false, what: what.to_owned() }
    }
}

/// What a round strikes.
pub(super) struct Field<'a> {
    pub(super) environment: &'a Environment,
    pub(super) broker: &'a Broker,
    pub(super) timing: Timing,
    pub(super) causes: &'a Causes,
}

/// An invocation that is running.
#[derive(Debug, Clone)]
struct Target {
    role: Role,
    pid: u32,
    request_id: String,
}

impl Field<'_> {
    pub(super) fn host(&self, role: Role) -> &LambdaHost {
        match role {
            Role::Stream => self.environment.stream_relay(),
            Role::Scheduled => self.environment.scheduled_relay(),
        }
    }

    /// Carries out one round; when it returns, nothing is broken any more.
    ///
    /// # Errors
    /// The broker could not be treated so, or did not come back.
    pub(super) async fn strike(&self, round: &Round) -> Result<Struck, BrokerError> {
        let struck = match round.kind {
            Kind::Kill => self.kill(round).await,
            Kind::KillAll => self.kill_all(round).await,
            Kind::Freeze => self.freeze(round).await,
            Kind::FreezePastTimeout => self.freeze_past_timeout(round).await,
            _ => self.outage(round).await?,
        };
        tokio::time::sleep(round.pause).await;
        Ok(struck)
    }

    async fn kill(&self, round: &Round) -> Struck {
        let Some(target) = self.aim(round).await else { return Struck::miss("no invocation") };
        self.causes.note(Cause::Killed { role: target.role, pid: target.pid });
        self.host(target.role).kill(target.pid).await;
        Struck { hit: self.crashed(&target).await, what: target.to_string() }
    }

    async fn kill_all(&self, round: &Round) -> Struck {
        let Some(target) = self.aim(round).await else { return Struck::miss("no invocation") };
        let from = SystemTime::now();
        self.causes.note(Cause::AllKilled { from, to: from + FAR });
        let hosts = [Role::Stream, Role::Scheduled].map(|role| self.host(role));
        let (stream, scheduled) = tokio::join!(hosts[0].kill_all(), hosts[1].kill_all());
        self.causes.over();
        Struck {
            hit: self.crashed(&target).await,
            what: format!("{} processes, with {target}", stream + scheduled),
        }
    }

    async fn freeze(&self, round: &Round) -> Struck {
        let Some(target) = self.aim(round).await else { return Struck::miss("no invocation") };
        let host = self.host(target.role);
        let frozen = host.freeze(target.pid).await;
        // Longer than any lease can still be valid, and short enough for the invocation to end in time.
        let lease = self.timing.lease_duration;
        let length = lease + lease.mul_f64(0.1 + 0.5 * round.length);
        tokio::time::sleep(length).await;
        let hit = frozen && self.is_running(&target);
        host.thaw(target.pid).await;
        Struck { hit, what: format!("{target}, for {} ms", length.as_millis()) }
    }

    async fn freeze_past_timeout(&self, round: &Round) -> Struck {
        let Some(target) = self.aim(round).await else { return Struck::miss("no invocation") };
        self.causes.note(Cause::Stopped { role: target.role, pid: target.pid });
        let host = self.host(target.role);
        host.freeze(target.pid).await;
        // One that was just ending is only idle, and stopped anyway.
        let end = Instant::now() + self.timing.function_timeout + RECORD_BOUND;
        while self.is_running(&target) && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let timed_out =
            self.record_of(&target).await.is_some_and(|record| record.outcome == Outcome::TimedOut);
        Struck { hit: timed_out, what: target.to_string() }
    }

    /// Something that the functions need is away or misbehaves for a while, from the middle of an invocation on.
    async fn outage(&self, round: &Round) -> Result<Struck, BrokerError> {
        let aimed = self.aim(round).await;
        let from = SystemTime::now();
        if round.kind.means().needs() == Needs::Emulator {
            self.causes.note(Cause::TableAway { from, to: from + FAR });
        }
        let outage = Outage::begin(self, round).await?;
        let lasting = tokio::time::sleep(outage.length);
        let also = async {
            match round.also_kill {
                true => Some(self.kill(round).await),
                false => None,
            }
        };
        let ((), killed) = tokio::join!(lasting, also);
        outage.until_met(self, round).await;
        outage.end(self, round).await?;
        if round.kind.means().needs() == Needs::Emulator {
            self.causes.over();
        }
        let to = SystemTime::now();
        let (hit, evidence) = match outage.affected(self) {
            Some(affected) => (affected > 0, format!("{affected} affected")),
            // Of a frozen broker it is asked that it brought an invocation near its deadline, which it kept.
            None => {
                let near = self.timing.function_timeout / 2;
                let least = if round.kind == Kind::BrokerFrozen { near } else { Duration::ZERO };
                let met = self.met(from, to, least).await;
                (met > 0, format!("met by {met} invocations"))
            }
        };
        let mut what = format!("for {} ms, {evidence}", since(from, to).as_millis());
        if let Some(target) = aimed {
            what += &format!(", first by {target}");
        }
        if let Some(killed) = killed {
            what += &format!("; and killed {}", killed.what);
        }
        Ok(Struck { hit, what })
    }

    /// Waits for an invocation that is as old as the round wants its victim to be; after a while, for any.
    async fn aim(&self, round: &Round) -> Option<Target> {
        let wanted = if round.stream { Role::Stream } else { Role::Scheduled };
        let begun = Instant::now();
        let mut first_seen: HashMap<String, Instant> = HashMap::new();
        loop {
            let now = Instant::now();
            let choosy = now.duration_since(begun) < CHOOSY;
            let running = self.running();
            first_seen.retain(|id, _| running.iter().any(|target| target.request_id == *id));
            let candidates: Vec<&Target> = running
                .iter()
                .filter(|target| {
                    let seen = *first_seen.entry(target.request_id.clone()).or_insert(now);
                    !choosy || (target.role == wanted && now.duration_since(seen) >= round.age)
                })
                .collect();
            if let Some(count) = u32::try_from(candidates.len()).ok().filter(|count| *count > 0) {
                let at = usize::try_from(round.rank % count).unwrap_or(0);
                return candidates.get(at).map(|target| (*target).clone());
            }
            if now.duration_since(begun) >= AIM_BOUND {
                return None;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The invocations that run now and are not frozen.
    fn running(&self) -> Vec<Target> {
        let of = |role| {
            self.host(role).processes().into_iter().filter_map(move |process| match process.state {
                ProcessState::Invoking(request_id) if !process.frozen => {
                    Some(Target { role, pid: process.pid, request_id })
                }
                _ => None,
            })
        };
        of(Role::Stream).chain(of(Role::Scheduled)).collect()
    }

    /// Whether the process still has that invocation, frozen or not.
    fn is_running(&self, target: &Target) -> bool {
        let processes = self.host(target.role).processes();
        let state = ProcessState::Invoking(target.request_id.clone());
        processes.iter().any(|process| process.pid == target.pid && process.state == state)
    }

    async fn crashed(&self, target: &Target) -> bool {
        let record = self.record_of(target).await;
        record.is_some_and(|record| {
            matches!(record.outcome, Outcome::Crashed { phase: Phase::Invoke, exit } if exit.signal == Some(9))
        })
    }

    /// What came of an invocation that has just ended.
    async fn record_of(&self, target: &Target) -> Option<InvocationRecord> {
        let deadline = Instant::now() + RECORD_BOUND;
        loop {
            let found = self
                .host(target.role)
                .records()
                .into_iter()
                .rev()
                .find(|record| record.request_id == target.request_id && record.pid == Some(target.pid));
            if found.is_some() || Instant::now() >= deadline {
                return found;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// How many invocations that took at least `least` overlapped that time, those that are still running included.
    async fn met(&self, from: SystemTime, to: SystemTime, least: Duration) -> usize {
        let running = self.running().len();
        if least.is_zero() && running > 0 {
            return running + self.ended(from, to, least);
        }
        let deadline = Instant::now() + RECORD_BOUND;
        loop {
            let ended = self.ended(from, to, least);
            if ended > 0 || Instant::now() >= deadline {
                return ended;
            }
            tokio::time::sleep(10 * LOOK_INTERVAL).await;
        }
    }

    fn ended(&self, from: SystemTime, to: SystemTime, least: Duration) -> usize {
        let records = [Role::Stream, Role::Scheduled].map(|role| self.host(role).records());
        let met = |record: &&InvocationRecord| {
            record.started <= to && record.ended >= from && record.duration >= least
        };
        records.iter().flatten().filter(met).count()
    }
}

fn since(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} in {}", self.role, self.pid, self.request_id)
    }
}
