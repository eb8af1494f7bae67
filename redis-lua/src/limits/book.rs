//! What `lua/limit_turn.lua` keeps and answers for one subject, as a value that changes only when told.
//!
//! It is the rule that the script is held against, and the ledger of simulated fleets.
//!
//! Invariants: those of [`Window`]; the slots of all are never more than the figure, unless nodes had
//! more in use when they first said so; what is set aside leaves the last eighth of every figure alone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Answer, Correction, Figures, Turn, Verdict, What, Window};
use crate::limits::Load;
use crate::limits::window::AHEAD;

/// When a request in flight ends nobody knows; whoever waits for one is told to come back after this.
pub const SLOT_RETURNS_IN: Duration = Duration::from_secs(1);

/// The minute and the slots of one subject.
#[derive(Clone, Debug, Default)]
pub struct Book {
    window: Window,
    /// By node; bounded by the nodes that had slots within a lease.
    slots: BTreeMap<String, Slots>,
}

/// What one node holds.
#[derive(Clone, Copy, Debug)]
struct Slots {
    generation: u64,
    count: u64,
    until: Duration,
}

/// One turn under way.
struct Course<'a> {
    now: Duration,
    figures: Figures,
    window: &'a mut Window,
    /// Slots that cannot be had: of others, in use, and taken by earlier demands of this turn.
    taken: u64,
    is_fenced: bool,
}

impl Book {
    /// Takes one turn at `now` by the ledger's clock, in whole microseconds.
    pub fn turn(&mut self, now: Duration, turn: &Turn) -> Answer {
        self.window.begin(now);
        for Correction { at, was, is } in &turn.corrections {
            self.window.replace(Duration::from_micros(*at), *was, *is);
        }
        if turn.debt != Load::default() {
            self.window.add(now, turn.debt);
        }
        let (theirs, is_fenced) = self.others(now, turn);
        let taken = theirs.saturating_add(turn.in_use);
        let (figures, window) = (turn.figures, &mut self.window);
        let mut course = Course { now, figures, window, taken, is_fenced };
        let mut at = now;
        let verdicts = turn.demands.iter().map(|tokens| course.demand(*tokens, &mut at)).collect();
        let (aside_at, aside) = course.set_aside(turn);
        let taken = course.taken.saturating_sub(theirs);
        let slots = self.keep_slots(now, turn, (theirs, taken, is_fenced));
        let sum = self.window.sum();
        Answer {
            at: micros(at),
            aside_at: micros(aside_at),
            aside,
            sum,
            resets: [
                self.window.leaves_in(now, sum.requests, |load| load.requests),
                self.window.leaves_in(now, sum.tokens, |load| load.tokens),
            ],
            slots,
            slots_of_all: theirs.saturating_add(slots),
            torn: 0,
            verdicts,
        }
    }

    /// What counts at `now`.
    pub fn sum(&mut self, now: Duration) -> Load {
        self.window.begin(now);
        self.window.sum()
    }

    /// The slots of others, and whether a later life of this node has spoken.
    fn others(&mut self, now: Duration, turn: &Turn) -> (u64, bool) {
        if turn.figures.slots.is_none() {
            return (0, false);
        }
        let latest = now.saturating_add(turn.lease.saturating_mul(10));
        self.slots.retain(|_, held| held.until > now && held.until <= latest);
        let own = self.slots.get(&turn.node);
        let is_fenced = own.is_some_and(|own| own.generation > turn.generation);
        let others = self.slots.iter().filter(|(node, _)| **node != turn.node);
        (others.map(|(_, held)| held.count).sum(), is_fenced)
    }

    fn keep_slots(
        &mut self,
        now: Duration,
        turn: &Turn,
        (theirs, taken, is_fenced): (u64, u64, bool),
    ) -> u64 {
        let Some(limit) = turn.figures.slots.filter(|_| !is_fenced) else { return 0 };
        let count = taken + spare(Some(limit), theirs.saturating_add(taken), turn.keep);
        if count == 0 {
            self.slots.remove(&turn.node);
        } else {
            let until = now.saturating_add(turn.lease);
            let held = Slots { generation: turn.generation, count, until };
            self.slots.insert(turn.node.clone(), held);
        }
        count
    }
}

impl Course<'_> {
    fn demand(&mut self, tokens: u64, at: &mut Duration) -> Verdict {
        let verdict = self.verdict(tokens);
        if verdict == Verdict::Granted {
            self.taken = self.taken.saturating_add(1);
            if self.figures.has_minute() {
                let tokens = self.figures.tokens.map_or(0, |limit| tokens.min(limit));
                *at = self.window.add(self.now, Load { requests: 1, tokens });
            }
        }
        verdict
    }

    /// Of what limits a demand the one that lasts longest.
    fn verdict(&self, tokens: u64) -> Verdict {
        let Figures { requests, tokens: per_minute, slots } = self.figures;
        if per_minute.is_some_and(|limit| tokens > limit) {
            return Verdict::Full { what: What::Tokens, returns_in: None };
        }
        let sum = self.window.sum();
        let over = |limit: Option<u64>, used: u64, wanted: u64| {
            limit.map_or(0, |limit| used.saturating_add(wanted).saturating_sub(limit))
        };
        let leaves = |over: u64, figure: fn(&Load) -> u64| {
            (over > 0).then(|| self.window.leaves_in(self.now, over, figure))
        };
        let has_none = |limit| self.taken >= limit || self.is_fenced;
        let all = [
            (What::Requests, leaves(over(requests, sum.requests, 1), |load| load.requests)),
            (What::Tokens, leaves(over(per_minute, sum.tokens, tokens), |load| load.tokens)),
            (What::Slots, slots.filter(|limit| has_none(*limit)).map(|_| SLOT_RETURNS_IN)),
        ];
        let full = all.into_iter().filter_map(|(what, wait)| Some((what, wait?)));
        let longest = full.max_by_key(|(_, wait)| *wait);
        longest
            .map_or(Verdict::Granted, |(what, wait)| Verdict::Full { what, returns_in: Some(wait) })
    }

    fn set_aside(&mut self, turn: &Turn) -> (Duration, Load) {
        let sum = self.window.sum();
        let requests = spare(self.figures.requests, sum.requests, turn.aside.requests);
        let tokens = spare(self.figures.tokens, sum.tokens, turn.aside.tokens);
        let is_limited = self.figures.tokens.is_some();
        if requests == 0 || (is_limited && tokens == 0) || !self.figures.has_minute() {
            return (self.now, Load::default());
        }
        let load = Load { requests, tokens: if is_limited { tokens } else { 0 } };
        (self.window.add(self.now.saturating_add(turn.hold.min(AHEAD)), load), load)
    }
}

/// What may be set aside of a figure: a sixteenth of what is left beyond its last eighth, so that the
/// last of it is never in the hands of a node that does not use it. Of small figures that is nothing.
pub fn spare(limit: Option<u64>, used: u64, wanted: u64) -> u64 {
    let Some(limit) = limit else { return wanted };
    wanted.min(limit.saturating_sub(used).saturating_sub(limit.div_ceil(8)) / 16)
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}
