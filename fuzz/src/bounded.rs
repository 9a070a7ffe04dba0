//! How much memory is taken, against what the input justifies.

use allocation_counter::measure;

/// What `work` gives. Panics if it ever held more than `limit` bytes that it had allocated.
pub(crate) fn within<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = measure(|| result = Some(work()));
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    assert!(used.bytes_max <= limit, "{} bytes were held at once, and {limit} are justified", used.bytes_max);
    result.expect("it ran")
}
