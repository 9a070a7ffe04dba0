//! Calls at once, a bounded number of them.

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};

/// Makes all `calls`, `at_once` at a time, and waits for every one, whatever becomes of the others: a write that is
/// under way when its neighbour fails is not abandoned with its outcome unknown. Results come in no order.
pub async fn concurrently<T>(at_once: usize, calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    // Boxed: the compiler cannot yet see that a stream of futures which borrow from a closure can be sent.
    stream::iter(calls).buffer_unordered(at_once.max(1)).collect().await
}
