//! Low traffic per node still convicts: in calm, what the nodes together have seen is enough, even
//! if none of them has seen enough alone. What was seen before an incident closed is forgotten with
//! it, since a closed incident stays closed. Who lets go of an opening by itself forgets what it saw
//! itself, and nobody else does.

use std::collections::BTreeMap;

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
    /// When an incident of each endpoint was last closed by a step, anywhere.
    closed_at: Vec<Ms>,
    /// When a node last let go of an endpoint by itself.
    let_go_at: BTreeMap<(usize, usize), Ms>,
}

impl Invariant for Pooled {
    fn name(&self) -> &'static str {
        "pooled"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        self.closed_at.resize(world.plan.endpoints(), 0);
        match *happening {
            Happening::Closed { endpoint, is_by_step: true, .. } => {
                self.closed_at[endpoint] = world.now;
            }
            Happening::Closed { node, endpoint, is_by_step: false, .. } => {
                self.let_go_at.insert((node, endpoint), world.now);
            }
            Happening::Opened { .. }
            | Happening::Voted { .. }
            | Happening::Written { .. }
            | Happening::Tried(_)
            | Happening::Canary { .. }
            | Happening::Slot { .. } => {}
        }
        Ok(())
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        self.since.resize(world.plan.endpoints(), None);
        self.closed_at.resize(world.plan.endpoints(), 0);
        for (endpoint, since) in self.since.iter_mut().enumerate() {
            let forgotten_at = |node| {
                let let_go_at = self.let_go_at.get(&(node, endpoint)).copied().unwrap_or(0);
                let_go_at.max(self.closed_at[endpoint])
            };
            if !is_convictable(world, endpoint, forgotten_at) {
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

/// `forgotten_at`: until when what a node saw is forgotten.
fn is_convictable(world: &World, endpoint: usize, forgotten_at: impl Fn(usize) -> Ms) -> bool {
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
        let is_remembered = bad.is_gathered && bad.at > forgotten_at(bad.node);
        if bad.endpoint == endpoint && is_remembered && !bad.is_slow {
            witnesses |= 1 << bad.node;
            faults += 1;
        }
    }
    witnesses.count_ones() >= 2 && faults >= FAULTS
}
