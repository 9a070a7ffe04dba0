//! Which bucket a message belongs to. Stored state: a bucket once computed is where the message is looked for
//! by every writer and relay, so nothing here may ever change (design.md, section 4).

use std::fmt;
use std::num::NonZeroU32;

use crate::MessageId;

/// A unit of order and of ownership, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u32);

impl Bucket {
    /// The bucket with this number; whether it is in range is for a [`BucketCount`] to say.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How many buckets an outbox has: 1 to [`BucketCount::MAX`], equal for every writer and relay of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketCount(NonZeroU32);

impl BucketCount {
    /// A sweep probes every bucket and an acquisition reads every lease in one query: past this many an idle
    /// outbox would no longer be cheap.
    pub const MAX: u32 = 1024;

    /// Eight buckets.
    pub const DEFAULT: Self = match NonZeroU32::new(8) {
        Some(count) => Self(count),
        None => unreachable!(),
    };

    /// `None` unless `count` is 1 to [`BucketCount::MAX`].
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).filter(|count| count.get() <= Self::MAX).map(Self)
    }

    /// The number of buckets.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether there is such a bucket.
    pub const fn contains(self, bucket: Bucket) -> bool {
        bucket.0 < self.0.get()
    }

    /// Every bucket, in order.
    pub fn buckets(self) -> impl Iterator<Item = Bucket> + Clone {
        (0..self.get()).map(Bucket)
    }

    /// The bucket of a message that has this key. An empty key is a real key.
    pub fn of_key(self, key: &[u8]) -> Bucket {
        Bucket((murmur2(key) & 0x7fff_ffff) % self.get())
    }

    /// The bucket of a message without a key.
    pub fn of_id(self, id: MessageId) -> Bucket {
        // The first three fields little-endian: the id's bytes as .NET's Guid lays them out.
        self.of_key(&id.as_uuid().to_bytes_le())
    }

    /// The bucket of a message with an explicit partition, which wins over key and id. `None` if it is negative.
    pub fn of_partition(self, partition: i32) -> Option<Bucket> {
        u32::try_from(partition).ok().map(|partition| Bucket(partition % self.get()))
    }
}

impl Default for BucketCount {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for BucketCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Kafka's murmur2, as `org.apache.kafka.common.utils.Utils.murmur2` computes it.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    // Java's length is an int; a longer key than that cannot be stored in any table.
    #[expect(clippy::cast_possible_truncation, reason = "an item holds 400 KB at most")]
    let mut h = SEED ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}
