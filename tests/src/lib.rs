//! What crosses crates: integration and end-to-end tests, in `tests/`. Here: the README, so that its examples compile.

#![doc = include_str!("../../README.md")]
