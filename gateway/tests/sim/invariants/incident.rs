//! A closed incident stays closed: no node opens again under a number that it knows to be over, and
//! in calm none under a number that most of the others know to be over.

use super::{Happening, Invariant, SETTLED};
use crate::world::World;

pub(super) struct Incident;

impl Invariant for Incident {
    fn name(&self) -> &'static str {
        "incident"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, incident, .. } = *happening else {
            return Ok(());
        };
        let (closed, failures) = world.ledger.of(node, endpoint).closed;
        // A later failed trial outranks an older success: then the incident was not over.
        let is_led_on = world
            .step_of(node, endpoint)
            .is_some_and(|(known, failed, _)| (known, failed) > (closed, failures));
        if incident <= closed && !is_led_on {
            return Err(format!("gw-{node} opens {incident} again, {closed} being closed"));
        }
        let knows = |other: &usize| {
            let step = world.step_of(*other, endpoint);
            step.is_some_and(|(known, _, is_closed)| is_closed && known >= incident)
        };
        let knowing = (0..world.nodes.len()).filter(knows).count();
        if world.calm_for() >= SETTLED && knowing > world.nodes.len() / 2 {
            return Err(format!("gw-{node} opens {incident}, which {knowing} know to be closed"));
        }
        Ok(())
    }
}
