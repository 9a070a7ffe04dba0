//! A bench for the engine: virtual time, a store with hooks, a publisher that does as it is told.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use outbox::memory::MemoryStore;
use outbox::publisher::{Outcome, PublishError, PublishErrorKind};
use outbox::quarantine::Quarantine;
use outbox::relay::{Started, Workers};
use outbox::store::{
    AcquireRequest, Acquired, Backlog, BacklogMetrics, FetchRequest, Fetched, LeaseOwnership, LeaseRenewal,
    NamedClaims,
};
use outbox::{
    Bucket, BucketCount, Budget, Chance, Clock, Lease, Message, MessageId, OutboxStore, Publisher, Relay,
    RelayId, RelayOptions, StoreError, StoreErrorKind, Ticks, TokioClock,
};

pub(crate) const START: Ticks = Ticks::from_raw(639_316_345_534_567_890);

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// What comes of asking how much waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampler {
    Answers,
    Fails,
    Hangs,
    /// The store cannot tell.
    Missing,
}

/// The store in memory, with something that happens just before a call, and deletes that fail.
#[derive(Clone)]
pub(crate) struct Hooked {
    pub(crate) memory: MemoryStore,
    before_release: Hook,
    after_fetch: Hook,
    failing_deletes: Arc<Mutex<u32>>,
    hanging_deletes: Arc<Mutex<u32>>,
    failing_releases: Arc<Mutex<u32>>,
    failing_stops: Arc<AtomicBool>,
    faulty: Arc<Mutex<BTreeSet<Bucket>>>,
    sampler: Arc<Mutex<Sampler>>,
    sampled: Arc<Mutex<Vec<BTreeSet<Bucket>>>>,
}

impl Hooked {
    fn new() -> Self {
        Self {
            memory: MemoryStore::new(),
            before_release: Arc::default(),
            after_fetch: Arc::default(),
            failing_deletes: Arc::default(),
            hanging_deletes: Arc::default(),
            failing_releases: Arc::default(),
            failing_stops: Arc::default(),
            faulty: Arc::default(),
            sampler: Arc::new(Mutex::new(Sampler::Answers)),
            sampled: Arc::default(),
        }
    }

