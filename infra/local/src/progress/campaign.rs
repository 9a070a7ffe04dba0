//! The campaign: a bar of rounds, or a line for every few of them; and a line for every segment's verdict.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use outbox_local::campaign::{CampaignOptions, Observer, Round, SegmentReport, Struck};
use outbox_local::kafka::Broker;

/// Elsewhere than on a terminal, a line for every so many rounds.
const EVERY: u32 = 5;
const TICK: Duration = Duration::from_millis(250);

/// Shows a campaign on standard error.
pub(crate) struct Campaign {
    bar: ProgressBar,
    on_terminal: bool,
    rounds: u32,
    hits: u32,
}

impl Campaign {
    pub(crate) fn new() -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self { bar: ProgressBar::hidden(), on_terminal, rounds: 0, hits: 0 }
    }

    fn say(&self, line: &str) {
        if self.on_terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }
}

impl Observer for Campaign {
    fn started(&mut self, options: &CampaignOptions, broker: &Broker) {
        eprintln!("Kafka: {}", broker.kind());
        let kinds: Vec<_> = options.kinds.iter().map(|kind| kind.name()).collect();
        eprintln!("seed {}: {} rounds of {}", options.seed, options.rounds, kinds.join(", "));
        self.rounds = options.rounds;
        if self.on_terminal {
            self.bar = ProgressBar::new(options.rounds.into());
            // The template is ours: it parses.
            if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg} {elapsed}") {
                self.bar.set_style(style);
            }
            self.bar.enable_steady_tick(TICK);
        }
    }

    fn segment_started(&mut self, name: &str) {
        self.bar.set_message(name.to_owned());
        if !self.on_terminal {
            eprintln!("{name} ...");
        }
    }

    fn round_ended(&mut self, round: &Round, struck: &Struck) {
        self.hits += u32::from(struck.hit);
        self.bar.set_position(round.number.into());
        self.bar.set_message(round.kind.name());
        if !self.on_terminal && round.number.is_multiple_of(EVERY) {
            eprintln!(
                "round {} of {}, {} hit; the last: {}",
                round.number, self.rounds, self.hits, round.kind
            );
        }
        tracing::debug!(round = round.number, kind = %round.kind, hit = struck.hit, "{}", struck.what);
    }

    fn segment_ended(&mut self, segment: &SegmentReport) {
        let messages = &segment.messages;
        self.say(&format!(
            "{}: {} messages, {} lost, {} out of order, {} duplicates; empty in {:.1} s; {:.0} s{}",
            segment.name,
            messages.committed,
            messages.lost,
            messages.out_of_order,
            messages.duplicates,
            segment.drain.took.as_secs_f64(),
            segment.took.as_secs_f64(),
            if segment.failures.is_empty() { "" } else { "; FAILED" },
        ));
        for failure in &segment.failures {
            self.say(&format!("  {}", failure.what));
        }
        if let Some(kept) = &segment.kept {
            self.say(&format!("  kept in {}", kept.display()));
        }
    }
}
