//! Reads one shard and invokes the function with what passes the filter.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::DisplayErrorContext;
use aws_sdk_dynamodbstreams::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::StreamMapping;
use super::answer::{Progress, progress};
use super::faults::{Drawing, Fate};
use super::poller::Counting;
use super::record::to_event;
use crate::lambda::{InvokeError, LambdaHost};

/// The most records that one call to the stream returns.
const LARGEST_PAGE: i32 = 1_000;
/// The most bytes of records in one event: Lambda's 6 MB less room for what is around them.
const LARGEST_BATCH_BYTES: usize = 5_500_000;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Where in a shard to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Horizon,
    Latest,
}

/// What every reader of a stream needs.
#[derive(Debug, Clone)]
pub(super) struct ShardReader {
    pub(super) client: Client,
    pub(super) stream_arn: Arc<str>,
    pub(super) mapping: Arc<StreamMapping>,
    pub(super) function: LambdaHost,
    pub(super) counting: Arc<Counting>,
    pub(super) faults: Arc<Drawing>,
}

/// A record that passed the filter.
#[derive(Debug, Clone)]
struct Pending {
    event: Value,
    sequence_number: String,
    bytes: usize,
}

/// The records that wait to be sent, and since when.
#[derive(Debug, Default)]
struct Gathered {
    records: VecDeque<Pending>,
    since: Option<Instant>,
    /// A batch that is to be sent after the one that follows it.
    overtaken: Option<Vec<Pending>>,
}

impl ShardReader {
    /// Reads the shard to its end, that is, until it is closed and all of it has been sent or given up; or
    /// until the host is stopped.
    pub(super) async fn run(&self, shard_id: &str, start: Start) {
        let mut gathered = Gathered::default();
        let mut last_read: Option<String> = None;
        let mut iterator = None;
        let mut backoff = Backoff::default();
        loop {
            let current = match iterator.take() {
                Some(iterator) => iterator,
                None => match self.iterator(shard_id, start, last_read.as_deref()).await {
                    Ok(Some(iterator)) => iterator,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(shard_id, %error, "no place to read from");
                        backoff.wait().await;
                        continue;
                    }
                },
            };
            let page = match self.page(&current).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(shard_id, error = %DisplayErrorContext(&error), "no records");
                    backoff.wait().await;
                    // Whatever it was, an iterator made from the last record read goes on from there.
                    continue;
                }
            };
            backoff = Backoff::default();
            let records = page.records.unwrap_or_default();
            let was_empty = records.is_empty();
            for record in &records {
                if let Some(number) = record.dynamodb().and_then(|it| it.sequence_number()) {
                    last_read = Some(number.to_owned());
                }
                self.gather(&mut gathered, to_event(record, &self.stream_arn));
            }
            let is_closed = page.next_shard_iterator.is_none();
            iterator = page.next_shard_iterator;
            while self.is_due(&gathered, is_closed) {
                if self.send(&mut gathered).await.is_err() {
                    return;
                }
            }
            // Nothing follows, for now.
            if (is_closed || was_empty) && self.send_overtaken(&mut gathered).await.is_err() {
                return;
            }
            if is_closed {
                break;
            }
            if was_empty {
                sleep(self.pause(&gathered)).await;
            }
        }
        tracing::debug!(shard_id, "the shard is closed and read");
    }

    async fn iterator(
        &self,
        shard_id: &str,
        start: Start,
        last_read: Option<&str>,
    ) -> Result<Option<String>, String> {
        let kind = match (last_read, start) {
            (Some(_), _) => ShardIteratorType::AfterSequenceNumber,
            (None, Start::Horizon) => ShardIteratorType::TrimHorizon,
            (None, Start::Latest) => ShardIteratorType::Latest,
        };
        let answer = self
            .client
            .get_shard_iterator()
            .stream_arn(&*self.stream_arn)
            .shard_id(shard_id)
            .shard_iterator_type(kind)
            .set_sequence_number(last_read.map(str::to_owned))
            .send()
            .await;
        match answer {
            Ok(answer) => Ok(answer.shard_iterator),
            Err(error) => Err(DisplayErrorContext(&error).to_string()),
        }
    }

    async fn page(
        &self,
        iterator: &str,
    ) -> Result<GetRecordsOutput, aws_sdk_dynamodbstreams::error::SdkError<GetRecordsError>> {
        self.client.get_records().shard_iterator(iterator).limit(LARGEST_PAGE).send().await
    }

    fn gather(&self, gathered: &mut Gathered, event: Value) {
        add(&self.counting.records, 1);
        if !self.mapping.filter.matches(&event) {
            add(&self.counting.filtered_out, 1);
            return;
        }
        let sequence_number = event["dynamodb"]["SequenceNumber"].as_str().unwrap_or_default().to_owned();
        let bytes = event.to_string().len() + 1;
        gathered.since.get_or_insert_with(Instant::now);
        gathered.records.push_back(Pending { event, sequence_number, bytes });
    }

    /// Whether what is gathered is to be sent now.
    fn is_due(&self, gathered: &Gathered, is_closed: bool) -> bool {
        let window = self.mapping.batching_window;
        let Some(since) = gathered.since else {
            return false;
        };
        is_closed
            || gathered.records.len() >= self.mapping.batch_size
            || since.elapsed() >= window
            || gathered.records.iter().map(|it| it.bytes).sum::<usize>() >= LARGEST_BATCH_BYTES
    }

    /// How long an empty shard is left alone.
    fn pause(&self, gathered: &Gathered) -> Duration {
        let poll_interval = self.mapping.poll_interval;
        match gathered.since {
            Some(since) => {
                let rest = self.mapping.batching_window.saturating_sub(since.elapsed());
                rest.min(poll_interval)
            }
            None => poll_interval,
        }
    }

    /// Takes one batch and does to it what the faults say. An error: the host was stopped.
    async fn send(&self, gathered: &mut Gathered) -> Result<(), InvokeError> {
        let mut batch = gathered.take_batch(self.mapping.batch_size);
        match self.faults.fate() {
            Fate::Sent => {}
            Fate::Dropped => {
                add(&self.counting.dropped, 1);
                return Ok(());
            }
            Fate::Duplicated => {
                add(&self.counting.duplicated, 1);
                self.deliver(batch.clone()).await?;
            }
            Fate::Reordered => {
                add(&self.counting.reordered, 1);
                self.faults.shuffle(&mut batch);
                if gathered.overtaken.is_none() {
                    gathered.overtaken = Some(batch);
                    return Ok(());
                }
            }
        }
        self.deliver(batch).await?;
        self.send_overtaken(gathered).await
    }

    async fn send_overtaken(&self, gathered: &mut Gathered) -> Result<(), InvokeError> {
        match gathered.overtaken.take() {
            Some(batch) => self.deliver(batch).await,
            None => Ok(()),
        }
    }

    /// Sends one batch until it is done or given up. An error: the host was stopped.
    async fn deliver(&self, mut batch: Vec<Pending>) -> Result<(), InvokeError> {
        let mut retries = 0;
        let mut backoff = Backoff::default();
        while !batch.is_empty() {
            let events: Vec<&Value> = batch.iter().map(|record| &record.event).collect();
            let outcome = match self.function.invoke(&json!({"Records": events})).await {
                Ok(outcome) => outcome,
                Err(stopped @ InvokeError::Stopped { .. }) => return Err(stopped),
                // The function did not see the batch, so this is no attempt at it.
                Err(error) => {
                    tracing::warn!(%error, "a batch was not sent");
                    backoff.wait().await;
                    continue;
                }
            };
            let numbers: Vec<&str> = batch.iter().map(|record| record.sequence_number.as_str()).collect();
            match progress(&outcome, &numbers, self.mapping.reports_item_failures) {
                Progress::Done => break,
                Progress::FailedFrom(index) => {
                    add(&self.counting.failed_attempts, 1);
                    // What was done does not count against the rest.
                    retries = if index > 0 { 0 } else { retries + 1 };
                    batch.drain(..index);
                }
            }
            if self.mapping.maximum_retry_attempts.is_some_and(|most| retries > most) {
                tracing::warn!(records = batch.len(), %outcome, "a batch was given up");
                add(&self.counting.given_up, u64::try_from(batch.len()).unwrap_or(u64::MAX));
                break;
            }
            backoff.wait().await;
        }
        add(&self.counting.batches, 1);
        Ok(())
    }
}

