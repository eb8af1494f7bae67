//! The cap is respected: while views agree, no node lets the votes take more of a pool out than it
//! allows. Parts of a split fleet may each take out what the other has not.

use super::{Happening, Invariant, SETTLED};
use crate::world::World;

pub(super) struct Cap;

impl Invariant for Cap {
    fn name(&self) -> &'static str {
        "cap"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, .. } = *happening else { return Ok(()) };
        let pool = world.plan.endpoints_of(world.plan.pool_of(endpoint));
        let allowed = (pool.len() * world.plan.knobs.share as usize / 1_000).max(1);
        let out = pool.filter(|one| *one == endpoint || world.ledger.of(node, *one).is_out).count();
        if out <= allowed || world.calm_for() < SETTLED {
            return Ok(());
        }
        Err(format!("gw-{node} has {out} of a pool out, allowed are {allowed}"))
    }
}
