//! Low traffic per node still convicts: in calm, what the nodes together have seen is enough, even
//! if none of them has seen enough alone. What was seen before an incident closed is forgotten with
//! it, since a closed incident stays closed.

use super::{Happening, Invariant, SETTLED};
use crate::plan::{Ms, What};
use crate::rules::{INTERVAL, WINDOW};
use crate::world::World;

/// Windows are stated once an interval and reach everyone in two more; then the votes follow.
const CONVICTED_WITHIN: Ms = 4 * INTERVAL;

/// Evidence is surely in every window for this long.
const SURELY_SEEN: Ms = WINDOW - 2_000;

/// So many faults without a success between them convict, and one more to be sure.
const FAULTS: usize = 5;

#[derive(Default)]
pub(super) struct Pooled {
    since: Vec<Option<Ms>>,
    /// When an incident of each endpoint last closed anywhere.
    closed_at: Vec<Ms>,
}

impl Invariant for Pooled {
    fn name(&self) -> &'static str {
        "pooled"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        self.closed_at.resize(world.plan.endpoints(), 0);
        if let Happening::Closed { endpoint, .. } = *happening {
            self.closed_at[endpoint] = world.now;
        }
        Ok(())
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        self.since.resize(world.plan.endpoints(), None);
        self.closed_at.resize(world.plan.endpoints(), 0);
        for (endpoint, since) in self.since.iter_mut().enumerate() {
            if !is_convictable(world, endpoint, self.closed_at[endpoint]) {
                *since = None;
                continue;
            }
            let since = *since.get_or_insert(world.now);
            if world.now > since + CONVICTED_WITHIN {
                return Err(format!(
                    "endpoint {endpoint} fails for everyone since {since} and is still in"
                ));
            }
        }
        Ok(())
    }
}

fn is_convictable(world: &World, endpoint: usize, closed_at: Ms) -> bool {
    let knobs = world.plan.knobs;
    let is_dead = world.suffers(|what| what == What::Fails { endpoint, share: 1_000 });
    // A bad node besides confuses the evidence of others, and a cap may hold a flip up.
    let is_clear = world
        .plan
        .faults
        .iter()
        .all(|fault| !matches!(fault.what, What::BadNode { .. } | What::Lies { .. }));
    if !is_dead || !is_clear || world.calm_for() < SETTLED || knobs.share < 1_000 {
        return false;
    }
    let nodes = || 0..world.nodes.len();
    let is_out = nodes().any(|node| world.ledger.of(node, endpoint).is_out);
    let has_success = nodes().any(|node| {
        let good_at = world.ledger.of(node, endpoint).good_at;
        good_at.is_some_and(|at| world.now <= at + WINDOW + 2_000)
    });
    if is_out || has_success || knobs.of_observers {
        return false;
    }
    let mut witnesses = 0_u64;
    let mut faults = 0;
    for bad in world.ledger.bads.iter().rev().take_while(|bad| world.now <= bad.at + SURELY_SEEN) {
        let is_remembered = bad.is_gathered && bad.at > closed_at;
        if bad.endpoint == endpoint && is_remembered && !bad.is_slow {
            witnesses |= 1 << bad.node;
            faults += 1;
        }
    }
    witnesses.count_ones() >= 2 && faults >= FAULTS
}
