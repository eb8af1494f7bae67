//! The first rung of the way back: one probe, sent by the member that leads.
//!
//! The next in rank waits rank × the probe's timeout before it steps in, so that there is one probe
//! at a time while views agree, and always somebody who sends it.

use std::time::Duration;

use crate::circuit::{Change, Circuit};
use crate::statement::{EndpointKey, Forced, NodeId, Stage};

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
        // A probe of this node that was never reported is lost once the next in rank had its turn.
        let lost_at = self.probe_begun.saturating_add(timeout.saturating_mul(3));
        let is_mine_in_flight = opening.my_probe.is_some() && now < lost_at;
        let is_past = opening.slot.is_some();
        if is_mine_in_flight || is_past || self.forced(now) != Forced::Auto {
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
    /// overtaken changes nothing.
    pub fn end_probe(
        &mut self,
        now: Duration,
        (me, endpoint): (&NodeId, &EndpointKey),
        (incident, failures): (u64, u32),
        result: ProbeResult,
    ) -> Change {
        let (base, canaries) = (self.recovery.base, self.canaries());
        let Some(opening) = &mut self.opening else {
            return Change::Nothing;
        };
        if opening.my_probe == Some(failures) {
            opening.my_probe = None;
        }
        if (opening.incident, opening.failures) != (incident, failures) {
            return Change::Nothing;
        }
        match result {
            // Another's probe passed before: the slot is lent already.
            ProbeResult::Passed if opening.slot.is_some() => Change::Nothing,
            ProbeResult::Passed if canaries > 0 => Change::Passed,
            ProbeResult::Passed => self.close(now, me),
            ProbeResult::Failed => {
                self.fail(now, (me, endpoint));
                Change::Nothing
            }
            ProbeResult::Inconclusive => {
                // Another may have taken over meanwhile: its probe is in flight, not this one.
                if self.furthest.as_ref().is_some_and(|(step, _)| step.steward == *me) {
                    opening.probing_until = None;
                    opening.due = now.saturating_add(base);
                }
                Change::Nothing
            }
        }
    }
}
