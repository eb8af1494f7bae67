//! What really happened in the simulated fleet, kept apart from what any council believes.
//!
//! The invariants of the cluster are checked here, at the moment of each decision: a flip against
//! the breakers that had truly opened, a probe against those truly in flight.

use std::time::Duration;

use quorum::{CanaryFence, Forced, MemberVerb};

/// For how long a vote may go on counting after its breaker closed or its voter died: until it
/// lapses, and a little for the way.
const VOTE_OUTLIVES: Duration = Duration::from_secs(12);

/// Something that happened on a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    /// The fleet took the endpoint out, as this node sees it.
    Opened { incident: u64 },
    /// The incident is over, as this node sees it.
    Closed { incident: u64, was_open: bool },
    /// An order took hold or ended.
    Forced(Forced),
    /// A probe was sent.
    Probe { fence: (u64, u32) },
    /// The canary slot was lent to the node.
    Lent { fence: CanaryFence, successes: u32 },
    /// The slot was taken back.
    Recalled,
    /// The node follows what an operator asked of this member.
    Asked { verb: MemberVerb, member: usize },
}

/// A probe as the endpoint saw it.
pub(crate) struct Flight {
    pub(crate) node: usize,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// A breaker that opened, with the moment it closed.
struct Grievance {
    node: usize,
    to: Option<Duration>,
}

/// The record of a run.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) events: Vec<(Duration, usize, Event)>,
    pub(crate) flights: Vec<Flight>,
    /// When which node sent a canary.
    pub(crate) canaries: Vec<(Duration, usize)>,
    grievances: Vec<Grievance>,
    /// Who has seconded, in the same way.
    seconds: Vec<Grievance>,
    /// Who has the endpoint out by the fleet's verdict, in the same way.
    holds: Vec<Grievance>,
}

impl Ledger {
    /// Notes an event.
    pub(crate) fn note(&mut self, at: Duration, node: usize, event: Event) {
        self.events.push((at, node, event));
    }

    /// Notes that the breaker of `node` opened on its own traffic.
    pub(crate) fn aggrieve(&mut self, node: usize) {
        self.grievances.push(Grievance { node, to: None });
    }

    /// Notes that the breaker of `node` is closed, or gone with its process.
    pub(crate) fn appease(&mut self, at: Duration, node: usize) {
        end(&mut self.grievances, at, node);
    }

    /// How many different nodes may honestly have a vote standing at `at`.
    pub(crate) fn voters(&self, at: Duration) -> usize {
        count(self.grievances.iter().chain(&self.seconds), at)
    }

    /// How many different nodes may honestly have a first-hand vote standing at `at`.
    pub(crate) fn aggrieved(&self, at: Duration) -> Vec<usize> {
        nodes(self.grievances.iter(), at)
    }

    /// Notes whether a seconded vote of `node` stands.
    pub(crate) fn second(&mut self, at: Duration, node: usize, stands: bool) {
        let is_known = |second: &Grievance| second.node == node && second.to.is_none();
        match (self.seconds.iter().any(is_known), stands) {
            (false, true) => self.seconds.push(Grievance { node, to: None }),
            (true, false) => end(&mut self.seconds, at, node),
            (true, true) | (false, false) => {}
        }
    }

    /// Notes that `node` has the endpoint out by the fleet's verdict.
    pub(crate) fn take_out(&mut self, node: usize) {
        self.holds.push(Grievance { node, to: None });
    }

    /// Notes that `node` has it in again, or is gone with its process.
    pub(crate) fn take_in(&mut self, at: Duration, node: usize) {
        end(&mut self.holds, at, node);
    }

    /// How many different nodes may honestly be known to have the endpoint out at `at`.
    pub(crate) fn holders(&self, at: Duration) -> usize {
        count(self.holds.iter(), at)
    }

    /// How many probes are in flight at `at`.
    pub(crate) fn in_flight(&self, at: Duration) -> usize {
        self.flights.iter().filter(|flight| flight.from <= at && at < flight.to).count()
    }

    /// The most probes that were ever in flight at once.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.flights.iter().map(|flight| self.in_flight(flight.from)).max().unwrap_or(0)
    }

    /// The fences of all probes sent, in their order.
    pub(crate) fn fences(&self) -> Vec<(u64, u32)> {
        self.events
            .iter()
            .filter_map(|(_, _, event)| match event {
                Event::Probe { fence } => Some(*fence),
                Event::Opened { .. }
                | Event::Closed { .. }
                | Event::Forced(_)
                | Event::Lent { .. }
                | Event::Recalled
                | Event::Asked { .. } => None,
            })
            .collect()
    }

    /// The moments at which nodes saw the fleet take the endpoint out.
    pub(crate) fn openings(&self) -> Vec<(Duration, usize)> {
        self.events
            .iter()
            .filter(|(_, _, event)| matches!(event, Event::Opened { .. }))
            .map(|(at, node, _)| (*at, *node))
            .collect()
    }
}

fn end(grievances: &mut [Grievance], at: Duration, node: usize) {
    for grievance in grievances {
        if grievance.node == node && grievance.to.is_none() {
            grievance.to = Some(at);
        }
    }
}

/// How many different nodes have a grievance that others may know of at `at`.
fn count<'a>(grievances: impl Iterator<Item = &'a Grievance>, at: Duration) -> usize {
    nodes(grievances, at).len()
}

fn nodes<'a>(grievances: impl Iterator<Item = &'a Grievance>, at: Duration) -> Vec<usize> {
    let is_known = |grievance: &&Grievance| grievance.to.is_none_or(|to| at <= to + VOTE_OUTLIVES);
    let mut nodes: Vec<usize> =
        grievances.filter(is_known).map(|grievance| grievance.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
