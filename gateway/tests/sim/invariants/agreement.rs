//! Views agree within ten seconds: after the last heal, and after a majority that stood for so short
//! a time that only some nodes saw it. Differences that last longer than a change needs to reach
//! everyone are counted besides.
//!
//! Where only observers form the denominator no such time is promised: who observes is each node's
//! own finding, and a node that counts fewer may have the endpoint out alone until its own ladder has
//! led it back, which the promise of recovery bounds. It happens in one of some thousand runs.

use super::{Invariant, ON_ITS_WAY, SETTLED};
use crate::plan::Ms;
use crate::world::World;

/// No two nodes differ on an endpoint for longer than this.
const AGREED_WITHIN: Ms = 10_000;

#[derive(Default)]
pub(super) struct Agreement {
    /// Since when the nodes differ on each endpoint.
    differ_since: Vec<Option<Ms>>,
    /// Whether they differed for longer than a change is on its way.
    is_parted: bool,
}

impl Invariant for Agreement {
    fn name(&self) -> &'static str {
        "agreement"
    }

    fn is_blemished(&self) -> bool {
        self.is_parted
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        self.differ_since.resize(world.plan.endpoints(), None);
        let is_settled = world.calm_for() >= SETTLED;
        for (endpoint, since) in self.differ_since.iter_mut().enumerate() {
            let outs = (0..world.nodes.len())
                .filter(|node| world.ledger.of(*node, endpoint).is_out)
                .count();
            let is_agreed = outs == 0 || outs == world.nodes.len();
            if is_agreed || !is_settled {
                *since = None;
                continue;
            }
            let since = *since.get_or_insert(world.now);
            self.is_parted |= world.now > since + ON_ITS_WAY;
            let is_promised = !world.plan.knobs.of_observers;
            if is_promised && world.now > since + AGREED_WITHIN {
                return Err(format!(
                    "{outs} of {} nodes have endpoint {endpoint} out since {since}",
                    world.nodes.len()
                ));
            }
        }
        Ok(())
    }
}
