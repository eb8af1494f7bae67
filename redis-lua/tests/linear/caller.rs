//! One node of a history: what it asks of the ledger next, by what it was told so far.
//!
//! It is led by chance, but asks mostly for what could succeed if nobody were in between; so that
//! most histories have openings, leads that change hands, recoveries and conflicts.

use quorum::ledger::{Against, Answer, Begin, Call, Deed, Entry, Floor, Word};
use quorum::{EndpointKey, Forced, NodeId, Override, Stage, Step};

use crate::ledger::TERM;

/// A node and what it knows.
pub(crate) struct Caller {
    endpoint: EndpointKey,
    id: NodeId,
    generation: u64,
    seq: u64,
    /// Of how many members it believes a majority is taken.
    electorate: u32,
    seen: Floor,
    entry: Entry,
    random: fastrand::Rng,
}

impl Caller {
    /// A node that knows nothing.
    pub(crate) fn new(endpoint: &EndpointKey, id: &str, electorate: u32, seed: u64) -> Self {
        Self {
            endpoint: endpoint.clone(),
            id: NodeId::new(id),
            generation: 1,
            seq: 0,
            electorate,
            seen: Floor::default(),
            entry: Entry::default(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Its next call.
    pub(crate) fn next(&mut self) -> Call {
        // A restart: a later life, which has forgotten everything.
        if self.random.u32(0..40) == 0 {
            self.generation += 1;
            (self.seq, self.seen, self.entry) = (0, Floor::default(), Entry::default());
        }
        let deed = self.deed();
        self.call(deed)
    }

    fn call(&self, deed: Deed) -> Call {
        Call {
            endpoint: self.endpoint.clone(),
            by: self.id.clone(),
            generation: self.generation,
            floor: self.seen,
            deed,
        }
    }

    /// Learns from an answer.
    pub(crate) fn heard(&mut self, answer: &Answer) {
        let (seen, told) = (&mut self.seen, answer.entry.floor);
        if told.version < seen.version {
            return;
        }
        *seen = Floor {
            version: told.version,
            epoch: seen.epoch.max(told.epoch),
            lead: seen.lead.max(told.lead),
        };
        self.entry = answer.entry.clone();
    }

    fn deed(&mut self) -> Deed {
        let chance = self.random.u32(0..100);
        let mine = self.entry.lead.as_ref().filter(|lead| lead.holder == self.id);
        let mine = mine.map(|lead| lead.number);
        match (chance, mine) {
            (0..12, _) => Deed::Read,
            (12..40, _) => Deed::Cast(self.word()),
            (40..48, _) => Deed::Order(self.order()),
            (48..54, _) => self.step().map_or(Deed::Read, Deed::Carry),
            (54..62, Some(number)) => Deed::Renew { number, hold: TERM },
            (62..72, Some(number)) => Deed::Release { number },
            (_, Some(number)) => match self.step() {
                Some(step) => Deed::Advance { number, step },
                None => Deed::Release { number },
            },
            (54..60, None) => Deed::Advance { number: self.seen.lead, step: self.closed() },
            (_, None) => Deed::Take { hold: TERM },
        }
    }

    fn word(&mut self) -> Word {
        self.seq += 1;
        let open = self.entry.step.clone().filter(|step| step.stage != Stage::Closed);
        let incident = open.as_ref().map_or(self.seen.epoch + 1, |step| step.incident);
        let is_first_hand = self.random.u32(0..3) > 0;
        Word {
            seq: self.seq,
            vote: (self.random.u32(0..4) > 0).then_some(Against { incident, is_first_hand }),
            is_witness: self.random.bool(),
            hold: open.filter(|_| self.random.bool()),
            lease: TERM,
            electorate: self.electorate,
            discounted: Vec::new(),
            opening: (self.random.u32(0..8) > 0).then_some(Begin { level: 0, cool_down: TERM }),
        }
    }

    fn order(&mut self) -> Override {
        let stamp = self.entry.order.as_ref().map_or(0, |order| order.stamp) + 1;
        let forced = [Forced::Open, Forced::Closed, Forced::Auto][self.random.usize(0..3)];
        Override {
            forced,
            stamp,
            author: self.id.clone(),
            remaining: self.random.bool().then_some(TERM),
            reason: format!("{} {stamp}", self.id),
        }
    }

    /// A step that outranks the one it knows, if the endpoint is out as far as it knows.
    fn step(&mut self) -> Option<Step> {
        let mut step = self.entry.step.clone().filter(|step| step.stage != Stage::Closed)?;
        step.steward = self.id.clone();
        if self.random.u32(0..5) == 0 {
            (step.failures, step.level) = (step.failures + 1, step.level + 1);
            step.stage = Stage::Waiting { remaining: TERM };
            return Some(step);
        }
        step.stage = match step.stage {
            Stage::Waiting { .. } => Stage::Probing { remaining: TERM },
            Stage::Probing { .. } => self.canary(0, 0),
            Stage::Canary { .. } if self.random.u32(0..3) == 0 => Stage::Closed,
            Stage::Canary { turn, successes, .. } if self.random.bool() => {
                self.canary(turn, successes + 1)
            }
            Stage::Canary { turn, .. } => self.canary(turn + 1, 0),
            Stage::Closed => return None,
        };
        Some(step)
    }

    fn canary(&self, turn: u32, successes: u32) -> Stage {
        Stage::Canary { holder: self.id.clone(), turn, successes, remaining: TERM }
    }

    /// A closing by one that does not lead, which is to be refused.
    fn closed(&self) -> Step {
        Step {
            incident: self.seen.epoch.max(1),
            failures: 0,
            level: 0,
            stage: Stage::Closed,
            steward: self.id.clone(),
            age: TERM,
            is_held: false,
        }
    }
}
