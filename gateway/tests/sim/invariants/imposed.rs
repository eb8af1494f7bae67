//! An imposed opening is no vote: who votes first-hand has met bad answers itself.

use super::{Happening, Invariant};
use crate::plan::Ms;
use crate::world::World;

/// The longest between the last bad answer and a vote: a window, the longest cool-down, and the
/// time for which a node that suspects itself may keep its vote back.
const BAD_LASTS: Ms = 30_000;

pub(super) struct Imposed;

impl Invariant for Imposed {
    fn name(&self) -> &'static str {
        "imposed"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Voted { node, endpoint, is_first_hand: true, .. } = *happening else {
            return Ok(());
        };
        let bad_at = world.ledger.of(node, endpoint).bad_at;
        let has_seen = bad_at.is_some_and(|at| world.now <= at + BAD_LASTS);
        if has_seen || world.plan.liar() == Some(node) {
            return Ok(());
        }
        Err(format!("gw-{node} votes against endpoint {endpoint} by what it never met: {bad_at:?}"))
    }
}
