//! The function that the schedule wakes.

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), lambda_runtime::Error> {
    outbox_functions::scheduled_relay().await
}
