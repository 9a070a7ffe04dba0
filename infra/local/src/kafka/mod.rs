//! Kafka for a developer's machine: an external broker, a real one started here, or a mock.
//!
//! Which one was taken is a value ([`Kind`]) that whoever starts it prints: a run against the mock proves
//! less than one against a broker.

mod acl;
mod admin;
mod broker;
mod certificates;
mod client;
mod error;
mod jars;
mod java;
mod mock;
mod options;
mod properties;
mod reader;
mod secured;
mod security;
mod server;
mod token;

pub use acl::{Operation, Resource};
pub use broker::{Broker, Kind};
pub use client::create_topic;
pub use error::{BrokerError, ClientError, RequireError, Unavailable};
pub use jars::kafka_version;
pub use options::{BrokerOptions, KAFKA_BOOTSTRAP_SERVERS, LOCAL_KAFKA_REQUIRE, Require};
pub use reader::{Reader, Record};
pub use security::{SUPER_USER, Security};
pub use token::unsecured_token;
