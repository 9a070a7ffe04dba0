//! The formats and plans that every implementation must reproduce (design.md, section 4 and 6): `testdata/` is a
//! copy of the product's test vectors.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use outbox::lease_plan::{LeaseState, plan};
use outbox::{Bucket, BucketCount, Header, MessageId, RelayId, Ticks, fair_share, headers};
use serde::Deserialize;

#[derive(Deserialize)]
struct Wire {
    keyed: Vec<Keyed>,
    keyless: Vec<Keyless>,
    partition: Vec<Partitioned>,
    headers: Vec<Headers>,
    malformed_headers: Vec<MalformedHeaders>,
    ticks: Vec<TicksOf>,
}

#[derive(Deserialize)]
struct Keyed {
    key_hex: String,
    bucket_count: u32,
    bucket: u32,
}

#[derive(Deserialize)]
struct Keyless {
    message_id: String,
    bucket_count: u32,
    bucket: u32,
    hashed_bytes_hex: String,
}

#[derive(Deserialize)]
struct Partitioned {
    partition: i32,
    bucket_count: u32,
    bucket: u32,
}

#[derive(Deserialize)]
struct Headers {
    headers: Vec<HeaderOf>,
    encoded_hex: String,
}

#[derive(Deserialize)]
struct HeaderOf {
    key: String,
    value_hex: Option<String>,
}

#[derive(Deserialize)]
struct MalformedHeaders {
    encoded_hex: String,
    why: String,
}

#[derive(Deserialize)]
struct TicksOf {
    utc: String,
    ticks: i64,
}

fn wire() -> Wire {
    serde_json::from_str(include_str!("../testdata/wire.json")).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0);
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn count(number: u32) -> BucketCount {
    BucketCount::new(number).unwrap()
}

#[test]
fn buckets_of_keys() {
    let vectors = wire().keyed;
    assert!(!vectors.is_empty());
    for v in vectors {
        assert_eq!(count(v.bucket_count).of_key(&hex(&v.key_hex)), Bucket::new(v.bucket), "{}", v.key_hex);
    }
}

#[test]
fn buckets_of_keyless_messages() {
    let vectors = wire().keyless;
    assert!(!vectors.is_empty());
    for v in vectors {
        let id = MessageId::parse(&v.message_id).unwrap();
        assert_eq!(id.as_uuid().to_bytes_le().to_vec(), hex(&v.hashed_bytes_hex));
        assert_eq!(count(v.bucket_count).of_id(id), Bucket::new(v.bucket), "{}", v.message_id);
    }
}

#[test]
fn buckets_of_explicit_partitions() {
    let vectors = wire().partition;
    assert!(!vectors.is_empty());
    for v in vectors {
        assert_eq!(count(v.bucket_count).of_partition(v.partition), Some(Bucket::new(v.bucket)));
    }
    assert_eq!(count(8).of_partition(-1), None);
}

#[test]
fn header_blobs_both_ways() {
    let vectors = wire().headers;
    assert!(!vectors.is_empty());
    for v in vectors {
        let value = |value: &String| Bytes::from(hex(value));
        let header = |h: &HeaderOf| Header { key: h.key.clone(), value: h.value_hex.as_ref().map(value) };
        let expected: Vec<Header> = v.headers.iter().map(header).collect();
        let blob = Bytes::from(hex(&v.encoded_hex));
        assert_eq!(headers::decode(&blob).unwrap(), expected, "{}", v.encoded_hex);
        assert_eq!(headers::encode(&expected).unwrap(), blob, "{}", v.encoded_hex);
    }
}

#[test]
fn malformed_header_blobs_are_refused() {
    let vectors = wire().malformed_headers;
    assert!(!vectors.is_empty());
    for v in vectors {
        assert!(headers::decode(&Bytes::from(hex(&v.encoded_hex))).is_err(), "{}: {}", v.why, v.encoded_hex);
    }
}

