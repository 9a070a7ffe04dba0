//! The table: one conditional write at a time, each decided by the engine's own functions.

use outbox::lease_write::Verdict;

use crate::guards::Guard;
use crate::model::{Protocol, bucket_of, heartbeat, heartbeat_record, heartbeat_write, time};
use crate::request::{Request, Write};
use crate::state::{State, Time, at};

/// What a sender makes of the answer to its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It holds the lease until then.
    Held(Time),
    /// It does not hold the lease: the write was refused.
    NotHeld,
    /// It holds the lease under another version, and is to release that one.
    Again(Write),
    /// The lease is free, or the heartbeat is written.
    Done,
    /// The heartbeat was refused.
    Refused,
    /// There was no answer in time.
    None,
}

impl Protocol {
    pub(crate) fn is_permitted(&self, state: &State, request: Request) -> bool {
        let removed = match request.write {
            Write::Claim { .. } => !self.config.has(Guard::ClaimVersion),
            Write::Keep { .. } => !self.config.has(Guard::KeepVersion),
            Write::Renew { .. } => !self.config.has(Guard::RenewCondition),
            Write::Release { .. } => !self.config.has(Guard::ReleaseCondition),
            Write::Announce { .. } => !self.config.has(Guard::StrictHeartbeat),
            Write::Stop { .. } | Write::Prune { .. } => false,
        };
        if removed {
            return true;
        }
        let item = at(request.item);
        if let Some(write) = heartbeat_write(request.write) {
            return write.is_permitted(state.heartbeats[item].map(heartbeat_record).as_ref());
        }
        let stored = state.leases[item];
        if matches!(request.write, Write::Release { .. }) && !self.config.has(Guard::ReleaseVersion) {
            return stored.is_some_and(|stored| stored.owner == request.relay);
        }
        let write = self.lease_write(request.write).unwrap();
        let record = stored.map(|stored| self.lease_record(stored));
        write.is_permitted(&self.ids[at(request.relay)], record.as_ref())
    }

    /// Carries a permitted write out.
    pub(crate) fn carry_out(&self, state: &mut State, request: Request) {
        let item = at(request.item);
        if let Some(write) = heartbeat_write(request.write) {
            state.heartbeats[item] = write.result().map(heartbeat);
            return;
        }
        let write = self.lease_write(request.write).unwrap();
        let record = state.leases[item].map(|stored| self.lease_record(stored));
        let result = write.result(&self.ids[at(request.relay)], record.as_ref());
        state.leases[item] = Some(self.stored(&result));
        state.written_after[item] = 0;
    }

    /// What the sender of a write that was carried out knows.
    pub(crate) fn granted(&self, request: Request) -> Reply {
        let lease =
            self.lease_write(request.write).and_then(|write| write.grants(bucket_of(at(request.item))));
        lease.map_or(Reply::Done, |lease| Reply::Held(time(lease.expires_at)))
    }

    /// What the sender of a write that was refused makes of it.
    pub(crate) fn judged(&self, state: &State, request: Request) -> Reply {
        let item = at(request.item);
        if let Some(write) = heartbeat_write(request.write) {
            let stored = state.heartbeats[item].map(heartbeat_record);
            let is_own = self.config.has(Guard::OwnAttempt) && write.is_own_attempt(stored.as_ref());
            return if is_own || matches!(request.write, Write::Prune { .. }) {
                Reply::Done
            } else {
                Reply::Refused
            };
        }
        if !self.config.has(Guard::OwnAttempt) {
            return Reply::NotHeld;
        }
        let write = self.lease_write(request.write).unwrap();
        let record = state.leases[item].map(|stored| self.lease_record(stored));
        match write.judge(&self.ids[at(request.relay)], bucket_of(item), record.as_ref()) {
            Verdict::Held(lease) => Reply::Held(time(lease.expires_at)),
            Verdict::NotHeld => Reply::NotHeld,
            Verdict::ReleaseAgain(again) => Reply::Again(self.write(&again)),
        }
    }
}
