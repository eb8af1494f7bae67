//! The first rung of the way back: one probe, sent by the member that leads.
//!
//! The next in rank waits rank × the probe's timeout before it steps in, so that there is one probe
//! at a time while views agree, and always somebody who sends it.

use std::time::Duration;

use crate::circuit::{Change, Circuit};
use crate::statement::{EndpointKey, Forced, NodeId, Stage};

/// An endpoint that refuses the probe may refuse nothing but the probe, its model's name or its
/// length, and would stay out for as long as any opening may: after this many in a row that say
/// nothing, it is tried by what comes next.
const INCONCLUSIVE_MAX: u32 = 3;

/// How a probe went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It answered well and in time.
    Passed,
    /// It did not.
    Failed,
    /// It says nothing about the endpoint's health, for example a 4xx answer.
    Inconclusive,
}

impl Circuit {
    /// Whether the member of this `rank` should probe at `now`, its turn counted from `awake` at
    /// the earliest: after a long sleep all ranks would be past their turns.
    pub fn is_probe_due(&self, now: Duration, rank: u32, awake: Duration) -> bool {
        let Some(opening) = &self.opening else {
            return false;
        };
        let timeout = self.recovery.probe_timeout;
        let is_past = opening.slot.is_some();
        if self.is_probing(now) || is_past || self.forced(now) != Forced::Auto {
            return false;
        }
        let ready = opening.due.max(awake).max(opening.probing_until.unwrap_or_default());
        now >= ready.saturating_add(timeout.saturating_mul(rank))
    }

    /// Notes that this node's probe begins. Returns the number it is fenced by.
    pub fn begin_probe(&mut self, now: Duration, me: &NodeId) -> Option<u32> {
        let remaining = self.recovery.probe_timeout;
        let opening = self.opening.as_mut()?;
        self.probe_begun = now;
        opening.my_probe = Some(opening.failures);
        opening.probing_until = Some(now.saturating_add(remaining));
        let failures = opening.failures;
        self.take_step(now, me, Stage::Probing { remaining });
        Some(failures)
    }

    /// Notes how this node's probe, fenced by `failures`, went. A probe of a step that has been
    /// overtaken changes nothing. One that says nothing is sent again after the first cool-down; the
    /// step says so, lest the others take it for lost and step in.
    pub fn end_probe(
        &mut self,
        now: Duration,
        (me, endpoint): (&NodeId, &EndpointKey),
        (incident, failures): (u64, u32),
        result: ProbeResult,
    ) -> Change {
        let is_fenced = self.take_in_probe((incident, failures));
        let has_slot = self.opening.as_ref().is_none_or(|opening| opening.slot.is_some());
        if !is_fenced {
            return Change::Nothing;
        }
        match result {
            // Another's probe passed before: the slot is lent already.
            ProbeResult::Passed if has_slot => Change::Nothing,
            ProbeResult::Passed => self.pass(now, me),
            ProbeResult::Failed => {
                self.inconclusive = ((incident, failures), 0);
                self.fail(now, (me, endpoint));
                Change::Nothing
            }
            // Another may have taken over meanwhile: its probe is in flight, not this one.
            ProbeResult::Inconclusive if has_slot || !self.is_led_by(me) => Change::Nothing,
            ProbeResult::Inconclusive => {
                let (of, before) = self.inconclusive;
                let count = if of == (incident, failures) { before.saturating_add(1) } else { 1 };
                self.inconclusive = ((incident, failures), count);
                if count >= INCONCLUSIVE_MAX {
                    return self.pass(now, me);
                }
                let remaining = self.recovery.base;
                self.take_step(now, me, Stage::Probing { remaining });
                Change::Nothing
            }
        }
    }

    /// Notes that this node's probe, fenced by `failures`, was answered while this node may not
    /// lead: it is as if it had not been sent, and nothing is said of it.
    pub(crate) fn void_probe(&mut self, now: Duration, me: &NodeId, fence: (u64, u32)) {
        let base = self.recovery.base;
        let is_fenced = self.take_in_probe(fence);
        let is_mine = is_fenced && self.is_led_by(me);
        if let Some(opening) = self.opening.as_mut().filter(|_| is_mine) {
            opening.probing_until = None;
            opening.due = now.saturating_add(base);
        }
    }

    /// Notes that a probe of this node is in flight no more. Returns whether the opening stands as
    /// it did when it was sent.
    fn take_in_probe(&mut self, (incident, failures): (u64, u32)) -> bool {
        let Some(opening) = &mut self.opening else {
            return false;
        };
        if opening.my_probe == Some(failures) {
            opening.my_probe = None;
        }
        (opening.incident, opening.failures) == (incident, failures)
    }

    /// Goes on to the canaries; where there are none, that is all.
    fn pass(&mut self, now: Duration, me: &NodeId) -> Change {
        if self.canaries() > 0 { Change::Passed } else { self.close(now, me) }
    }

    /// Takes over what `draft`, a copy of this circuit on which a deed of this node was tried, knows of
    /// this node's own probes: they have ended even if the step that says so is not taken.
    pub(crate) fn remember_probes(&mut self, draft: &Self) {
        self.probe_begun = draft.probe_begun;
        self.inconclusive = draft.inconclusive;
        if let Some(opening) = &mut self.opening {
            opening.my_probe = draft.opening.as_ref().and_then(|opening| opening.my_probe);
        }
    }

    /// Whether a probe of this node is in flight that may still be reported.
    pub(crate) fn is_probing(&self, now: Duration) -> bool {
        let lost_at = self.probe_lost_at();
        self.opening.as_ref().is_some_and(|opening| opening.my_probe.is_some() && now < lost_at)
    }

    /// When a probe of this node that was never reported is lost: once the next in rank had its turn.
    fn probe_lost_at(&self) -> Duration {
        self.probe_begun.saturating_add(self.recovery.probe_timeout.saturating_mul(3))
    }

    fn is_led_by(&self, me: &NodeId) -> bool {
        self.furthest.as_ref().is_some_and(|(step, _)| step.steward == *me)
    }
}
