//! No node flips without holding a quorum of valid votes, and a minority never does.
//!
//! The votes are counted again here, from what the node's carrier truly holds and what the voters
//! truly stated, against the members that truly count. A node may also join an opening that more
//! than half of the members say they hold.
//!
//! A member that had dropped out counts again for whoever has heard that it is back, and for everybody
//! once that has had its time: until then nobody can know it.

use quorum::{Stage, Statement, VoteState};

use super::{Happening, Invariant, ON_ITS_WAY, VOTE_OUTLIVES};
use crate::plan::Ms;
use crate::world::World;

/// A vote cast and ended within one round was made of what was met this recently.
const JUST_NOW: Ms = 1_000;

pub(super) struct Minority;

impl Invariant for Minority {
    fn name(&self) -> &'static str {
        "minority"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, incident, counted, .. } = *happening else {
            return Ok(());
        };
        // What stood in the ledger was judged when it was written.
        let key = &world.nodes[node].seat.endpoints[endpoint].key;
        let stood = (key.clone(), incident);
        if world.desk.as_ref().is_some_and(|desk| desk.stood.contains(&stood)) {
            return Ok(());
        }
        let members = counted_by(world, node);
        let everyone = world.nodes.len();
        let counts = world.ledger.electorate & 1 << node != 0;
        let quorum = match (world.plan.knobs.of_observers, counts) {
            (true, _) => 2,
            (false, true) => members / 2 + 1,
            (false, false) => everyone / 2 + 1,
        };
        let votes = (0..everyone).filter(|voter| has_vote(world, (node, endpoint), *voter)).count();
        let holders =
            (0..everyone).filter(|other| says_held(world, (node, endpoint), *other)).count();
        // The node's own vote may have been cast and ended within the very round.
        let others = (0..everyone).filter(|voter| *voter != node);
        let others = others.filter(|voter| has_vote(world, (node, endpoint), *voter)).count();
        let is_true = counted >= quorum && counted <= others + 1;
        if votes >= quorum || is_true || holders > members / 2 {
            return Ok(());
        }
        Err(format!(
            "gw-{node} takes endpoint {endpoint} out with {votes} true votes and {holders} holders \
             of {members} members"
        ))
    }
}

/// How many members truly count for a node.
fn counted_by(world: &World, node: usize) -> usize {
    let is_unheard = |member: usize| {
        let back = world.ledger.back[member].filter(|(at, _)| world.now <= at + ON_ITS_WAY);
        let carrier = &world.nodes[node].carrier;
        back.is_some_and(|(_, beat)| member != node && !carrier.has_felt(member, beat))
    };
    let counts = |member: &usize| world.ledger.electorate & 1 << member != 0;
    (0..world.nodes.len()).filter(counts).filter(|member| !is_unheard(*member)).count()
}

/// Whether the node has a standing vote of `voter`, which the voter did state of late.
fn has_vote(world: &World, (node, endpoint): (usize, usize), voter: usize) -> bool {
    if voter == node {
        return has_own_vote(world, node, endpoint);
    }
    let key = &world.nodes[node].seat.endpoints[endpoint].key;
    let stands = |statement: &Statement| match statement {
        Statement::Vote(about, vote) => about == key && vote.state == VoteState::Stands,
        Statement::Step(..)
        | Statement::Override(..)
        | Statement::Window(..)
        | Statement::Member(..) => false,
    };
    let is_known = world.nodes[node].carrier.words_of(voter).any(|heard| stands(&heard.statement));
    let stood_at = world.ledger.of(voter, endpoint).stood_at;
    is_known && stood_at.is_some_and(|at| world.now <= at + VOTE_OUTLIVES)
}

/// Whether the node's own vote stands, or may have stood until this very round.
fn has_own_vote(world: &World, node: usize, endpoint: usize) -> bool {
    let truth = world.ledger.of(node, endpoint);
    if truth.vote.is_some() || truth.bad_at.is_some_and(|at| world.now <= at + JUST_NOW) {
        return true;
    }
    let process = &world.nodes[node];
    let seen = &process.seat.endpoints[endpoint];
    let clock = process.clock.read(world.now);
    let view = process.seat.deputy.council().endpoint(clock, &seen.key);
    // An opening that ended in the very round that made it took along the vote behind it, which may
    // have been a second-hand one.
    if view.as_ref().is_none_or(|view| !view.is_open) {
        return true;
    }
    let mine = view.iter().flat_map(|view| &view.votes).find(|vote| vote.voter == process.id());
    mine.is_some_and(|vote| vote.vote.state == VoteState::Stands)
}

/// Whether the node has it from `other` that it holds the endpoint out.
fn says_held(world: &World, (node, endpoint): (usize, usize), other: usize) -> bool {
    let key = &world.nodes[node].seat.endpoints[endpoint].key;
    world.nodes[node].carrier.words_of(other).any(|heard| match &heard.statement {
        Statement::Step(about, step) => about == key && step.is_held && step.stage != Stage::Closed,
        Statement::Vote(..)
        | Statement::Override(..)
        | Statement::Window(..)
        | Statement::Member(..) => false,
    })
}
