//! Which rounds there are: pure, from the seed.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::kind::Kind;

/// One round, decided before it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// What is done.
    pub kind: Kind,
    /// Whether it strikes stream-relay rather than scheduled-relay, where it strikes one.
    pub stream: bool,
    /// Which of several possible victims.
    pub rank: u32,
    /// The age of the invocation that is struck.
    pub age: Duration,
    /// How long what lasts does: 0 the shortest that the kind has, 1 the longest.
    pub length: f64,
    /// Whether, while the broker or the network is away, a process is killed as well.
    pub also_kill: bool,
    /// Before the next round.
    pub pause: Duration,
}

/// Invocations here take tens to hundreds of milliseconds.
const OLDEST: u32 = 150;
const LONGEST_PAUSE: u32 = 800;
/// One in so many outages.
const ALSO_KILLS: u32 = 3;

/// Deals the rounds: first each kind once, in any order, then from full decks.
pub(super) fn deal(seed: u64, rounds: u32, kinds: &BTreeSet<Kind>) -> Vec<Round> {
    let mut chance = StdRng::seed_from_u64(seed);
    let once: Vec<Kind> = kinds.iter().copied().collect();
    let deck: Vec<Kind> = once.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.cards())).collect();
    let mut dealt = shuffled(once, &mut chance);
    let wanted = usize::try_from(rounds).unwrap_or(usize::MAX);
    while dealt.len() < wanted && !deck.is_empty() {
        dealt.extend(shuffled(deck.clone(), &mut chance));
    }
    (1..=rounds).zip(dealt).map(|(number, kind)| round(seed, number, kind)).collect()
}

fn shuffled(mut cards: Vec<Kind>, chance: &mut StdRng) -> Vec<Kind> {
    cards.shuffle(chance);
    cards
}

/// A source of its own for each round: its choices are the same whatever the rounds before it have used.
fn round(seed: u64, number: u32, kind: Kind) -> Round {
    let mut chance = StdRng::seed_from_u64(seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Round {
        number,
        kind,
        // The stream's invocations do most of the work.
        stream: below(&mut chance, 3) > 0,
        rank: chance.next_u32(),
        age: Duration::from_millis(below(&mut chance, OLDEST).into()),
        length: f64::from(below(&mut chance, 1001)) / 1000.0,
        also_kill: below(&mut chance, ALSO_KILLS) == 0,
        pause: Duration::from_millis(below(&mut chance, LONGEST_PAUSE).into()),
    }
}

/// A number below `bound`; that some are likelier by a billionth does not matter.
fn below(chance: &mut StdRng, bound: u32) -> u32 {
    chance.next_u32() % bound.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeSet<Kind> {
        Kind::ALL.into()
    }

    #[test]
    fn one_seed_deals_the_same_rounds_and_another_others() {
        assert_eq!(deal(7, 100, &all()), deal(7, 100, &all()));
        assert_ne!(deal(7, 100, &all()), deal(8, 100, &all()));
    }

    #[test]
    fn the_first_rounds_have_every_kind_once() {
        for seed in 0..20 {
            let count = u32::try_from(Kind::ALL.len()).unwrap();
            let first: BTreeSet<_> = deal(seed, count, &all()).iter().map(|round| round.kind).collect();
            assert_eq!(first, all(), "seed {seed}");
        }
    }

    #[test]
    fn only_the_kinds_that_are_asked_for_are_dealt() {
        let only = BTreeSet::from([Kind::Freeze, Kind::BrokerKill]);
        let rounds = deal(1, 60, &only);
        assert_eq!(rounds.len(), 60);
        assert!(rounds.iter().all(|round| only.contains(&round.kind)));
        assert!(deal(1, 60, &BTreeSet::new()).is_empty());
    }

    #[test]
    fn a_rounds_choices_do_not_depend_on_how_many_there_are() {
        assert_eq!(deal(3, 40, &all()), deal(3, 400, &all())[..40]);
    }
}
