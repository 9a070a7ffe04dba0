//! A DynamoDB that misbehaves when told to: which requests meet which fault, and how often that happened.
//!
//! The decisions are here, pure and seeded; the proxy carries them out.

mod answer;
mod batch;
mod rule;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

pub(super) use answer::refusal;
pub(super) use batch::Split;
pub use rule::{Fault, Rule};

/// The faults of one endpoint, none at first. They can be changed at any time, from anywhere.
///
/// A change applies to requests that arrive after it, and ends what [hangs](Fault::Hang) under a rule that is no
/// longer in force. The first rule that applies to a request and draws it decides; rules draw in their order, and
/// one that is not asked does not draw.
#[derive(Debug)]
pub struct Faults {
    rules: watch::Sender<Vec<Arc<Drawing>>>,
    injected: Mutex<Injected>,
}

/// A rule, the randomness it draws from, and what came of it.
#[derive(Debug)]
struct Drawing {
    rule: Rule,
    random: Mutex<StdRng>,
    matched: AtomicU64,
    injected: AtomicU64,
}

/// A rule that was put in force. It goes on counting what it meets; dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct InForce(Arc<Drawing>);

impl InForce {
    /// Requests that the rule applied to, whether drawn or not.
    pub fn matched(&self) -> u64 {
        self.0.matched.load(Ordering::Relaxed)
    }

    /// Requests that met the fault. A test whose fault was never met has tested nothing.
    pub fn injected(&self) -> u64 {
        self.0.injected.load(Ordering::Relaxed)
    }
}

/// How often each fault was met, by operation. `Display` is one line for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Injected {
    counts: BTreeMap<&'static str, BTreeMap<String, u64>>,
}

impl Injected {
    /// Requests that met a fault of this kind, whatever its parameters.
    pub fn of(&self, fault: Fault) -> u64 {
        self.counts.get(fault.name()).map_or(0, |operations| operations.values().sum())
    }

    /// Requests of that operation that met a fault of this kind.
    pub fn of_operation(&self, fault: Fault, operation: &str) -> u64 {
        self.counts.get(fault.name()).and_then(|operations| operations.get(operation)).copied().unwrap_or(0)
    }

    /// Requests that met any fault.
    pub fn total(&self) -> u64 {
        self.counts.values().flat_map(BTreeMap::values).sum()
    }

    fn add(&mut self, fault: Fault, operation: &str) {
        *self.counts.entry(fault.name()).or_default().entry(operation.to_owned()).or_default() += 1;
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return f.write_str("no fault");
        }
        for (index, (fault, operations)) in self.counts.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{fault}:")?;
            for (operation, count) in operations {
                write!(f, " {operation} {count}")?;
            }
        }
        Ok(())
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self { rules: watch::channel(Vec::new()).0, injected: Mutex::default() }
    }
}

impl Faults {
    /// Puts this rule in force, and no other.
    pub fn set(&self, rule: Rule) -> InForce {
        let drawing = Arc::new(Drawing::new(rule));
        self.rules.send_replace(vec![Arc::clone(&drawing)]);
        InForce(drawing)
    }

    /// Puts this rule in force too, behind those that are.
    pub fn add(&self, rule: Rule) -> InForce {
        let drawing = Arc::new(Drawing::new(rule));
        self.rules.send_modify(|rules| rules.push(Arc::clone(&drawing)));
        InForce(drawing)
    }

    /// Ends all faults. Requests that are to be [late](Fault::Late) still arrive when they are due.
    pub fn clear(&self) {
        self.rules.send_replace(Vec::new());
    }

    /// What was met up to now, by rules that are no longer in force too.
    pub fn injected(&self) -> Injected {
        self.lock().clone()
    }

    /// What becomes of a request. What is drawn is counted as met.
    pub(super) fn draw(&self, operation: &str, body: &Bytes) -> Option<Drawn> {
        let drawing = {
            let rules = self.rules.borrow();
            Arc::clone(rules.iter().find(|drawing| drawing.meets(operation, body))?)
        };
        self.lock().add(drawing.rule.fault, operation);
        Some(Drawn(drawing))
    }

