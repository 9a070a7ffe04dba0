//! The credential in use: obtained by async code, kept, renewed by age.
//!
//! librdkafka asks for a token on a thread that must not wait, and by a timer that does not run in a frozen process. So
//! its question is answered with the token that is kept, at once, and what keeps that one new is the publish call: it
//! looks at the age before it sends anything. The age is the larger of what both clocks say, and counts from before the
//! credential was asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox::lease_age::Moment;
use outbox::{Clock, Ticks};

use crate::credentials::{Credential, CredentialError, CredentialSource};

/// The longest that one credential may take. Also what a start waits for the first.
pub(crate) const OBTAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The same for one whose predecessor can still be used: a publish waits for it.
const RENEW_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a renewal that failed is not tried again, for as long as its predecessor can be used.
const RENEWED_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// How old a user name and password may be when a client is made of them. One that lives goes on with those it has, for
/// as long as the brokers take them.
const LOGIN_IS_NEW: Duration = Duration::from_mins(1);

/// What a credential is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client is there, and is to be ready to connect again.
    KeepClient,
    /// A client is to be made.
    NewClient,
}

/// A credential, and since when it was there.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) credential: Arc<Credential>,
    obtained: Moment,
}

impl Held {
    /// Whether it needs no renewal yet.
    fn is_new(&self, purpose: Purpose, now: Moment) -> bool {
        let age = now.since(self.obtained);
        match (self.credential.as_ref(), purpose) {
            // Long before librdkafka asks, which it does when four fifths of what is advertised are over.
            (Credential::Token { life, .. }, _) => age < *life / 3,
            (Credential::Login { .. }, Purpose::KeepClient) => true,
            (Credential::Login { .. }, Purpose::NewClient) => age < LOGIN_IS_NEW,
        }
    }

    /// Whether a client may still connect with it. The rest of a token's life is left for the publish call that begins
    /// with it, and for clocks that are apart.
    fn is_usable(&self, now: Moment) -> bool {
        match self.credential.as_ref() {
            Credential::Token { life, .. } => now.since(self.obtained) < advertised(*life),
            Credential::Login { .. } => true,
        }
    }

    /// Until when librdkafka is told that a token of this life can be used.
    pub(crate) fn usable_until(&self, life: Duration) -> Ticks {
        self.obtained.wall.plus(advertised(life))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.credential, &other.credential)
    }
}

/// Two thirds: five minutes less than the quarter of an hour that MSK's tokens have, where a publish call lasts four at
/// most.
fn advertised(life: Duration) -> Duration {
    life * 2 / 3
}

/// The credential of one publisher, over all clients that it has.
#[derive(Debug)]
pub(crate) struct Cache {
    source: Arc<dyn CredentialSource>,
    clock: Arc<dyn Clock>,
    /// Never locked for longer than a look: the client's thread looks, too.
    held: Mutex<Option<Held>>,
    /// Held by the one caller that asks the source on behalf of all; its last failure.
    obtaining: tokio::sync::Mutex<Option<CredentialError>>,
    /// When a renewal last failed that could be done without.
    failed: Mutex<Option<Moment>>,
    /// How often the source was asked, with an end.
    asked: AtomicU64,
}

