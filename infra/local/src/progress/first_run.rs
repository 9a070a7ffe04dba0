//! The first run: two bars, or a line now and then.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use outbox_local::environment::Environment;
use outbox_local::first_run::{Observer, Progress, Report};

/// In a log, so many lines for a whole run.
const LINES: u32 = 10;
/// What a function said last explains a failed run.
const LOG_LINES: usize = 20;

/// Shows a run on standard error.
pub(crate) struct FirstRun {
    view: View,
}

enum View {
    Bars { placed: ProgressBar, arrived: ProgressBar },
    Lines { step: u32, next: u32 },
}

impl FirstRun {
    pub(crate) fn new(orders: u32) -> Self {
        let view = if std::io::stderr().is_terminal() {
            // Hidden until the first order: before it, cargo and Maven may have something to say.
            View::Bars { placed: ProgressBar::hidden(), arrived: ProgressBar::hidden() }
        } else {
            let step = (orders / LINES).max(1);
            View::Lines { step, next: step }
        };
        Self { view }
    }
}

impl Observer for FirstRun {
    fn started(&mut self, environment: &Environment) {
        eprintln!("DynamoDB: {}", environment.database().kind());
        eprintln!("Kafka:    {}", environment.broker().kind());
        if let View::Bars { placed, arrived } = &mut self.view {
            let bars = MultiProgress::new();
            let bar = |name: &'static str| {
                let bar = bars.add(ProgressBar::new(0)).with_message(name);
                // The template is ours: it parses.
                if let Ok(style) = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len} {elapsed}") {
                    bar.set_style(style);
                }
                bar
            };
            (*placed, *arrived) = (bar("placed"), bar("consumed"));
        }
    }

    fn progressed(&mut self, progress: Progress, _environment: &Environment) {
        match &mut self.view {
            View::Bars { placed, arrived } => {
                for (bar, position) in [(placed, progress.placed), (arrived, progress.arrived)] {
                    bar.set_length(progress.orders.into());
                    bar.set_position(position.into());
                }
            }
            View::Lines { step, next } => {
                if progress.arrived >= *next {
                    eprintln!(
                        "{} of {} orders consumed, {} placed",
                        progress.arrived, progress.orders, progress.placed
                    );
                    *next = progress.arrived - progress.arrived % *step + *step;
                }
            }
        }
    }

    fn ended(&mut self, report: &Report, environment: &Environment) {
        if let View::Bars { placed, arrived } = &self.view {
            placed.abandon();
            arrived.abandon();
        }
        if report.holds() {
            return;
        }
        for function in [environment.stream_relay(), environment.scheduled_relay()] {
            eprintln!("\nThe last lines of {}:", function.spec().name());
            let lines = function.logs();
            for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
                eprintln!("{} {}", line.pid, line.text);
            }
        }
    }
}
