//! What a member was heard to say, and what this node has said: numbering, news, the pulse.
//!
//! Every statement carries a number that grows with each stating by its writer. A reader takes a
//! greater number only, so that repetition and reordering are harmless. What does not change is not
//! said again: a writer that goes on standing by all it has stated raises its pulse, one number for
//! everything. Only durations that run are told anew, by one member, ever less often the longer
//! they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::statement::{
    EndpointKey, Heard, NodeId, Said, Stage, Stated, Statement, Step, VoteState,
};
use crate::steward::{fnv, stir};

/// A member may state at most this much; more is not taken in. Three statements per endpoint of the
/// largest fleet that gossip is sized for.
const HEARD_MAX: usize = 32_768;

/// Which of a node's statements about an endpoint or a member: at most one of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Vote,
    Step,
    Override,
    Window,
    Member,
}

impl Kind {
    pub(crate) fn of(statement: &Statement) -> Self {
        match statement {
            Statement::Vote(..) => Self::Vote,
            Statement::Step(..) => Self::Step,
            Statement::Override(..) => Self::Override,
            Statement::Window(..) => Self::Window,
            Statement::Member(..) => Self::Member,
        }
    }
}

type Key = (EndpointKey, Kind);

/// What one member says of itself, in its greatest generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Voice {
    pub(crate) generation: u64,
    /// Its pulse, and when it was first seen to have risen so far.
    pulse: u64,
    pulse_at: Option<Duration>,
    /// From when on its word counts; `None`: not at all.
    pub(crate) trusted_from: Option<Duration>,
    /// Tells the set last taken in from any other.
    fingerprint: u64,
    /// Whether nothing else than that set is kept.
    is_kept: bool,
    /// Whether this node suspects it.
    pub(crate) is_suspect: bool,
    /// What it has spoken of.
    spoken: BTreeSet<Key>,
}

impl Voice {
    /// Turns to what the member says as `generation`: what it said before a restart is void.
    /// Returns false for a past generation.
    pub(crate) fn begin(&mut self, generation: u64) -> bool {
        if generation > self.generation {
            *self = Self { generation, ..Self::default() };
        }
        generation == self.generation
    }

    /// Notes the pulse at `now`. Returns whether it has risen.
    pub(crate) fn beat(&mut self, now: Duration, pulse: u64) -> bool {
        let has_risen = pulse > self.pulse;
        if has_risen {
            self.pulse = pulse;
            self.pulse_at = Some(now);
        }
        has_risen
    }

    /// Whether `heard` is another set than the one last taken in, in whatever order: a fleet at
    /// rest says the same for hours.
    pub(crate) fn is_other(&mut self, heard: &[Heard]) -> bool {
        let print = |heard: &Heard| {
            let kind = Kind::of(&heard.statement) as u64;
            let subject = fnv(heard.statement.subject().bytes());
            stir(heard.seq ^ subject.rotate_left(32) ^ kind.rotate_right(8))
        };
        let first = heard.len() as u64;
        let fingerprint = heard.iter().map(print).fold(first, u64::wrapping_add);
        let is_other = fingerprint != self.fingerprint;
        self.fingerprint = fingerprint;
        self.is_kept &= !is_other;
        is_other
    }

    /// Lets the next set be taken in even if it is the same: there is more to be taken from it.
    pub(crate) fn listen_anew(&mut self) {
        self.fingerprint = 0;
    }

    /// When the member last stood by what it had stated by `seen_at`.
    pub(crate) fn stood_at(&self, seen_at: Duration) -> Duration {
        self.pulse_at.map_or(seen_at, |at| at.max(seen_at))
    }

    /// Notes that the member spoke of this endpoint. Returns whether there is room for it.
    pub(crate) fn speak(&mut self, statement: &Statement) -> bool {
        let Some(key) = key(statement) else {
            return false;
        };
        let has_room = self.spoken.len() < HEARD_MAX || self.spoken.contains(&key);
        if has_room {
            self.spoken.insert(key);
        }
        has_room
    }

    /// Keeps only what is in a whole set that came with a risen pulse. Returns what is gone.
    pub(crate) fn keep(&mut self, heard: &[Heard]) -> Vec<Key> {
        if self.is_kept {
            return Vec::new();
        }
        self.is_kept = true;
        let stated: BTreeSet<Key> =
            heard.iter().filter_map(|heard| key(&heard.statement)).collect();
        let gone: Vec<Key> = self.spoken.difference(&stated).cloned().collect();
        for key in &gone {
            self.spoken.remove(key);
        }
        gone
    }

