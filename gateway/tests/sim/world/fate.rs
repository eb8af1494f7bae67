//! Faults: when they begin and end, and what they do to processes and to a liar's words.

use quorum::{Basis, Evidence, Heard, Stage, Statement, Step, Vote, VoteState, Window};

use super::World;
use super::events::Event;
use crate::carrier::close_step;
use crate::node::{Life, Node};
use crate::plan::{Lie, What};
use crate::rules;
use crate::sabotage::Sabotage;

impl World {
    /// Puts the first events of a process into the queue.
    pub(super) fn begin(&mut self, node: usize) {
        let generation = self.nodes[node].generation;
        self.nodes[node].round_due = 0;
        let delay = 1 + self.chance.below(300);
        self.wake(node, delay);
        let first = self.now + self.chance.below(rules::INTERVAL);
        self.queue.put(first, (node, generation), Event::Gossip);
        self.await_client(node);
    }

    pub(super) fn begin_fault(&mut self, index: usize) {
        let what = self.plan.faults[index].what;
        self.tell(|| format!("begins: {what}"));
        self.active.push(index);
        if what.troubles_fleet() {
            self.calm_since = None;
        }
        self.draw_cuts();
        self.count_members();
        if let What::Crash { node, .. } = what {
            self.kill(node);
        }
        if let (What::LedgerFlush, Some(desk)) = (what, &mut self.desk) {
            desk.flush(self.now);
        }
        if let What::Pause { node } = what
            && self.nodes[node].life == Life::Running
        {
            self.nodes[node].life = Life::Paused;
        }
    }

