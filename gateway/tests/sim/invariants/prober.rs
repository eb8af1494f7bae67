//! One probe of the fleet's is in flight per endpoint while views agree.

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
}
