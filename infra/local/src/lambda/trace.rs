//! The tracing header: which chain of requests an invocation belongs to, and how often each function was in it.
//!
//! A function hands it on by itself: its runtime puts the header into `_X_AMZN_TRACE_ID`, and the AWS SDK sends
//! that with every request. So a chain is followed over processes, as Lambda follows it to find loops.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// The functions that a header counts. Past them the one that came into the chain first is forgotten.
const COUNTED_FUNCTIONS: usize = 16;
/// A root is 35 characters long. What is longer was not made by Lambda.
const LONGEST_ROOT: usize = 64;

/// The tracing header of one event, `Root=1-...;Parent=...;Sampled=0;Lineage=a87bd80c:1|68fd508a:0`.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    root: String,
    sampled: bool,
    /// For every function of the chain how often it came back, in the order of their first appearance.
    lineage: Vec<(u32, u32)>,
}

impl Trace {
    /// Goes on with the chain that a request's header names; without a header a chain begins. What cannot be
    /// understood of it is left out: it comes from a function, and must not keep another one from running.
    pub(super) fn following(header: Option<&str>) -> Self {
        let mut trace = Self { root: new_root(), sampled: false, lineage: Vec::new() };
        for part in header.unwrap_or_default().split(';') {
            match part.trim().split_once('=') {
                Some(("Root", root)) if is_root(root) => trace.root = root.to_owned(),
                Some(("Sampled", sampled)) => trace.sampled = sampled == "1",
                Some(("Lineage", lineage)) => {
                    trace.lineage = lineage.split('|').take(COUNTED_FUNCTIONS).filter_map(entry).collect();
                }
                _ => {}
            }
        }
        trace
    }

    /// Counts a function in, and says how often it had been in the chain before.
    pub(super) fn enter(&mut self, function_arn: &str) -> u32 {
        let mut hasher = DefaultHasher::new();
        function_arn.hash(&mut hasher);
        let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
        let function = u32::from_be_bytes([a, b, c, d]);
        if let Some((_, returns)) = self.lineage.iter_mut().find(|(known, _)| *known == function) {
            *returns = returns.saturating_add(1);
            return *returns;
        }
        if self.lineage.len() == COUNTED_FUNCTIONS {
            self.lineage.remove(0);
        }
        self.lineage.push((function, 0));
        0
    }

    /// The header for one delivery: each has a parent of its own.
    pub(super) fn header(&self) -> String {
        let parent = &random_digits()[..16];
        let lineage: Vec<_> =
            self.lineage.iter().map(|(function, returns)| format!("{function:08x}:{returns}")).collect();
        format!(
            "Root={};Parent={parent};Sampled={};Lineage={}",
            self.root,
            u8::from(self.sampled),
            lineage.join("|")
        )
    }
}

fn entry(text: &str) -> Option<(u32, u32)> {
    let (function, returns) = text.split_once(':')?;
    Some((u32::from_str_radix(function, 16).ok()?, returns.parse().ok()?))
}

fn is_root(text: &str) -> bool {
    let known = |it: char| it.is_ascii_alphanumeric() || it == '-';
    !text.is_empty() && text.len() <= LONGEST_ROOT && text.chars().all(known)
}

fn new_root() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("1-{seconds:08x}-{}", &random_digits()[..24])
}

/// 32 hexadecimal digits.
fn random_digits() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "arn:aws:lambda:us-east-1:000000000000:function:a";
    const B: &str = "arn:aws:lambda:us-east-1:000000000000:function:b";

    /// What a function would send on.
    fn next(trace: &Trace) -> Trace {
        Trace::following(Some(&trace.header()))
    }

    #[test]
    fn every_function_is_counted_by_itself_along_one_chain() {
        let mut trace = Trace::following(None);
        let root = trace.root.clone();
        for round in 0..40 {
            assert_eq!(trace.enter(A), round);
            trace = next(&trace);
            assert_eq!(trace.enter(B), round);
            trace = next(&trace);
        }
        assert_eq!(trace.root, root);
        assert_eq!(trace.lineage.len(), 2);
        assert_ne!(Trace::following(None).root, root, "no header, another chain");
    }

    #[test]
    fn the_first_of_too_many_functions_is_forgotten() {
        let mut trace = Trace::following(None);
        for function in 0..=COUNTED_FUNCTIONS {
            assert_eq!(trace.enter(&format!("{A}{function}")), 0);
        }
        trace = next(&trace);
        assert_eq!(trace.lineage.len(), COUNTED_FUNCTIONS);
        assert_eq!(trace.enter(&format!("{A}{COUNTED_FUNCTIONS}")), 1);
        assert_eq!(trace.enter(&format!("{A}0")), 0);
    }

    #[test]
    fn headers_of_lambda_are_understood() {
        let root = "1-665a39a0-7e53f00f3b1da8ad70666729";
        let header = format!("Root={root};Parent=e80ec591cab089eb;Sampled=1;Lineage=061379e8:0|cbc84ad3:15");
        let trace = Trace::following(Some(&header));
        assert_eq!((trace.root.as_str(), trace.sampled), (root, true));
        assert_eq!(trace.lineage, [(0x0613_79e8, 0), (0xcbc8_4ad3, 15)]);
        let again = trace.header();
        assert!(again.starts_with(&format!("Root={root};Parent=")), "{again}");
        assert!(again.ends_with(";Sampled=1;Lineage=061379e8:0|cbc84ad3:15"), "{again}");
        // A trace that is not sampled comes without parent and decision.
        let trace = Trace::following(Some(&format!("Root={root};Lineage=061379e8:0")));
        assert_eq!((trace.root.as_str(), trace.sampled, trace.lineage.len()), (root, false, 1));
    }

    #[test]
    fn what_is_no_header_begins_a_chain() {
        for header in [
            "",
            ";;=;",
            "Root",
            "Root=",
            "Root=a b",
            "Root=\u{e9}",
            &format!("Root={}", "1".repeat(LONGEST_ROOT + 1)),
            "Lineage=|:|x:1|061379e8:-1|061379e8:4294967296|:7|061379e8",
        ] {
            let trace = Trace::following(Some(header));
            assert!(trace.root.starts_with("1-") && trace.root.len() == 35, "{header}: {trace:?}");
            assert!(trace.lineage.is_empty(), "{header}: {trace:?}");
        }
        let endless = format!("Lineage={}", "061379e8:4294967295|".repeat(10_000));
        let mut trace = Trace::following(Some(&endless));
        assert_eq!(trace.lineage.len(), COUNTED_FUNCTIONS);
        trace.enter(A);
        assert_eq!(trace.lineage.len(), COUNTED_FUNCTIONS);
    }
}
