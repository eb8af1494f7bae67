//! What a strongly consistent store keeps of each endpoint, and the calls that change it.
//!
//! Where a fleet has such a store, the *ledger*, its verdicts are entries there: each changes by one
//! call at a time, under a version. This is the language between the council, which proposes, and
//! whoever keeps the ledger. Durations are as of the moment of writing or reading; the ledger's own
//! clock alone says when they are over.
//!
//! Invariants, kept by whoever answers the calls:
//! - An endpoint opens only by a cast that finds more than half of the electorate against it, by votes
//!   or by the word of those that have it out.
//! - Every write raises the version above what its writer and the ledger had seen; epochs and leads
//!   likewise. So no number comes twice, also when a failover has lost writes.
//! - A step is written on the version that its writer knew, and by who holds the lead.

mod book;

use std::time::Duration;

pub use book::{Book, EPOCH_LEAP, NUMBER_LEAP, NUMBER_MAX, WORDS_MAX};

use crate::statement::{EndpointKey, NodeId, Override, Step};

/// The largest numbers that somebody has seen: what is written is above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Of versions of the entry.
    pub version: u64,
    /// Of incidents, opened or voted for.
    pub epoch: u64,
    /// Of leads.
    pub lead: u64,
}

/// What the ledger holds of one endpoint, as of the reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The largest numbers that were ever written, or that a writer had seen.
    pub floor: Floor,
    /// The furthest step; `None`: none was written, or the ledger has lost it, which closes nothing.
    pub step: Option<Step>,
    /// The newest order.
    pub order: Option<Override>,
    /// Who leads the recovery; `None`: nobody.
    pub lead: Option<Lead>,
    /// The count at the last cast.
    pub count: Count,
}

/// Who leads an endpoint's recovery: it alone probes, and writes steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Who.
    pub holder: NodeId,
    /// In which life.
    pub generation: u64,
    /// The number it is fenced by.
    pub number: u64,
    /// How long it still holds.
    pub remaining: Duration,
}

/// How a cast was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Votes that are valid and first-hand.
    pub first_hand: u32,
    /// Votes that are valid and seconded.
    pub seconded: u32,
    /// Votes that count.
    pub counted: u32,
    /// Members that have the endpoint out by their own word.
    pub holders: u32,
    /// How many had to count.
    pub quorum: u32,
}

/// One call about one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub endpoint: EndpointKey,
    /// Who calls.
    pub by: NodeId,
    /// In which life: calls of an earlier one are refused.
    pub generation: u64,
    /// The largest numbers that the caller has seen.
    pub floor: Floor,
    /// What is to be done.
    pub deed: Deed,
}

/// What a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing: it only reads.
    Read,
    /// To keep this word of the caller, in place of its earlier one, to count anew, and to open if a
    /// majority says so.
    Cast(Word),
    /// To make the caller the one who leads, unless another does.
    Take {
        /// For how long, at most.
        hold: Duration,
    },
    /// To lead for longer.
    Renew {
        /// The number of the lead.
        number: u64,
        /// For how long from here on, at most.
        hold: Duration,
    },
    /// To lead no more.
    Release {
        /// The number of the lead.
        number: u64,
    },
    /// To write the next step, leading under `number`, if the version is still that of the call's
    /// [`Floor::version`].
    Advance {
        /// The number of the lead.
        number: u64,
        /// The step.
        step: Step,
    },
    /// To write a step that the fleet took while the ledger was away, if it is further than what
    /// stands. It opens nothing: a step of an incident that does not stand is refused, unless it
    /// closes.
    Carry(Step),
    /// To write an order, if it is newer than what stands.
    Order(Override),
}

/// All that one node says of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Grows with every cast of this life: an older one that comes late changes nothing.
    pub seq: u64,
    /// The vote, if it stands and is to be counted.
    pub vote: Option<Against>,
    /// Whether the caller saw bad evidence itself: the votes of those who second need two who did.
    pub is_witness: bool,
    /// The furthest step, if the caller has the endpoint out by the fleet's verdict.
    pub hold: Option<Step>,
    /// How long the word stands unless it is cast anew.
    pub lease: Duration,
    /// Of how many members a majority is taken, in the caller's eyes. At least 1. It is taken of the most
    /// that anybody says whose word counts.
    pub electorate: u32,
    /// Members whose words the caller does not count: muted, flapping, suspect or lost. At most
    /// [`WORDS_MAX`].
    pub discounted: Vec<NodeId>,
    /// How it is to open if this cast makes a majority; `None`: it must not, for the cap's sake.
    pub opening: Option<Begin>,
}

/// A vote that is to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Against {
    /// The incident that it is for.
    pub incident: u64,
    /// Whether the voter's own breaker opened on its own traffic.
    pub is_first_hand: bool,
}

/// How an opening begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// How many times the cool-down has doubled.
    pub level: u32,
    /// The cool-down.
    pub cool_down: Duration,
}

/// What became of a call, with the entry as it stands thereafter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub outcome: Outcome,
    /// The entry.
    pub entry: Entry,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, or there was nothing to do.
    Done,
    /// It was done, and this cast has opened the endpoint.
    Opened,
    /// The entry has another version, or holds something newer: the caller begins again from it.
    Stale,
    /// Another leads.
    Led,
    /// The call is from an earlier life of the caller, or from an earlier lead.
    Fenced,
}
