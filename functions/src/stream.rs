//! `stream-relay`: a hinted run for each event of the table's stream.

use lambda_runtime::LambdaEvent;
use outbox::{OutboxStore, Publisher};
use serde_json::{Value, json};

use crate::{App, FunctionError, Hints, read_event};

/// Handles one event: drains the buckets it names.
///
/// Hints are advisory. What a sweep will see to anyway (a bucket that is leased, a broker that is away) is a success:
/// a batch that failed would hold up every bucket of its shard. The answer never names a failed record.
///
/// # Errors
/// Only a misconfiguration, after the buckets that are right have been served; and a payload that is no stream event.
pub async fn stream<S: OutboxStore, P: Publisher>(
    app: &App<S, P>,
    event: LambdaEvent<Value>,
) -> Result<Value, FunctionError> {
    let budget = app.budget(&event.context);
    let hints = read_event(&event.payload, &app.table)?;
    warn_of(&hints);
    if !hints.buckets.is_empty() {
        let run = app.begin("stream", budget, &event.context);
        let report = app.relay.hinted(&run.id, &hints.buckets, &run.budget).await;
        app.end("hinted run ended", &run, &report);
        if let Some(error) = report.misconfiguration() {
            return Err(FunctionError::misconfigured(error));
        }
    }
    if let Some(bucket) = hints.out_of_range.first() {
        let count = app.relay.options().bucket_count;
        return Err(FunctionError::Misconfigured(format!(
            "a message was written to bucket {bucket}, and this relay has OUTBOX_BUCKET_COUNT={count}: give every \
             writer and relay of the table the same"
        )));
    }
    Ok(json!({ "batchItemFailures": [] }))
}

fn warn_of(hints: &Hints) {
    if hints.other_tables > 0 {
        tracing::warn!(
            records = hints.other_tables,
            "records of another table were ignored: check what the event source mapping points at"
        );
    }
    if hints.unreadable > 0 {
        tracing::warn!(records = hints.unreadable, "records that could not be read were ignored");
    }
}
