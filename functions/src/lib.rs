//! The Lambda functions: stream-relay and scheduled-relay
