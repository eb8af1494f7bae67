//! The seconded vote: cast when the evidence of all members convicts, whatever this node's own
//! breaker holds.

use std::time::Duration;

use crate::circuit::Cast;
use crate::conviction::Ground;
use crate::council::Council;
use crate::dossier::Dossier;
use crate::statement::{Basis, EndpointKey, Evidence};

impl Council {
    /// Casts this node's seconded vote, or withdraws it, as the pool has it at `now`. What stands
    /// when the fleet has opened stands until the closing.
    pub(super) fn second(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let basis = dossier.circuit.standing_basis();
        if dossier.circuit.opening.is_some() || basis == Some(Basis::FirstHand) {
            return;
        }
        let verdict = self
            .pool(now, dossier)
            .filter(|_| !dossier.has_fresh_success(now, self.window_lapse()));
        let others = match verdict {
            Some(_) => self.largest_standing(now, endpoint),
            None => 0,
        };
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
            (None, Some(_)) => circuit.withdraw(now),
            (Some(_), Some(_)) | (None, None) => {}
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
        let theirs = self
            .evidence(now, dossier)
            .filter(|(_, _, at)| closed_at.is_none_or(|closed_at| *at > closed_at))
            .map(|(_, window, at)| (window, now.saturating_sub(at)));
        let (ground, evidence) = dossier.conviction.judge(mine.into_iter().chain(theirs));
        ground.map(|ground| (ground, evidence))
    }
}
