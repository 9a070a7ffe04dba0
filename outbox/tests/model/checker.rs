//! An explicit-state model checker: breadth first, every state kept and compared whole.
//!
//! Our own because of one property: "from every reachable state, the goal can still be reached without another fault".
//! It needs the whole graph and a search backwards through it. Stateright (0.31) has no such property: what it calls
//! `eventually` looks at terminal states only and, as its own comments say, misses cycles and joins; this model is made
//! of both (time goes on, sweeps come again). It also compares 64-bit fingerprints where states are compared here, and
//! brings some forty crates, a web server among them, into the tests.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What is checked: states, what may happen in them, and what must hold.
pub(crate) trait Model {
    type State: Copy + Eq + Hash;
    fn initial(&self) -> Self::State;
    /// Everything that can happen in `state`. The order must be the same every time.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Step<Self::State>>);
    /// What is wrong with `state`, if anything.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;
    /// What must be reachable from everywhere without faults; `None`: nothing.
    fn goal(&self, state: &Self::State) -> Option<bool>;
    fn describe(&self, state: &Self::State) -> String;
}

/// Something that happens.
pub(crate) struct Step<S> {
    pub(crate) what: What,
    /// The search for the goal may not rely on it.
    pub(crate) is_fault: bool,
    pub(crate) to: S,
}

/// A step's name: who does what. Cheap to make, for there are millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    pub(crate) who: Option<usize>,
    pub(crate) what: &'static str,
}

/// What an exhaustive search found.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The steps of a longest shortest path.
    pub(crate) depth: u32,
    pub(crate) counterexample: Option<Counterexample>,
}

/// What must hold and does not, with a shortest way to it.
#[derive(Debug)]
pub(crate) struct Counterexample {
    pub(crate) violated: &'static str,
    pub(crate) trace: Vec<String>,
}

/// What is said of a state from which the goal cannot be reached.
pub(crate) const STUCK: &str = "the goal cannot be reached from here any more";

struct Visit {
    from: u32,
    step: u16,
    depth: u16,
}

/// Visits every state, up to `limit` of them. Ends at the first violation.
pub(crate) fn check<M: Model>(model: &M, limit: usize) -> Checked {
    let mut known: HashMap<M::State, u32, BuildHasherDefault<Mixer>> = HashMap::default();
    let mut visits = vec![Visit { from: 0, step: 0, depth: 0 }];
    let mut goals = Vec::new();
    let mut back = Backwards::default();
    let mut queue = VecDeque::from([(model.initial(), 0_u32)]);
    known.insert(model.initial(), 0);
    let mut steps = Vec::new();
    let mut taken = 0;
    let mut found = None;
    while let Some((state, id)) = queue.pop_front() {
        if let Some(violated) = model.violation(&state) {
            found = Some((violated, id));
            break;
        }
        goals.push(model.goal(&state));
        steps.clear();
        model.steps(&state, &mut steps);
        taken += steps.len();
        let depth = visits[index(id)].depth + 1;
        for (number, step) in steps.iter().enumerate() {
            let next = u32::try_from(known.len()).unwrap();
            let to = *known.entry(step.to).or_insert(next);
            if to == next {
                visits.push(Visit { from: id, step: u16::try_from(number).unwrap(), depth });
                queue.push_back((step.to, to));
            }
            if !step.is_fault && to != id {
                back.add(id, to);
            }
        }
        assert!(known.len() <= limit, "more than {limit} states: a bound of the model does not bound it");
    }
    let found = found.or_else(|| stuck(&goals, &back).map(|id| (STUCK, id)));
    Checked {
        states: known.len(),
        steps: taken,
        depth: visits.last().map_or(0, |visit| u32::from(visit.depth)),
        counterexample: found
            .map(|(violated, id)| Counterexample { violated, trace: trace(model, &visits, id) }),
    }
}

/// The steps that the search for the goal may take, by where they lead.
#[derive(Default)]
struct Backwards {
    /// By state: one past the last of its edges, 0 for none.
    last: Vec<u32>,
    /// Where each edge comes from, and one past the edge before it.
    edges: Vec<(u32, u32)>,
}

impl Backwards {
    fn add(&mut self, from: u32, to: u32) {
        if self.last.len() <= index(to) {
            self.last.resize(index(to) + 1, 0);
        }
        let last = &mut self.last[index(to)];
        self.edges.push((from, *last));
        *last = u32::try_from(self.edges.len()).unwrap();
    }
}

/// The first state from which no goal can be reached.
fn stuck(goals: &[Option<bool>], back: &Backwards) -> Option<u32> {
    let mut reaches: Vec<bool> = goals.iter().map(|goal| *goal != Some(false)).collect();
    let ids = || 0..u32::try_from(goals.len()).unwrap();
    let mut ahead: Vec<u32> = ids().filter(|id| reaches[index(*id)]).collect();
    while let Some(id) = ahead.pop() {
        let mut edge = back.last.get(index(id)).copied().unwrap_or(0);
        while edge > 0 {
            let (from, before) = back.edges[index(edge - 1)];
            edge = before;
            if !std::mem::replace(&mut reaches[index(from)], true) {
                ahead.push(from);
            }
        }
    }
    ids().find(|id| !reaches[index(*id)])
}

/// Goes the way to a state again, and says what happens on it.
fn trace<M: Model>(model: &M, visits: &[Visit], id: u32) -> Vec<String> {
    let mut way = Vec::new();
    let mut at = id;
    while at != 0 {
        let visit = &visits[index(at)];
        way.push(visit.step);
        at = visit.from;
    }
    let mut state = model.initial();
    let mut lines = vec![format!("at first: {}", model.describe(&state))];
    for step in way.into_iter().rev() {
        let mut steps = Vec::new();
        model.steps(&state, &mut steps);
        let step = &steps[usize::from(step)];
        let who = step.what.who.map(|who| format!("relay {who}: ")).unwrap_or_default();
        state = step.to;
        lines.push(format!("{who}{} -> {}", step.what.what, model.describe(&state)));
    }
    lines
}

fn index(id: u32) -> usize {
    usize::try_from(id).unwrap()
}

/// A fast hash, good enough for a table that compares states anyway.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }
    fn write_u16(&mut self, word: u16) {
        self.mix(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.mix(u64::try_from(word).unwrap());
    }
}
