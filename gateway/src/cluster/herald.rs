//! Tells those who follow the events what a round of the fleet changed.
//!
//! What was decided is told as it stands. What members state and who they are is compared with what
//! was told last, so that repetition by the carrier is no news.
//!
//! Invariants: what is remembered is bounded by what members state about endpoints of this node and
//! by the members themselves; nothing here changes what is decided.

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::{
    Basis, Card, Council, Decision, EndpointKey, Member, NodeId, Said, Standing, Statement, Vote,
    VoteState,
};
use serde_json::json;

use crate::events::{Event, Events, Kind};
use crate::fleet::Fleet;

/// What was told last.
#[derive(Default)]
pub(super) struct Herald {
    members: BTreeMap<NodeId, Seen>,
    /// By voter, so that who is heard is compared with its own votes only.
    votes: BTreeMap<NodeId, BTreeMap<EndpointKey, Cast>>,
}

/// A member as it was told last.
#[derive(Clone, Copy)]
struct Seen {
    state: &'static str,
    /// 0 for this node and for a member that is not heard.
    generation: u64,
}

impl Seen {
    fn differs(self, other: Self) -> bool {
        let is_known = self.generation > 0 && other.generation > 0;
        self.state != other.state || is_known && self.generation != other.generation
    }
}

/// A vote as it was told last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cast {
    incident: u64,
    state: VoteState,
    basis: Basis,
}

impl Herald {
    /// Tells which votes were cast, changed or dropped among all that members state.
    pub(super) fn hear(&mut self, events: &Events, fleet: &Fleet, members: &[Member]) {
        for member in members {
            let statements = member.heard.iter().map(|heard| &heard.statement);
            self.votes_of(events, fleet, &member.id, statements);
        }
        self.votes.retain(|voter, _| {
            self.members.contains_key(voter) || members.iter().any(|one| one.id == *voter)
        });
    }

    /// Tells the same of what this node states.
    pub(super) fn say(&mut self, events: &Events, fleet: &Fleet, me: &NodeId, said: &Said) {
        let statements = said.stated.iter().map(|stated| &stated.statement);
        self.votes_of(events, fleet, me, statements);
    }

    fn votes_of<'a>(
        &mut self,
        events: &Events,
        fleet: &Fleet,
        voter: &NodeId,
        statements: impl Iterator<Item = &'a Statement>,
    ) {
        let mut stated: BTreeMap<&EndpointKey, &Vote> = BTreeMap::new();
        for statement in statements {
            match statement {
                // An endpoint that is not of this node's configuration is nobody's news here.
                Statement::Vote(endpoint, vote) if fleet.endpoint(endpoint).is_some() => {
                    stated.insert(endpoint, vote);
                }
                Statement::Vote(..)
                | Statement::Step(..)
                | Statement::Override(..)
                | Statement::Window(..)
                | Statement::Member(..) => {}
            }
        }
        let told = self.votes.entry(voter.clone()).or_default();
        for (endpoint, vote) in &stated {
            let cast = Cast { incident: vote.incident, state: vote.state, basis: vote.basis };
            if told.insert((*endpoint).clone(), cast) != Some(cast) {
                events.tell(voted(endpoint, voter, vote));
            }
        }
        told.retain(|endpoint, cast| {
            let is_stated = stated.contains_key(endpoint);
            // What a reload took away did not lose its vote.
            let is_known = fleet.endpoint(endpoint).is_some();
            if !is_stated && is_known && cast.state == VoteState::Stands {
                let what = format!("the vote of {voter} no longer stands");
                let detail = json!({ "incident": cast.incident, "state": "gone" });
                let event = Event::new(Kind::Vote, what).endpoint(endpoint).node(voter);
                events.tell(event.detail(detail));
            }
            is_stated
        });
    }

    /// Tells who came, went, restarted, or takes part in another way.
    pub(super) fn look(
        &mut self,
        events: &Events,
        council: &Council,
        members: &[Member],
        (me, my_card): (&NodeId, &Card),
    ) {
        let mut seen: BTreeMap<NodeId, Seen> = BTreeMap::new();
        for id in council.names() {
            seen.insert(id.clone(), Seen { state: "lost", generation: 0 });
        }
        for id in council.live() {
            seen.insert(id.clone(), Seen { state: Standing::Serving.as_str(), generation: 0 });
        }
        let heard = members.iter().filter_map(|member| {
            member.card.as_ref().map(|card| (&member.id, member.generation, card))
        });
        for (id, generation, card) in heard.chain([(me, 0, my_card)]) {
            if let Some(seen) = seen.get_mut(id) {
                seen.generation = generation;
                if seen.state != "lost" {
                    seen.state = state_of(card);
                }
            } else if card.standing == Standing::Left {
                seen.insert(id.clone(), Seen { state: Standing::Left.as_str(), generation });
            }
        }
        for (id, is) in &seen {
            let was = self.members.get(id);
            if was.is_none_or(|was| was.differs(*is)) {
                events.tell(moved(id, was, *is));
            }
        }
        for id in self.members.keys().filter(|id| !seen.contains_key(id)) {
            let event = Event::new(Kind::Member, format!("{id} is no longer counted")).node(id);
            events.tell(event.detail(json!({ "state": null })));
        }
        self.members = seen;
    }
}

