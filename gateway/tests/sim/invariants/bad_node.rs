//! One bad node bans nothing, and one lying member causes no wrong flip: behind every opening are
//! two honest nodes that met bad answers, or one where another member lies.

use super::{Happening, Invariant};
use crate::plan::Ms;
use crate::world::World;

/// For how long a bad answer may stand behind a vote.
const BAD_LASTS: Ms = 40_000;

pub(super) struct BadNode;

impl Invariant for BadNode {
    fn name(&self) -> &'static str {
        "bad_node"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, .. } = *happening else { return Ok(()) };
        let nodes = 0..world.nodes.len();
        // Who only follows what others hold needs no witness of its own.
        if nodes.clone().any(|other| world.ledger.of(other, endpoint).is_out) {
            return Ok(());
        }
        let has_met = |other: &usize| {
            let bad_at = world.ledger.of(*other, endpoint).bad_at;
            bad_at.is_some_and(|at| world.now <= at + BAD_LASTS)
        };
        let witnesses = nodes.filter(has_met).count();
        let needed = if world.plan.liar().is_some() { 1 } else { 2 };
        if witnesses >= needed {
            return Ok(());
        }
        Err(format!("gw-{node} takes endpoint {endpoint} out by {witnesses} witnesses"))
    }
}
