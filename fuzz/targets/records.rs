//! Fuzzes what `outbox_fuzz::RECORDS` checks.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use outbox_fuzz::{Input, RECORDS};

fuzz_target!(|input: &[u8]| -> Corpus {
    match (RECORDS.check)(input) {
        Input::Checked => Corpus::Keep,
        Input::Rejected => Corpus::Reject,
    }
});
