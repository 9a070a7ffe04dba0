//! Identities, and the chance they are made of.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use crate::{Clock, Ticks};

/// A message's identity: stored with it, and carried by every copy of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// The id that is this UUID.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }

    /// Reads a stored id: a UUID, hyphenated, 36 characters.
    pub fn parse(text: &str) -> Option<Self> {
        // The length rules out the forms that the parser takes besides (simple, braced, URN).
        if text.len() != 36 {
            return None;
        }
        Uuid::try_parse(text).ok().map(Self)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}

/// One owner identity. On Lambda it is used for one invocation only (design.md, section 9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(Arc<str>);

impl RelayId {
    /// The longest id that every store can hold (the relational one has 128 characters).
    pub const MAX_LENGTH: usize = 128;

    /// `None` unless `id` has 1 to [`RelayId::MAX_LENGTH`] bytes.
    pub fn new(id: impl AsRef<str>) -> Option<Self> {
        let id = id.as_ref();
        (1..=Self::MAX_LENGTH).contains(&id.len()).then(|| Self(id.into()))
    }

    /// The id as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The one source of chance: ids and jitter come from it, so that one seed decides both.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// The same sequence for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // A panic elsewhere leaves a generator that is still a generator.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }

    /// A number from 0 up to `below`; 0 if `below` is 0.
    pub fn below(&self, below: u64) -> u64 {
        let random = u128::from(u64::from_le_bytes(self.bytes()));
        u64::try_from((random * u128::from(below)) >> 64).unwrap_or(0)
    }

    /// A new id for a message made at `now`: a UUID of version 7, so that ids sort roughly by time.
    pub fn message_id(&self, now: Ticks) -> MessageId {
        MessageId(self.uuid(now))
    }

    /// A new id for a relay, told apart in logs by `role`. `role` is cut where the id would become too long.
    pub fn relay_id(&self, role: &str, now: Ticks) -> RelayId {
        let role: String = role.chars().filter(char::is_ascii_graphic).take(64).collect();
        RelayId(format!("{role}-{}", self.uuid(now).hyphenated()).into())
    }

    fn uuid(&self, now: Ticks) -> Uuid {
        uuid::Builder::from_unix_timestamp_millis(now.unix_millis(), &self.bytes()).into_uuid()
    }
}

/// Makes message ids from the system's clock and chance: what an application uses unless it has ids of its own.
#[derive(Clone, Debug)]
pub struct MessageIds {
    chance: Chance,
    clock: Arc<dyn Clock>,
}

impl MessageIds {
    /// Ids from the machine's clock and the operating system's chance.
    pub fn from_system() -> Self {
        Self { chance: Chance::from_system(), clock: Arc::new(crate::SystemClock::new()) }
    }

    /// Ids from this clock and this chance.
    pub fn new(chance: Chance, clock: Arc<dyn Clock>) -> Self {
        Self { chance, clock }
    }

    /// The next id.
    pub fn next_id(&self) -> MessageId {
        self.chance.message_id(self.clock.now_utc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_the_same_ids() {
        let now = Ticks::from_raw(639_316_345_534_567_890);
        assert_eq!(Chance::seeded(7).message_id(now), Chance::seeded(7).message_id(now));
        assert_ne!(Chance::seeded(7).message_id(now), Chance::seeded(8).message_id(now));
    }

    #[test]
    fn ids_are_read_in_the_stored_form_only() {
        let id = Chance::seeded(1).message_id(Ticks::from_raw(639_316_345_534_567_890));
        assert_eq!(MessageId::parse(&id.to_string()), Some(id));
        assert_eq!(MessageId::parse(&id.as_uuid().simple().to_string()), None);
        assert_eq!(MessageId::parse("not an id, though it has 36 letters."), None);
    }

    #[test]
    fn below_stays_below() {
        let chance = Chance::seeded(3);
        assert_eq!(chance.below(0), 0);
        assert!((0..1000).all(|_| chance.below(7) < 7));
    }
}
