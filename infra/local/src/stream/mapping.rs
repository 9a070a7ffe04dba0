//! The settings of an event source mapping.

use std::time::Duration;

use crate::filter::Filter;

/// How a stream is turned into invocations: what the template's event says, and how often the stream is asked.
#[derive(Debug, Clone)]
pub struct StreamMapping {
    /// The most records in one event.
    pub batch_size: usize,
    /// How long records are gathered before an event is sent.
    pub batching_window: Duration,
    /// Which records are sent.
    pub filter: Filter,
    /// How often a failed batch is sent again before it is given up; none: for ever.
    pub maximum_retry_attempts: Option<u32>,
    /// Whether reading starts at the oldest record, or with what is written from now on.
    pub from_horizon: bool,
    /// Whether the function's answer names the record to start again from.
    pub reports_item_failures: bool,
    /// How long to wait before an empty shard is asked again.
    pub poll_interval: Duration,
}

impl Default for StreamMapping {
    /// Lambda's defaults: 100 records, no window, no filter, endless retries, new records only, four polls a
    /// second.
    fn default() -> Self {
        Self {
            batch_size: 100,
            batching_window: Duration::ZERO,
            filter: Filter::default(),
            maximum_retry_attempts: None,
            from_horizon: false,
            reports_item_failures: false,
            poll_interval: Duration::from_millis(250),
        }
    }
}
