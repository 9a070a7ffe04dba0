//! The publisher against a real broker, against librdkafka's mock cluster (which can be told to fail), and against
//! addresses where no broker is.

mod mock;
mod real;
mod support;
mod unreachable;
