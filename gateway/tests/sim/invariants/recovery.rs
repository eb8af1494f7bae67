//! Every opening ends: once all is well the fleet is back within a bounded time.

use super::Invariant;
use crate::world::World;

pub(super) struct Recovery;

impl Invariant for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn end(&mut self, world: &World) -> Result<(), String> {
        if world.did_recover() {
            return Ok(());
        }
        let mut left = Vec::new();
        for (index, node) in world.nodes.iter().enumerate() {
            for (endpoint, seen) in node.seat.endpoints.iter().enumerate() {
                let is_out = node.seat.deputy.council().is_open(&seen.key);
                let (held, rung) = (seen.is_held(), seen.rung());
                if is_out || held || seen.local_opening().is_some() || rung.is_some() {
                    let step = world.step_of(index, endpoint);
                    left.push(format!(
                        "gw-{index} endpoint {endpoint}: out {is_out}, held {held}, {rung:?}, \
                         step {step:?}"
                    ));
                }
            }
        }
        Err(format!("long after all is well: {}", left.join("; ")))
    }
}
