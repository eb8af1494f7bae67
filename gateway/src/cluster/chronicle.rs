//! What is worth remembering of each endpoint, in the words of whoever asks later "why was it out?".
//!
//! What was decided is told as it stands. Votes and the steps of others are compared with what was seen
//! last: a vote that lapses is no statement of anybody, so that it is seen only by looking. Votes that
//! change for the same reason at the same time are one line, so that a large fleet does not push
//! everything else out of a history of twenty.
//!
//! Invariants: one look is at no more than [`LOOKED_AT_MAX`] endpoints, the others have their turn in the
//! next; nothing is kept of endpoints that are at rest.

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::view::{VoteView, Weight};
use quorum::{Basis, Council, Decision, EndpointKey, Forced, NodeId, Stage, Step, Tally};

use crate::people::{for_people, listed};

/// Endpoints that are looked at in one round, ten rounds a second.
const LOOKED_AT_MAX: usize = 128;

/// A line of an endpoint's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) endpoint: EndpointKey,
    /// `vote` for what members say, `cluster` for the fleet, `operator` for an order.
    pub(super) scope: &'static str,
    pub(super) what: String,
}

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    seen: BTreeMap<EndpointKey, Seen>,
    /// The endpoint that was looked at last.
    last: Option<EndpointKey>,
}

#[derive(Debug, Default)]
struct Seen {
    votes: BTreeMap<NodeId, Cast>,
    step: Option<Step>,
}

/// A vote as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cast {
    incident: u64,
    basis: Basis,
    weight: Weight,
}

impl Chronicle {
    /// Looks at what changed by `now`.
    pub(super) fn look(&mut self, now: Duration, council: &Council) -> Vec<Line> {
        self.seen.retain(|key, _| council.is_stirred(key));
        let keys: Vec<EndpointKey> =
            council.stirred(self.last.as_ref(), LOOKED_AT_MAX).cloned().collect();
        let mut lines = Vec::new();
        for key in &keys {
            let seen = self.seen.entry(key.clone()).or_default();
            let closed = council.closed_incident(key);
            let mut tell = |scope, what| lines.push(Line { endpoint: key.clone(), scope, what });
            // A node alone asks nobody, so that its own vote says no more than its breaker.
            if council.electorate_size() > 1 {
                let votes = council.votes_on(now, key);
                seen.compare_votes(&votes, closed).into_iter().for_each(|what| tell("vote", what));
            }
            let step = council.step_of(now, key);
            let what = step.as_ref().and_then(|step| stepped(seen.step.as_ref(), step));
            seen.step = step;
            what.into_iter().for_each(|what| tell("cluster", what));
        }
        self.last = keys.last().cloned();
        lines
    }
}

impl Seen {
    /// What the votes came to since the last look, the same of several voters in one.
    fn compare_votes(&mut self, votes: &[VoteView], closed: u64) -> Vec<String> {
        let mut told: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for view in votes {
            let (incident, basis, weight) = (view.vote.incident, view.vote.basis, view.weight);
            let cast = Cast { incident, basis, weight };
            let before = self.votes.insert(view.voter.clone(), cast);
            if let Some(what) = changed(before, cast, &view.vote.reason) {
                told.entry(what).or_default().push(view.voter.as_str());
            }
        }
        let mut gone: Vec<NodeId> = Vec::new();
        self.votes.retain(|id, cast| {
            let is_known = votes.iter().any(|view| view.voter == *id);
            if !is_known && cast.weight == Weight::Counts && cast.incident > closed {
                gone.push(id.clone());
            }
            is_known
        });
        if !gone.is_empty() {
            let names = gone.iter().map(NodeId::as_str).collect();
            told.insert("the vote of {} is gone".to_owned(), names);
        }
        let line = |(what, mut names): (String, Vec<&str>)| {
            names.sort_unstable();
            what.replacen("{}", &listed(&names), 1)
        };
        told.into_iter().map(line).collect()
    }
}

/// What became of a vote, `{}` for its voter; `None`: nothing worth a line.
fn changed(before: Option<Cast>, cast: Cast, reason: &str) -> Option<String> {
    if before == Some(cast) {
        return None;
    }
    let basis = match cast.basis {
        Basis::FirstHand => "",
        Basis::Seconded => ", by the evidence of all",
    };
    let did_count = before
        .is_some_and(|before| before.weight == Weight::Counts && before.incident == cast.incident);
    let what = match (cast.weight, did_count) {
        (Weight::Counts, _) => format!("voted out by {{}}: {reason}{basis}"),
        (Weight::Withdrawn, true) => "the vote of {} is taken back".to_owned(),
        (Weight::Lapsed, true) => "the vote of {} has lapsed".to_owned(),
        (Weight::VoterLost, true) => "the vote of {} is void: its node is not live".to_owned(),
        (Weight::Abstains, _) => format!("the vote of {{}} abstains, by self-suspicion: {reason}"),
        (Weight::Shadow, _) => format!("the vote of {{}} is a shadow's: {reason}"),
        (Weight::Suspect, _) => "the vote of {} is void: this node suspects it".to_owned(),
        (Weight::Muted, _) => "the vote of {} is void: an operator muted it here".to_owned(),
        (Weight::Flapping, _) => "the vote of {} is void: it changed too often".to_owned(),
        (Weight::NoWitness, true) => "the vote of {} waits for a second witness".to_owned(),
        (Weight::NotObserver, true) => "the vote of {} is void: it has no traffic".to_owned(),
        // What was never counted here, or what a closing ended, is told otherwise or not at all.
        (
            Weight::Withdrawn
            | Weight::Lapsed
            | Weight::VoterLost
            | Weight::NoWitness
            | Weight::NotObserver,
            false,
        )
        | (Weight::IncidentClosed, _) => return None,
    };
    Some(what)
}

