//! What this node says to the ledger and hears from it, where the fleet has one.
//!
//! Whoever carries the calls needs no more than this: [`calls`](Deputy::calls) after each round and at
//! each notice and answer, [`answered`](Deputy::answered) for each of them, and a round at once where that
//! says so, for what was decided comes out of it.

use std::time::Duration;

use quorum::ledger::{Answer, Call};
use quorum::{EndpointKey, Reliance};

use super::Deputy;
use crate::cluster::lock;

impl Deputy {
    /// By what the fleet's verdicts come about from `now` on. When the ledger is out of reach it is to be
    /// said at once, and when it is back once [`is_reconciled`](Self::is_reconciled).
    pub fn rely(&self, now: Duration, reliance: Reliance) {
        let mut council = self.council();
        if reliance != Reliance::Ledger && council.reliance() == Reliance::Ledger {
            lock(&self.clerk).lose();
        }
        council.rely(now, reliance);
    }

    /// The calls to make to the ledger at `now`: at most 256 are under way at a time. While the council
    /// does not rely on the ledger they only read what was not read since it was out of reach.
    pub fn calls(&self, now: Duration) -> Vec<Call> {
        let mut council = self.council();
        lock(&self.clerk).calls(now, &mut council)
    }

    /// Takes in what became of a call; `None`: no answer came in time, and it may have been done.
    /// Returns whether a round is due at once; further calls may be due in any case.
    pub fn answered(&self, now: Duration, call: &Call, answer: Option<&Answer>) -> bool {
        let mut council = self.council();
        lock(&self.clerk).answered(now, &mut council, call, answer)
    }

    /// Notes that an entry was changed by somebody, and has this version since.
    pub fn noticed(&self, endpoint: &EndpointKey, version: u64) {
        lock(&self.clerk).noticed(endpoint, version);
    }

    /// Whether every endpoint was read since the ledger was last out of reach.
    pub fn is_reconciled(&self) -> bool {
        lock(&self.clerk).is_reconciled()
    }

    /// Forgets what was read: the ledger was out of reach again before it was relied on.
    pub fn lose_ledger(&self) {
        lock(&self.clerk).lose();
    }

    /// The calls by which this node takes leave of the ledger; their answers do not matter.
    pub fn parting(&self, now: Duration) -> Vec<Call> {
        let council = self.council();
        lock(&self.clerk).parting(now, &council)
    }
}
