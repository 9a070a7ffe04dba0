//! What crosses crates: integration and end-to-end tests
