#![doc = include_str!("../docs/custom-store.md")]