impl Cache {
    pub(crate) fn new(source: Arc<dyn CredentialSource>, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            clock,
            held: Mutex::new(None),
            failed: Mutex::new(None),
            obtaining: tokio::sync::Mutex::new(None),
            asked: AtomicU64::new(0),
        }
    }

    /// What is kept, if a client may still connect with it. Never waits.
    pub(crate) fn kept(&self) -> Option<Held> {
        self.held().clone().filter(|held| self.can_use(held))
    }

    /// Whether a client may still connect with it.
    pub(crate) fn can_use(&self, held: &Held) -> bool {
        held.is_usable(Moment::now(self.clock.as_ref()))
    }

    /// A credential for `purpose`: what is kept, or a new one if that is old. Where no new one can be had, an old one will
    /// do for as long as it is usable.
    pub(crate) async fn get(&self, purpose: Purpose, limit: Duration) -> Result<Held, CredentialError> {
        if let Some(held) = self.kept_new(purpose) {
            return Ok(held);
        }
        let last = self.kept();
        if let Some(last) = last.as_ref().filter(|_| self.failed_a_moment_ago()) {
            return Ok(last.clone());
        }
        let longest = match last.as_ref().map(|last| last.credential.as_ref()) {
            Some(Credential::Token { .. }) => RENEW_TIMEOUT,
            // It may have been rotated, and nothing tells.
            Some(Credential::Login { .. }) | None => OBTAIN_TIMEOUT,
        };
        let limit = limit.min(longest);
        let obtained = tokio::select! {
            // After a thaw both may be there: an answer that came is not thrown away.
            biased;
            obtained = self.obtain(purpose) => obtained,
            () = self.clock.sleep(limit) => Err(CredentialError::unavailable(format!(
                "{} took longer than {limit:.1?}",
                self.source.what()
            ))),
        };
        obtained.or_else(|error| match self.kept() {
            Some(held) => {
                *self.failed() = Some(Moment::now(self.clock.as_ref()));
                tracing::warn!(error = %outbox::Chain(&error), "the Kafka credential was not renewed: the last one is used");
                Ok(held)
            }
            None => Err(error),
        })
    }

    async fn obtain(&self, purpose: Purpose) -> Result<Held, CredentialError> {
        let asked_before = self.asked.load(Ordering::SeqCst);
        let mut failure = self.obtaining.lock().await;
        if let Some(held) = self.kept_new(purpose) {
            return Ok(held);
        }
        if self.asked.load(Ordering::SeqCst) > asked_before
            && let Some(error) = failure.as_ref()
        {
            // Somebody has asked while this call waited: another question at once would have the same answer.
            return Err(error.clone());
        }
        let held = self.ask().await;
        *failure = held.as_ref().err().cloned();
        self.asked.fetch_add(1, Ordering::SeqCst);
        held
    }

    async fn ask(&self) -> Result<Held, CredentialError> {
        let now = || Moment::now(self.clock.as_ref());
        let ask = async || -> Result<Held, CredentialError> {
            let obtained = now();
            Ok(Held { credential: Arc::new(self.source.obtain().await?), obtained })
        };
        let mut held = ask().await?;
        if !held.is_new(Purpose::NewClient, now()) {
            // Frozen while it was asked for: it is as old as the freeze was long.
            held = ask().await?;
        }
        if !held.is_usable(now()) {
            let what = self.source.what();
            return Err(CredentialError::unavailable(format!("{what} had expired by the time it came")));
        }
        *self.held() = Some(held.clone());
        Ok(held)
    }

    /// The brokers have refused it: the next client gets another one. Returns whether it was as new as can be had, so
    /// that another one will fare no better.
    pub(crate) fn refused(&self, refused: &Held) -> bool {
        let mut held = self.held();
        if held.as_ref().is_some_and(|held| held.is(refused)) {
            *held = None;
        }
        refused.is_new(Purpose::NewClient, Moment::now(self.clock.as_ref()))
    }

    fn kept_new(&self, purpose: Purpose) -> Option<Held> {
        let now = Moment::now(self.clock.as_ref());
        self.held().clone().filter(|held| held.is_new(purpose, now))
    }

    fn failed_a_moment_ago(&self) -> bool {
        let now = Moment::now(self.clock.as_ref());
        self.failed().is_some_and(|failed| now.since(failed) < RENEWED_AGAIN_AFTER)
    }

    fn failed(&self) -> MutexGuard<'_, Option<Moment>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures::future::BoxFuture;
    use outbox::TokioClock;
    use tokio::time::Instant;

    use super::*;

    const LIFE: Duration = Duration::from_mins(15);
    const LIMIT: Duration = Duration::from_secs(2);

    /// What the source does when it is asked.
    #[derive(Clone, Debug)]
    enum Answer {
        Token,
        Login,
        Fails,
        Hangs,
        /// Answers after the process was frozen for so many seconds.
        Freezes(i64),
    }

    /// Gives one answer after the other, and then the last one for ever; its tokens are numbered.
    #[derive(Debug)]
    struct Script {
        clock: Arc<TokioClock>,
        answers: Mutex<VecDeque<Answer>>,
        asked: AtomicU64,
    }

    impl CredentialSource for Script {
        fn what(&self) -> String {
            "the token of the test".to_owned()
        }

        fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>> {
            Box::pin(async {
                let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
                let answer = {
                    let mut answers = self.answers.lock().unwrap();
                    if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
                };
                tokio::time::sleep(Duration::from_millis(100)).await;
                match answer.unwrap() {
                    Answer::Token => {}
                    Answer::Login => return Ok(Credential::login("relay", format!("p{number}")).unwrap()),
                    Answer::Fails => return Err(CredentialError::misconfigured("signing failed")),
                    Answer::Hangs => std::future::pending().await,
                    Answer::Freezes(seconds) => self.clock.step_wall(seconds * 1000),
                }
                Ok(Credential::token(format!("t{number}"), "relay", LIFE).unwrap())
            })
        }
    }

    struct Bench {
        clock: Arc<TokioClock>,
        source: Arc<Script>,
        cache: Arc<Cache>,
    }

    impl Bench {
        fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
            let clock = Arc::new(TokioClock::starting_at(Ticks::from_raw(639_316_345_534_567_890)));
            let answers = Mutex::new(answers.into_iter().collect());
            let source = Arc::new(Script { clock: Arc::clone(&clock), answers, asked: AtomicU64::new(0) });
            let cache = Arc::new(Cache::new(source.clone(), clock.clone()));
            Self { clock, source, cache }
        }

        async fn get(&self, purpose: Purpose) -> Result<String, CredentialError> {
            self.cache.get(purpose, LIMIT).await.map(|held| secret(&held))
        }

        async fn token(&self) -> String {
            self.get(Purpose::KeepClient).await.unwrap()
        }

        fn asked(&self) -> u64 {
            self.source.asked.load(Ordering::SeqCst)
        }
    }

    fn secret(held: &Held) -> String {
        match held.credential.as_ref() {
            Credential::Token { value, .. } => value.clone(),
            Credential::Login { password, .. } => password.clone(),
        }
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_token_is_used_again_and_an_old_one_is_renewed() {
        let bench = Bench::new([Answer::Token]);
        assert_eq!((bench.token().await, bench.token().await), ("t1".into(), "t1".into()));
        pass(299).await;
        assert_eq!(bench.token().await, "t1");
        pass(1).await;
        assert_eq!(bench.token().await, "t2");
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "t2");
        assert_eq!(bench.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_ages_a_token_whichever_clock_saw_it() {
        let bench = Bench::new([Answer::Token]);
        assert_eq!(bench.token().await, "t1");
        bench.clock.step_wall(300_000);
        assert_eq!(bench.token().await, "t2");
        bench.clock.step_wall(600_000);
        assert!(bench.cache.kept().is_none(), "its use is over");
        assert_eq!(bench.token().await, "t3");
        // The wall clock is set back, and the monotonic one goes on.
        bench.clock.step_wall(-3_600_000);
        pass(301).await;
        assert_eq!(bench.token().await, "t4");
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_while_it_was_asked_for_ages_it_as_well() {
        let bench = Bench::new([Answer::Freezes(900), Answer::Token]);
        assert_eq!(bench.token().await, "t2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_advertised_ends_before_the_token_does() {
        let bench = Bench::new([Answer::Token]);
        let began = bench.clock.now_utc();
        let held = bench.cache.get(Purpose::NewClient, LIMIT).await.unwrap();
        assert_eq!(held.usable_until(LIFE).since(began), Duration::from_mins(10));
        pass(599).await;
        assert!(bench.cache.kept().is_some());
        pass(1).await;
        assert!(bench.cache.kept().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_hangs_is_waited_for_within_the_limit() {
        let bench = Bench::new([Answer::Hangs, Answer::Token]);
        let began = Instant::now();
        let error = bench.get(Purpose::NewClient).await.unwrap_err();
        let took = began.elapsed();
        assert!(took >= LIMIT && took < LIMIT + Duration::from_millis(10), "{took:?}");
        assert_eq!(error.to_string(), "the token of the test took longer than 2.0s");
        assert!(!error.is_misconfiguration());
        // Whoever hung holds nobody up.
        assert_eq!(bench.token().await, "t2");
        let bench = Bench::new([Answer::Hangs]);
        assert!(bench.cache.get(Purpose::NewClient, Duration::from_hours(1)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_says_why_and_is_asked_again() {
        let bench = Bench::new([Answer::Fails, Answer::Token]);
        let error = bench.get(Purpose::NewClient).await.unwrap_err();
        assert_eq!(error.to_string(), "signing failed");
        assert!(error.is_misconfiguration());
        assert_eq!(bench.token().await, "t2");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_token_will_do_while_it_can_be_used() {
        let bench = Bench::new([Answer::Token, Answer::Fails]);
        assert_eq!(bench.token().await, "t1");
        pass(599).await;
        assert_eq!(bench.token().await, "t1");
        pass(1).await;
        assert!(bench.get(Purpose::KeepClient).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_hangs_costs_a_second_now_and_then() {
        let bench = Bench::new([Answer::Token, Answer::Hangs]);
        assert_eq!(bench.token().await, "t1");
        pass(301).await;
        let took = async || {
            let began = Instant::now();
            assert_eq!(bench.token().await, "t1");
            began.elapsed()
        };
        let first = took().await;
        assert!(first >= RENEW_TIMEOUT && first < RENEW_TIMEOUT + Duration::from_millis(10), "{first:?}");
        assert_eq!((took().await, bench.asked()), (Duration::ZERO, 2));
        pass(15).await;
        assert!(took().await >= RENEW_TIMEOUT);
        assert_eq!(bench.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_is_to_blame_only_if_it_was_new() {
        let bench = Bench::new([Answer::Login]);
        let first = bench.cache.get(Purpose::NewClient, LIMIT).await.unwrap();
        pass(59).await;
        assert!(bench.cache.refused(&first));
        let second = bench.cache.get(Purpose::NewClient, LIMIT).await.unwrap();
        pass(60).await;
        assert!(!bench.cache.refused(&second), "it may have been rotated since");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_at_once_ask_once() {
        let bench = Bench::new([Answer::Token]);
        let both = tokio::join!(bench.get(Purpose::NewClient), bench.get(Purpose::KeepClient));
        assert_eq!((both.0.unwrap(), both.1.unwrap()), ("t1".into(), "t1".into()));
        assert_eq!(bench.asked(), 1);

        let bench = Bench::new([Answer::Fails]);
        let both = tokio::join!(bench.get(Purpose::NewClient), bench.get(Purpose::NewClient));
        assert!(both.0.is_err() && both.1.is_err());
        assert_eq!(bench.asked(), 1, "they share a failure as well");
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_is_read_again_for_a_new_client_and_when_it_was_refused() {
        let bench = Bench::new([Answer::Login]);
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p1");
        pass(59).await;
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p1");
        pass(100_000).await;
        assert_eq!(bench.get(Purpose::KeepClient).await.unwrap(), "p1");
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p2");
        let second = bench.cache.kept().unwrap();
        bench.cache.refused(&second);
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p3");
        // Late, from another client.
        bench.cache.refused(&second);
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_cannot_be_read_again_is_used_as_it_was() {
        let bench = Bench::new([Answer::Login, Answer::Fails]);
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p1");
        pass(3600).await;
        assert_eq!(bench.get(Purpose::NewClient).await.unwrap(), "p1");
    }
}
