//! What a member was heard to say, and what this node has said: numbering, news and renewals.
//!
//! Every statement carries a number that grows with each stating by its writer. A reader takes a
//! greater number only, so that repetition and reordering are harmless; a writer numbers anew what
//! is news, and what must be renewed because durations in it run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::statement::{EndpointKey, Heard, Said, Stage, Stated, Statement, Vote, VoteState};

/// A member may state at most this much; more is not taken in. Three statements per endpoint of the
/// largest fleet that gossip is sized for.
const HEARD_MAX: usize = 32_768;

/// Which of a node's statements: at most one of a kind per endpoint.
type Key = (Kind, EndpointKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Vote,
    Step,
    Override,
    Window,
}

/// What one member has stated, in its greatest generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Voice {
    generation: u64,
    heard: BTreeMap<Key, (Heard, Duration)>,
}

impl Voice {
    /// Turns to what the member says as `generation`: what it said before a restart is void.
    /// Returns false for a past generation.
    pub(crate) fn begin(&mut self, generation: u64) -> bool {
        if generation > self.generation {
            *self = Self { generation, heard: BTreeMap::new() };
        }
        generation == self.generation
    }

    /// Keeps a statement heard at `now`. Returns whether it was not known yet.
    pub(crate) fn take(&mut self, now: Duration, heard: &Heard) -> bool {
        let key = key(&heard.statement);
        let known = self.heard.get(&key).map(|(old, _)| old.seq);
        let has_room = known.is_some() || self.heard.len() < HEARD_MAX;
        let is_new = has_room && known.is_none_or(|seq| seq < heard.seq);
        if is_new {
            self.heard.insert(key, (heard.clone(), now));
        }
        is_new
    }

    /// The member's vote on an endpoint, with the moment it was last heard.
    pub(crate) fn vote(&self, endpoint: &EndpointKey) -> Option<(&Vote, Duration)> {
        let (heard, seen_at) = self.heard.get(&(Kind::Vote, endpoint.clone()))?;
        match &heard.statement {
            Statement::Vote(_, vote) => Some((vote, *seen_at)),
            Statement::Step(..) | Statement::Override(..) | Statement::Window(..) => None,
        }
    }

    /// The generation that speaks.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

/// What this node has said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speech {
    seq: u64,
    pulse: u64,
    last: BTreeMap<Key, (Stated, Duration)>,
}

impl Speech {
    /// Says `current` at `now`, as a whole set. Returns the set if anything in it is news, is due
    /// for renewal, or has gone.
    pub(crate) fn say(
        &mut self,
        now: Duration,
        current: Vec<Statement>,
        renew_every: Duration,
    ) -> Option<Said> {
        let mut has_changed = self.last.len() != current.len();
        let mut last = BTreeMap::new();
        for statement in current {
            let key = key(&statement);
            let old = self.last.remove(&key);
            let fresh = old.as_ref().is_none_or(|(old, _)| is_news(&old.statement, &statement));
            let is_due =
                |at: Duration| is_running(&statement) && now >= at.saturating_add(renew_every);
            let kept = old.filter(|(_, at)| !fresh && !is_due(*at));
            has_changed |= kept.is_none();
            let said = kept.unwrap_or_else(|| {
                self.seq += 1;
                (Stated { seq: self.seq, fresh, statement }, now)
            });
            last.insert(key, said);
        }
        self.last = last;
        has_changed.then(|| {
            self.pulse += 1;
            let stated = self.last.values().map(|(stated, _)| stated.clone()).collect();
            Said { stated, pulse: self.pulse }
        })
    }
}

fn key(statement: &Statement) -> Key {
    let kind = match statement {
        Statement::Vote(..) => Kind::Vote,
        Statement::Step(..) => Kind::Step,
        Statement::Override(..) => Kind::Override,
        Statement::Window(..) => Kind::Window,
    };
    (kind, statement.endpoint().clone())
}

/// Whether a statement holds durations that run, so that a late reader needs them renewed; a
/// standing vote besides lapses without.
fn is_running(statement: &Statement) -> bool {
    match statement {
        Statement::Vote(_, vote) => vote.state != VoteState::Withdrawn,
        Statement::Window(..) => true,
        Statement::Step(_, step) => step.stage != Stage::Closed,
        Statement::Override(_, order) => order.remaining.is_some_and(|left| !left.is_zero()),
    }
}

/// Whether `new` says something else than `old`, apart from durations, which run by themselves.
fn is_news(old: &Statement, new: &Statement) -> bool {
    match (old, new) {
        (Statement::Vote(_, old), Statement::Vote(_, new)) => {
            (old.incident, old.basis, old.state) != (new.incident, new.basis, new.state)
        }
        (Statement::Step(_, old), Statement::Step(_, new)) => {
            (old.incident, old.failures, old.stage.as_str(), &old.steward)
                != (new.incident, new.failures, new.stage.as_str(), &new.steward)
        }
        (Statement::Override(_, old), Statement::Override(_, new)) => {
            (old.stamp, &old.author) != (new.stamp, &new.author)
        }
        (Statement::Window(_, old), Statement::Window(_, new)) => {
            new.faults_milli > old.faults_milli || new.slow.len() > old.slow.len()
        }
        (
            Statement::Vote(..)
            | Statement::Step(..)
            | Statement::Override(..)
            | Statement::Window(..),
            _,
        ) => true,
    }
}
