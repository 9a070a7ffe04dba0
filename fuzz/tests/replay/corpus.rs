//! What the fuzzer starts from, and what it found.

use std::fs;
use std::path::{Path, PathBuf};

use outbox_fuzz::{Input, TARGETS, Target};

/// The inputs of a target, in the order of their names.
pub(crate) fn corpus(target: Target) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_input_of_the_corpus_holds() {
    for target in TARGETS {
        let files = corpus(target);
        assert!(files.len() >= 5, "the corpus of {} is not here", target.name);
        for file in files {
            // Shown when the check panics.
            println!("{}", file.display());
            let verdict = (target.check)(&fs::read(&file).unwrap());
            assert_eq!(verdict, Input::Checked, "{} is no input of its target", file.display());
        }
    }
}
