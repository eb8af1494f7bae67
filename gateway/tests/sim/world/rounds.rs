//! A node's round: what it hears, decides and states, and what the ledger learns of it.

use gateway::cluster::Round;
use quorum::{Decision, Heard, Stage, Statement, VoteState};

use super::World;
use super::events::Event;
use crate::invariants::Happening;
use crate::ledger::{Trial, TrialKind};
use crate::plan::Ms;

/// How often deadlines are looked at; below the second that is taken for a pause.
const TICK: Ms = 700;

/// The same where there is a ledger to be asked.
const LEDGER_TICK: Ms = 200;

impl World {
    /// Lets a node have its round within `delay`.
    pub(super) fn wake(&mut self, node: usize, delay: Ms) {
        let at = self.now + delay;
        let process = &mut self.nodes[node];
        if process.round_due > at || process.round_due < self.now {
            process.round_due = at;
            let generation = process.generation;
            self.queue.put(at, (node, generation), Event::Round);
        }
    }

    /// One round of a node.
    pub(super) fn round(&mut self, node: usize) {
        self.ledger.tally.rounds += 1;
        let process = &mut self.nodes[node];
        let clock = process.clock.read(self.now);
        let local = process.clock.ms(self.now);
        let members = process.carrier.tell(local, &mut self.chance);
        let Round { decisions, said, .. } = process.seat.round(clock, members);
        for decision in decisions {
            self.follow(node, decision);
        }
        if let Some(said) = said {
            let process = &mut self.nodes[node];
            let news = said.stated.iter().filter(|one| one.fresh).map(|one| one.seq).max();
            let is_suspect = process.seat.deputy.council().is_suspect();
            process.carrier.state(said, is_suspect);
            self.forge(node);
            self.learn(node);
            let pushed = self.nodes[node].pushed;
            if let Some(seq) = news.filter(|seq| *seq > pushed) {
                self.nodes[node].pushed = seq;
                self.push(node, pushed);
            }
        }
        for due in self.nodes[node].seat.deputy.tries(clock) {
            self.try_out(node, due);
        }
        self.nodes[node].round_due = 0;
        self.wake(node, if self.desk.is_some() { LEDGER_TICK } else { TICK });
        self.heed_change(node);
        self.write_papers(node);
    }

    /// A breaker that has changed wakes its node.
    pub(super) fn heed_change(&mut self, node: usize) {
        if self.nodes[node].seat.take_change() {
            self.wake(node, 1);
        }
    }

    /// Does what a decision asks for outside of the node, and writes it down.
    fn follow(&mut self, node: usize, decision: Decision) {
        let index = |key| self.nodes[node].seat.index(key).expect("it is configured");
        match decision {
            Decision::Opened { endpoint, opening, tally, electorate } => {
                let (endpoint, incident) = (index(&endpoint), opening.incident);
                let counted = tally.counted;
                self.ledger.tally.openings += 1;
                self.note(&Happening::Opened { node, endpoint, incident, counted, electorate });
                self.ledger.of_mut(node, endpoint).is_out = true;
            }
            Decision::Closed { endpoint, incident, was_open } => {
                self.close(node, index(&endpoint), (incident, was_open));
            }
            Decision::Probe { endpoint, fence } => self.lead(node, index(&endpoint), fence),
            Decision::Lend { endpoint, .. } => {
                let endpoint = index(&endpoint);
                self.ledger.tally.loans += 1;
                self.note(&Happening::Slot { node, endpoint, is_here: true });
            }
            Decision::Recall { endpoint } => {
                let endpoint = index(&endpoint);
                self.note(&Happening::Slot { node, endpoint, is_here: false });
            }
            Decision::Forced { .. } | Decision::Ordered { .. } | Decision::Forgotten { .. } => {}
        }
    }

    fn close(&mut self, node: usize, endpoint: usize, (incident, was_open): (u64, bool)) {
        self.ledger.tally.closings += u64::from(was_open);
        // The step may have moved on within the round; the number is the decision's own.
        let step = self.step_of(node, endpoint).filter(|(known, _, _)| *known == incident);
        let failures = step.map_or(0, |(_, failures, _)| failures);
        let is_by_step = step.is_some_and(|(_, _, is_closed)| is_closed);
        self.note(&Happening::Closed { node, endpoint, incident, failures, is_by_step, was_open });
        let truth = self.ledger.of_mut(node, endpoint);
        truth.is_out = false;
        if is_by_step {
            truth.closed = truth.closed.max((incident, failures));
        }
    }

    /// The furthest step that a node knows: incident, failures, and whether it is a closing.
    pub(crate) fn step_of(&self, node: usize, endpoint: usize) -> Option<(u64, u32, bool)> {
        let process = &self.nodes[node];
        let clock = process.clock.read(self.now);
        let view =
            process.seat.deputy.council().endpoint(clock, &process.seat.endpoints[endpoint].key)?;
        view.step.map(|step| (step.incident, step.failures, step.stage == Stage::Closed))
    }

    /// Writes down what a node states: its votes are true by definition, for it signs them.
    pub(super) fn learn(&mut self, node: usize) {
        let mut votes = vec![None; self.plan.endpoints()];
        let heard: std::rc::Rc<[Heard]> = std::rc::Rc::clone(self.nodes[node].carrier.stated());
        for heard in heard.iter() {
            let Statement::Vote(key, vote) = &heard.statement else { continue };
            let Some(endpoint) = self.mould.keys.iter().position(|known| known == key) else {
                continue;
            };
            if vote.state == VoteState::Stands {
                votes[endpoint] = Some((vote.incident, vote.basis == quorum::Basis::FirstHand));
            }
        }
        for (endpoint, vote) in votes.into_iter().enumerate() {
            let truth = self.ledger.of_mut(node, endpoint);
            let stood = truth.vote.is_some();
            if stood || vote.is_some() {
                truth.stood_at = Some(self.now);
            }
            truth.vote = vote.map(|(incident, _)| incident);
            truth.is_first_hand = vote.is_some_and(|(_, is_first_hand)| is_first_hand);
            if let Some((incident, is_first_hand)) = vote.filter(|_| !stood) {
                self.ledger.tally.seconded += u64::from(!is_first_hand);
                self.note(&Happening::Voted { node, endpoint, incident, is_first_hand });
            }
        }
    }

    /// Writes down a trial of the fleet's.
    pub(super) fn tried(
        &mut self,
        node: usize,
        endpoint: usize,
        fence: (u64, u32),
        kind: TrialKind,
    ) {
        let (incident, failures) = fence;
        let trial = Trial { at: self.now, node, endpoint, incident, failures, kind };
        self.ledger.trials.push(trial);
        self.note(&Happening::Tried(trial));
    }
}
