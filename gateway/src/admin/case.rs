//! All that is known of one endpoint at one moment, taken together before a word is said of it.
//!
//! Invariants: the fleet's side is read under one lock, so that the votes, the count and the electorate
//! of one answer belong together.

use std::time::Duration;

use breaker::View;
use quorum::view::EndpointView;
use quorum::{Council, NodeId, Reliance};

use crate::cluster::Reached;
use crate::fleet::{Endpoint, Pool};

/// One endpoint at one moment.
pub(crate) struct Case<'a> {
    /// The moment.
    pub(crate) now: Duration,
    /// The pool it belongs to.
    pub(crate) pool: &'a Pool,
    /// The endpoint.
    pub(crate) endpoint: &'a Endpoint,
    /// This node's breaker.
    pub(crate) local: View,
    /// What the council knows of it.
    pub(crate) cluster: EndpointView,
    /// How this node stands with the fleet.
    pub(crate) seat: &'a Seated,
}

/// How this node stands with the fleet at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Seated {
    /// This node.
    pub(crate) me: NodeId,
    /// Whether it suspects itself.
    pub(crate) is_suspect: bool,
    /// How long it only watches.
    pub(crate) observing: Duration,
    /// Of how many members a majority is taken.
    pub(crate) electorate: usize,
    /// How many of them are live.
    pub(crate) live: usize,
    /// How many make a majority.
    pub(crate) quorum: usize,
    /// In how long this node lets go of what the fleet has out, since no majority is live.
    pub(crate) lets_go_in: Option<Duration>,
    /// By what the fleet's verdicts come about.
    pub(crate) reliance: Reliance,
    /// How it stands with the ledger; `None`: there is none.
    pub(crate) reached: Option<Reached>,
}

impl Seated {
    pub(crate) fn new(now: Duration, me: &NodeId, council: &Council) -> Self {
        Self {
            me: me.clone(),
            is_suspect: council.is_suspect(),
            observing: council.observing_until().saturating_sub(now),
            electorate: council.electorate_size(),
            live: council.live_count(),
            quorum: council.quorum(),
            lets_go_in: council.lets_go_in(now),
            reliance: council.reliance(),
            reached: None,
        }
    }

    /// The same of a node whose fleet decides in a ledger that it stands so with.
    pub(crate) fn by(self, reached: Option<Reached>) -> Self {
        Self { reached, ..self }
    }

    /// Whether there is nobody to agree with.
    pub(crate) fn is_alone(&self) -> bool {
        self.electorate < 2
    }

    /// Whether no majority is live, so that the fleet neither opens nor closes anything. Where a ledger
    /// decides it counts votes and not who is heard, and where each node is alone there is nobody to hear.
    pub(crate) fn is_frozen(&self) -> bool {
        self.reliance == Reliance::Gossip && self.live < self.quorum
    }

    /// Whether each node goes by its own breaker, since the ledger is away and nothing else is to decide.
    pub(crate) fn is_on_its_own(&self) -> bool {
        self.reliance == Reliance::Alone
    }
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        now: Duration,
        (pool, endpoint): (&'a Pool, &'a Endpoint),
        cluster: EndpointView,
        seat: &'a Seated,
    ) -> Self {
        Self { now, pool, endpoint, local: endpoint.view(now), cluster, seat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fleet_that_gossip_decides_for_is_frozen_without_a_live_majority() {
        let seated = |reliance, live| Seated {
            me: NodeId::new("gw-1"),
            is_suspect: false,
            observing: Duration::ZERO,
            electorate: 3,
            live,
            quorum: 2,
            lets_go_in: None,
            reliance,
            reached: None,
        };
        assert!(seated(Reliance::Gossip, 1).is_frozen());
        assert!(!seated(Reliance::Gossip, 2).is_frozen());
        for reliance in [Reliance::Ledger, Reliance::Alone] {
            assert!(!seated(reliance, 1).is_frozen(), "{reliance:?}");
        }
    }
}
