//! What can happen next: one queue for the whole world, ordered by time and then by coming.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;

use gateway::fleet::Admission;
use quorum::ledger::{Answer, Call};

use crate::carrier::{Parcel, Push};
use crate::plan::Ms;

/// Something that happens at its time. Small, for the queue moves it about.
pub(crate) enum Event {
    /// A node's round.
    Round,
    /// A node gossips.
    Gossip,
    /// A client asks a node.
    Client,
    /// Records arrive.
    Parcel { from: usize, parcel: Parcel, wants_reply: bool },
    /// News arrives that was pushed.
    Push { from: usize, push: Rc<Push> },
    /// A request that is under way crosses the slow limit.
    Crosses(Box<Attempt>),
    /// The endpoint answers a request.
    Answer(Box<Attempt>),
    /// The endpoint answers a probe of the fleet's.
    ProbeAnswer { endpoint: usize, fence: (u64, u32), has_passed: bool },
    /// A call comes to the ledger from a node in its life.
    Call { from: (usize, u64), number: u64, call: Box<Call> },
    /// The ledger's answer comes.
    Answered { number: u64, answer: Box<Answer> },
    /// No answer has come in time.
    Unanswered { number: u64 },
    /// News that an entry has changed.
    Notice { endpoint: usize, version: u64 },
    /// A fault begins.
    Begin(usize),
    /// A fault ends.
    End(usize),
    /// The invariants look at the state of the world.
    Look,
}

/// A request on its way.
pub(crate) struct Attempt {
    pub(crate) endpoint: usize,
    pub(crate) admission: Admission,
    pub(crate) reply: Reply,
    /// Whether it is a canary of the fleet's slot.
    pub(crate) is_canary: bool,
}

/// What an endpoint makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Good,
    Fault,
    Slow,
}

/// An event with its time and its node.
pub(crate) struct Entry {
    pub(crate) at: Ms,
    order: u64,
    pub(crate) node: usize,
    /// The process it belongs to; 0: whichever runs.
    pub(crate) generation: u64,
    pub(crate) event: Event,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Queue {
    /// Puts an event in its place.
    pub(crate) fn put(&mut self, at: Ms, (node, generation): (usize, u64), event: Event) {
        self.order += 1;
        let order = self.order;
        self.heap.push(Reverse(Entry { at, order, node, generation, event }));
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<Entry> {
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
