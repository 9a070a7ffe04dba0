//! Fuzzes what `outbox_fuzz::HEADERS` checks.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use outbox_fuzz::{HEADERS, Input};

fuzz_target!(|input: &[u8]| -> Corpus {
    match (HEADERS.check)(input) {
        Input::Checked => Corpus::Keep,
        Input::Rejected => Corpus::Reject,
    }
});
