//! The canaries of the whole fleet are one slot's worth while views agree.

use super::{Happening, Invariant, SETTLED};
use crate::world::World;

/// How many canaries the slot admits at a time.
const CANARIES_MAX: u32 = 1;

pub(super) struct Slot;

impl Invariant for Slot {
    fn name(&self) -> &'static str {
        "slot"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let (node, endpoint) = match *happening {
            Happening::Slot { node, endpoint, is_here: true }
            | Happening::Canary { node, endpoint } => (node, endpoint),
            Happening::Slot { .. }
            | Happening::Opened { .. }
            | Happening::Closed { .. }
            | Happening::Voted { .. }
            | Happening::Written { .. }
            | Happening::Tried(_) => return Ok(()),
        };
        if world.calm_for() < SETTLED {
            return Ok(());
        }
        let nodes = || 0..world.nodes.len();
        let holders: Vec<usize> =
            nodes().filter(|other| world.nodes[*other].seat.slot(endpoint).is_some()).collect();
        let canaries: u32 = nodes().map(|other| world.ledger.of(other, endpoint).canaries).sum();
        if holders.len() <= 1 && canaries <= CANARIES_MAX {
            return Ok(());
        }
        Err(format!(
            "at gw-{node}, endpoint {endpoint}: {holders:?} hold the slot, {canaries} canaries are \
             under way"
        ))
    }
}
