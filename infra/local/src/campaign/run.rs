//! The whole campaign: outages first, then rounds, segment by segment.

use std::time::{Instant, SystemTime};

use futures::future::try_join_all;
use thiserror::Error;

use super::deck::{Round, deal};
use super::kind::Needs;
use super::options::CampaignOptions;
use super::report::{Failure, Report, SegmentReport};
use super::scenario::Scenario;
use super::segment::{self, Ground, Plan};
use super::strike::Struck;
use crate::environment::EnvironmentError;
use crate::functions::{FunctionBinaries, FunctionsError};
use crate::kafka::{Broker, BrokerError, BrokerOptions, ClientError};
use crate::shop::OrderError;
use crate::stream::StreamFaults;

/// Watches a campaign.
pub trait Observer {
    /// The broker is up; nothing has been struck yet.
    fn started(&mut self, options: &CampaignOptions, broker: &Broker) {
        let _ = (options, broker);
    }

    /// A segment begins: rounds, or an outage.
    fn segment_started(&mut self, name: &str) {
        let _ = name;
    }

    /// A round is over.
    fn round_ended(&mut self, round: &Round, struck: &Struck) {
        let _ = (round, struck);
    }

    /// A segment has its verdict.
    fn segment_ended(&mut self, segment: &SegmentReport) {
        let _ = segment;
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Why a campaign could not be carried on. What it found until then is in the report of the observer's segments.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The functions could not be built.
    #[error("the functions are not available")]
    Functions(#[from] FunctionsError),
    /// The broker did not start, or not again.
    #[error("the broker failed")]
    Broker(#[from] BrokerError),
    /// A segment's environment did not start.
    #[error("the local environment did not start")]
    Environment(#[from] EnvironmentError),
    /// An order could not be placed, or the outbox not be read.
    #[error("placing orders failed")]
    Order(#[from] OrderError),
    /// A topic could not be created or read.
    #[error("reading the topics failed")]
    Consumer(#[from] ClientError),
    /// There are fewer rounds than kinds, so that some would never be tried.
    #[error("{rounds} rounds are too few for {kinds} kinds: each must have one")]
    TooFewRounds {
        /// Rounds asked for.
        rounds: u32,
        /// Kinds asked for.
        kinds: usize,
    },
    /// It failed in this segment.
    #[error("the campaign with seed {seed} failed in {segment}")]
    Segment {
        /// The seed.
        seed: u64,
        /// The segment.
        segment: String,
        /// Why.
        #[source]
        source: Box<CampaignError>,
    },
}

/// Carries out a campaign. What must not be is no error here: the report has it. Everything is ended before it returns.
///
/// # Errors
/// The campaign itself could not go on: an environment did not start, the broker did not come back.
///
/// # Cancellation
/// Dropping the future ends everything at once.
pub async fn run(options: CampaignOptions, observer: &mut dyn Observer) -> Result<Report, CampaignError> {
    let (kinds, rounds) = (options.kinds.len(), options.rounds);
    if rounds > 0 && usize::try_from(rounds).unwrap_or(usize::MAX) < kinds {
        return Err(CampaignError::TooFewRounds { rounds, kinds });
    }
    let binaries = FunctionBinaries::find_or_build(options.environment.profile).await?;
    let broker = broker(&options.environment.kafka).await?;
    let begun = Instant::now();
    let mut ground = Ground { options, broker, binaries };
    let mut report = Report { seed: ground.options.seed, ..Report::default() };
    leave_out(&mut ground, &mut report);
    observer.started(&ground.options, &ground.broker);
    outages(&ground, &mut report, observer).await?;
    let dealt = deal(ground.options.seed, ground.options.rounds, &ground.options.kinds);
    let segment_rounds = usize::try_from(ground.options.segment_rounds.max(1)).unwrap_or(usize::MAX);
    for rounds in dealt.chunks(segment_rounds) {
        rounds_of(&ground, rounds, &mut report, observer).await?;
    }
    report.took = begun.elapsed();
    let _ = ground.broker.stop().await;
    Ok(report)
}

/// Leaves out, by name, what cannot be done to this broker and this DynamoDB.
fn leave_out(ground: &mut Ground, report: &mut Report) {
    let why = |needs: Needs| match needs {
        Needs::OwnBroker if ground.broker.link().is_none() => {
            Some(format!("the broker was not started here ({})", ground.broker.kind()))
        }
        Needs::Emulator if is_aws(&ground.options) => Some("DynamoDB is AWS's own".to_owned()),
        Needs::Nothing | Needs::OwnBroker | Needs::Emulator => None,
    };
    let kinds = ground.options.kinds.iter().map(|kind| (kind.to_string(), kind.means().needs()));
    let scenarios = ground.options.scenarios.iter();
    let scenarios = scenarios.map(|scenario| (scenario.kind.to_string(), scenario.kind.needs()));
    let skipped = kinds.chain(scenarios).filter_map(|(name, needs)| Some(format!("{name}: {}", why(needs)?)));
    report.skipped = skipped.collect();
    let kinds = ground.options.kinds.iter().copied();
    let kinds = kinds.filter(|kind| why(kind.means().needs()).is_none()).collect();
    let scenarios = ground.options.scenarios.iter().copied();
    let scenarios = scenarios.filter(|scenario| why(scenario.kind.needs()).is_none()).collect();
    (ground.options.kinds, ground.options.scenarios) = (kinds, scenarios);
}

/// Nothing stands between the functions and a DynamoDB that is reached over TLS.
fn is_aws(options: &CampaignOptions) -> bool {
    options.environment.dynamodb_endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("https://"))
}

/// The broker, behind a link where one can be put in front of it.
async fn broker(options: &BrokerOptions) -> Result<Broker, BrokerError> {
    match Broker::start(BrokerOptions { behind_link: true, ..options.clone() }).await {
        Err(BrokerError::NoLink { .. }) => Broker::start(options.clone()).await,
        started => started,
    }
}

/// Those that take the broker away one after the other, then all others at once: each has a database of its own.
async fn outages(
    ground: &Ground,
    report: &mut Report,
    observer: &mut dyn Observer,
) -> Result<(), CampaignError> {
    let (others, alone): (Vec<Scenario>, Vec<Scenario>) =
        ground.options.scenarios.iter().partition(|scenario| scenario.leaves_broker_alone());
    for together in alone.iter().map(std::slice::from_ref).chain([&others[..]]) {
        for scenario in together {
            observer.segment_started(&scenario.to_string());
        }
        let segments = try_join_all(together.iter().map(|scenario| outage(ground, *scenario))).await?;
        for (scenario, segment) in together.iter().zip(&segments) {
            report.scenarios.push((*scenario, segment.drain, segment.outcomes.longest));
            report.add(segment);
            observer.segment_ended(segment);
        }
    }
    Ok(())
}

async fn outage(ground: &Ground, scenario: Scenario) -> Result<SegmentReport, CampaignError> {
    let plan = Plan {
        name: scenario.to_string(),
        timing: scenario.timing,
        drain_bound: scenario.drain_bound(),
        rate: scenario.rate(ground.options.rate),
        stream_faults: scenario.stream_faults(),
    };
    let mut untested = None;
    let done = segment::run(ground, &plan, async |field, diary| {
        diary.begin(SystemTime::now(), scenario.to_string());
        untested = scenario.carry_out(field).await?;
        diary.note(SystemTime::now(), "it is over");
        Ok(())
    });
    let mut segment = done.await.map_err(in_segment(ground, &plan))?;
    segment.failures.extend(untested.map(|what| Failure { segment: plan.name.clone(), what }));
    Ok(segment)
}

async fn rounds_of(
    ground: &Ground,
    rounds: &[Round],
    report: &mut Report,
    observer: &mut dyn Observer,
) -> Result<(), CampaignError> {
    let number = |round: Option<&Round>| round.map_or(0, |round| round.number);
    let plan = Plan {
        name: format!("rounds {} to {}", number(rounds.first()), number(rounds.last())),
        timing: ground.options.timing,
        drain_bound: ground.options.timing.drain_bound(),
        rate: ground.options.rate,
        stream_faults: StreamFaults::default(),
    };
    observer.segment_started(&plan.name);
    let done = segment::run(ground, &plan, async |field, diary| {
        for round in rounds {
            diary.begin(SystemTime::now(), format!("round {} {}", round.number, round.kind));
            let struck = field.strike(round).await?;
            let tally = report.tallies.entry(round.kind).or_default();
            tally.rounds += 1;
            tally.hits += u32::from(struck.hit);
            let hit = if struck.hit { "hit" } else { "missed" };
            diary.note(SystemTime::now(), &format!("{hit}: {}", struck.what));
            observer.round_ended(round, &struck);
        }
        Ok(())
    });
    let segment = done.await.map_err(in_segment(ground, &plan))?;
    report.segments += 1;
    report.longest_invocation = report.longest_invocation.max(segment.outcomes.longest);
    report.longest_drain = report.longest_drain.max(segment.drain.took);
    report.add(&segment);
    observer.segment_ended(&segment);
    Ok(())
}

fn in_segment(ground: &Ground, plan: &Plan) -> impl FnOnce(CampaignError) -> CampaignError {
    let (seed, segment) = (ground.options.seed, plan.name.clone());
    move |source| CampaignError::Segment { seed, segment, source: Box::new(source) }
}