    pub(super) fn end_fault(&mut self, index: usize) {
        let what = self.plan.faults[index].what;
        self.tell(|| format!("ends: {what}"));
        self.active.retain(|active| *active != index);
        if !self.suffers(What::troubles_fleet) {
            self.calm_since.get_or_insert(self.now);
        }
        self.draw_cuts();
        self.count_members();
        if let What::Crash { node, has_snapshot } = what {
            let is_same = |what| matches!(what, What::Crash { node: other, .. } if other == node);
            if !self.suffers(is_same) && self.nodes[node].life == Life::Down {
                self.restart(node, has_snapshot);
            }
        }
        if let (What::LedgerLoses { back }, Some(desk)) = (what, &mut self.desk) {
            desk.fail_over(self.now, back);
        }
        if let What::Pause { node } = what
            && !self.suffers(|what| what == What::Pause { node })
            && self.nodes[node].life == Life::Paused
        {
            self.resume(node);
        }
        // Who takes a liar's words back is its next process.
        if let Some(node) = what.liar().filter(|node| self.nodes[*node].life == Life::Running) {
            self.kill(node);
            self.restart(node, false);
        }
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].life != Life::Down {
            let names = self.nodes[node].seat.deputy.council().roll_call();
            self.nodes[node].names = names;
        }
        self.nodes[node].life = Life::Down;
        self.nodes[node].frozen.clear();
        self.ledger.bury(node);
    }

    fn restart(&mut self, node: usize, has_snapshot: bool) {
        let old = &mut self.nodes[node];
        let (clock, generation) = (old.clock, old.generation + 1);
        let saved = old.saved.take().filter(|_| has_snapshot);
        let names = std::mem::take(&mut old.names);
        let mut process = Node::new(&self.mould, (node, generation), (clock, self.now));
        process.seat.deputy.council().live_as(generation);
        if has_snapshot {
            process.seat.deputy.council().recall(clock.read(self.now), names);
        }
        if let Some(saved) = saved {
            process.take_up(self.now, saved);
        }
        self.nodes[node] = process;
        self.begin(node);
    }

    /// Lets a stopped process go on: what waited in its sockets comes at once.
    fn resume(&mut self, node: usize) {
        let process = &mut self.nodes[node];
        process.life = Life::Running;
        process.round_due = 0;
        // Whoever was stopped has relied on nothing meanwhile: what it has out may have ended.
        process.link.relied_since = process.link.relied_since.map(|_| self.now);
        let generation = process.generation;
        if self.mould.sabotage == Some(Sabotage::StaleClosing) {
            process.carrier.forge(|heard, _| close_step(heard));
            self.push(node, 0);
        }
        for event in std::mem::take(&mut self.nodes[node].frozen) {
            let at = self.now + self.chance.below(3);
            self.queue.put(at, (node, generation), event);
        }
        self.wake(node, 2);
    }

    /// Puts a liar's words into its carrier.
    pub(super) fn forge(&mut self, node: usize) {
        let lie = self.active.iter().find_map(|fault| {
            let what = self.plan.faults[*fault].what;
            if let What::Lies { how, .. } = what {
                what.liar().map(|liar| (liar, how))
            } else {
                None
            }
        });
        let lie = lie.filter(|(liar, _)| *liar == node).map(|(_, how)| how);
        let Some(lie) = lie else { return };
        let mut lies = Vec::new();
        for endpoint in 0..self.plan.endpoints() {
            self.lie_about(node, endpoint, lie, &mut lies);
        }
        self.nodes[node].carrier.forge(|heard, pulse| {
            *pulse += 1;
            let is_forged = |one: &Heard| {
                lies.iter().any(|lie| {
                    std::mem::discriminant(lie) == std::mem::discriminant(&one.statement)
                        && lie.endpoint() == one.statement.endpoint()
                })
            };
            heard.retain(|one| !is_forged(one));
            for statement in lies {
                self.forged += 1;
                heard.push(Heard { seq: self.forged, statement });
            }
        });
        self.learn(node);
    }

    fn lie_about(&mut self, node: usize, endpoint: usize, lie: Lie, lies: &mut Vec<Statement>) {
        let key = self.mould.keys[endpoint].clone();
        let known = self.step_of(node, endpoint);
        let seen = known.map_or(0, |(incident, _, _)| incident);
        let vote = |incident: u64, state: VoteState| Vote {
            incident,
            basis: Basis::FirstHand,
            state,
            reason: String::new(),
            evidence: Evidence { requests: 9, faults_milli: 9_000, successes: 0, slow_pieces: 0 },
            age: rules::time(100),
        };
        let step = |incident: u64, failures: u32, stage: Stage| Step {
            incident,
            failures,
            level: 1,
            stage,
            steward: self.mould.names[node].clone(),
            age: rules::time(100),
            is_held: true,
        };
        match lie {
            Lie::AllBad => {
                lies.push(Statement::Vote(key.clone(), vote(seen + 1, VoteState::Stands)));
                let window = Window { requests: 99, faults_milli: 99_000, ..Window::default() };
                lies.push(Statement::Window(key, window));
            }
            Lie::HugeIncidents => {
                let huge = seen + 900 + self.chance.below(1 << 38);
                lies.push(Statement::Vote(key, vote(huge, VoteState::Stands)));
            }
            Lie::FalseClosings => {
                let ahead = self.chance.below(2);
                lies.push(Statement::Step(key, step(seen.max(1) + ahead, 0, Stage::Closed)));
            }
            Lie::FalseSteps => {
                let remaining = rules::time(self.chance.below(20_000));
                let holder = self.mould.names[node].clone();
                let stage = match self.chance.below(3) {
                    0 => Stage::Waiting { remaining },
                    1 => Stage::Probing { remaining },
                    _ => Stage::Canary { holder, turn: 3, successes: 1, remaining },
                };
                let failures = self.chance.below(5) as u32;
                lies.push(Statement::Step(key, step(seen.max(1), failures, stage)));
            }
            Lie::Flapping => {
                let stands = self.chance.happens(500);
                let state = if stands { VoteState::Stands } else { VoteState::Withdrawn };
                lies.push(Statement::Vote(key, vote(seen + 1, state)));
            }
        }
    }
}
