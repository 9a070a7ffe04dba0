//! The mutations of JSON: without them the fuzzer would try the parser, and little else.

use std::collections::BTreeSet;
use std::fs;

use outbox_fuzz::{EVENT, ITEM, Input, Shape, mutated};

use super::corpus::corpus;

const MAX: usize = 4096;

/// In place of the fuzzer's own: the bytes are turned round, and become more if they may.
fn turned(bytes: &mut Vec<u8>, max: usize) {
    bytes.reverse();
    if bytes.len() < max {
        bytes.push(b'7');
    }
}

#[test]
fn mutations_of_events_and_items_are_events_and_items_within_the_limit() {
    for (target, shape) in [(EVENT, Shape::Any), (ITEM, Shape::Item)] {
        for file in corpus(target) {
            let input = fs::read(&file).unwrap();
            let mutations: BTreeSet<Vec<u8>> =
                (0..60).filter_map(|seed| mutated(shape, &input, MAX, seed, &mut turned)).collect();
            // The smallest inputs have few neighbours, and of those near the limit some become too large.
            assert!(mutations.len() > 10, "{}: {} mutations", file.display(), mutations.len());
            for mutation in mutations {
                assert!(mutation.len() <= MAX);
                let verdict = (target.check)(&mutation);
                assert_eq!(verdict, Input::Checked, "{}", String::from_utf8_lossy(&mutation));
            }
        }
    }
}

#[test]
fn mutations_follow_from_their_seed() {
    let input = fs::read(&corpus(EVENT)[0]).unwrap();
    let all = || (0..50).map(|seed| mutated(Shape::Any, &input, MAX, seed, &mut turned)).collect::<Vec<_>>();
    assert_eq!(all(), all());
}

#[test]
fn what_is_no_json_is_left_to_the_fuzzer() {
    assert_eq!(mutated(Shape::Any, b"\xff{", MAX, 1, &mut turned), None);
}
