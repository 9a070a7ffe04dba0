//! How long a request may take: connect, attempt, pauses between attempts, and the whole of it.

use std::time::Duration;

use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use outbox::{Monotonic, StoreError, StoreErrorKind};

use crate::DynamoDbStore;

/// How long a connection may take to come up. A function in a VPC without a route to DynamoDB would otherwise hang
/// until Lambda kills it. One value for all requests, because the SDK keeps a pool of connections for each; a request
/// with less time ends the attempt before it.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// The longest attempt: DynamoDB answers in milliseconds, so a second attempt on another connection is worth more. It is
/// also what a dead connection costs the first request after a freeze: a quarter of a function's shortest timeout, 10 s.
/// And above [`CONNECT_TIMEOUT`], whose error says more.
const LONGEST_ATTEMPT: Duration = Duration::from_millis(2500);
/// The shortest attempt that can still be answered on a new connection.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(200);

/// The longest pause before the second attempt, doubled with each further one, and the longest at all; the SDK takes a
/// random part of it. Its own first pause, a second, would leave a request of a second without a second attempt in half
/// of all cases. DynamoDB throttles by the second: three attempts in a part of one are few enough not to add to it, and
/// what is throttled beyond that is a matter for the caller, who knows how much time is left for all.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// Timeouts for a client whose requests say nothing themselves (the writer's): seconds, never the SDK's default of
/// for ever.
pub fn client_timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(LONGEST_ATTEMPT)
        .operation_timeout(LONGEST_ATTEMPT * 3)
        .build()
}

/// When a call of the store must have ended, however many requests it makes: each gets what is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until(Monotonic);

impl DynamoDbStore {
    /// The end of a call that may take `limit` from now.
    pub(crate) fn until(&self, limit: Duration) -> Until {
        Until(self.clock.monotonic().plus(limit))
    }

    /// What is left of a call.
    pub(crate) fn left(&self, until: Until) -> Duration {
        until.0.since(self.clock.monotonic())
    }

    /// The configuration of a call's next request.
    ///
    /// # Errors
    /// Its time is up: the request is not sent, where it would land late.
    pub(crate) fn within(&self, until: Until, what: &str) -> Result<Builder, StoreError> {
        let left = self.left(until);
        if left.is_zero() {
            let table = self.options.table_name();
            let message = format!("there was no time left for the {what} of table {table:?}");
            return Err(StoreError::new(StoreErrorKind::Unavailable, message));
        }
        let timeouts =
            TimeoutConfig::builder().operation_timeout(left).operation_attempt_timeout(attempt_within(left));
        let retries = self.client.config().retry_config().cloned().unwrap_or_else(RetryConfig::standard);
        let retries = retries.with_initial_backoff(PAUSES.0).with_max_backoff(PAUSES.1);
        Ok(aws_sdk_dynamodb::Config::builder().timeout_config(timeouts.build()).retry_config(retries))
    }
}

/// How long one attempt of a request may take that has `left`: so long that there is time for a second one.
fn attempt_within(left: Duration) -> Duration {
    (left.saturating_sub(PAUSES.0) / 2).clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_attempts_and_the_pause_between_them_fit_into_the_time_left() {
        for millis in [500, 1000, 1500, 2000, 5000, 6000] {
            let left = Duration::from_millis(millis);
            let attempt = attempt_within(left);
            assert!(attempt * 2 + PAUSES.0 <= left, "{attempt:?} of {left:?}");
            assert!(attempt >= SHORTEST_ATTEMPT);
        }
        assert_eq!(attempt_within(Duration::from_secs(60)), LONGEST_ATTEMPT);
        // Too little for two: one that can be answered.
        assert_eq!(attempt_within(Duration::from_millis(300)), SHORTEST_ATTEMPT);
    }
}