    pub(crate) fn before_release(&self, hook: impl FnOnce() + Send + 'static) {
        *self.before_release.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn after_fetch(&self, hook: impl FnOnce() + Send + 'static) {
        *self.after_fetch.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn fail_deletes(&self, times: u32) {
        *self.failing_deletes.lock().unwrap() = times;
    }

    /// Makes the first deletes hang until their limit is over.
    pub(crate) fn hang_deletes(&self, times: u32) {
        *self.hanging_deletes.lock().unwrap() = times;
    }

    /// Makes the first releases fail without having happened.
    pub(crate) fn fail_releases(&self, times: u32) {
        *self.failing_releases.lock().unwrap() = times;
    }

    /// Makes every stop fail without having happened.
    pub(crate) fn fail_stops(&self) {
        self.failing_stops.store(true, Ordering::Relaxed);
    }

    /// Makes what lies behind a bucket's messages a misconfiguration.
    pub(crate) fn misconfigure(&self, bucket: Bucket) {
        self.faulty.lock().unwrap().insert(bucket);
    }

    pub(crate) fn samples(&self, sampler: Sampler) {
        *self.sampler.lock().unwrap() = sampler;
    }

    /// The buckets of each sample that was asked for.
    pub(crate) fn sampled(&self) -> Vec<BTreeSet<Bucket>> {
        self.sampled.lock().unwrap().clone()
    }

    fn run(hook: &Hook) {
        let hook = hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl OutboxStore for Hooked {
    type Row = i64;

    async fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, StoreError> {
        self.memory.acquire(request).await
    }

    async fn pending(
        &self,
        buckets: &BTreeSet<Bucket>,
        limit: Duration,
    ) -> Result<BTreeSet<Bucket>, StoreError> {
        self.memory.pending(buckets, limit).await
    }

    async fn fetch(&self, request: &FetchRequest<'_, i64>) -> Result<Fetched<i64>, StoreError> {
        let mut fetched = self.memory.fetch(request).await?;
        if self.faulty.lock().unwrap().contains(&request.bucket) {
            fetched.fault = Some(StoreError::new(StoreErrorKind::Misconfigured, "another bucket count"));
        }
        Self::run(&self.after_fetch);
        Ok(fetched)
    }

    async fn delete(&self, bucket: Bucket, rows: &[i64], limit: Duration) -> Result<(), StoreError> {
        {
            let mut failing = self.failing_deletes.lock().unwrap();
            if *failing > 0 {
                *failing -= 1;
                return Err(StoreError::new(StoreErrorKind::Throttled, "told to fail"));
            }
        }
        let hangs = {
            let mut hanging = self.hanging_deletes.lock().unwrap();
            *hanging = hanging.saturating_sub(1);
            *hanging > 0
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        self.memory.delete(bucket, rows, limit).await
    }

    fn renewal(&self) -> Option<&dyn LeaseRenewal> {
        self.memory.renewal()
    }

    fn ownership(&self) -> Option<&dyn LeaseOwnership> {
        self.memory.ownership().map(|_| self as &dyn LeaseOwnership)
    }

    fn named_claims(&self) -> Option<&dyn NamedClaims> {
        self.memory.named_claims()
    }

    fn deletes_individually(&self) -> bool {
        self.memory.deletes_individually()
    }

    fn quarantine(&self) -> Option<&dyn Quarantine<i64>> {
        self.memory.quarantine()
    }

    fn backlog(&self) -> Option<&dyn BacklogMetrics> {
        let is_there = *self.sampler.lock().unwrap() != Sampler::Missing;
        is_there.then_some(self)
    }
}

impl BacklogMetrics for Hooked {
    fn sample<'a>(
        &'a self,
        buckets: &'a BTreeSet<Bucket>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        self.sampled.lock().unwrap().push(buckets.clone());
        match *self.sampler.lock().unwrap() {
            Sampler::Answers | Sampler::Missing => self.memory.backlog().unwrap().sample(buckets, limit),
            Sampler::Hangs => Box::pin(std::future::pending()),
            Sampler::Fails => {
                let error = StoreError::new(StoreErrorKind::Throttled, "told to fail");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}

impl LeaseOwnership for Hooked {
    fn release<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Self::run(&self.before_release);
        let mut failing = self.failing_releases.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            let error = StoreError::new(StoreErrorKind::MayHaveHappened, "told to fail");
            return Box::pin(std::future::ready(Err(error)));
        }
        self.memory.release(relay, leases, limit)
    }

    fn release_strays<'a>(
        &'a self,
        relay: &'a RelayId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.memory.ownership().unwrap().release_strays(relay, limit)
    }

    fn stop<'a>(
        &'a self,
        relay: &'a RelayId,
        leases: &'a [Lease],
        stamp: Ticks,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Self::run(&self.before_release);
        if self.failing_stops.load(Ordering::Relaxed) {
            let error = StoreError::new(StoreErrorKind::Throttled, "told to fail");
            return Box::pin(std::future::ready(Err(error)));
        }
        self.memory.stop(relay, leases, stamp, limit)
    }

    fn has_message<'a>(&'a self, bucket: Bucket, limit: Duration) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.memory.has_message(bucket, limit)
    }
}

type Judge = Box<dyn Fn(&Message) -> Outcome + Send + Sync>;

/// Takes a set time for a batch, notes what it was given, and judges each message.
pub(crate) struct FakePublisher {
    published: Mutex<Vec<Message>>,
    calls: Mutex<Vec<Option<Bucket>>>,
    takes: Mutex<Duration>,
    judge: Mutex<Judge>,
}

#[derive(Clone)]
pub(crate) struct Fake(Arc<FakePublisher>);

impl Publisher for Fake {
    async fn publish(&self, batch: &[&Message], limit: Duration) -> Vec<Outcome> {
        self.0.publish(batch, limit).await
    }
}

impl FakePublisher {
    async fn publish(&self, batch: &[&Message], _: Duration) -> Vec<Outcome> {
        let takes = *self.takes.lock().unwrap();
        self.calls.lock().unwrap().push(batch.first().and_then(|m| m.bucket(BucketCount::DEFAULT)));
        tokio::time::sleep(takes).await;
        let judge = self.judge.lock().unwrap();
        self.published.lock().unwrap().extend(batch.iter().map(|message| (*message).clone()));
        batch.iter().map(|message| judge(message)).collect()
    }
}

pub(crate) fn failed(kind: PublishErrorKind) -> Outcome {
    Outcome::Failed(PublishError::new(kind, "told to fail"))
}

type Start = Box<dyn Fn(usize) + Send + Sync>;

/// Notes how many further sweeps were asked for, and starts what it is told to.
pub(crate) struct FakeWorkers {
    max: AtomicUsize,
    asked: Mutex<Vec<usize>>,
    start: Mutex<Start>,
    hangs: AtomicBool,
}

impl std::fmt::Debug for FakeWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeWorkers").finish_non_exhaustive()
    }
}

impl Workers for FakeWorkers {
    fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    fn start(&self, count: usize, _: Duration) -> BoxFuture<'_, Started> {
        self.asked.lock().unwrap().push(count);
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        (self.start.lock().unwrap())(count);
        Box::pin(std::future::ready(Started { count, error: None }))
    }
}

