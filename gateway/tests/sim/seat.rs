//! One node's seat: the gateway's own deputy and fleet, and what a world must know beside them.
//!
//! Whatever the gateway decides is decided here by its own code. What is left to the world is what
//! is an effect outside of the process: requests and probes on their way, and the words of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use breaker::Rung;
use gateway::cluster::{Deputy, Round};
use gateway::fleet::{Endpoint, Fleet, Pool, Sink};
use gateway::metrics::Meters;
use quorum::{CanaryFence, Decision, EndpointKey, Evidence, LocalOpening, Member};

use crate::node::Mould;
use crate::sabotage::Sabotage;

thread_local! {
    /// One recorder for all worlds of a thread: nobody looks at what is counted there.
    static METERS: Meters = Meters::new();
}

/// One node's seat in the fleet.
pub(crate) struct Seat {
    pub(crate) deputy: Deputy,
    pub(crate) pools: Vec<Arc<Pool>>,
    /// All endpoints, by their number in the plan.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// The hold of the canary slot that each endpoint was last lent under.
    fences: Vec<Option<CanaryFence>>,
    /// Whether a breaker has changed, which wakes the node.
    has_changed: Arc<AtomicBool>,
    sabotage: Option<Sabotage>,
}

impl Seat {
    /// A seat of node `me` with closed breakers.
    pub(crate) fn new(mould: &Mould, me: usize, now: Duration) -> Self {
        let has_changed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_changed);
        let sink: Sink = Arc::new(move |_| flag.store(true, Ordering::Relaxed));
        let fleet = METERS.with(|meters| Arc::new(Fleet::new(&mould.pools, meters, &sink)));
        let pools = fleet.pools().to_vec();
        let endpoints: Vec<_> = fleet.endpoints().map(|(_, one)| Arc::clone(one)).collect();
        let fences = vec![None; endpoints.len()];
        let deputy = Deputy::new(mould.names[me].clone(), mould.rule.clone(), fleet, now);
        Self { deputy, pools, endpoints, fences, has_changed, sabotage: mould.sabotage }
    }

    /// One round of the deputy.
    pub(crate) fn round(&mut self, now: Duration, members: &[Member]) -> Round {
        let mut round = self.deputy.round(now, members);
        for decision in &round.decisions {
            match decision {
                Decision::Lend { endpoint, fence, .. } => {
                    if let Some(endpoint) = self.index(endpoint) {
                        self.fences[endpoint] = Some(*fence);
                    }
                }
                Decision::Opened { endpoint, .. } => {
                    if self.sabotage == Some(Sabotage::ImposedVotes) {
                        self.vote_by_order(now, endpoint);
                        round.said = self.deputy.council().statements(now).or(round.said.take());
                    }
                }
                Decision::Closed { .. }
                | Decision::Probe { .. }
                | Decision::Recall { .. }
                | Decision::Forced { .. }
                | Decision::Ordered { .. }
                | Decision::Forgotten { .. } => {}
            }
        }
        round
    }

    /// The number of an endpoint.
    pub(crate) fn index(&self, key: &EndpointKey) -> Option<usize> {
        self.endpoints.iter().position(|endpoint| endpoint.key == *key)
    }

    /// The hold of the fleet's canary slot, if this node has it.
    pub(crate) fn slot(&self, endpoint: usize) -> Option<CanaryFence> {
        self.fences[endpoint].filter(|_| self.deputy.holds_slot(&self.endpoints[endpoint].key))
    }

    /// Whether what is admitted at an endpoint is a canary of the fleet's slot.
    pub(crate) fn is_canarying(&self, endpoint: usize) -> bool {
        self.endpoints[endpoint].rung() == Some(Rung::Canary) && self.slot(endpoint).is_some()
    }

    /// Whether a breaker has changed since this was last asked.
    pub(crate) fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// States an opening that the fleet imposed as if this node had seen it itself.
    fn vote_by_order(&self, now: Duration, key: &EndpointKey) {
        let Some(endpoint) = self.index(key) else { return };
        let mut local = self.endpoints[endpoint].local(now, false);
        let (reason, evidence) = (String::new(), Evidence::default());
        local.opening.get_or_insert(LocalOpening { since: now, reason, evidence });
        self.deputy.council().state(now, key, local);
    }
}
