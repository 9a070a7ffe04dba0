//! What the tests of the Lambda host, the stream poller and the scheduler share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox_local::lambda::{FunctionSpec, LambdaHost};
use tokio::time::{Instant, sleep};

/// Longer than anything here takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// cargo puts the examples beside the directory of the tests. It builds them before it runs all tests of the
/// package, but not when one test is named: so a missing or old one is refused rather than tested.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).with_extension("rs");
    let changed = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    assert!(
        changed(&path) >= changed(&source),
        "{} is missing or old: run `cargo build -p outbox-local --examples`",
        path.display()
    );
    path
}

/// The example function, with time enough.
pub(crate) fn echo() -> FunctionSpec {
    FunctionSpec::new("echo", example("echo-function")).with_timeout(BOUND)
}

/// Must be called within a runtime.
pub(crate) fn start(spec: FunctionSpec) -> LambdaHost {
    LambdaHost::start(spec).unwrap()
}

/// Waits for a condition and returns what it found.
pub(crate) async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within the bound: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}