    /// The endpoints that the member spoke of.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &EndpointKey> {
        self.spoken.iter().map(|(endpoint, _)| endpoint)
    }
}

/// Something that this node states.
pub(crate) struct Item {
    pub(crate) statement: Statement,
    /// How long it may go unrepeated; `None`: until it changes.
    pub(crate) renewed_after: Option<Duration>,
    /// It is not repeated sooner, even if it changes.
    pub(crate) held_for: Duration,
    /// Whether it is another's word that is only passed on.
    pub(crate) is_relayed: bool,
}

/// What this node has said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speech {
    seq: u64,
    pulse: u64,
    pulsed_at: Duration,
    last: BTreeMap<Key, (Stated, Duration)>,
    /// Whether something was taken back that the set last said still holds.
    has_forgotten: bool,
    /// What was said of members.
    ordered: BTreeMap<NodeId, Stated>,
}

impl Speech {
    /// Says at `now` what is to be said of `endpoints`; what was said of others stands. Of members
    /// all is said anew each time. Returns the whole set if anything in it changed, or the pulse is due.
    pub(crate) fn say(
        &mut self,
        now: Duration,
        endpoints: &BTreeSet<EndpointKey>,
        (items, orders): (Vec<Item>, BTreeMap<NodeId, Statement>),
        pulse_every: Duration,
    ) -> Option<Said> {
        let mut has_changed = self.say_orders(orders) | std::mem::take(&mut self.has_forgotten);
        let said: BTreeSet<Key> = items.iter().filter_map(|item| key(&item.statement)).collect();
        for endpoint in endpoints {
            for kind in [Kind::Vote, Kind::Step, Kind::Override, Kind::Window] {
                let key = (endpoint.clone(), kind);
                has_changed |= !said.contains(&key) && self.last.remove(&key).is_some();
            }
        }
        for item in items {
            has_changed |= self.say_one(now, item);
        }
        let is_due = now >= self.pulsed_at.saturating_add(pulse_every);
        let is_raised = has_changed || is_due && self.stands_by_anything();
        is_raised.then(|| {
            self.pulse += 1;
            self.pulsed_at = now;
            let facts = self.last.values().map(|(stated, _)| stated);
            // Orders first: of a set that is too large the carrier states the beginning.
            let stated = self.ordered.values().chain(facts).cloned().collect();
            Said { stated, pulse: self.pulse }
        })
    }

    /// Says what is asked of members. Returns whether anything changed.
    fn say_orders(&mut self, orders: BTreeMap<NodeId, Statement>) -> bool {
        let before = self.ordered.len();
        self.ordered.retain(|member, _| orders.contains_key(member));
        let mut has_changed = self.ordered.len() != before;
        for (member, statement) in orders {
            let is_said =
                self.ordered.get(&member).is_some_and(|stated| stated.statement == statement);
            if !is_said {
                self.seq += 1;
                self.ordered.insert(member, Stated { seq: self.seq, fresh: true, statement });
                has_changed = true;
            }
        }
        has_changed
    }

    /// Lets what is asked of a member be said under a new number, though it may be the same.
    pub(crate) fn say_anew(&mut self, member: &NodeId) {
        self.ordered.remove(member);
    }

    /// Returns whether the statement is said, as against standing as it was.
    fn say_one(&mut self, now: Duration, item: Item) -> bool {
        let Item { statement, renewed_after, held_for, is_relayed } = item;
        let Some(key) = key(&statement) else {
            return false;
        };
        let old = self.last.get(&key);
        let old_at = old.map(|(_, at)| *at);
        let has_waited = |wait: Duration| old_at.is_none_or(|at| now >= at.saturating_add(wait));
        let is_begun_anew = !is_relayed
            && old.is_some_and(|(old, at)| {
                is_begun_anew(&old.statement, &statement, now.saturating_sub(*at))
            });
        let change = match old {
            None => Change::first(&statement),
            Some(_) if is_begun_anew => Change::News,
            Some((old, _)) => Change::between(&old.statement, &statement),
        };
        let is_said = match change {
            Change::News | Change::Quiet => has_waited(held_for),
            Change::Nothing => renewed_after.is_some_and(has_waited),
        };
        if is_said {
            self.seq += 1;
            // Each canary is a step, and its holder pushes it to all: once is enough.
            let is_canary =
                matches!(&statement, Statement::Step(_, Step { stage: Stage::Canary { .. }, .. }));
            let fresh = change == Change::News && !(is_relayed && is_canary);
            self.last.insert(key, (Stated { seq: self.seq, fresh, statement }, now));
        }
        is_said
    }

