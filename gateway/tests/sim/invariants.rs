//! What must always hold: one file for each promise of the fleet.
//!
//! An invariant hears of everything that happens, looks at the state of the world a few times a
//! second, and has a last word at the end of the run. It judges by the ledger and by what the
//! carriers truly hold, never by what a council believes of itself.

mod agreement;
mod bad_node;
mod cap;
mod committed;
mod earned;
mod hiccup;
mod imposed;
mod incident;
mod minority;
mod pooled;
mod prober;
mod recovery;
mod slot;
mod swift;
mod weight;

use crate::ledger::Trial;
use crate::plan::Ms;
use crate::world::World;

/// After this much calm the views of all nodes agree, whatever was before.
pub(crate) const SETTLED: Ms = 10_000;

/// A change that is not pushed is on its way for two intervals of gossip at most, and is acted on
/// within half a second.
pub(crate) const ON_ITS_WAY: Ms = 2_500;

/// For how long a vote may go on counting after its voter last stated it: until it lapses, and a
/// little for the way and for clocks that differ.
pub(crate) const VOTE_OUTLIVES: Ms = crate::rules::VOTE_TTL + 4_000;

/// Something that happened on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The fleet took the endpoint out, as the node sees it.
    Opened { node: usize, endpoint: usize, incident: u64, counted: usize, electorate: usize },
    /// An incident is over, as the node sees it: by a step of recovery or by itself alone.
    Closed {
        node: usize,
        endpoint: usize,
        incident: u64,
        failures: u32,
        is_by_step: bool,
        was_open: bool,
    },
    /// The ledger has opened an endpoint by the cast of a node.
    Written { by: usize, endpoint: usize, incident: u64, is_by_votes: bool },
    /// The node states a vote that it did not state before.
    Voted { node: usize, endpoint: usize, incident: u64, is_first_hand: bool },
    /// The fleet tried the endpoint, or knows how a trial went.
    Tried(Trial),
    /// A canary of the fleet's slot is sent.
    Canary { node: usize, endpoint: usize },
    /// The canary slot came to the node or went.
    Slot { node: usize, endpoint: usize, is_here: bool },
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The name of the invariant's file.
    pub(crate) invariant: &'static str,
    /// When.
    pub(crate) at: Ms,
    /// What was seen.
    pub(crate) what: String,
}

/// One promise.
trait Invariant {
    /// The name of its file.
    fn name(&self) -> &'static str;

    /// Whether something was seen that is allowed and yet to be counted.
    fn is_blemished(&self) -> bool {
        false
    }

    /// Judges something that happens, before the ledger knows of it.
    fn happened(&mut self, _world: &World, _happening: &Happening) -> Result<(), String> {
        Ok(())
    }

    /// Judges the state of the world.
    fn look(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }

    /// Judges the run as a whole.
    fn end(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

/// All promises.
#[derive(Default)]
pub(crate) struct Invariants(Vec<Box<dyn Invariant>>);

impl Invariants {
    /// All promises, with nothing seen yet.
    pub(crate) fn new() -> Self {
        Self(vec![
            Box::new(minority::Minority),
            Box::new(weight::Weight),
            Box::new(imposed::Imposed),
            Box::new(bad_node::BadNode),
            Box::new(hiccup::Hiccup::default()),
            Box::new(incident::Incident),
            Box::new(earned::Earned),
            Box::new(cap::Cap),
            Box::new(prober::Prober::default()),
            Box::new(slot::Slot),
            Box::new(agreement::Agreement::default()),
            Box::new(swift::Swift::default()),
            Box::new(pooled::Pooled::default()),
            Box::new(committed::Committed::default()),
            Box::new(recovery::Recovery),
        ])
    }

    /// Tells all of something that happened.
    pub(crate) fn happened(
        &mut self,
        world: &World,
        happening: &Happening,
    ) -> Result<(), Violation> {
        self.each(world, |invariant| invariant.happened(world, happening))
    }

    /// Lets all look at the world.
    pub(crate) fn look(&mut self, world: &World) -> Result<(), Violation> {
        self.each(world, |invariant| invariant.look(world))
    }

    /// Asks all for their last word.
    pub(crate) fn end(&mut self, world: &World) -> Result<(), Violation> {
        self.each(world, |invariant| invariant.end(world))
    }

    /// Whether any saw something that is allowed and yet to be counted.
    pub(crate) fn are_blemished(&self) -> bool {
        self.0.iter().any(|invariant| invariant.is_blemished())
    }

    fn each(
        &mut self,
        world: &World,
        mut ask: impl FnMut(&mut dyn Invariant) -> Result<(), String>,
    ) -> Result<(), Violation> {
        for invariant in &mut self.0 {
            let name = invariant.name();
            ask(invariant.as_mut()).map_err(|what| Violation {
                invariant: name,
                at: world.now,
                what,
            })?;
        }
        Ok(())
    }
}

impl Happening {
    /// A number for what routing would notice, to compare runs by.
    pub(crate) fn mark(&self) -> Option<u64> {
        match self {
            Self::Opened { node, endpoint, incident, .. } => {
                Some(1 | (*node as u64) << 8 | (*endpoint as u64) << 16 | incident << 24)
            }
            Self::Closed { node, endpoint, incident, .. } => {
                Some(2 | (*node as u64) << 8 | (*endpoint as u64) << 16 | incident << 24)
            }
            Self::Written { .. }
            | Self::Voted { .. }
            | Self::Tried(_)
            | Self::Canary { .. }
            | Self::Slot { .. } => None,
        }
    }
}
