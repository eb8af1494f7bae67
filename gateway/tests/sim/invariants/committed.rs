//! What the ledger commits: no epoch twice, nothing closed by absence, what was lost is there again, and
//! one probe of the whole fleet, however its members hear each other.

use std::collections::BTreeMap;

use quorum::Stage;

use super::{Happening, Invariant, VOTE_OUTLIVES};
use crate::ledger::TrialKind;
use crate::node::Life;
use crate::plan::{Ms, What};
use crate::rules::{INTERVAL, PROBE_TIMEOUT};
use crate::world::World;

/// So long after all nodes rely on the ledger nothing of before is under way any more.
const SETTLED: Ms = 6_000;

/// What a majority has out is in the ledger again within this.
const HEALED_WITHIN: Ms = 2 * INTERVAL + 500;

#[derive(Default)]
pub(super) struct Committed {
    /// Who has taken an endpoint out under which incident.
    adopted: BTreeMap<(usize, u64), u64>,
    /// Probes in flight.
    flights: Vec<(usize, usize, Ms)>,
    /// Since when the ledger lacks what everybody has out.
    lacks_since: Vec<Option<Ms>>,
}

impl Invariant for Committed {
    fn name(&self) -> &'static str {
        "committed"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        if world.desk.is_none() {
            return Ok(());
        }
        match *happening {
            Happening::Opened { node, endpoint, incident, .. } => {
                *self.adopted.entry((endpoint, incident)).or_default() |= 1 << node;
                Ok(())
            }
            Happening::Written { by, endpoint, incident, is_by_votes } => {
                self.judge_opening(world, (by, endpoint, incident), is_by_votes)
            }
            Happening::Closed { node, endpoint, is_by_step: false, was_open: true, .. } => {
                judge_letting_go(world, node, endpoint)
            }
            Happening::Tried(trial) => {
                self.judge_trial(world, (trial.node, trial.endpoint), trial.kind)
            }
            Happening::Closed { .. }
            | Happening::Voted { .. }
            | Happening::Canary { .. }
            | Happening::Slot { .. } => Ok(()),
        }
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        self.lacks_since.resize(world.plan.endpoints(), None);
        if world.desk.is_none() {
            return Ok(());
        }
        for (endpoint, since) in self.lacks_since.iter_mut().enumerate() {
            let nodes = || 0..world.nodes.len();
            let is_out = nodes().all(|node| world.ledger.of(node, endpoint).is_out);
            let is_judged = is_out && world.calm_for() > 0 && relies_for(world, 1_000);
            let is_there =
                world.committed[endpoint].as_ref().is_some_and(|stage| *stage != Stage::Closed);
            if !is_judged || is_there {
                *since = None;
                continue;
            }
            let since = *since.get_or_insert(world.now);
            if world.now > since + HEALED_WITHIN {
                return Err(format!(
                    "everybody has endpoint {endpoint} out, and the ledger lacks it"
                ));
            }
        }
        Ok(())
    }
}

impl Committed {
    fn judge_opening(
        &self,
        world: &World,
        (by, endpoint, incident): (usize, usize, u64),
        is_by_votes: bool,
    ) -> Result<(), String> {
        let nodes = || 0..world.nodes.len();
        let reaches = |node: &usize| world.nodes[*node].link.relied_since.is_some();
        let adopted = self.adopted.get(&(endpoint, incident)).copied().unwrap_or(0);
        if is_by_votes && nodes().filter(reaches).any(|node| adopted & 1 << node != 0) {
            return Err(format!("endpoint {endpoint} is opened twice under {incident}"));
        }
        let members = world.ledger.electorate_size();
        // Where only observers count, a majority of them may have it out as well.
        let quorum = if world.plan.knobs.of_observers { 2 } else { members / 2 + 1 };
        let votes = nodes().filter(|voter| {
            let truth = world.ledger.of(*voter, endpoint);
            let recent = |at: Option<Ms>| at.is_some_and(|at| world.now <= at + VOTE_OUTLIVES);
            // It may not have been stated yet.
            recent(truth.stood_at) || recent(truth.bad_at)
        });
        let holders = nodes().filter(|node| self.adopted_by(endpoint, *node));
        let (votes, holders) = (votes.count(), holders.count());
        if is_by_votes && votes >= quorum || !is_by_votes && holders >= quorum {
            return Ok(());
        }
        Err(format!(
            "gw-{by} lets the ledger open endpoint {endpoint}: {votes} votes, {holders} holders of \
             {members} members"
        ))
    }

    fn adopted_by(&self, endpoint: usize, node: usize) -> bool {
        self.adopted.iter().any(|((of, _), by)| *of == endpoint && by & 1 << node != 0)
    }

    fn judge_trial(
        &mut self,
        world: &World,
        (node, endpoint): (usize, usize),
        kind: TrialKind,
    ) -> Result<(), String> {
        self.flights.retain(|(_, _, since)| world.now < since + PROBE_TIMEOUT + 100);
        match kind {
            TrialKind::ProbeSent => {
                let other = self.flights.iter().find(|(_, to, _)| *to == endpoint).copied();
                self.flights.push((node, endpoint, world.now));
                let lost_at = world.desk.as_ref().and_then(|desk| desk.lost_at).unwrap_or(0);
                let is_judged = relies_for(world, SETTLED) && world.now > lost_at + SETTLED;
                match other {
                    Some((other, ..)) if is_judged => Err(format!(
                        "gw-{node} probes endpoint {endpoint} while gw-{other} does, by the ledger"
                    )),
                    Some(_) | None => Ok(()),
                }
            }
            TrialKind::ProbePassed | TrialKind::ProbeFailed => {
                self.flights.retain(|(from, to, _)| (*from, *to) != (node, endpoint));
                Ok(())
            }
            TrialKind::CanaryPassed | TrialKind::CanaryFailed => Ok(()),
        }
    }
}

/// Whether every node has relied on the ledger for so long.
fn relies_for(world: &World, time: Ms) -> bool {
    world.nodes.iter().all(|node| {
        let is_there = node.link.relied_since.is_some_and(|since| world.now >= since + time);
        is_there && node.life == Life::Running
    })
}

/// Nobody lets go of what a majority has out, while all reach the ledger.
fn judge_letting_go(world: &World, node: usize, endpoint: usize) -> Result<(), String> {
    let has_it_out = |node: &usize| world.ledger.of(*node, endpoint).is_out;
    let holders = (0..world.nodes.len()).filter(has_it_out).count();
    let is_rough = world.suffers(|what| matches!(what, What::LedgerRough { .. }));
    let is_judged = relies_for(world, 6 * INTERVAL) && !is_rough;
    if !is_judged || holders <= world.nodes.len() / 2 {
        return Ok(());
    }
    Err(format!("gw-{node} lets go of endpoint {endpoint}, which {holders} have out"))
}
