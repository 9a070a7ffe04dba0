//! The publisher against a real broker, against librdkafka's mock cluster (which can be told to fail), and against
//! addresses where no broker is.

#[cfg(test)]
mod authentication;
#[cfg(test)]
mod classes;
#[cfg(test)]
mod connecting;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod mock;
#[cfg(test)]
mod order;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod real;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod stranded;
#[cfg(test)]
mod support;
#[cfg(test)]
mod unreachable;