/// What a step of the recovery is to whoever asks later; `None`: nothing worth a line.
fn stepped(before: Option<&Step>, step: &Step) -> Option<String> {
    let before = before.filter(|before| before.incident == step.incident);
    let has_failed = before.is_some_and(|before| step.failures > before.failures);
    let was_canary = before.is_some_and(|before| matches!(before.stage, Stage::Canary { .. }));
    let by = &step.steward;
    match &step.stage {
        Stage::Waiting { remaining } if has_failed => {
            let tried = if was_canary { "a canary failed" } else { "probe failed" };
            let (left, count) = (for_people(*remaining), step.failures);
            Some(format!("{tried} (by {by}, failure {count}): the next try is in {left}"))
        }
        Stage::Probing { .. } if !before.is_some_and(is_probing) => {
            Some(format!("probe sent by {by}"))
        }
        Stage::Canary { holder, turn, .. } => {
            let held = before.and_then(|before| match &before.stage {
                Stage::Canary { holder, turn, .. } => Some((holder, turn)),
                Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => None,
            });
            let slot = format!("the canary slot goes to {holder}, turn {turn}");
            match held {
                Some(held) if held == (holder, turn) => None,
                Some(_) => Some(slot),
                None if before.is_some_and(is_probing) => {
                    Some(format!("probe passed (by {by}): {slot}"))
                }
                None => Some(slot),
            }
        }
        Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => None,
    }
}

fn is_probing(step: &Step) -> bool {
    matches!(step.stage, Stage::Probing { .. })
}

/// What a decision is to whoever asks about an endpoint later; `None`: the steps tell it, or it is
/// about none.
pub(super) fn decided(now: Duration, council: &Council, decision: &Decision) -> Option<Line> {
    let line = |endpoint: &EndpointKey, scope, what| {
        Some(Line { endpoint: endpoint.clone(), scope, what })
    };
    match decision {
        Decision::Opened { endpoint, opening, tally, electorate } => {
            let votes = council.votes_on(now, endpoint);
            line(endpoint, "cluster", opened(opening.incident, tally, *electorate, &votes))
        }
        Decision::Closed { endpoint, incident, was_open } => {
            let step = council.step_of(now, endpoint);
            let closer = step
                .filter(|step| step.incident == *incident && matches!(step.stage, Stage::Closed));
            let why = match (closer, was_open) {
                (Some(step), true) if council.has_timed_out(now, endpoint) => {
                    format!(", by {}: its time was over", step.steward)
                }
                (Some(step), true) => format!(", by {}: it has recovered", step.steward),
                (Some(step), false) => format!(", by {}; it was not out here", step.steward),
                (None, true | false) => ", let go: this node is cut off or outvoted".to_owned(),
            };
            line(endpoint, "cluster", format!("closed: incident {incident}{why}"))
        }
        Decision::Forced { endpoint, forced } => {
            line(endpoint, "operator", ordered(now, council, endpoint, *forced))
        }
        Decision::Probe { .. }
        | Decision::Lend { .. }
        | Decision::Recall { .. }
        // They are about members, whose history the events tell.
        | Decision::Ordered { .. }
        | Decision::Forgotten { .. } => None,
    }
}

fn opened(incident: u64, tally: &Tally, electorate: usize, votes: &[VoteView]) -> String {
    let (counted, quorum) = (tally.counted, tally.quorum);
    if counted < quorum {
        let holders = tally.holders;
        return format!(
            "opened: incident {incident}, joined: {holders} of {electorate} members have it out"
        );
    }
    let counting = votes.iter().filter(|view| view.weight == Weight::Counts);
    let mut names: Vec<&str> = counting.map(|view| view.voter.as_str()).collect();
    names.sort_unstable();
    format!(
        "opened: incident {incident}, {counted} of {electorate} votes ({quorum} needed): {}",
        listed(&names)
    )
}

fn ordered(now: Duration, council: &Council, endpoint: &EndpointKey, forced: Forced) -> String {
    let word = forced.as_str();
    let order = council.last_order(now, endpoint).filter(|order| order.forced == forced);
    let Some(order) = order else { return format!("{word}: the order has ended") };
    let period = order.remaining.map(|left| format!(" for {}", for_people(left)));
    let reason = if order.reason.is_empty() { "no reason given" } else { &order.reason };
    format!("{word}{} by {}: {reason}", period.unwrap_or_default(), order.author)
}

#[cfg(test)]
mod tests;
