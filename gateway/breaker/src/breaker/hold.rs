//! What the fleet does to one node's circuit: take the endpoint out, lend the slot, let go.
//!
//! In a cluster the probe and the canaries are the fleet's and not each node's, so the fleet's hold
//! lies over whatever the node thinks itself, and one node at a time is lent the right to try. What
//! comes of a loan is the node's own finding: it climbs or opens as it would alone.
//!
//! Invariants:
//! - While held nothing is admitted but [`Errand::PassThrough`](crate::Errand::PassThrough), and
//!   nobody stands on a rung with a permit out: a hold voids those of the probe and canary rungs.
//! - Each of the three calls does nothing where it has nothing to do, so that hearing the fleet
//!   twice is hearing it once.

use std::time::Duration;

use super::{Breaker, Phase};
use crate::breaker::ladder::HalfOpen;
use crate::rule::Mode;
use crate::{Reason, Rung, Transition};

impl Breaker {
    /// Takes the endpoint out on behalf of the fleet: nothing but
    /// [`Errand::PassThrough`](crate::Errand::PassThrough) is admitted, an open circuit does not
    /// become half-open and a ramp does not end.
    ///
    /// Permits given while closed or on the ramp still settle, and can open the circuit beneath the
    /// hold. On the probe and canary rungs, which are the fleet's from here on (a loan is taken back
    /// this way), what was counted is dropped and the permits that are out are void; that alone is a
    /// transition. Holding twice is holding once.
    pub fn hold(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        if self.is_held() {
            return None;
        }
        self.held = Some(self.latest);
        let Phase::HalfOpen(half_open) = &self.phase else {
            return None;
        };
        match half_open.rung() {
            rung @ (Rung::Probe | Rung::Canary) => {
                let afresh = HalfOpen::new(self.latest, half_open.opened_for(), rung);
                Some(self.change(Phase::HalfOpen(afresh), Reason::Held, None))
            }
            Rung::Ramp => None,
        }
    }

    /// Lends the fleet's one canary slot to this node: the hold ends and the circuit goes to the
    /// canary rung, where `successes` count as made already (those of the slot's earlier holders in
    /// a row) and canaries are admitted by the rung's own rule. All evidence is dropped and older
    /// permits are void.
    ///
    /// Enough successes lead on as on a ladder of the node's own, at least one of them its own; a
    /// failure opens the circuit. [`Breaker::hold`] takes the slot back. Without a hold, and in
    /// [`Mode::Off`], it does nothing.
    pub fn lend(&mut self, now: Duration, successes: u32) -> Option<Transition> {
        self.advance(now);
        self.held?;
        match self.rule.mode {
            Mode::Off => None,
            Mode::Enforce | Mode::Shadow => {
                self.let_go();
                let opened_for = self.opened_for();
                let half_open = HalfOpen::with_successes(self.latest, opened_for, successes);
                Some(self.change(Phase::HalfOpen(half_open), Reason::Lent, None))
            }
        }
    }

    /// Ends the hold because the fleet's incident is closed: all evidence is dropped, older permits
    /// are void, and the circuit goes to the ramp, for the fleet has climbed the rungs below; with
    /// no ramp it closes. The level of the cool-down stays until the recovery has lasted. Without a
    /// hold it does nothing, so that hearing of it twice is harmless, and so is hearing of it on the
    /// ramp that a loan has led to.
    pub fn release(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        self.held?;
        self.let_go();
        match self.rule.mode {
            Mode::Off => None,
            Mode::Enforce | Mode::Shadow if self.rule.ramp().is_zero() => {
                Some(self.close(Reason::Released))
            }
            Mode::Enforce | Mode::Shadow => {
                let half_open = HalfOpen::new(self.latest, self.opened_for(), Rung::Ramp);
                Some(self.change(Phase::HalfOpen(half_open), Reason::Released, None))
            }
        }
    }

    /// Ends the hold; only until it began can the circuit have been healthy.
    fn let_go(&mut self) {
        self.level = self.level_at(self.latest);
        self.held = None;
    }
}