    fn stands_by_anything(&self) -> bool {
        !self.ordered.is_empty()
            || self.last.values().any(|(stated, _)| match &stated.statement {
                Statement::Vote(_, vote) => vote.state != VoteState::Withdrawn,
                // Not to have it out is a word to stand by as well.
                Statement::Step(_, step) => step.stage != Stage::Closed,
                Statement::Override(_, order) => {
                    order.remaining.is_some_and(|left| !left.is_zero())
                }
                Statement::Window(..) | Statement::Member(..) => true,
            })
    }

    /// Takes back all that was said of an endpoint. The next set is without it, though nothing else
    /// may be new: others would go by the old one.
    pub(crate) fn forget(&mut self, endpoint: &EndpointKey) {
        let before = self.last.len();
        self.last.retain(|(about, _), _| about != endpoint);
        self.has_forgotten |= self.last.len() < before;
    }
}

/// The place of a statement about an endpoint.
fn key(statement: &Statement) -> Option<Key> {
    statement.endpoint().map(|endpoint| (endpoint.clone(), Kind::of(statement)))
}

/// What a statement says beyond the one before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Something that others wait for: it is pushed.
    News,
    /// Something that may wait for gossip.
    Quiet,
    /// Nothing, apart from durations, which run by themselves.
    Nothing,
}

impl Change {
    fn first(statement: &Statement) -> Self {
        match statement {
            Statement::Window(_, window) if !window.is_bad() && !window.has_small => Self::Quiet,
            Statement::Vote(..)
            | Statement::Step(..)
            | Statement::Override(..)
            | Statement::Window(..)
            | Statement::Member(..) => Self::News,
        }
    }

    fn between(old: &Statement, new: &Statement) -> Self {
        let (is_news, is_change) = match (old, new) {
            (Statement::Vote(_, old), Statement::Vote(_, new)) => {
                let is_news =
                    (old.incident, old.basis, old.state) != (new.incident, new.basis, new.state);
                (is_news, is_news)
            }
            (Statement::Step(_, old), Statement::Step(_, new)) => {
                let is_news = (old.incident, old.failures, stage(&old.stage), &old.steward)
                    != (new.incident, new.failures, stage(&new.stage), &new.steward)
                    || old.is_held != new.is_held;
                (is_news, is_news)
            }
            (Statement::Override(_, old), Statement::Override(_, new)) => {
                let is_news = (old.stamp, &old.author) != (new.stamp, &new.author);
                (is_news, is_news)
            }
            (Statement::Window(_, old), Statement::Window(_, new)) => {
                let has_grown =
                    new.faults_milli > old.faults_milli || new.slow.len() > old.slow.len();
                (has_grown || new.has_small && !old.has_small, counts(old) != counts(new))
            }
            (
                Statement::Vote(..)
                | Statement::Step(..)
                | Statement::Override(..)
                | Statement::Window(..)
                | Statement::Member(..),
                _,
            ) => (true, true),
        };
        match (is_news, is_change) {
            (true, _) => Self::News,
            (false, true) => Self::Quiet,
            (false, false) => Self::Nothing,
        }
    }
}

/// Whether the probe of the one step, told `passed` ago, was begun anew in the other: the others
/// would take it for lost.
fn is_begun_anew(old: &Statement, new: &Statement, passed: Duration) -> bool {
    match (old, new) {
        (Statement::Step(_, old), Statement::Step(_, new)) => match (&old.stage, &new.stage) {
            (Stage::Probing { remaining: before }, Stage::Probing { remaining }) => {
                !remaining.is_zero() && remaining.saturating_add(passed) > *before
            }
            (
                Stage::Waiting { .. }
                | Stage::Probing { .. }
                | Stage::Canary { .. }
                | Stage::Closed,
                _,
            ) => false,
        },
        (
            Statement::Vote(..)
            | Statement::Step(..)
            | Statement::Override(..)
            | Statement::Window(..)
            | Statement::Member(..),
            _,
        ) => false,
    }
}

/// A stage without its durations.
fn stage(stage: &Stage) -> (&'static str, Option<(&str, u32, u32)>) {
    let slot = match stage {
        Stage::Canary { holder, turn, successes, .. } => Some((holder.as_str(), *turn, *successes)),
        Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => None,
    };
    (stage.as_str(), slot)
}

/// A window without its ages.
fn counts(window: &crate::statement::Window) -> (u32, u32, u32, usize, bool) {
    let crate::statement::Window { requests, faults_milli, successes, slow, has_small, .. } =
        window;
    (*requests, *faults_milli, *successes, slow.len(), *has_small)
}
