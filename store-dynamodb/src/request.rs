//! How long a request may take: connect, attempt, and the whole of it.

use std::time::Duration;

use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

/// How long a connection may take to come up. A function in a VPC without a route to DynamoDB would otherwise hang
/// until Lambda kills it. One value for all requests: the SDK keeps a pool of connections for each.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// The longest attempt: DynamoDB answers in milliseconds, so a second attempt on another connection is worth more.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(3);
/// The shortest attempt that can still be answered on a new connection.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(200);

/// Timeouts for a client whose requests say nothing themselves (the writer's): seconds, never the SDK's default of
/// for ever.
pub fn client_timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(LONGEST_ATTEMPT)
        .operation_timeout(LONGEST_ATTEMPT * 3)
        .build()
}

/// The timeouts of one request that may take `limit`: time for two attempts, or a little longer than it.
pub(crate) fn within(limit: Duration) -> Builder {
    let limit = limit.max(SHORTEST_ATTEMPT);
    let attempt = (limit / 2).clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT);
    let timeouts = TimeoutConfig::builder().operation_timeout(limit).operation_attempt_timeout(attempt);
    aws_sdk_dynamodb::Config::builder().timeout_config(timeouts.build())
}
