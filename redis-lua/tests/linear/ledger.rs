//! The ledger as one thing that does one call after the other: the book, with its clock stopped.
//!
//! Redis reads its own clock at each call, which no caller knows. Every term in these histories
//! (words, leads, orders) is therefore longer than a run by far, so that none ends within it, and a
//! book whose clock stands still must tell the same but for how much of each term is left: that is
//! taken out of both sides before they are compared. Terms that end are for `agrees.rs`, which gives
//! the scripts their time.

use std::time::Duration;

use quorum::ledger::{Answer, Book, Call, Entry};
use quorum::{Stage, Step};

use crate::checker::Model;

/// Longer than any run: no word, lead or order ends within one.
pub(crate) const TERM: Duration = Duration::from_secs(3_600);

/// One endpoint's book.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Book);

impl Ledger {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(Book::default())
    }
}

impl Model for Ledger {
    type Call = Call;
    type Answer = Answer;

    fn explains(&mut self, call: &Call, told: Option<&Answer>) -> bool {
        let mut answer = self.0.apply(Duration::ZERO, call);
        still(&mut answer.entry);
        told.is_none_or(|told| *told == answer)
    }

    fn key(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Takes out of an entry how much of each term is left.
pub(crate) fn still(entry: &mut Entry) {
    if let Some(step) = &mut entry.step {
        still_step(step);
    }
    if let Some(order) = &mut entry.order {
        order.remaining = order.remaining.map(|_| TERM);
    }
    if let Some(lead) = &mut entry.lead {
        lead.remaining = TERM;
    }
}

fn still_step(step: &mut Step) {
    step.age = Duration::ZERO;
    match &mut step.stage {
        Stage::Waiting { remaining }
        | Stage::Probing { remaining }
        | Stage::Canary { remaining, .. } => *remaining = TERM,
        Stage::Closed => {}
    }
}
