//! A Lambda host that waits to be killed: it starts the function named by its argument, prints the process id
//! of the function, and goes on for ever. A test kills it with SIGKILL and looks what becomes of the function.

use std::error::Error;
use std::time::Duration;

use outbox_local::lambda::{FunctionSpec, LambdaHost, ProcessState};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let binary = std::env::args_os().nth(1).ok_or("name a function binary")?;
    let spec = FunctionSpec::new("orphan", binary).with_timeout(Duration::from_secs(600));
    let host = LambdaHost::start(spec)?;
    host.invoke_async(&json!({"do": "hang"}))?;
    loop {
        let invoking = |state: &ProcessState| matches!(state, ProcessState::Invoking(_));
        if let Some(process) = host.processes().iter().find(|it| invoking(&it.state)) {
            println!("{}", process.pid);
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
