//! The network: what is lost, late, doubled, out of order or cut, and who can reach whom.

use std::rc::Rc;

use super::World;
use super::events::Event;
use crate::carrier::{Parcel, Push};
use crate::node::Life;
use crate::plan::{Ms, What};
use crate::rules;

/// With how many others a node gossips in each round.
const FANOUT: usize = 3;

/// The longest way of a packet while all is well.
const DELAY: Ms = 20;

/// What comes within so short a time is heard in one round.
const SOON: Ms = 3;

/// A member may be counted out this much sooner than the grace says, since clocks differ.
const GRACE_SLACK: Ms = 1_000;

impl World {
    /// Sends a parcel on its way.
    pub(super) fn send(&mut self, from: usize, to: usize, parcel: &Parcel, wants_reply: bool) {
        for at in self.arrivals(from, to) {
            let parcel = Rc::clone(parcel);
            // Whichever process holds the address then gets it.
            self.queue.put(at, (to, 0), Event::Parcel { from, parcel, wants_reply });
        }
    }

    /// Pushes what is newer than `after` to everyone.
    pub(super) fn push(&mut self, from: usize, after: u64) {
        let mut loss = 0;
        for fault in &self.active {
            if let What::Unpushed { loss: lost } = self.plan.faults[*fault].what {
                loss = loss.max(lost);
            }
        }
        let push = self.nodes[from].carrier.push(after);
        for to in 0..self.nodes.len() {
            if loss > 0 && self.chance.happens(loss) {
                continue;
            }
            for at in self.arrivals(from, to) {
                let push = Rc::clone(&push);
                self.queue.put(at, (to, 0), Event::Push { from, push });
            }
        }
    }

    /// When a packet that is sent arrives: not at all, once, or twice.
    fn arrivals(&mut self, from: usize, to: usize) -> impl Iterator<Item = Ms> + use<> {
        let (mut loss, mut doubled, mut delay) = (0, 0, DELAY);
        for fault in &self.active {
            if let What::Rough { loss: l, doubled: d, delay: late } = self.plan.faults[*fault].what
            {
                (loss, doubled, delay) = (loss.max(l), doubled.max(d), delay.max(late));
            }
        }
        let is_lost = from == to || self.cut[from] & 1 << to != 0 || self.chance.happens(loss);
        let first = (!is_lost).then(|| self.now + 1 + self.chance.below(delay));
        let is_doubled = !is_lost && doubled > 0 && self.chance.happens(doubled);
        let second = is_doubled.then(|| self.now + 1 + self.chance.below(delay));
        first.into_iter().chain(second)
    }

    /// Takes in a push.
    pub(super) fn receive_push(&mut self, node: usize, from: usize, push: &Push) {
        if self.nodes[node].carrier.take_push(from, push) {
            self.wake(node, SOON);
        }
    }

    /// One round of gossip: all that is known goes to a few others, and theirs comes back.
    pub(super) fn gossip(&mut self, node: usize) {
        let generation = self.nodes[node].generation;
        self.queue.put(self.now + rules::INTERVAL, (node, generation), Event::Gossip);
        if self.chance.happens(200) {
            self.nodes[node].save(self.now);
        }
        self.forge(node);
        self.nodes[node].carrier.beats();
        let parcel = self.nodes[node].carrier.all();
        let count = self.nodes.len();
        let first = self.chance.below(count as u64) as usize;
        let stride = 1 + self.chance.below(2) as usize;
        for turn in 0..FANOUT.min(count) {
            self.send(node, (first + turn * stride) % count, &parcel, true);
        }
    }

    /// Takes in a parcel.
    pub(super) fn receive(&mut self, node: usize, what: (usize, &Parcel), wants_reply: bool) {
        let (from, parcel) = what;
        let local = self.nodes[node].clock.ms(self.now);
        let has_news = self.nodes[node].carrier.merge(local, from, parcel);
        if wants_reply {
            let all = self.nodes[node].carrier.all();
            self.send(node, from, &all, false);
        }
        if has_news {
            self.wake(node, SOON);
        }
    }

    /// Draws anew who does not reach whom.
    pub(super) fn draw_cuts(&mut self) {
        let count = self.nodes.len();
        let everyone: u64 = (1 << count) - 1;
        self.cut = vec![0; count];
        for fault in &self.active {
            let what = self.plan.faults[*fault].what;
            if let What::Parted { mask } = what {
                for (node, cut) in self.cut.iter_mut().enumerate() {
                    *cut |= if mask & 1 << node != 0 { everyone & !mask } else { mask };
                }
            }
            if let What::Deaf { from, to } = what {
                self.cut[from] |= 1 << to;
            }
            if let What::Cut { node } = what {
                self.cut[node] = everyone;
                for cut in &mut self.cut {
                    *cut |= 1 << node;
                }
            }
        }
    }

    /// The nodes that run and that `node` can talk with, itself among them.
    pub(crate) fn side_of(&self, node: usize) -> u64 {
        let runs = |other: usize| self.nodes[other].life == Life::Running;
        let mut side = 1 << node;
        loop {
            let mut grown = side;
            for one in (0..self.nodes.len()).filter(|one| side & 1 << one != 0) {
                for other in (0..self.nodes.len()).filter(|other| runs(*other)) {
                    let hears = self.cut[one] & 1 << other == 0 && self.cut[other] & 1 << one == 0;
                    grown |= u64::from(hears) << other;
                }
            }
            if grown == side {
                return side;
            }
            side = grown;
        }
    }

    /// Counts out who has been out of reach of a majority for the grace, and in who is back.
    pub(super) fn count_members(&mut self) {
        let electorate = self.ledger.electorate;
        let needed = self.ledger.electorate_size() / 2 + 1;
        let running = (0..self.nodes.len()).filter(|node| self.nodes[*node].life == Life::Running);
        let majority = running
            .map(|node| self.side_of(node))
            .find(|side| (side & electorate).count_ones() as usize >= needed);
        for node in 0..self.nodes.len() {
            let is_in_reach = majority.is_some_and(|side| side & 1 << node != 0);
            let lost_since = &mut self.ledger.lost_since[node];
            match (is_in_reach, *lost_since) {
                (true, _) => {
                    *lost_since = None;
                    if self.ledger.electorate & 1 << node == 0 {
                        let beat = self.nodes[node].carrier.beat();
                        self.ledger.back[node] = Some((self.now, beat));
                    }
                    self.ledger.electorate |= 1 << node;
                }
                (false, None) => *lost_since = Some(self.now),
                (false, Some(since)) if self.now + GRACE_SLACK >= since + rules::GRACE => {
                    if majority.is_some() {
                        self.ledger.electorate &= !(1 << node);
                    }
                }
                (false, Some(_)) => {}
            }
        }
    }
}