pub(crate) struct Bench {
    pub(crate) store: Hooked,
    pub(crate) publisher: Fake,
    pub(crate) workers: Arc<FakeWorkers>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) relay: Arc<Relay<Hooked, Fake>>,
    chance: Chance,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(RelayOptions::default())
    }

    pub(crate) fn with(options: RelayOptions) -> Self {
        Self::over(MemoryStore::new(), options)
    }

    pub(crate) fn over(memory: MemoryStore, options: RelayOptions) -> Self {
        let store = Hooked { memory, ..Hooked::new() };
        let publisher = Fake(Arc::new(FakePublisher {
            published: Mutex::default(),
            calls: Mutex::default(),
            takes: Mutex::new(Duration::from_millis(5)),
            judge: Mutex::new(Box::new(|_| Outcome::Acknowledged)),
        }));
        let clock = Arc::new(TokioClock::starting_at(START));
        let chance = Chance::seeded(7);
        let relay = Relay::new(store.clone(), publisher.clone(), options, clock.clone(), chance.clone());
        let workers = Arc::new(FakeWorkers {
            max: AtomicUsize::new(0),
            asked: Mutex::default(),
            start: Mutex::new(Box::new(|_| {})),
            hangs: AtomicBool::new(false),
        });
        let relay = Arc::new(relay.unwrap().with_workers(workers.clone()));
        Self { store, publisher, workers, clock, relay, chance }
    }

    /// Lets sweeps ask for others, `max` at once; `start` is called with how many.
    pub(crate) fn allow_workers(&self, max: usize, start: impl Fn(usize) + Send + Sync + 'static) {
        self.workers.max.store(max, Ordering::Relaxed);
        *self.workers.start.lock().unwrap() = Box::new(start);
    }

    /// Whoever is asked for further sweeps does not answer.
    pub(crate) fn workers_hang(&self) {
        self.workers.hangs.store(true, Ordering::Relaxed);
    }

    /// How many further sweeps were asked for, each time.
    pub(crate) fn asked(&self) -> Vec<usize> {
        self.workers.asked.lock().unwrap().clone()
    }

    /// Enqueues a message and returns its id. Keys "0" to "9" and so on decide the bucket.
    pub(crate) fn enqueue(&self, key: &str) -> MessageId {
        let id = self.chance.message_id(self.clock.now_utc());
        let message = Message::new(id, "orders").with_key(key.to_owned());
        self.store.memory.enqueue(message, BucketCount::DEFAULT).unwrap();
        id
    }

    pub(crate) fn bucket_of(key: &str) -> Bucket {
        BucketCount::DEFAULT.of_key(key.as_bytes())
    }

    /// A key of each bucket, in bucket order.
    pub(crate) fn keys() -> Vec<String> {
        let key_of =
            |bucket| (0..).map(|n: u32| n.to_string()).find(|key| Self::bucket_of(key) == bucket).unwrap();
        BucketCount::DEFAULT.buckets().map(key_of).collect()
    }

    pub(crate) fn budget(&self, seconds: u64) -> Budget {
        Budget::new(self.clock.clone(), Duration::from_secs(seconds))
    }

    pub(crate) fn relay_id(&self) -> RelayId {
        self.chance.relay_id("test", self.clock.now_utc())
    }

    pub(crate) fn published(&self) -> Vec<MessageId> {
        self.publisher.0.published.lock().unwrap().iter().map(|message| message.id).collect()
    }

    pub(crate) fn publisher_messages(&self) -> Vec<Message> {
        self.publisher.0.published.lock().unwrap().clone()
    }

    /// How many batches of a bucket were given to the publisher.
    pub(crate) fn publish_calls(&self, bucket: Bucket) -> usize {
        let calls = self.publisher.0.calls.lock().unwrap();
        calls.iter().filter(|called| **called == Some(bucket)).count()
    }

    pub(crate) fn now(&self) -> Ticks {
        self.clock.now_utc()
    }

    pub(crate) fn publish_takes(&self, duration: Duration) {
        *self.publisher.0.takes.lock().unwrap() = duration;
    }

    pub(crate) fn judge(&self, judge: impl Fn(&Message) -> Outcome + Send + Sync + 'static) {
        *self.publisher.0.judge.lock().unwrap() = Box::new(judge);
    }

    pub(crate) fn owner(&self, bucket: Bucket) -> Option<RelayId> {
        self.store.memory.coordination().leases.get(&bucket).and_then(|lease| lease.owner.clone())
    }

    /// Gives a bucket to another relay, as a claim of its lapsed lease would.
    pub(crate) fn take_over(&self, bucket: Bucket) -> RelayId {
        take_over(&self.store.memory, bucket, self.clock.now_utc())
    }

    pub(crate) async fn hinted(&self, buckets: &[Bucket], seconds: u64) -> outbox::RunReport {
        let hints = buckets.iter().copied().collect();
        self.relay.hinted(&self.relay_id(), &hints, &self.budget(seconds)).await
    }

    pub(crate) async fn sweep(&self, seconds: u64) -> outbox::RunReport {
        self.relay.sweep(&self.relay_id(), &self.budget(seconds)).await
    }
}

pub(crate) fn take_over(memory: &MemoryStore, bucket: Bucket, now: Ticks) -> RelayId {
    let other = RelayId::new("other").unwrap();
    let record = outbox::coordination::LeaseRecord {
        owner: Some(other.clone()),
        expires_at: Some(now.plus(Duration::from_mins(1))),
    };
    memory.change(|coordination| {
        coordination.leases.insert(bucket, record);
    });
    other
}
