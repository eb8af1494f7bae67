//! The seconded vote: cast when the evidence of all members convicts, whatever this node's own
//! breaker holds.

use std::time::Duration;

use crate::circuit::Cast;
use crate::conviction::Ground;
use crate::council::Council;
use crate::dossier::Dossier;
use crate::statement::{Basis, EndpointKey, Evidence, NodeId, VoteState, Window};
use crate::tally::is_valid;

impl Council {
    /// Casts this node's seconded vote, or withdraws it, as the pool has it at `now`. What stands
    /// when the fleet has opened stands until the closing, here or with anybody: else the first to
    /// open would take from the others what they have to count.
    ///
    /// Only what this node sees at this very moment decides: of an endpoint that nobody spoke of it
    /// may never have been asked, and of a success of its own it would know nothing.
    pub(super) fn second(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let basis = dossier.circuit.standing_basis();
        let is_blind = !dossier.own.is_of(now);
        if is_blind || dossier.circuit.opening.is_some() || basis == Some(Basis::FirstHand) {
            return;
        }
        let verdict = self
            .pool(now, dossier)
            .filter(|_| !dossier.has_fresh_success(now, self.window_lapse()));
        let others = match verdict {
            Some(_) => self.largest_standing(now, endpoint),
            None => 0,
        };
        let is_held = basis.is_some() && verdict.is_none() && self.holders(now, dossier) > 0;
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        match (verdict, basis) {
            (Some((ground, evidence)), None) => {
                let (basis, since) = (Basis::Seconded, now);
                let reason = ground.as_str().to_owned();
                circuit.cast(Cast { basis, since, reason, evidence }, others);
            }
            (None, Some(_)) if !is_held => circuit.withdraw(now),
            (Some(_) | None, Some(_)) | (None, None) => {}
        }
    }

    /// Whether the evidence of all members convicts, and what it adds up to. What was seen before a
    /// closing does not convict again after it, nor does what may have been on its way then.
    fn pool(&self, now: Duration, dossier: &Dossier) -> Option<(Ground, Evidence)> {
        let closed_at = dossier.circuit.closed_at();
        if closed_at.is_some_and(|at| now < at.saturating_add(self.window_lapse())) {
            return None;
        }
        let own = dossier.window_at(now);
        let mine = (!self.is_suspect()).then_some((&own, Duration::ZERO));
        let is_later = |at: Duration| closed_at.is_none_or(|closed_at| at > closed_at);
        let windows: Vec<(&NodeId, &Window, Duration)> =
            self.evidence(now, dossier).filter(|(_, _, at)| is_later(*at)).collect();
        let voted = self.voted(now, dossier, &windows);
        let theirs = windows
            .iter()
            .map(|(_, window, at)| (*window, now.saturating_sub(*at)))
            .chain(voted.iter().map(|window| (window, Duration::ZERO)));
        let (ground, evidence) = dossier.conviction.judge(mine.into_iter().chain(theirs));
        ground.map(|ground| (ground, evidence))
    }

    /// What the first-hand voters saw when their breakers opened, of those whose own `windows` no
    /// longer hold anything bad: a breaker that is open gathers nothing, and its vote is its word
    /// for as long as it stands.
    fn voted(
        &self,
        now: Duration,
        dossier: &Dossier,
        windows: &[(&NodeId, &Window, Duration)],
    ) -> Vec<Window> {
        let closed = dossier.circuit.closed();
        let is_sound = |id: &NodeId| !self.muted.contains(id) && !self.suspects(id);
        let is_seen =
            |id: &NodeId| windows.iter().any(|(by, window, _)| *by == id && window.is_bad());
        self.accusers(now, dossier)
            .filter(|(id, state)| *state == VoteState::Stands && is_sound(id) && !is_seen(id))
            .filter_map(|(id, _)| dossier.words.get(id)?.vote.as_ref())
            .filter(|told| is_valid(told.what.incident, closed))
            .map(|told| dossier.conviction.window_of(&told.what.evidence))
            .collect()
    }
}