fn state_of(card: &Card) -> &'static str {
    match card.standing {
        Standing::Serving if card.is_suspect => "suspect",
        standing => standing.as_str(),
    }
}

fn moved(id: &NodeId, was: Option<&Seen>, is: Seen) -> Event {
    let what = match (was, is.state) {
        (None, state) => format!("{id} is known: {state}"),
        (Some(was), state) if was.state == state => format!("{id} has started anew"),
        (Some(_), state) => format!("{id} is {state}"),
    };
    let detail = json!({
        "state": is.state,
        "was": was.map(|was| was.state),
        "generation": (is.generation > 0).then_some(is.generation),
    });
    Event::new(Kind::Member, what).node(id).detail(detail)
}

fn voted(endpoint: &EndpointKey, voter: &NodeId, vote: &Vote) -> Event {
    let incident = vote.incident;
    let what = match vote.state {
        VoteState::Stands => format!("{voter} votes it out: {}", vote.reason),
        VoteState::Withdrawn => format!("{voter} takes its vote back"),
        VoteState::Abstains => format!("{voter} suspects itself and abstains"),
        VoteState::Shadow => format!("{voter} would vote it out: {}", vote.reason),
    };
    let detail = json!({
        "incident": incident,
        "state": vote.state.as_str(),
        "basis": vote.basis.as_str(),
        "reason": vote.reason,
        "age_ms": vote.age.as_millis() as u64,
        "requests": vote.evidence.requests,
        "faults": f64::from(vote.evidence.faults_milli) / 1_000.0,
        "successes": vote.evidence.successes,
        "slow_pieces": vote.evidence.slow_pieces,
    });
    Event::new(Kind::Vote, what).endpoint(endpoint).node(voter).detail(detail)
}

/// What a decision of the council is to those who follow.
pub(super) fn decided(now: Duration, decision: &Decision) -> Event {
    match decision {
        Decision::Opened { endpoint, opening, tally, electorate } => {
            let (incident, votes) = (opening.incident, tally.counted);
            let what = format!("the fleet takes it out: {votes} of {electorate} votes");
            let took = now.saturating_sub(opening.since).as_millis() as u64;
            let detail = json!({
                "direction": "open", "incident": incident, "votes": votes,
                "electorate": electorate, "quorum": tally.quorum, "flip_ms": took,
            });
            Event::new(Kind::Flip, what).endpoint(endpoint).detail(detail)
        }
        Decision::Closed { endpoint, incident, was_open } => {
            let what = format!("incident {incident} is over");
            let detail =
                json!({ "direction": "close", "incident": incident, "was_open": was_open });
            Event::new(Kind::Flip, what).endpoint(endpoint).detail(detail)
        }
        Decision::Probe { endpoint, fence } => {
            let detail = json!({ "incident": fence.0, "failures": fence.1, "result": null });
            Event::new(Kind::Probe, "a probe is sent").endpoint(endpoint).detail(detail)
        }
        Decision::Lend { endpoint, fence, successes } => {
            let detail = json!({
                "incident": fence.incident, "turn": fence.turn, "successes": successes,
                "holds": true,
            });
            let what = "this node holds the canary slot";
            Event::new(Kind::Canary, what).endpoint(endpoint).detail(detail)
        }
        Decision::Recall { endpoint } => {
            let event = Event::new(Kind::Canary, "the canary slot is handed on");
            event.endpoint(endpoint).detail(json!({ "holds": false }))
        }
        Decision::Forced { endpoint, forced } => {
            let what = format!("an operator's order holds: {}", forced.as_str());
            let detail = json!({ "state": forced.as_str() });
            Event::new(Kind::Override, what).endpoint(endpoint).detail(detail)
        }
        Decision::Ordered { verb, by, reason } => {
            let what = format!("an operator asks this node to {}", verb.as_str());
            let detail = json!({ "order": verb.as_str(), "by": by.as_str(), "reason": reason });
            Event::new(Kind::Drain, what).detail(detail)
        }
        Decision::Forgotten { member, by } => {
            let detail = json!({ "order": "forget", "by": by.as_str() });
            Event::new(Kind::Member, format!("{member} is forgotten")).node(member).detail(detail)
        }
    }
}

/// How a probe went.
pub(super) fn probed(endpoint: &EndpointKey, result: &'static str) -> Event {
    let event = Event::new(Kind::Probe, format!("a probe {result}"));
    event.endpoint(endpoint).detail(json!({ "result": result }))
}
