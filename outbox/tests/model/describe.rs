//! States in words, for counterexamples.

use std::fmt::Write as _;

use crate::state::{NOBODY, Phase, State};

pub(crate) fn describe(state: &State) -> String {
    let mut text = String::new();
    for (bucket, lease) in state.leases.iter().enumerate() {
        if let Some(lease) = lease {
            let owner = if lease.owner == NOBODY { "free".to_owned() } else { lease.owner.to_string() };
            write!(text, "lease {bucket}: {owner} until {}; ", lease.expires_at).unwrap();
        }
    }
    for (relay, heartbeat) in state.heartbeats.iter().enumerate() {
        if let Some(heartbeat) = heartbeat {
            let stopped = if heartbeat.stopped_at.is_some() { ", stopped" } else { "" };
            write!(text, "heartbeat {relay}: {}{stopped}; ", heartbeat.last_seen).unwrap();
        }
    }
    for (relay, state) in state.relays.iter().enumerate() {
        if state.phase != Phase::Free {
            write!(text, "{relay} {:?} {:?} held {:?}; ", state.mode, state.phase, state.held).unwrap();
        }
    }
    for message in &state.messages {
        let published = if message.is_published { " published" } else { "" };
        write!(text, "message {:?} {:?}{published}; ", message.row, message.hint).unwrap();
    }
    for late in state.late.iter().flatten() {
        write!(text, "late {late:?}; ").unwrap();
    }
    text
}
