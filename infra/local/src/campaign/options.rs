//! What a campaign is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use super::scenario::Scenario;
use crate::environment::EnvironmentOptions;

/// The times that faults and bounds are measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long an invocation may take.
    pub function_timeout: Duration,
    /// How long a crashed owner keeps a bucket.
    pub lease_duration: Duration,
    /// How often a relay at work renews.
    pub lease_renew_interval: Duration,
    /// How often every bucket is looked at.
    pub sweep_interval: Duration,
}

impl Timing {
    /// As short as the product allows, so that what takes a minute when deployed takes seconds.
    pub const SHORT: Self = Self {
        function_timeout: Duration::from_secs(12),
        lease_duration: Duration::from_secs(3),
        lease_renew_interval: Duration::from_secs(1),
        sweep_interval: Duration::from_secs(1),
    };

    /// As [`SHORT`](Self::SHORT), with the shortest timeout that is supported.
    pub const SHORTEST: Self = Self { function_timeout: Duration::from_secs(10), ..Self::SHORT };

    /// The template's defaults.
    pub const DEPLOYED: Self = Self {
        function_timeout: Duration::from_secs(60),
        lease_duration: Duration::from_secs(30),
        lease_renew_interval: Duration::from_secs(10),
        sweep_interval: Duration::from_secs(60),
    };

    /// How long the outbox may take to be empty once nothing is broken and nothing is placed any more.
    ///
    /// An invocation that began under a fault may hold its buckets until its timeout. One that was killed just after it
    /// had renewed keeps them, and its place in the fair share, for one lease duration; a sweep that met it then takes
    /// what it may, and the next one the rest, each up to an interval later and for up to a lease duration under the
    /// same clock. What is left after that is somebody's failure to look.
    pub fn drain_bound(&self) -> Duration {
        self.function_timeout + 2 * self.lease_duration + 2 * self.sweep_interval
    }

    /// As the template's parameters.
    pub(super) fn parameters(&self) -> BTreeMap<String, String> {
        let whole = |duration: Duration| format!("{}s", duration.as_secs());
        BTreeMap::from([
            ("FunctionTimeoutSeconds".to_owned(), self.function_timeout.as_secs().to_string()),
            ("LeaseDuration".to_owned(), whole(self.lease_duration)),
            ("LeaseRenewInterval".to_owned(), whole(self.lease_renew_interval)),
        ])
    }
}

/// What to do, for how long, under which load. [`Default`] is the whole of it.
#[derive(Debug, Clone)]
pub struct CampaignOptions {
    /// What to start. Tables, timing and the broker are the campaign's own affair.
    pub environment: EnvironmentOptions,
    /// Decides kinds, victims' ranks, delays and lengths.
    pub seed: u64,
    /// How many rounds.
    pub rounds: u32,
    /// Of which kinds.
    pub kinds: BTreeSet<Kind>,
    /// Rounds between two fresh starts with a verdict.
    pub segment_rounds: u32,
    /// The functions' times during rounds.
    pub timing: Timing,
    /// Outages that are carried out before the rounds, each in a segment of its own.
    pub scenarios: Vec<Scenario>,
    /// Orders a second.
    pub rate: u32,
    /// Customers, each of whose orders are placed one after another; one in eight has messages without a key.
    pub customers: u32,
    /// Where what explains a failed segment is kept; made when there is something to keep.
    pub keep: PathBuf,
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self {
            environment: EnvironmentOptions::default(),
            seed: rand::random(),
            rounds: 500,
            kinds: Kind::ALL.into(),
            segment_rounds: 25,
            timing: Timing::SHORT,
            scenarios: Scenario::all_full(),
            rate: 25,
            customers: 32,
            keep: std::env::temp_dir().join("outbox-campaign"),
        }
    }
}