impl Gathered {
    /// The oldest records, as many as fit into one event.
    fn take_batch(&mut self, batch_size: usize) -> Vec<Pending> {
        let mut bytes = 0;
        let mut batch = Vec::new();
        while batch.len() < batch_size.max(1)
            && let Some(next) = self.records.front()
            // A single record always fits: an item has 400 KB at most.
            && (batch.is_empty() || bytes + next.bytes <= LARGEST_BATCH_BYTES)
        {
            bytes += next.bytes;
            batch.extend(self.records.pop_front());
        }
        if self.records.is_empty() {
            self.since = None;
        }
        batch
    }
}

/// A wait that doubles.
#[derive(Debug)]
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_BACKOFF)
    }
}

impl Backoff {
    async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_BACKOFF);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(sizes: &[usize]) -> Gathered {
        Gathered {
            records: sizes
                .iter()
                .enumerate()
                .map(|(index, bytes)| Pending {
                    event: Value::Null,
                    sequence_number: index.to_string(),
                    bytes: *bytes,
                })
                .collect(),
            since: Some(Instant::now()),
            overtaken: None,
        }
    }

    fn numbers(batch: &[Pending]) -> Vec<&str> {
        batch.iter().map(|record| record.sequence_number.as_str()).collect()
    }

    #[tokio::test]
    async fn batches_are_bounded_by_count_and_bytes_and_keep_the_order() {
        let mut waiting = gathered(&[1, 1, 1]);
        assert_eq!(numbers(&waiting.take_batch(2)), ["0", "1"]);
        assert!(waiting.since.is_some());
        assert_eq!(numbers(&waiting.take_batch(2)), ["2"]);
        assert!(waiting.since.is_none());
        assert!(waiting.take_batch(2).is_empty());

        let mut large = gathered(&[LARGEST_BATCH_BYTES - 1, 1, 1, 2 * LARGEST_BATCH_BYTES, 1]);
        assert_eq!(numbers(&large.take_batch(10)), ["0", "1"]);
        assert_eq!(numbers(&large.take_batch(10)), ["2"]);
        assert_eq!(numbers(&large.take_batch(10)), ["3"]);
        assert_eq!(numbers(&large.take_batch(10)), ["4"]);
    }
}
