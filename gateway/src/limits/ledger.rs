//! One allowance's side of a turn at the fleet's ledger: what it says, and what it makes of the answer.
//!
//! Invariants: a demand that was granted is counted by this node before anybody hears of it; of a turn
//! that has failed, what may have been counted is not said again, and what surely was not is.

use std::sync::Arc;
use std::time::Duration;

use redis_lua::error::Trouble;
use redis_lua::limits::{Answer, Figures, Load, SLOT_RETURNS_IN, Turn, Verdict, What as Figure};

use super::{Allowance, Charge, Full, Source, What, Whom};

impl Allowance {
    /// Who is limited.
    pub(super) fn whom(&self) -> &Whom {
        &self.whom
    }

    /// What is to be said to the ledger, with demands of so many tokens each; `None`: nothing.
    pub(super) fn compose(&self, now: Duration, demands: &[u64]) -> Option<Turn> {
        let mut state = self.lock();
        let now = state.window.advance(now);
        let (limits, in_flight) = (state.limits, u64::from(state.in_flight));
        let purse = self.purse(&mut state)?;
        purse.is_known = true;
        purse.is_told = false;
        purse.compose(now, &limits, in_flight, demands)
    }

    /// Has everything given back with the next turn that no request uses.
    pub(super) fn relinquish(&self) {
        if let Some(purse) = self.purse(&mut self.lock()) {
            purse.relinquish();
        }
    }

    /// Whether the teller may forget it; from then on it is told again.
    pub(super) fn is_done(&self) -> bool {
        let mut state = self.lock();
        let in_flight = u64::from(state.in_flight);
        let Some(purse) = self.purse(&mut state) else { return true };
        let is_done = purse.is_empty(in_flight);
        purse.is_known = !is_done;
        is_done
    }

    /// Takes what became of a turn that was sent at `sent`: for each demand its place, or why not. Of a turn
    /// that has failed nothing is known. Returns as well how many corrections are lost.
    pub(super) fn settled(
        self: &Arc<Self>,
        (sent, now): (Duration, Duration),
        turn: &Turn,
        answer: Result<&Answer, Trouble>,
    ) -> (Vec<Result<Charge, Full>>, usize) {
        let mut state = self.lock();
        let now = state.window.advance(now);
        let Some(purse) = self.purse(&mut state) else { return (Vec::new(), 0) };
        let answer = match answer {
            Ok(answer) => answer,
            Err(trouble) => {
                // What may have been counted would be counted twice.
                if !surely_was_not_taken(trouble) {
                    return (Vec::new(), turn.corrections.len());
                }
                if turn.debt != Load::default() {
                    purse.owe(now, turn.debt);
                }
                let again = turn.corrections.iter();
                let lost = again.filter(|one| !purse.correct(one.at, one.was, one.is));
                return (Vec::new(), lost.count());
            }
        };
        purse.receive(sent, now, answer);
        let mut decided = Vec::with_capacity(turn.demands.len());
        for (tokens, verdict) in turn.demands.iter().zip(&answer.verdicts) {
            decided.push(match verdict {
                Verdict::Granted => {
                    Ok(self.admit(&mut state, now, *tokens, Source::Ledger { at: answer.at }))
                }
                Verdict::Full { what, returns_in } => {
                    let full = full_of_all(turn.figures, *what, *returns_in);
                    if let Some(purse) = &mut state.purse {
                        purse.repeat(now, *tokens, full);
                    }
                    Err(full)
                }
            });
        }
        (decided, 0)
    }
}

/// Why the ledger refuses, where it was told of these figures.
fn full_of_all(figures: Figures, what: Figure, returns_in: Option<Duration>) -> Full {
    let (what, limit) = match what {
        Figure::Requests => (What::Requests, figures.requests),
        Figure::Tokens => (What::Tokens, figures.tokens),
        Figure::Slots => (What::Concurrency, figures.slots),
    };
    let limit = limit.unwrap_or(0);
    let returns_in = if what == What::Concurrency { Some(SLOT_RETURNS_IN) } else { returns_in };
    Full { what, limit, whole: limit, returns_in }
}

/// Whether a turn that has failed like this surely counts nowhere.
fn surely_was_not_taken(trouble: Trouble) -> bool {
    match trouble {
        Trouble::Busy | Trouble::Refused(_) | Trouble::Tls(_) => true,
        Trouble::Away | Trouble::Timeout | Trouble::Wrong(_) => false,
    }
}
