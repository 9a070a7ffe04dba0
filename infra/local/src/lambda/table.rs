//! The processes that a host has running.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::lock;
use super::process::Process;

/// What an execution environment is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    /// The process was started and has not asked for an event yet.
    Starting,
    /// It waits for an event.
    Idle,
    /// It runs the event with this request id.
    Invoking(String),
}

/// A running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its process id.
    pub pid: u32,
    /// What it is doing.
    pub state: ProcessState,
    /// Whether the host has stopped it (SIGSTOP) and not let it go on yet.
    pub frozen: bool,
}

/// Every process from its start to its end, by process id.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    entries: Mutex<BTreeMap<u32, (Process, ProcessState)>>,
}

impl ProcessTable {
    /// Adds a process, and removes it when it has ended.
    pub(super) fn add(self: &Arc<Self>, process: &Process) {
        let pid = process.pid();
        lock(&self.entries).insert(pid, (process.clone(), ProcessState::Starting));
        let table = Arc::downgrade(self);
        let mut ended = process.clone();
        tokio::spawn(async move {
            ended.wait().await;
            if let Some(table) = table.upgrade() {
                lock(&table.entries).remove(&pid);
            }
        });
    }

    pub(super) fn set(&self, pid: u32, state: ProcessState) {
        if let Some(entry) = lock(&self.entries).get_mut(&pid) {
            entry.1 = state;
        }
    }

    pub(super) fn get(&self, pid: u32) -> Option<Process> {
        lock(&self.entries).get(&pid).map(|(process, _)| process.clone())
    }

    pub(super) fn all(&self) -> Vec<Process> {
        lock(&self.entries).values().map(|(process, _)| process.clone()).collect()
    }

    pub(super) fn snapshot(&self) -> Vec<ProcessInfo> {
        lock(&self.entries)
            .iter()
            .map(|(pid, (process, state))| ProcessInfo {
                pid: *pid,
                state: state.clone(),
                frozen: process.is_stopped(),
            })
            .collect()
    }
}
