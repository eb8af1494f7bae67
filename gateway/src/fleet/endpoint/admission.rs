//! The right to send one request to one endpoint, which ends with a verdict on every path.
//!
//! It is a guard, so that a request that is dropped half-way frees its slot and says nothing.
//!
//! Invariants: it settles exactly once, with the breaker that gave the permit; what was never sent is
//! not counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use breaker::{Breaker, Outcome, Permit, SlowKind, Timing};

use super::{Endpoint, Tenant};
use crate::limits::Charge;

/// The right to send one request to one endpoint, and the duty to say how it went.
#[must_use = "dropping an admission settles it as neutral"]
pub struct Admission {
    endpoint: Arc<Endpoint>,
    /// Whose breaker gave the permit; `None`: the endpoint's own.
    tenant: Option<Arc<Tenant>>,
    permit: Option<Permit>,
    since: Duration,
    first_token: Option<Duration>,
    /// The same request has failed before.
    is_repeat: bool,
    /// Whether a client asked, so that how it goes says something to those who choose.
    is_of_client: bool,
    /// Its place within the endpoint's limits.
    charge: Option<Charge>,
}

impl Admission {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        tenant: Option<Arc<Tenant>>,
        permit: Permit,
        since: Duration,
    ) -> Self {
        Self {
            endpoint,
            tenant,
            permit: Some(permit),
            since,
            first_token: None,
            is_repeat: false,
            is_of_client: false,
            charge: None,
        }
    }

    /// Says that the same request has failed before: here, or wherever it went. If it fails again nothing
    /// counts: the breaker counts requests, so that one that kills wherever it goes is one fault.
    pub fn repeats(mut self) -> Self {
        self.is_repeat = true;
        self
    }

    /// Says that a client asked, not a probe, and what its place within the endpoint's limits is.
    pub(in crate::fleet) fn of_client(mut self, charge: Option<Charge>) -> Self {
        (self.is_of_client, self.charge) = (true, charge);
        self
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether it was said that the request is slow.
    pub fn is_slow(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_slow)
    }

    /// Says that the first content of the answer has come.
    pub fn first_token(&mut self, now: Duration) {
        self.first_token.get_or_insert(now);
    }

    /// Says how many tokens the request took, prompt and answer together. To be called before the
    /// verdict; without it the estimate stands.
    pub fn used(&mut self, tokens: u64) {
        if let Some(charge) = &mut self.charge {
            charge.correct(tokens);
        }
    }

    /// Says that the request took so many tokens before it was broken off, and maybe more that nobody
    /// has told: a larger estimate stands.
    pub fn used_at_least(&mut self, tokens: u64) {
        if let Some(charge) = &mut self.charge {
            charge.at_least(tokens);
        }
    }

    /// Says, while the request still runs, that it has crossed a slow limit.
    pub fn slow(&mut self, now: Duration, kind: SlowKind) {
        if let Some(permit) = &mut self.permit {
            self.endpoint.meters.slow.increment(1);
            let is_more = self.endpoint.change_for(self.tenant.as_deref(), now, |breaker| {
                let before = pieces(breaker, now);
                let transition = breaker.slow(now, permit, kind);
                (transition.is_none() && pieces(breaker, now) == before, transition)
            });
            self.endpoint.meters.slow_evidence(kind, is_more);
        }
    }

    /// Says how the request went.
    pub fn settle(mut self, now: Duration, outcome: Outcome) {
        if matches!(outcome, Outcome::Success) {
            self.endpoint.note_success(now.saturating_sub(self.since));
        }
        self.endpoint.meters.count(&outcome, self.is_repeat);
        if self.is_of_client {
            self.score(now, &outcome);
        }
        self.conclude(now, outcome);
    }

    /// Tells those who choose how it went. A failed request scores as a slow one, however fast it failed;
    /// what says nothing about the endpoint's health says nothing to them either.
    fn score(&self, now: Duration, outcome: &Outcome) {
        let took = self.first_token.unwrap_or(now).saturating_sub(self.since);
        let slow = &self.endpoint.config.rule.slow;
        match outcome {
            Outcome::Success | Outcome::Slow(_) => {
                self.endpoint.core.score.answered(now, took);
                let first_token = self.first_token.map(|at| at.saturating_sub(self.since));
                let total = now.saturating_sub(self.since);
                self.endpoint.core.times.count(now, first_token, total);
            }
            Outcome::Fault { .. } => {
                let slow = slow.first_token.unwrap_or(slow.total);
                self.endpoint.core.score.failed(now, took, slow);
            }
            Outcome::Neutral => {}
        }
    }

    /// Gives the right back unused: nothing was sent, so that nothing is counted.
    pub fn withdraw(mut self) {
        if let Some(charge) = self.charge.take() {
            charge.cancel();
        }
        self.conclude(Duration::ZERO, Outcome::Neutral);
    }

    fn conclude(&mut self, now: Duration, outcome: Outcome) {
        let Some(permit) = self.permit.take() else { return };
        self.endpoint.core.in_flight.fetch_sub(1, Ordering::Relaxed);
        let is_again = self.is_repeat && matches!(outcome, Outcome::Fault { .. });
        let outcome = if is_again { Outcome::Neutral } else { outcome };
        let timing = Timing {
            first_token: self.first_token.map(|at| at.saturating_sub(self.since)),
            total: now.saturating_sub(self.since),
        };
        self.endpoint.change_for(self.tenant.as_deref(), now, |breaker| {
            ((), breaker.settle_timed(now, permit, outcome, Some(timing)))
        });
    }
}

