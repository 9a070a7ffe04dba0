//! The function that the table's stream wakes.

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), lambda_runtime::Error> {
    outbox_functions::stream_relay().await
}
