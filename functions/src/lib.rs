//! The Lambda functions, but for their two lines of `main`: settings, events, start, and the two handlers.
//!
//! `stream-relay` is woken by the table's stream and makes a hinted run; `scheduled-relay` is woken by a schedule and
//! sweeps.

mod app;
mod config;
mod credentials;
mod error;
mod event;
mod metrics;
mod scheduled;
mod serve;
mod start;
mod stream;
mod workers;

pub use app::App;
pub use config::Config;
pub use error::FunctionError;
pub use event::{Hints, TableIdentity, read_event};
pub use metrics::Metrics;
pub use scheduled::scheduled;
pub use serve::{scheduled_relay, stream_relay};
pub use start::start;
pub use stream::stream;
pub use workers::LambdaWorkers;
