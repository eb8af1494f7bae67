//! One probe of the fleet's is in flight per endpoint while views agree. Where only observers count
//! they agree while every node has had it out since the world was last looked at: the nodes open one
//! after the other, within a second or two, and who opens when its turn has come probes at once, while
//! a probe that another view sent a moment before is still on its way to it.

use super::{Happening, Invariant, SETTLED};
use crate::ledger::TrialKind;
use crate::plan::Ms;
use crate::rules::PROBE_TIMEOUT;
use crate::world::World;

/// A probe whose answer was never seen is over after this.
const LOST: Ms = PROBE_TIMEOUT + 100;

#[derive(Default)]
pub(super) struct Prober {
    /// Who has a probe in flight where, and since when.
    flights: Vec<(usize, usize, Ms)>,
    /// Whether every node had each endpoint out when last looked at.
    is_agreed: Vec<bool>,
}

impl Invariant for Prober {
    fn name(&self) -> &'static str {
        "prober"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Tried(trial) = *happening else { return Ok(()) };
        let (node, endpoint) = (trial.node, trial.endpoint);
        self.flights.retain(|(_, _, since)| world.now < since + LOST);
        match trial.kind {
            TrialKind::ProbeSent => {
                let other = self.flights.iter().find(|(_, where_to, _)| *where_to == endpoint);
                if let Some((other, ..)) = other
                    && world.calm_for() >= SETTLED
                    && (!world.plan.knobs.of_observers
                        || self.is_agreed.get(endpoint) == Some(&true))
                {
                    return Err(format!(
                        "gw-{node} probes endpoint {endpoint} while gw-{other} does"
                    ));
                }
                self.flights.push((node, endpoint, world.now));
            }
            TrialKind::ProbePassed | TrialKind::ProbeFailed => {
                self.flights.retain(|(from, to, _)| (*from, *to) != (node, endpoint));
            }
            TrialKind::CanaryPassed | TrialKind::CanaryFailed => {}
        }
        Ok(())
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        let is_out_everywhere =
            |endpoint| (0..world.nodes.len()).all(|node| world.ledger.of(node, endpoint).is_out);
        self.is_agreed = (0..world.plan.endpoints()).map(is_out_everywhere).collect();
        Ok(())
    }
}