#[test]
fn ticks_of_dates() {
    let vectors = wire().ticks;
    assert!(!vectors.is_empty());
    for v in vectors {
        // The dates are few and fixed: their distance from the epoch is spelt out rather than parsed.
        let ticks = match v.utc.as_str() {
            "0001-01-01T00:00:00+00:00" => {
                Ticks::from_system_time(UNIX_EPOCH).minus(Duration::from_secs(719_162 * 86_400))
            }
            "1970-01-01T00:00:00+00:00" => Ticks::from_system_time(UNIX_EPOCH),
            "2026-11-30T11:22:33.456789+00:00" => {
                Ticks::from_system_time(UNIX_EPOCH + Duration::new(1_796_037_753, 456_789_000))
            }
            other => panic!("a vector this test does not know: {other}"),
        };
        assert_eq!(ticks, Ticks::from_raw(v.ticks), "{}", v.utc);
    }
}

#[derive(Deserialize)]
struct Leases {
    fair_share: Vec<FairShare>,
    lease_plan: Vec<Plan>,
}

#[derive(Deserialize)]
struct FairShare {
    bucket_count: u32,
    active_relay_ids: Vec<String>,
    held_bucket_counts: BTreeMap<String, u32>,
    shares: BTreeMap<String, u32>,
    ranges: BTreeMap<String, Option<[u32; 2]>>,
    standby_ranks: BTreeMap<String, Option<usize>>,
}

#[derive(Deserialize)]
struct Plan {
    bucket_count: u32,
    active_relay_ids: Vec<String>,
    relay_id: String,
    leases: Vec<LeaseOf>,
    plan: Planned,
}

#[derive(Deserialize)]
struct LeaseOf {
    owner: Option<String>,
    expired: bool,
}

#[derive(Deserialize)]
struct Planned {
    keep: Vec<u32>,
    release: Vec<u32>,
    claim: Vec<u32>,
    standby_rank: Option<usize>,
}

fn leases() -> Leases {
    serde_json::from_str(include_str!("../testdata/leases.json")).unwrap()
}

fn relay(id: &str) -> RelayId {
    RelayId::new(id).unwrap()
}

#[test]
fn fair_shares_ranges_and_standby_ranks() {
    let vectors = leases().fair_share;
    assert!(!vectors.is_empty());
    for v in vectors {
        let active: BTreeSet<RelayId> = v.active_relay_ids.iter().map(|id| relay(id)).collect();
        let held = v.held_bucket_counts.iter().map(|(id, held)| (relay(id), *held)).collect();
        let shares = fair_share::shares(count(v.bucket_count), &active, &held);
        assert_eq!(shares, v.shares.iter().map(|(id, share)| (relay(id), *share)).collect());
        let ranges = fair_share::ranges(&shares);
        for (id, range) in &v.ranges {
            let expected = range.map_or(0..0, |[first, last]| first..last + 1);
            let found = &ranges[&relay(id)];
            assert!(*found == expected || (found.is_empty() && expected.is_empty()), "{id}: {found:?}");
        }
        for (id, rank) in &v.standby_ranks {
            assert_eq!(fair_share::standby_rank(&shares, &relay(id)), *rank, "{id}");
        }
    }
}

#[test]
fn lease_plans() {
    let vectors = leases().lease_plan;
    assert!(!vectors.is_empty());
    for v in vectors {
        let count = count(v.bucket_count);
        let active = v.active_relay_ids.iter().map(|id| relay(id)).collect();
        let state =
            |lease: &LeaseOf| LeaseState { owner: lease.owner.as_deref().map(relay), expired: lease.expired };
        let leases = count.buckets().zip(v.leases.iter().map(state)).collect();
        let planned = plan(count, &active, &relay(&v.relay_id), &leases);
        let numbers = |buckets: &BTreeSet<Bucket>| buckets.iter().map(|b| b.number()).collect::<Vec<_>>();
        assert_eq!(numbers(&planned.keep), v.plan.keep);
        assert_eq!(numbers(&planned.release), v.plan.release);
        assert_eq!(numbers(&planned.claim), v.plan.claim);
        assert_eq!(planned.standby_rank, v.plan.standby_rank);
    }
}
