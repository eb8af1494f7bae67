//! The carrier of the simulated fleet: what a node has of every other, as whole sets.
//!
//! It behaves as gossip does where the rule could notice: it knows dead members for long, relays
//! what others stated, holds a member alive while its heartbeat grows, and may tell old statements
//! again. It keeps no promise about time or order beyond that.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use quorum::{Card, Heard, Member, NodeId, Said, Standing};

use super::chance::Chance;

/// Silence of this length makes a member lost.
pub(crate) const DETECTION: Duration = Duration::from_secs(5);

/// What is carried of one member.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) id: NodeId,
    pub(crate) generation: u64,
    pub(crate) heartbeat: u64,
    /// Grows with each whole set that the member stated.
    pub(crate) version: u64,
    pub(crate) standing: Standing,
    pub(crate) is_suspect: bool,
    pub(crate) pulse: u64,
    pub(crate) heard: Vec<Heard>,
}

/// A record with the moment its heartbeat was last seen to grow.
struct Kept {
    record: Record,
    grown_at: Option<Duration>,
    /// The set stated before, which may be told again.
    past: Vec<Heard>,
}

/// One node's carrier.
pub(crate) struct Carrier {
    me: Record,
    kept: BTreeMap<NodeId, Kept>,
    is_stale: bool,
    told_at: Duration,
}

impl Carrier {
    /// A carrier that knows its own node only.
    pub(crate) fn new(id: NodeId, generation: u64) -> Self {
        let me = Record {
            id,
            generation,
            heartbeat: 1,
            version: 0,
            standing: Standing::Serving,
            is_suspect: false,
            pulse: 0,
            heard: Vec::new(),
        };
        Self { me, kept: BTreeMap::new(), is_stale: true, told_at: Duration::ZERO }
    }

    /// States this node's whole set.
    pub(crate) fn state(&mut self, said: &Said) {
        self.me.version += 1;
        self.me.pulse = said.pulse;
        self.me.heard = said
            .stated
            .iter()
            .map(|stated| Heard { seq: stated.seq, statement: stated.statement.clone() })
            .collect();
    }

    /// Says how this node takes part.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.me.version += 1;
        self.me.standing = standing;
    }

    /// Says whether this node suspects itself.
    pub(crate) fn suspect(&mut self, is_suspect: bool) {
        if self.me.is_suspect != is_suspect {
            self.me.version += 1;
            self.me.is_suspect = is_suspect;
        }
    }

    /// This node's own record, as it is pushed.
    pub(crate) fn mine(&self) -> Rc<[Record]> {
        Rc::new([self.me.clone()])
    }

    /// All records, as they are gossiped.
    pub(crate) fn all(&self) -> Rc<[Record]> {
        let others = self.kept.values().map(|kept| kept.record.clone());
        others.chain([self.me.clone()]).collect()
    }

    /// Lets this node's heart beat.
    pub(crate) fn beat(&mut self) {
        self.me.heartbeat += 1;
    }

    /// Merges what came from `from` at `now`.
    pub(crate) fn merge(&mut self, now: Duration, from: &NodeId, records: &[Record]) {
        for record in records.iter().filter(|record| record.id != self.me.id) {
            // Who is met for the first time through others is alive once its heart is seen to beat.
            let first_seen = (record.id == *from).then_some(now);
            match self.kept.get_mut(&record.id) {
                Some(kept) if kept.record.generation == record.generation => {
                    self.is_stale |= kept.merge(now, record);
                }
                Some(kept) if kept.record.generation > record.generation => {}
                Some(_) | None => {
                    let kept =
                        Kept { record: record.clone(), grown_at: first_seen, past: Vec::new() };
                    self.kept.insert(record.id.clone(), kept);
                    self.is_stale = true;
                }
            }
        }
    }

    /// The whole set, if there is something to tell at `now`: news, or a second has passed.
    pub(crate) fn tell(&mut self, now: Duration, chance: &mut Chance) -> Option<Vec<Member>> {
        if !self.is_stale && now < self.told_at + Duration::from_secs(1) {
            return None;
        }
        self.is_stale = false;
        self.told_at = now;
        let mut members: Vec<Member> =
            self.kept.values().map(|kept| kept.member(now, chance)).collect();
        chance.shuffle(&mut members);
        Some(members)
    }
}

impl Kept {
    fn merge(&mut self, now: Duration, record: &Record) -> bool {
        if record.heartbeat > self.record.heartbeat {
            self.record.heartbeat = record.heartbeat;
            self.grown_at = Some(now);
        }
        let is_new = record.version > self.record.version;
        if is_new {
            self.past = std::mem::take(&mut self.record.heard);
            self.record = Record { heartbeat: self.record.heartbeat, ..record.clone() };
        }
        is_new
    }

    /// The member as the rule hears of it; a third of the time with its past told again.
    fn member(&self, now: Duration, chance: &mut Chance) -> Member {
        let mut heard = self.record.heard.clone();
        if chance.happens(333) {
            heard.extend(self.past.iter().cloned());
            chance.shuffle(&mut heard);
        }
        let card = Card {
            version: String::new(),
            config_hash: String::new(),
            standing: self.record.standing,
            is_suspect: self.record.is_suspect,
        };
        Member {
            id: self.record.id.clone(),
            generation: self.record.generation,
            address: String::new(),
            is_live: self.grown_at.is_some_and(|at| now < at + DETECTION),
            card: Some(card),
            pulse: self.record.pulse,
            heard,
        }
    }
}
