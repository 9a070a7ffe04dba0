//! The fuzzer's own mutations, for the mutator of JSON.

use libfuzzer_sys::fuzzer_mutate;

use crate::{Shape, mutated};

/// One mutation in so many is the fuzzer's own, of bytes that may be no JSON then: the parser is tried too.
const RAW: u32 = 16;

/// Mutates JSON in the fuzzer's buffer, and returns its new length.
pub fn mutate_json(shape: Shape, data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    if !seed.is_multiple_of(RAW)
        && let Some(changed) = mutated(shape, &data[..size], max, seed, &mut mutate_bytes)
    {
        data[..changed.len()].copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, max)
}

fn mutate_bytes(bytes: &mut Vec<u8>, max: usize) {
    let size = bytes.len();
    let room = (2 * size).max(64).min(max).max(size);
    bytes.resize(room, 0);
    let mutated = fuzzer_mutate(bytes, size, room);
    bytes.truncate(mutated);
}
