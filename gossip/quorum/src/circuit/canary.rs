//! The second rung of the way back: the fleet's one canary slot, and who holds it.
//!
//! One member at a time sends small requests. It counts for the fleet, hands the slot on when it
//! has none, and loses it when it is silent. Each of that is a step, so that a late holder is
//! fenced like a late steward.

use std::time::Duration;

use crate::circuit::{Change, Circuit, Opening, Way};
use crate::statement::{CanaryFence, CanaryWord, EndpointKey, Forced, NodeId, Stage};

/// The canary slot as the furthest step tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Who holds it.
    pub holder: NodeId,
    /// How many times it has been handed on.
    pub turn: u32,
    /// Successes in a row so far, of all holders.
    pub successes: u32,
    /// When the step was stated, on this node's clock.
    pub known_at: Duration,
    /// When it is to be handed on if nothing is heard of its holder.
    pub until: Duration,
}

impl Circuit {
    /// How many small requests must succeed after the probe.
    pub(crate) fn canaries(&self) -> u32 {
        match self.recovery.way {
            Way::Ladder { canaries, .. } => canaries,
            Way::Lazy { .. } => 0,
        }
    }

    /// How long a holder may be silent: a turn without small requests, a turn for one that it took
    /// in at the end of the first, and the time in which a request must answer.
    pub(crate) fn hold(&self) -> Duration {
        let turn = match self.recovery.way {
            Way::Ladder { turn, .. } => turn,
            Way::Lazy { .. } => Duration::ZERO,
        };
        turn.saturating_mul(2).saturating_add(self.recovery.probe_timeout)
    }

    /// Gives the slot to `holder`: its first turn, or the next.
    pub(crate) fn lend(&mut self, now: Duration, me: &NodeId, holder: NodeId) {
        let slot = self.opening.as_ref().and_then(|opening| opening.slot.as_ref());
        let (turn, successes) =
            slot.map_or((0, 0), |slot| (slot.turn.saturating_add(1), slot.successes));
        let remaining = self.hold();
        self.take_step(now, me, Stage::Canary { holder, turn, successes, remaining });
    }

    /// The hold of the slot that `me` has by what this node knows, with the successes so far. An
    /// order suspends it.
    pub(crate) fn held(&self, now: Duration, me: &NodeId) -> Option<(CanaryFence, u32)> {
        let opening = self.opening.as_ref().filter(|_| self.forced(now) == Forced::Auto)?;
        let slot = opening.slot.as_ref().filter(|slot| slot.holder == *me)?;
        Some((fence_of(opening, slot), slot.successes))
    }

    /// Whether the member of this `rank` should take the slot back at `now`. `lost_at`: when the
    /// holder was found lost; `awake` as for a probe.
    pub(crate) fn is_slot_due(
        &self,
        now: Duration,
        rank: u32,
        lost_at: Option<Duration>,
        awake: Duration,
    ) -> bool {
        let slot = self.opening.as_ref().and_then(|opening| opening.slot.as_ref());
        let Some(slot) = slot.filter(|_| self.forced(now) == Forced::Auto) else {
            return false;
        };
        let ready = lost_at.map_or(slot.until, |at| slot.until.min(at.max(slot.known_at)));
        let patience = self.recovery.probe_timeout.saturating_mul(rank);
        now >= ready.max(awake).saturating_add(patience)
    }

    /// Takes in what the holder of the slot, fenced by `fence`, reports. Returns the change, and
    /// whether the slot is to be handed on.
    pub(crate) fn end_canary(
        &mut self,
        now: Duration,
        (me, endpoint): (&NodeId, &EndpointKey),
        fence: CanaryFence,
        word: CanaryWord,
    ) -> (Change, bool) {
        let Some(slot) = self.opening.as_ref().and_then(|opening| {
            let slot = opening.slot.clone().filter(|slot| slot.holder == *me)?;
            (fence_of(opening, &slot) == fence).then_some(slot)
        }) else {
            return (Change::Nothing, false);
        };
        match word {
            CanaryWord::Counted(successes) if successes >= self.canaries() => {
                (self.close(now, me), false)
            }
            CanaryWord::Counted(successes) if successes > slot.successes => {
                let (holder, turn, remaining) = (slot.holder, slot.turn, self.hold());
                self.take_step(now, me, Stage::Canary { holder, turn, successes, remaining });
                (Change::Nothing, false)
            }
            CanaryWord::Counted(_) => (Change::Nothing, false),
            CanaryWord::Failed => {
                self.fail(now, (me, endpoint));
                (Change::Nothing, false)
            }
            CanaryWord::Idle => (Change::Nothing, true),
        }
    }
}

fn fence_of(opening: &Opening, slot: &Slot) -> CanaryFence {
    CanaryFence { incident: opening.incident, failures: opening.failures, turn: slot.turn }
}
