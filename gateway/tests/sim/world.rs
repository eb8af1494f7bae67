//! A whole fleet on virtual time: real deputies over real endpoints, and a network that misbehaves.
//!
//! Everything follows from the plan. The world knows no wall clock at all, each node has a monotonic
//! clock of its own that began anywhere and goes a little too fast or too slow, and one queue orders
//! whatever happens.

mod desk;
pub(crate) mod events;
mod fate;
mod net;
mod rounds;
mod story;
mod traffic;

use std::collections::BTreeMap;

use quorum::Stage;

use crate::chance::Chance;
use crate::desk::Desk;
use crate::invariants::{Happening, Invariants, Violation};
use crate::ledger::{Figures, Ledger};
use crate::node::{Clock, Life, Mould, Node};
use crate::plan::{Ms, Plan, What};
use crate::rules;
use crate::sabotage::Sabotage;
use events::{Event, Queue};

/// How often the invariants look at the state of the world.
const LOOK: Ms = 250;

/// The longest that the fleet may take to recover once all is well.
pub(crate) const RECOVERY: Ms = 60_000;

/// The fleet is watched for this long after it has recovered.
const AFTER: Ms = 1_500;

/// How long a fleet runs before anything goes wrong: it observes, and meets each other.
pub(crate) const PRELUDE: Ms = 5_000;

/// The event belongs to no node.
const NOBODY: usize = usize::MAX;

/// How a run is to be done, beside its plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// The bug that is planted.
    pub(crate) sabotage: Option<Sabotage>,
    /// Added to where every node's clock begins, a multiple of the breaker's window.
    pub(crate) origin: Ms,
    /// Whether to write down what happens.
    pub(crate) is_told: bool,
}

/// What a run came to.
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) figures: Figures,
    /// Every opening and closing with its time, to compare runs by.
    pub(crate) trace: u64,
    /// What happened, if it was to be told.
    pub(crate) story: Vec<String>,
}

/// What there is.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Ms,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ledger: Ledger,
    /// The ledger that the fleet decides by, if it has one.
    pub(crate) desk: Option<Desk>,
    /// The stages that it held when last looked at, by endpoint.
    pub(crate) committed: Vec<Option<Stage>>,
    /// Since when neither nodes nor network have been troubled; `None` while they are.
    pub(crate) calm_since: Option<Ms>,
    chance: Chance,
    queue: Queue,
    mould: Mould,
    manner: Manner,
    /// The faults that are under way, by their number in the plan.
    active: Vec<usize>,
    /// To whom each node's packets do not get.
    cut: Vec<u64>,
    /// Requests under way at each endpoint.
    load: Vec<u32>,
    invariants: Invariants,
    violation: Option<Violation>,
    trace: u64,
    story: Vec<String>,
    /// How each node was last told to count each endpoint, by their numbers.
    told_views: BTreeMap<usize, String>,
    /// When everything had recovered.
    recovered_at: Option<Ms>,
    /// The number of the next forged statement.
    forged: u64,
}

impl World {
    /// The world at the start of a plan.
    pub(crate) fn new(plan: &Plan, manner: Manner) -> Self {
        // Breakers and choices draw from the thread's chance.
        fastrand::seed(plan.seed);
        let count = plan.nodes();
        let mut world = Self {
            committed: vec![None; plan.endpoints()],
            now: 0,
            nodes: Vec::with_capacity(count),
            ledger: Ledger::new(plan),
            desk: plan.has_ledger.then(|| Desk::new(manner.sabotage)),
            calm_since: Some(0),
            chance: Chance::new(plan.seed),
            queue: Queue::default(),
            mould: Mould::of(plan, manner.sabotage),
            manner,
            active: Vec::new(),
            cut: vec![0; count],
            load: vec![0; plan.endpoints()],
            invariants: Invariants::new(),
            violation: None,
            trace: 0,
            story: Vec::new(),
            told_views: BTreeMap::new(),
            recovered_at: None,
            forged: 1 << 40,
            plan: plan.clone(),
        };
        for index in 0..count {
            let origin = rules::WINDOW * world.chance.below(100_000) + manner.origin;
            let drift = world.chance.below(21) as i64 - 10;
            let clock = Clock { origin, drift };
            let node = Node::new(&world.mould, (index, 1), (clock, 0));
            node.seat.deputy.council().live_as(1);
            world.nodes.push(node);
            world.begin(index);
        }
        for (index, fault) in plan.faults.iter().enumerate() {
            world.queue.put(PRELUDE + fault.from, (NOBODY, 0), Event::Begin(index));
            world.queue.put(PRELUDE + fault.to, (NOBODY, 0), Event::End(index));
        }
        world.queue.put(LOOK, (NOBODY, 0), Event::Look);
        world
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.is_over() {
            let Some(entry) = self.queue.next() else { break };
            self.now = entry.at;
            self.meet(entry);
        }
        if self.violation.is_none() {
            self.check(|invariants, world| invariants.end(world));
        }
        self.ledger.tally.parted = u64::from(self.invariants.are_blemished());
        Outcome {
            violation: self.violation,
            figures: self.ledger.tally,
            trace: self.trace,
            story: self.story,
        }
    }

