//! The ledger of the simulated fleet: a book behind a network of its own, and each node's link to it.
//!
//! It keeps the rule's own book, and does to it what a real store may suffer: requests and answers are
//! lost or late, nodes or all of them do not reach it, it is flushed, and a failover loses what was
//! written last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use quorum::ledger::{Answer, Book, Call, Deed, Entry, Outcome};
use quorum::{EndpointKey, NodeId, Stage};

use crate::plan::Ms;
use crate::sabotage::Sabotage;

/// A call that is not answered within this has no answer.
pub(crate) const DEADLINE: Ms = 100;

/// Copies are kept for so long, for a failover to put back.
const COPIES_LAST: Ms = 15_000;

/// Without a good answer for this long, and with a bad one, the ledger is away for a node.
const PATIENCE: Ms = 500;

/// The ledger, and who reaches it.
pub(crate) struct Desk {
    book: Book,
    /// The book as it was a little ago, the oldest first.
    copies: VecDeque<(Ms, Book)>,
    /// Every incident that ever stood there, by endpoint.
    pub(crate) stood: BTreeSet<(EndpointKey, u64)>,
    /// When it last lost anything.
    pub(crate) lost_at: Option<Ms>,
    sabotage: Option<Sabotage>,
}

/// One node's link to the ledger.
#[derive(Default)]
pub(crate) struct Link {
    /// The calls in flight, by number.
    pub(crate) calls: BTreeMap<u64, Call>,
    next: u64,
    /// When the last good answer came.
    heard_at: Ms,
    /// Whether it is taken to be there; not before the first answer.
    pub(crate) is_up: bool,
    /// Since when the node relies on it.
    pub(crate) relied_since: Option<Ms>,
}

impl Link {
    /// Notes that a call is sent. Returns its number.
    pub(crate) fn send(&mut self, call: Call) -> u64 {
        self.next += 1;
        self.calls.insert(self.next, call);
        self.next
    }

    /// Notes that an answer came.
    pub(crate) fn hear(&mut self, now: Ms) {
        self.heard_at = now;
        self.is_up = true;
    }

    /// Notes that an answer did not come. Returns whether the ledger is away from here on.
    pub(crate) fn miss(&mut self, now: Ms) -> bool {
        let is_lost = self.is_up && now >= self.heard_at + PATIENCE;
        self.is_up &= !is_lost;
        is_lost
    }
}

impl Desk {
    /// An empty ledger.
    pub(crate) fn new(sabotage: Option<Sabotage>) -> Self {
        let (book, copies) = (Book::default(), VecDeque::new());
        Self { book, copies, stood: BTreeSet::new(), lost_at: None, sabotage }
    }

    /// Does what a call asks for. Returns the answer, and whether the entry has changed.
    pub(crate) fn serve(&mut self, now: Ms, call: &Call) -> (Answer, bool) {
        let clock = Duration::from_millis(now);
        let before = self.read(now, &call.endpoint, &call.by);
        let call = self.spoil(now, call, &before);
        let mut answer = self.book.apply(clock, &call);
        let version = |entry: &Entry| entry.floor.version;
        let has_changed = version(&answer.entry) != version(&before);
        if let Some(step) = &answer.entry.step {
            self.stood.insert((call.endpoint.clone(), step.incident));
        }
        if self.sabotage == Some(Sabotage::LostUpdate)
            && let Deed::Advance { step, .. } = &call.deed
        {
            answer.outcome = Outcome::Done;
            answer.entry.step = Some(step.clone());
        }
        if self.sabotage == Some(Sabotage::AbsenceCloses) && answer.entry.step.is_none() {
            answer.entry.step = call.closing();
        }
        (answer, has_changed)
    }

    /// The entry as it stands.
    pub(crate) fn read(&mut self, now: Ms, endpoint: &EndpointKey, by: &NodeId) -> Entry {
        let (generation, floor, deed) = (u64::MAX, Default::default(), Deed::Read);
        let (endpoint, by) = (endpoint.clone(), by.clone());
        let read = Call { endpoint, by, generation, floor, deed };
        self.book.apply(Duration::from_millis(now), &read).entry
    }

    /// Makes of a call what a planted bug makes of it.
    fn spoil(&mut self, now: Ms, call: &Call, before: &Entry) -> Call {
        match (self.sabotage, &call.deed) {
            (Some(Sabotage::FloorIgnored), Deed::Cast(_)) => {
                Call { floor: Default::default(), ..call.clone() }
            }
            (Some(Sabotage::LostUpdate), Deed::Take { .. }) => {
                self.depose(now, call, before);
                call.clone()
            }
            (Some(Sabotage::LostUpdate), Deed::Advance { step, .. }) => {
                self.depose(now, call, before);
                let hold = Duration::from_secs(3);
                let take = Call { deed: Deed::Take { hold }, ..call.clone() };
                let entry = self.book.apply(Duration::from_millis(now), &take).entry;
                let number = entry.lead.map_or(0, |lead| lead.number);
                let deed = Deed::Advance { number, step: step.clone() };
                Call { floor: entry.floor, deed, ..call.clone() }
            }
            (Some(_) | None, _) => call.clone(),
        }
    }

    /// Takes the lead from whoever has it.
    fn depose(&mut self, now: Ms, call: &Call, before: &Entry) {
        let Some(lead) = before.lead.clone().filter(|lead| lead.holder != call.by) else { return };
        let (by, generation, floor) = (lead.holder, lead.generation, before.floor);
        let (deed, endpoint) = (Deed::Release { number: lead.number }, call.endpoint.clone());
        self.book
            .apply(Duration::from_millis(now), &Call { endpoint, by, generation, floor, deed });
    }

    /// Keeps a copy.
    pub(crate) fn copy(&mut self, now: Ms) {
        self.copies.push_back((now, self.book.clone()));
        while self.copies.front().is_some_and(|(at, _)| *at + COPIES_LAST < now) {
            self.copies.pop_front();
        }
    }

    /// Loses what was written in the last `back`.
    pub(crate) fn fail_over(&mut self, now: Ms, back: Ms) {
        let copy = self.copies.iter().rev().find(|(at, _)| *at + back <= now);
        let copy = copy.or(self.copies.front()).map(|(_, book)| book.clone());
        self.book = copy.unwrap_or_default();
        if self.sabotage != Some(Sabotage::FloorIgnored) {
            self.book.fail_over();
        }
        self.lost_at = Some(now);
    }

    /// Loses everything.
    pub(crate) fn flush(&mut self, now: Ms) {
        self.book.flush();
        self.lost_at = Some(now);
    }
}

/// Whether a call has just opened an endpoint.
pub(crate) fn has_opened(answer: &Answer) -> bool {
    answer.outcome == Outcome::Opened
}

/// A word about a step, whatever is done with it.
trait Closing {
    /// The closing of the incident that the call speaks of.
    fn closing(&self) -> Option<quorum::Step>;
}

impl Closing for Call {
    fn closing(&self) -> Option<quorum::Step> {
        let Deed::Cast(word) = &self.deed else { return None };
        word.hold.clone().map(|step| quorum::Step { stage: Stage::Closed, ..step })
    }
}
