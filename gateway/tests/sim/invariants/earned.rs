//! A closing is earned: behind it are the probe and the canaries of the very step that it closes.

use super::{Happening, Invariant};
use crate::ledger::{Trial, TrialKind};
use crate::world::World;

pub(super) struct Earned;

impl Invariant for Earned {
    fn name(&self) -> &'static str {
        "earned"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Closed {
            node,
            endpoint,
            incident,
            failures,
            is_by_step: true,
            was_open: true,
        } = *happening
        else {
            return Ok(());
        };
        let knobs = world.plan.knobs;
        // A lazy opening ends by the clock, and a liar may close what it likes.
        if knobs.canaries == 0 || world.plan.liar().is_some() {
            return Ok(());
        }
        let passed = |kind: TrialKind| {
            let is_such = |trial: &&Trial| {
                (trial.endpoint, trial.incident, trial.failures) == (endpoint, incident, failures)
                    && trial.kind == kind
            };
            world.ledger.trials.iter().filter(is_such).count()
        };
        let probes = passed(TrialKind::ProbePassed);
        let canaries = passed(TrialKind::CanaryPassed);
        let is_earned = (probes > 0 || !knobs.has_probe) && canaries >= knobs.canaries as usize;
        if is_earned {
            return Ok(());
        }
        Err(format!(
            "gw-{node} follows the closing of incident {incident} at endpoint {endpoint} after \
             {failures} failures with {probes} probes and {canaries} canaries passed"
        ))
    }
}
