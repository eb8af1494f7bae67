//! Looking at a breaker: what moves nothing.
//!
//! Everything here takes `&self`, so that a page that is shown cannot decide about a request.

use std::time::Duration;

use super::{Breaker, Phase};
use crate::relative::Sample;
use crate::rule::Mode;
use crate::times::Which;
use crate::{Evidence, Gathered, Reason, Rung, State, View};

impl Breaker {
    /// The state as of the last call.
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// How far half-open has come as of the last call; `None` in the other states.
    pub fn rung(&self) -> Option<Rung> {
        match &self.phase {
            Phase::Closed(_) | Phase::Open(_) => None,
            Phase::HalfOpen(half_open) => Some(half_open.rung()),
        }
    }

    /// Whether the fleet has the endpoint out.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The weight, 0 to 1, that a chooser is to give the endpoint before it asks at `now`, as a
    /// share of its usual weight: 0 where no client's request is admitted, 0.25, 0.5 and 1 in the
    /// thirds of the ramp, and 1 on the canary rung, which keeps its own share of those that ask.
    /// Always 1 unless the rule is enforced.
    pub fn share(&self, now: Duration) -> f64 {
        if self.rule.mode != Mode::Enforce {
            return 1.0;
        }
        if self.is_held() {
            return 0.0;
        }
        match &self.phase {
            Phase::Closed(_) => 1.0,
            Phase::Open(_) => 0.0,
            Phase::HalfOpen(half_open) => half_open.weight(self.look(now), &self.rule),
        }
    }

    /// How long the endpoint made its clients wait, to be compared with its siblings by
    /// [`relative::outliers`](crate::relative::outliers). `None` unless closed with enough samples,
    /// and without a rule that judges by times.
    pub fn sample(&self, now: Duration) -> Option<Sample> {
        let (Phase::Closed(_), Some(times)) = (&self.phase, &self.times) else {
            return None;
        };
        let (first_token_p95, requests) =
            times.p95(self.look(now), Which::FirstToken, self.rule.min_requests)?;
        Some(Sample { first_token_p95, requests })
    }

    /// Says what the window holds at `now`, for the fleet's pooled verdict.
    pub fn evidence(&self, now: Duration) -> Evidence {
        let now = self.look(now);
        let evidence = match &self.phase {
            Phase::Closed(closed) => closed.evidence(now, &self.rule),
            Phase::Open(_) | Phase::HalfOpen(_) => Evidence::default(),
        };
        let age = self.last_success.map(|last| now.saturating_sub(last));
        Evidence { last_success: age.filter(|age| *age < self.rule.window), ..evidence }
    }

    /// Shows everything as it is at `now`.
    pub fn view(&self, now: Duration) -> View {
        let now = self.look(now);
        let p95 = |which| {
            let times = self.times.as_ref()?;
            times.p95(now, which, self.rule.min_requests).map(|(p95, _)| p95)
        };
        let mut view = View {
            state: self.phase.state(),
            rung: None,
            epoch: self.epoch,
            held: self.is_held(),
            remaining: None,
            level: self.level_at(now).unwrap_or(0),
            streak: 0,
            requests: 0,
            faults: 0.0,
            successes: 0,
            slow_pieces: 0,
            first_token_p95: p95(Which::FirstToken),
            total_p95: p95(Which::Total),
            half_open_in_flight: 0,
            half_open_successes: 0,
            canary_asked: 0,
            canary_admitted: 0,
            half_open_idle: None,
            opened_for: self.opened_for(),
            last_success: self.last_success.map(|last| now.saturating_sub(last)),
        };
        match &self.phase {
            Phase::Closed(closed) => closed.show(now, &self.rule, &mut view),
            Phase::Open(open) => view.remaining = Some(open.until.saturating_sub(now)),
            Phase::HalfOpen(half_open) => half_open.show(now, &mut view),
        }
        view
    }

    /// What a closed circuit has gathered; all zero in the other states.
    pub(super) fn gathered(&self) -> Gathered {
        match &self.phase {
            Phase::Closed(closed) => closed.gathered(self.latest, &self.rule),
            Phase::Open(_) | Phase::HalfOpen(_) => Gathered::default(),
        }
    }

    pub(super) fn opened_for(&self) -> Option<Reason> {
        match &self.phase {
            Phase::Closed(_) => None,
            Phase::Open(open) => Some(open.opened_for),
            Phase::HalfOpen(half_open) => half_open.opened_for(),
        }
    }

    /// The caller's time on the breaker's clock, never before the latest time seen.
    pub(super) fn look(&self, now: Duration) -> Duration {
        self.clock.read(now).max(self.latest)
    }
}
