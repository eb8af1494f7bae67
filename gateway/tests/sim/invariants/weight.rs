//! One node's votes weigh one: no count is larger than the number of nodes that did vote.

use super::{Happening, Invariant, VOTE_OUTLIVES};
use crate::world::World;

pub(super) struct Weight;

impl Invariant for Weight {
    fn name(&self) -> &'static str {
        "weight"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, counted, .. } = *happening else { return Ok(()) };
        let voted = |voter: &usize| {
            let truth = world.ledger.of(*voter, endpoint);
            *voter == node || truth.stood_at.is_some_and(|at| world.now <= at + VOTE_OUTLIVES)
        };
        let voters = (0..world.nodes.len()).filter(voted).count();
        if counted <= voters {
            return Ok(());
        }
        Err(format!("gw-{node} counts {counted} votes of {voters} voters"))
    }
}
