//! Time as a value that is passed in.
//!
//! Two clocks, never mixed: the wall clock dates what other relays read; the monotonic clock measures how long
//! something took in this process. A freeze can stop either or make it jump, so lease age uses both
//! (design.md, section 6).

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;

use crate::Ticks;

/// A reading of the monotonic clock: the time since an origin that only this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// The reading `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How long after `earlier` this reading was taken; zero if it was not.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The reading that the clock will give `duration` from this one.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Both clocks and the sleep that goes with them.
///
/// `sleep` must follow the same time as `monotonic`; under virtual time all three move together.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall clock. May jump either way.
    fn now_utc(&self) -> Ticks;

    /// The monotonic clock. Never goes back.
    fn monotonic(&self) -> Monotonic;

    /// Completes no sooner than `duration` from now. Dropping the future stops the timer.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clocks, with tokio's timer.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic origin is now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_utc(&self) -> Ticks {
        Ticks::from_system_time(SystemTime::now())
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.origin.elapsed())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that follows tokio's time, so that a test with paused time moves all of it at will.
///
/// Its wall clock starts at a time given to it and can be stepped apart from the monotonic one.
#[derive(Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    start: Ticks,
    /// What the wall clock has been stepped by, in whole milliseconds.
    stepped_millis: std::sync::atomic::AtomicI64,
}

impl TokioClock {
    /// A clock whose wall time is `start` now.
    pub fn starting_at(start: Ticks) -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            start,
            stepped_millis: std::sync::atomic::AtomicI64::new(0),
        }
    }

    /// Steps the wall clock alone, as a thaw or a time server does; negative goes back.
    pub fn step_wall(&self, millis: i64) {
        self.stepped_millis.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now_utc(&self) -> Ticks {
        let now = self.start.plus(self.origin.elapsed());
        let stepped = self.stepped_millis.load(std::sync::atomic::Ordering::SeqCst);
        let by = Duration::from_millis(stepped.unsigned_abs());
        if stepped < 0 { now.minus(by) } else { now.plus(by) }
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.origin.elapsed())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