    /// Waits until the rule is no longer in force.
    pub(super) async fn lifted(&self, drawn: &Drawn) {
        let mut rules = self.rules.subscribe();
        // An error would mean that this is gone, which is borrowed.
        let _ = rules.wait_for(|rules| !rules.iter().any(|rule| Arc::ptr_eq(rule, &drawn.0))).await;
    }

    fn lock(&self) -> MutexGuard<'_, Injected> {
        // Counters are never left half changed.
        self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drawing {
    fn new(rule: Rule) -> Self {
        let random = Mutex::new(StdRng::seed_from_u64(rule.seed));
        Self { rule, random, matched: AtomicU64::new(0), injected: AtomicU64::new(0) }
    }

    fn meets(&self, operation: &str, body: &Bytes) -> bool {
        if !self.rule.applies_to(operation, body) {
            return false;
        }
        self.matched.fetch_add(1, Ordering::Relaxed);
        let drawn = self.chance(self.rule.share);
        self.injected.fetch_add(u64::from(drawn), Ordering::Relaxed);
        drawn
    }

    fn chance(&self, share: f64) -> bool {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).random::<f64>() < share
    }
}

/// A fault that a request is to meet.
pub(super) struct Drawn(Arc<Drawing>);

impl Drawn {
    pub(super) fn fault(&self) -> Fault {
        self.0.rule.fault
    }

    /// Divides a batch into what is carried out and what is left, by the rule's own randomness.
    pub(super) fn split(&self, body: &[u8], left: f64) -> Option<Split> {
        Split::of(body, || self.0.chance(left))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pattern(seed: u64) -> Vec<bool> {
        let faults = Faults::default();
        faults.set(Rule::new(Fault::Throttle).with_share(0.3).with_seed(seed));
        (0..1_000).map(|_| faults.draw("PutItem", &Bytes::new()).is_some()).collect()
    }

    #[test]
    fn a_share_is_drawn_and_the_seed_decides_which() {
        let drawn = pattern(7);
        assert_eq!(drawn, pattern(7));
        assert_ne!(drawn, pattern(8));
        let count = drawn.iter().filter(|it| **it).count();
        assert!((250..350).contains(&count), "{count} of 1000");
    }

    #[test]
    fn everything_and_nothing_are_exact() {
        for (share, expected) in [(1.0, 100), (0.0, 0), (f64::NAN, 0), (7.0, 100)] {
            let faults = Faults::default();
            let rule = faults.set(Rule::new(Fault::LoseReply).with_share(share));
            let drawn = (0..100).filter(|_| faults.draw("PutItem", &Bytes::new()).is_some()).count();
            assert_eq!((drawn, rule.matched(), rule.injected()), (expected, 100, expected as u64), "{share}");
        }
    }

    #[test]
    fn the_first_rule_that_draws_decides_and_each_counts_for_itself() {
        let faults = Faults::default();
        let puts = faults.set(Rule::new(Fault::LoseRequest).with_operations(["PutItem"]));
        let rest = faults.add(Rule::new(Fault::Late(Duration::from_secs(1))));
        for operation in ["PutItem", "Query", "PutItem", "Query", "Query"] {
            let expected = if operation == "PutItem" { puts.clone() } else { rest.clone() };
            assert!(Arc::ptr_eq(&faults.draw(operation, &Bytes::new()).unwrap().0, &expected.0));
        }
        let never = faults.set(Rule::new(Fault::Hang).with_operations(["PutItems"]));
        assert!(faults.draw("PutItem", &Bytes::new()).is_none());
        assert_eq!([&puts, &rest, &never].map(|rule| rule.injected()), [2, 3, 0]);
        assert_eq!([&puts, &rest, &never].map(|rule| rule.matched()), [2, 3, 0]);

        let injected = faults.injected();
        assert_eq!(injected.to_string(), "late: Query 3; request lost: PutItem 2");
        assert_eq!(injected.total(), 5);
        assert_eq!(injected.of(Fault::Late(Duration::ZERO)), 3);
        assert_eq!(injected.of_operation(Fault::LoseRequest, "PutItem"), 2);
        assert_eq!(injected.of(Fault::Hang), 0);
        faults.clear();
        assert!(faults.draw("PutItem", &Bytes::new()).is_none());
        assert_eq!(Faults::default().injected().to_string(), "no fault");
    }
}
