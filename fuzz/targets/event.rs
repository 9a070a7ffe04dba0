//! Fuzzes what `outbox_fuzz::EVENT` checks.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use outbox_fuzz::{EVENT, Input, Shape, mutate_json};

fuzz_target!(|input: &[u8]| -> Corpus {
    match (EVENT.check)(input) {
        Input::Checked => Corpus::Keep,
        Input::Rejected => Corpus::Reject,
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_json(Shape::Any, data, size, max_size, seed)
});
