//! Draws plans: mostly small fleets in a storm of faults, and some that look at one promise.

use super::{Fault, Knobs, LIES, Lie, Ms, NODES_MAX, Plan, What};
use crate::chance::Chance;

/// One plan of so many is about a large fleet.
const LARGE_ONE_IN: u64 = 400;

impl Plan {
    /// The plan of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let nodes = match chance.below(LARGE_ONE_IN) {
            0 => 10 + chance.below(NODES_MAX as u64 - 9) as usize,
            _ => 3 + chance.below(5) as usize + chance.below(3) as usize,
        };
        let pools: Vec<usize> =
            (0..=chance.below(2)).map(|_| 2 + chance.below(2) as usize).collect();
        let busy = 100 + chance.below(500);
        let rates = (0..nodes)
            .map(|_| match chance.below(8) {
                0 => 0,
                1 => 10,
                _ => busy / 2 + chance.below(busy),
            })
            .collect();
        let knobs = Knobs {
            of_observers: chance.happens(150),
            share: if chance.happens(150) { 500 } else { 1_000 },
            has_probe: chance.happens(850),
            canaries: if chance.happens(80) { 0 } else { 2 },
            passes_through: chance.happens(700),
        };
        let small = [100, 500, 900][chance.below(3) as usize];
        let length = 11_000 + chance.below(12_000);
        let mut plan = Self {
            seed,
            pools,
            rates,
            small,
            knobs,
            length,
            faults: Vec::new(),
            has_ledger: false,
        };
        if !knobs.has_probe {
            plan.feed();
        }
        plan.ail(&mut chance);
        match chance.below(20) {
            0..=3 => {}
            4 if knobs.has_probe => plan.starve(),
            4 => {}
            5..=6 => plan.spoil(&mut chance),
            7..=9 => plan.corrupt(&mut chance),
            _ => plan.storm(&mut chance),
        }
        plan.faults.sort_by_key(|fault| fault.from);
        plan
    }

    /// The plan of a seed for a fleet that has a ledger.
    pub(crate) fn draw_with_ledger(seed: u64) -> Self {
        let mut plan = Self { has_ledger: true, ..Self::draw(seed) };
        let mut chance = Chance::new(seed ^ 0x001e_d6e5);
        match chance.below(10) {
            // All is well with the ledger, whatever else is not.
            0..=1 => {}
            // Its members do not hear each other, and all of them the ledger.
            2 => {
                plan.faults.retain(|fault| !fault.what.troubles_fleet());
                let mask = chance.bits() & ((1 << plan.nodes()) - 1);
                let (from, to) = (500, plan.length);
                plan.faults.push(Fault { from, to, what: What::Parted { mask } });
            }
            // Nothing else is wrong with the fleet.
            3..=6 => {
                plan.faults.retain(|fault| !fault.what.troubles_fleet());
                plan.shake(&mut chance);
            }
            _ => plan.shake(&mut chance),
        }
        plan.faults.sort_by_key(|fault| fault.from);
        plan
    }

    /// Something is wrong with the ledger.
    fn shake(&mut self, chance: &mut Chance) {
        let nodes = self.nodes() as u64;
        for _ in 0..1 + chance.below(3) {
            let what = match chance.below(8) {
                0 => What::LedgerDown,
                1 | 2 => What::LedgerAway { node: chance.below(nodes) as usize },
                3 | 4 => What::LedgerRough {
                    requests: chance.below(300),
                    answers: chance.below(300),
                    delay: 10 + chance.below(150),
                },
                5 => What::LedgerFlush,
                6 => What::LedgerLoses { back: 200 + chance.below(2_500) },
                // An old dump: incidents have ended since.
                _ => What::LedgerLoses { back: 3_000 + chance.below(12_000) },
            };
            self.add(chance, 8_000, what);
        }
    }

    fn add(&mut self, chance: &mut Chance, longest: Ms, what: What) {
        let from = 500 + chance.below(self.length - 4_500);
        let to = (from + 300 + chance.below(longest)).min(self.length);
        self.faults.push(Fault { from, to, what });
    }

    /// One to three endpoints fall ill.
    fn ail(&mut self, chance: &mut Chance) {
        for _ in 0..=1 + chance.below(3) {
            let endpoint = chance.below(self.endpoints() as u64) as usize;
            let what = match chance.below(8) {
                0..=3 => What::Fails { endpoint, share: 1_000 },
                4 => What::Fails { endpoint, share: 300 + chance.below(500) },
                5 => What::Slow { endpoint },
                6 => What::Flaps { endpoint, turn: 500 + chance.below(4_000) },
                _ => What::Fragile { endpoint },
            };
            // One slow moment is a case of its own.
            let is_moment = matches!(what, What::Slow { .. }) && chance.happens(500);
            self.add(chance, if is_moment { 500 } else { 20_000 }, what);
        }
    }

    /// Enough small requests everywhere, since nothing else ends an opening where nobody probes.
    fn feed(&mut self) {
        self.small = 900;
        for rate in &mut self.rates {
            *rate = (*rate).max(150);
        }
    }

    /// Too little traffic on each node for any of them to convict alone.
    fn starve(&mut self) {
        for rate in &mut self.rates {
            *rate = 25;
        }
        let (from, to) = (500, self.length);
        self.faults = vec![Fault { from, to, what: What::Fails { endpoint: 0, share: 1_000 } }];
    }

    /// One node's network is bad, and nothing else is wrong.
    fn spoil(&mut self, chance: &mut Chance) {
        let node = chance.below(self.nodes() as u64) as usize;
        self.faults.clear();
        self.add(chance, 15_000, What::BadNode { node });
    }

    /// One member lies; half of the time nothing else is wrong.
    fn corrupt(&mut self, chance: &mut Chance) {
        let node = chance.below(self.nodes() as u64) as usize;
        if chance.happens(500) {
            self.faults.clear();
        }
        for _ in 0..=chance.below(2) {
            let how: Lie = LIES[chance.below(LIES.len() as u64) as usize].0;
            self.add(chance, 12_000, What::Lies { node, how });
        }
    }

    /// Everything at once.
    fn storm(&mut self, chance: &mut Chance) {
        let nodes = self.nodes() as u64;
        for _ in 0..1 + chance.below(6) {
            let node = chance.below(nodes) as usize;
            let what = match chance.below(12) {
                0 | 1 => What::Parted { mask: chance.bits() & ((1 << nodes) - 1) },
                2 => What::Deaf { from: node, to: chance.below(nodes) as usize },
                3 => {
                    // Cut off one after the other, and back in another order.
                    for node in 0..nodes as usize {
                        if chance.happens(600) {
                            self.add(chance, 8_000, What::Cut { node });
                        }
                    }
                    continue;
                }
                4 | 5 => What::Rough {
                    loss: chance.below(400),
                    doubled: chance.below(300),
                    delay: 20 + chance.below(1_500),
                },
                6 => What::Unpushed { loss: [200, 1_000][chance.below(2) as usize] },
                7 | 8 => What::Crash { node, has_snapshot: chance.happens(600) },
                9 | 10 => What::Pause { node },
                _ => What::BadNode { node },
            };
            self.add(chance, 10_000, what);
        }
    }
}
