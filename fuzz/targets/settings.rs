//! Fuzzes what `outbox_fuzz::SETTINGS` checks.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use outbox_fuzz::{Input, SETTINGS};

fuzz_target!(|input: &[u8]| -> Corpus {
    match (SETTINGS.check)(input) {
        Input::Checked => Corpus::Keep,
        Input::Rejected => Corpus::Reject,
    }
});
