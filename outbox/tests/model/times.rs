//! Time in a state: how it goes on, and how what is long past is forgotten without being confused.

use crate::request::Write;
use crate::state::{BUCKETS, LATE, Phase, RELAYS, State, Time, UNIT};

/// Which times are ever compared with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// The expiries of one bucket's lease, stored, read and wanted.
    Lease(usize),
    /// The times of one relay's heartbeat.
    Heartbeat(usize),
    /// When one relay asked for a lease: compared with its clock alone.
    Asked(usize),
}

/// How old a time must be to be past for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizons {
    /// Older than the clock that is furthest behind: expired for everybody.
    pub(crate) lease: Time,
    /// One lease duration older still: a heartbeat that nobody counts.
    pub(crate) heartbeat: Time,
    /// By relay: where its own lease has lapsed.
    pub(crate) asked: [Time; RELAYS],
}

impl State {
    /// Lets one unit of time go by.
    pub(crate) fn tick(&mut self) {
        self.each_time(&mut |_, time| *time -= UNIT);
    }

    /// Gives times that are past for good their rank: in order, and apart, but no longer a date. No condition compares
    /// such a time with anything but times of its family, so the two states cannot be told apart.
    pub(crate) fn settle(&mut self, horizons: &Horizons) {
        const MOST: usize = 16;
        let mut families = [([0; MOST], 0_usize); BUCKETS + RELAYS];
        let mut any = false;
        let place = |family| match family {
            Family::Lease(bucket) => Some((bucket, horizons.lease)),
            Family::Heartbeat(relay) => Some((BUCKETS + relay, horizons.heartbeat)),
            Family::Asked(_) => None,
        };
        self.each_time(&mut |family, time| {
            if let Family::Asked(relay) = family {
                *time = (*time).max(horizons.asked[relay]);
            }
            if let Some((place, horizon)) = place(family)
                && *time < horizon
            {
                let (times, count) = &mut families[place];
                if !times[..*count].contains(time) {
                    times[*count] = *time;
                    *count += 1;
                }
                any = true;
            }
        });
        if !any {
            return;
        }
        for (times, count) in &mut families {
            times[..*count].sort_unstable_by(|a, b| b.cmp(a));
        }
        self.each_time(&mut |family, time| {
            if let Some((place, horizon)) = place(family)
                && *time < horizon
            {
                let (times, count) = &families[place];
                let rank = times[..*count].iter().position(|known| known == time).unwrap();
                *time = horizon - 1 - Time::try_from(rank).unwrap();
            }
        });
    }

    fn each_time(&mut self, change: &mut dyn FnMut(Family, &mut Time)) {
        for (bucket, lease) in self.leases.iter_mut().enumerate() {
            if let Some(lease) = lease {
                change(Family::Lease(bucket), &mut lease.expires_at);
            }
        }
        for (relay, heartbeat) in self.heartbeats.iter_mut().enumerate() {
            if let Some(heartbeat) = heartbeat {
                change(Family::Heartbeat(relay), &mut heartbeat.last_seen);
                if let Some(stopped_at) = &mut heartbeat.stopped_at {
                    change(Family::Heartbeat(relay), stopped_at);
                }
            }
        }
        for request in self.late[..LATE].iter_mut().flatten() {
            each_of(&mut request.write, usize::from(request.item), change);
        }
        for (relay, state) in self.relays.iter_mut().enumerate() {
            for (bucket, held) in state.held.iter_mut().enumerate() {
                if let Some(held) = held {
                    change(Family::Lease(bucket), &mut held.expires_at);
                    change(Family::Asked(relay), &mut held.asked);
                }
            }
            if let Some(last) = &mut state.last_acquired {
                change(Family::Asked(relay), last);
            }
            match &mut state.phase {
                Phase::Claiming { bucket, write, asked } | Phase::Renewing { bucket, write, asked, .. } => {
                    each_of(write, usize::from(*bucket), change);
                    change(Family::Asked(relay), asked);
                }
                Phase::Publishing { bucket, renewal: Some((write, asked)), .. } => {
                    each_of(write, usize::from(*bucket), change);
                    change(Family::Asked(relay), asked);
                }
                Phase::Releasing { bucket, write, .. } => each_of(write, usize::from(*bucket), change),
                Phase::Announcing { now: time, .. } | Phase::Stopping { stamp: time } => {
                    change(Family::Heartbeat(relay), time);
                }
                Phase::Acquiring { round, .. } => {
                    for (bucket, write) in round.writes.iter_mut().enumerate() {
                        if let Some(write) = write {
                            each_of(write, bucket, change);
                        }
                    }
                    for (bucket, granted) in round.granted.iter_mut().enumerate() {
                        if let Some(granted) = granted {
                            change(Family::Lease(bucket), granted);
                        }
                    }
                    for (of, read) in round.prunes.iter_mut().enumerate() {
                        if let Some(read) = read {
                            change(Family::Heartbeat(of), read);
                        }
                    }
                }
                Phase::Freeing { writes, .. } => {
                    for (bucket, write) in writes.iter_mut().enumerate() {
                        if let Some(write) = write {
                            each_of(write, bucket, change);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn each_of(write: &mut Write, item: usize, change: &mut dyn FnMut(Family, &mut Time)) {
    match write {
        Write::Claim { read, expires_at } => {
            if let Some((_, read)) = read {
                change(Family::Lease(item), read);
            }
            change(Family::Lease(item), expires_at);
        }
        Write::Keep { read, expires_at } => {
            change(Family::Lease(item), read);
            change(Family::Lease(item), expires_at);
        }
        Write::Renew { now, expires_at } => {
            change(Family::Lease(item), now);
            change(Family::Lease(item), expires_at);
        }
        Write::Release { read } => change(Family::Lease(item), read),
        Write::Announce { now } => change(Family::Heartbeat(item), now),
        Write::Stop { stamp } => change(Family::Heartbeat(item), stamp),
        Write::Prune { read } => change(Family::Heartbeat(item), read),
    }
}
