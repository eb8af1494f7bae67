//! A majority flips within two gossip intervals: in calm, no majority of first-hand votes stands for
//! longer without every node having the endpoint out.

use super::{Invariant, SETTLED};
use crate::plan::Ms;
use crate::rules::INTERVAL;
use crate::world::World;

/// Two intervals, and the half second within which a node looks at its deadlines.
const SWIFT: Ms = 2 * INTERVAL + 500;

#[derive(Default)]
pub(super) struct Swift {
    /// Since when each endpoint has had a majority against it that not all follow.
    since: Vec<Option<Ms>>,
}

impl Invariant for Swift {
    fn name(&self) -> &'static str {
        "swift"
    }

    fn look(&mut self, world: &World) -> Result<(), String> {
        self.since.resize(world.plan.endpoints(), None);
        let knobs = world.plan.knobs;
        // Under a cap or among observers a majority may rightly wait.
        let is_judged = world.calm_for() >= SETTLED && knobs.share >= 1_000 && !knobs.of_observers;
        for (endpoint, since) in self.since.iter_mut().enumerate() {
            let nodes = || 0..world.nodes.len();
            let truth = |node: usize| world.ledger.of(node, endpoint);
            let votes = nodes()
                .filter(|node| truth(*node).is_first_hand && truth(*node).vote.is_some())
                .count();
            let is_followed = nodes().all(|node| truth(node).is_out);
            if !is_judged || votes <= world.nodes.len() / 2 || is_followed {
                *since = None;
                continue;
            }
            let since = *since.get_or_insert(world.now);
            if world.now > since + SWIFT {
                return Err(format!(
                    "{votes} votes against endpoint {endpoint} since {since}, and not all follow"
                ));
            }
        }
        Ok(())
    }
}
