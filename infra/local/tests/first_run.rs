//! The first run through the real functions: in peace, and with the functions killed under it.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outbox_local::environment::{Environment, EnvironmentOptions};
use outbox_local::first_run::{Observer, Progress, Report, RunOptions, Silent, run};
use outbox_local::functions::{FunctionBinaries, Profile};
use outbox_local::kafka::Broker;
use outbox_local::lambda::{LambdaHost, Outcome, Phase, ProcessState};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// The promise of the first command a user tries, once everything is built and fetched.
const FIRST_RUN_BOUND: Duration = Duration::from_secs(60);

/// A run that is timed must have the machine to itself.
static ONE_RUN_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_orders_arrive_once_and_in_order_within_a_minute() {
    let _alone = ONE_RUN_AT_A_TIME.lock().await;
    let environment = EnvironmentOptions::from_env().unwrap();
    // Builds and fetches what is not there yet.
    FunctionBinaries::find_or_build(Profile::Dev).await.unwrap();
    drop(Broker::start(environment.kafka.clone()).await.unwrap());

    let start = Instant::now();
    let report = run(RunOptions::in_environment(environment), &mut Silent).await.unwrap();
    let took = start.elapsed();
    println!("{report}\nin {took:?} from the start of everything to its end");
    assert!(report.holds());
    assert_eq!((report.verdict.placed, report.verdict.records), (1_000, 1_000));
    assert!(took < FIRST_RUN_BOUND, "{took:?}");
}

/// How often the functions are killed, spread over the run.
const ROUNDS: u32 = 10;
/// For an invocation to be seen. The sweep alone makes one a second.
const IN_FLIGHT_BOUND: Duration = Duration::from_secs(30);

/// Kills every process of both functions, in the middle of an invocation, after 5%, 15%, ... 95% of the orders.
#[derive(Default)]
struct Killer {
    begun: u32,
    rounds: JoinSet<Round>,
    /// Rounds that are due together come one after the other.
    turn: Arc<Mutex<()>>,
    arrived: Arc<AtomicU32>,
    /// Invocations that a kill ended before their answer.
    ended_in_flight: usize,
}

/// What came of one round.
#[derive(Debug)]
struct Round {
    /// Processes that died.
    killed: usize,
    /// Orders that had arrived before it.
    arrived: u32,
}

impl Observer for Killer {
    fn progressed(&mut self, progress: Progress, environment: &Environment) {
        self.arrived.store(progress.arrived, Ordering::Relaxed);
        let due = progress.orders * (2 * self.begun + 1) / (2 * ROUNDS);
        if self.begun == ROUNDS || progress.placed < due {
            return;
        }
        self.begun += 1;
        let functions = [environment.stream_relay().clone(), environment.scheduled_relay().clone()];
        let (turn, arrived) = (Arc::clone(&self.turn), Arc::clone(&self.arrived));
        self.rounds.spawn(async move {
            let _turn = turn.lock().await;
            in_flight(&functions).await;
            let arrived = arrived.load(Ordering::Relaxed);
            let [stream, scheduled] = &functions;
            let (stream, scheduled) = tokio::join!(stream.kill_all(), scheduled.kill_all());
            Round { killed: stream + scheduled, arrived }
        });
    }

    fn ended(&mut self, _: &Report, environment: &Environment) {
        let records = [environment.stream_relay(), environment.scheduled_relay()].map(LambdaHost::records);
        let crashed = |outcome: &Outcome| matches!(outcome, Outcome::Crashed { phase: Phase::Invoke, exit } if exit.signal == Some(9));
        self.ended_in_flight = records.iter().flatten().filter(|record| crashed(&record.outcome)).count();
    }
}

/// Waits until a function runs an event.
async fn in_flight(functions: &[LambdaHost]) {
    let deadline = Instant::now() + IN_FLIGHT_BOUND;
    let invoking = |function: &LambdaHost| {
        function.processes().iter().any(|process| matches!(process.state, ProcessState::Invoking(_)))
    };
    while !functions.iter().any(invoking) {
        assert!(Instant::now() < deadline, "no invocation within {IN_FLIGHT_BOUND:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_both_functions_ten_times_loses_nothing_and_keeps_the_order() {
    let _alone = ONE_RUN_AT_A_TIME.lock().await;
    let mut killer = Killer::default();
    let environment = EnvironmentOptions {
        // A killed owner's lease must lapse before anybody can go on; the sweep finds what was left.
        parameters: BTreeMap::from([
            ("LeaseDuration".to_owned(), "3s".to_owned()),
            ("LeaseRenewInterval".to_owned(), "1s".to_owned()),
        ]),
        sweep_interval: Some(Duration::from_secs(1)),
        ..EnvironmentOptions::from_env().unwrap()
    };
    let options = RunOptions { orders: 2_000, ..RunOptions::in_environment(environment) };
    let report = run(options, &mut killer).await.unwrap();
    let rounds = killer.rounds.join_all().await;
    println!("{report}\n{rounds:?}, {} invocations ended in flight", killer.ended_in_flight);

    assert!(report.holds());
    assert_eq!(report.verdict.placed, 2_000);
    assert_eq!(u32::try_from(rounds.len()).unwrap(), ROUNDS);
    for round in &rounds {
        assert!(round.killed > 0, "nothing was there to be killed: {rounds:?}");
        assert!(round.arrived < 2_000, "there was nothing left to lose: {rounds:?}");
    }
    // One that is just ending may escape, a few more must not.
    assert!(killer.ended_in_flight >= 5, "{}", killer.ended_in_flight);
}
