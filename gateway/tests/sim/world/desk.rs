//! The way to the ledger and back: what is lost and late, and when a node takes it for away.

use quorum::Reliance;
use quorum::ledger::{Answer, Call, Deed};

use super::World;
use super::events::Event;
use crate::desk::{DEADLINE, has_opened};
use crate::invariants::Happening;
use crate::plan::{Ms, What};

/// The longest way to the ledger, or back, while all is well.
const DELAY: Ms = 10;

/// The pause between two looks whether the ledger is back.
const PAUSE: Ms = 300;

impl World {
    /// Sends what is due to the ledger.
    pub(super) fn write_papers(&mut self, node: usize) {
        if self.desk.is_none() {
            return;
        }
        let process = &self.nodes[node];
        if !process.link.is_up && !process.link.calls.is_empty() {
            return;
        }
        let clock = process.clock.read(self.now);
        let calls = process.seat.deputy.calls(clock);
        for call in calls {
            self.call(node, call);
        }
    }

    fn call(&mut self, node: usize, call: Call) {
        let generation = self.nodes[node].generation;
        let number = self.nodes[node].link.send(call.clone());
        let due = self.now + DEADLINE;
        self.queue.put(due, (node, generation), Event::Unanswered { number });
        if let Some(delay) = self.way(node, true) {
            let call = Box::new(call);
            let event = Event::Call { from: (node, generation), number, call };
            self.queue.put(self.now + delay, (super::NOBODY, 0), event);
        }
    }

    /// How long something takes between a node and the ledger; `None`: it is lost.
    fn way(&mut self, node: usize, is_request: bool) -> Option<Ms> {
        let (mut loss, mut delay) = (0, DELAY);
        for fault in &self.active {
            match self.plan.faults[*fault].what {
                What::LedgerDown | What::LedgerLoses { .. } => loss = 1_000,
                What::LedgerAway { node: away } if away == node => loss = 1_000,
                What::LedgerRough { requests, answers, delay: late } => {
                    loss = loss.max(if is_request { requests } else { answers });
                    delay = delay.max(late);
                }
                _ => {}
            }
        }
        (!self.chance.happens(loss)).then(|| 1 + self.chance.below(delay))
    }

    /// The ledger is asked.
    pub(super) fn serve(&mut self, from: (usize, u64), number: u64, call: &Call) {
        let is_down =
            self.suffers(|what| matches!(what, What::LedgerDown | What::LedgerLoses { .. }));
        let Some(desk) = self.desk.as_mut().filter(|_| !is_down) else { return };
        let (answer, has_changed) = desk.serve(self.now, call);
        let endpoint = self.mould.keys.iter().position(|key| *key == call.endpoint);
        let endpoint = endpoint.expect("it is configured");
        if let Deed::Cast(word) = &call.deed
            && word.vote.is_some()
        {
            // It is the council's own vote, also of a node whose gossip says something else.
            self.ledger.of_mut(from.0, endpoint).stood_at = Some(self.now);
        }
        if !matches!(call.deed, Deed::Read) {
            let line = || format!("  gw-{} {:?} {:?}: {:?}", from.0, call.deed, call.floor, answer);
            self.tell(line);
        }
        if has_opened(&answer) {
            let step = answer.entry.step.as_ref();
            let incident = step.map_or(0, |step| step.incident);
            let (by, counted) = (from.0, answer.entry.count);
            let is_by_votes = counted.holders < counted.quorum;
            self.ledger.tally.committed += 1;
            self.note(&Happening::Written { by, endpoint, incident, is_by_votes });
        }
        let version = answer.entry.floor.version;
        if has_changed {
            for node in 0..self.nodes.len() {
                if let Some(delay) = self.way(node, false) {
                    let event = Event::Notice { endpoint, version };
                    self.queue.put(self.now + delay, (node, 0), event);
                }
            }
        }
        if let Some(delay) = self.way(from.0, false) {
            let answer = Box::new(answer);
            self.queue.put(self.now + delay, from, Event::Answered { number, answer });
        }
    }

    /// The ledger has answered.
    pub(super) fn take_answer(&mut self, node: usize, number: u64, answer: Option<&Answer>) {
        let now = self.now;
        let process = &mut self.nodes[node];
        let Some(call) = process.link.calls.remove(&number) else { return };
        let clock = process.clock.read(now);
        let has_news = process.seat.deputy.answered(clock, &call, answer);
        if answer.is_some() {
            process.link.hear(now);
            if process.link.relied_since.is_none() && process.seat.deputy.is_reconciled() {
                process.seat.deputy.rely(clock, Reliance::Ledger);
                process.link.relied_since = Some(now);
            }
        } else if process.link.miss(now) {
            process.seat.deputy.rely(clock, Reliance::Gossip);
            process.seat.deputy.lose_ledger();
            process.link.relied_since = None;
        }
        let is_up = self.nodes[node].link.is_up;
        // After a mere reading without news nothing is due sooner than at the next round.
        if is_up && (has_news || call.deed != Deed::Read) {
            self.write_papers(node);
        }
        if has_news || !is_up {
            self.wake(node, if is_up { 1 } else { PAUSE });
        }
    }

    /// Looks at what the ledger holds.
    pub(super) fn read_desk(&mut self) {
        let Some(desk) = &mut self.desk else { return };
        if self.plan.faults.iter().any(|one| matches!(one.what, What::LedgerLoses { .. })) {
            desk.copy(self.now);
        }
        for (endpoint, key) in self.mould.keys.iter().enumerate() {
            let entry = desk.read(self.now, key, &self.mould.names[0]);
            self.committed[endpoint] = entry.step.map(|step| step.stage);
        }
    }

    /// Somebody has changed an entry.
    pub(super) fn take_notice(&mut self, node: usize, endpoint: usize, version: u64) {
        let key = &self.mould.keys[endpoint];
        self.nodes[node].seat.deputy.noticed(key, version);
        self.write_papers(node);
    }
}
