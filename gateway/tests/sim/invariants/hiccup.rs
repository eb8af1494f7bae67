//! One slow moment convicts nobody, however many gateways saw it: slow evidence of several members
//! within one dedup interval is one piece.

use super::{Happening, Invariant};
use crate::ledger::Bad;
use crate::plan::Ms;
use crate::world::World;

/// Pieces closer together than this are certainly one, whatever the clocks do.
const ONE_MOMENT: Ms = 900;

#[derive(Default)]
pub(super) struct Hiccup {
    /// The endpoints that were out before: on the ramp one slow answer is enough.
    opened: u64,
}

impl Invariant for Hiccup {
    fn name(&self) -> &'static str {
        "hiccup"
    }

    fn happened(&mut self, world: &World, happening: &Happening) -> Result<(), String> {
        let Happening::Opened { node, endpoint, .. } = *happening else { return Ok(()) };
        if self.opened & 1 << endpoint != 0 || world.plan.liar().is_some() {
            return Ok(());
        }
        self.opened |= 1 << endpoint;
        let bads = || world.ledger.bads.iter().filter(|bad| bad.endpoint == endpoint);
        let first = bads().map(|bad| bad.at).min().unwrap_or(0);
        let is_one = |bad: &Bad| bad.is_slow && bad.at <= first + ONE_MOMENT;
        if !bads().all(is_one) {
            return Ok(());
        }
        Err(format!("gw-{node} takes endpoint {endpoint} out for one slow moment"))
    }
}