/// How many pieces of slow evidence a breaker holds.
fn pieces(breaker: &Breaker, now: Duration) -> usize {
    breaker.evidence(now).slow.iter().flatten().count()
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.endpoint.meters.count(&Outcome::Neutral, false);
        }
        // A neutral verdict needs no time of its own: the breaker takes an earlier moment as its last.
        self.conclude(Duration::ZERO, Outcome::Neutral);
    }
}

#[cfg(test)]
mod tests {
    use breaker::Errand;

    use crate::config;
    use crate::fleet::Fleet;
    use crate::metrics::Meters;

    use super::*;

    #[test]
    fn what_was_never_sent_is_not_recorded_and_what_was_dropped_is_neutral() {
        let text = "models: [ { name: m, endpoints: [ { name: a, address: \"http://a\" } ] } ]";
        let config = config::parse(text, "test.yaml", &|_| None).unwrap();
        let meters = Meters::new();
        let fleet = Fleet::new(&config.pools, &meters, &(Arc::new(|_| {}) as _));
        let (_, endpoint) = fleet.endpoints().next().unwrap();
        let counted = |count: u32| {
            let series = "quorumgate_attempts_total{endpoint=\"m/a\",outcome=\"neutral\"}";
            meters.render().contains(&format!("{series} {count}\n"))
        };
        let admit = || endpoint.admit(Duration::ZERO, Errand::PassThrough).unwrap();
        admit().withdraw();
        assert!(counted(0) && endpoint.in_flight() == 0, "{}", meters.render());
        drop(admit());
        assert!(counted(1) && endpoint.in_flight() == 0, "{}", meters.render());
        assert_eq!(endpoint.view(Duration::ZERO).requests, 0);
    }

    #[test]
    fn an_order_makes_no_probe_a_request() {
        let text = "models: [ { name: m, endpoints: [ { name: a, address: \"http://a\" } ] } ]";
        let config = config::parse(text, "test.yaml", &|_| None).unwrap();
        let fleet = Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _));
        let (_, endpoint) = fleet.endpoints().next().unwrap();
        endpoint.hold(Duration::ZERO);
        endpoint.force(quorum::Forced::Closed);
        assert!(endpoint.admit(Duration::ZERO, Errand::Probe).is_err());
        assert!(endpoint.admit(Duration::ZERO, Errand::Request { prompt_tokens: 1 }).is_ok());
    }
}