    fn meet(&mut self, entry: events::Entry) {
        let node = entry.node;
        if let Event::Answer(attempt) = &entry.event {
            self.load[attempt.endpoint] = self.load[attempt.endpoint].saturating_sub(1);
        }
        match entry.event {
            Event::Begin(fault) => return self.begin_fault(fault),
            Event::End(fault) => return self.end_fault(fault),
            Event::Look => return self.look(),
            Event::Call { from, number, call } => return self.serve(from, number, &call),
            Event::Answered { .. }
            | Event::Unanswered { .. }
            | Event::Notice { .. }
            | Event::Round
            | Event::Gossip
            | Event::Client
            | Event::Parcel { .. }
            | Event::Push { .. }
            | Event::Crosses(_)
            | Event::Answer(_)
            | Event::ProbeAnswer { .. } => {}
        }
        if entry.generation != 0 && entry.generation != self.nodes[node].generation {
            return;
        }
        match self.nodes[node].life {
            Life::Running => self.happen(node, entry.event),
            Life::Paused => {
                let frozen = &mut self.nodes[node].frozen;
                if frozen.len() < crate::node::FROZEN_MAX {
                    frozen.push(entry.event);
                }
            }
            Life::Down => {}
        }
    }

    fn happen(&mut self, node: usize, event: Event) {
        match event {
            Event::Round => {
                if self.nodes[node].round_due == self.now {
                    self.round(node);
                }
            }
            Event::Gossip => self.gossip(node),
            Event::Client => self.ask(node),
            Event::Parcel { from, parcel, wants_reply } => {
                self.receive(node, (from, &parcel), wants_reply);
            }
            Event::Push { from, push } => self.receive_push(node, from, &push),
            Event::Crosses(attempt) => self.cross(node, attempt),
            Event::Answer(attempt) => self.answer(node, *attempt),
            Event::ProbeAnswer { endpoint, fence, has_passed } => {
                self.answer_probe(node, endpoint, fence, has_passed);
            }
            Event::Answered { number, answer } => self.take_answer(node, number, Some(&answer)),
            Event::Unanswered { number } => self.take_answer(node, number, None),
            Event::Notice { endpoint, version } => self.take_notice(node, endpoint, version),
            Event::Begin(_) | Event::End(_) | Event::Look | Event::Call { .. } => {}
        }
    }

    fn look(&mut self) {
        self.count_members();
        self.read_desk();
        self.tell_views();
        self.check(|invariants, world| invariants.look(world));
        if self.now > PRELUDE + self.plan.length && self.recovered_at.is_none() {
            self.recovered_at = self.has_recovered().then_some(self.now);
        }
        self.queue.put(self.now + LOOK, (NOBODY, 0), Event::Look);
    }

    fn is_over(&self) -> bool {
        let last = PRELUDE + self.plan.length + RECOVERY;
        self.now >= last || self.recovered_at.is_some_and(|at| self.now >= at + AFTER)
    }

    /// Whether, after the last fault, there was a moment at which nothing was out.
    pub(crate) fn did_recover(&self) -> bool {
        self.recovered_at.is_some()
    }

    /// Whether nothing is out any more, on any node.
    fn has_recovered(&self) -> bool {
        self.nodes.iter().all(|node| {
            node.life == Life::Running
                && node.seat.endpoints.iter().all(|endpoint| {
                    let rung = endpoint.rung();
                    let is_in = endpoint.local_opening().is_none() && !endpoint.is_held();
                    let on_ladder = rung.is_some() && rung != Some(breaker::Rung::Ramp);
                    is_in && !on_ladder && !node.seat.deputy.council().is_open(&endpoint.key)
                })
        })
    }

    /// For how long neither nodes nor network have been troubled.
    pub(crate) fn calm_for(&self) -> Ms {
        self.calm_since.map_or(0, |since| self.now - since)
    }

    /// Whether such a fault is under way.
    pub(crate) fn suffers(&self, is_it: impl Fn(What) -> bool) -> bool {
        self.active.iter().any(|fault| is_it(self.plan.faults[*fault].what))
    }

    /// Tells the invariants of something that happened.
    pub(crate) fn note(&mut self, happening: &Happening) {
        if self.manner.is_told {
            self.story.push(format!("{:>6} {happening:?}", self.now));
        }
        self.trace = happening.mark().map_or(self.trace, |mark| {
            (self.trace ^ mark ^ self.now.rotate_left(20)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        self.check(|invariants, world| invariants.happened(world, happening));
    }

    /// Writes a line of the story.
    fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.manner.is_told {
            self.story.push(format!("{:>6} {}", self.now, line()));
        }
    }

    fn check(&mut self, ask: impl FnOnce(&mut Invariants, &Self) -> Result<(), Violation>) {
        if self.violation.is_some() {
            return;
        }
        let mut invariants = std::mem::take(&mut self.invariants);
        let answer = ask(&mut invariants, self);
        self.invariants = invariants;
        self.violation = answer.err();
    }
}
