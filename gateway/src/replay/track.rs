//! One endpoint's breaker on its way through the log, and what it did.
//!
//! A breaker moves only when it is called, and a log calls it only when there was a request. The
//! gateway lets time pass in between; here that is made up for at the very moments that are due, so
//! that a quiet hour neither lengthens an opening nor shortens a recovery.
//!
//! Invariants: the breaker decides in shadow; it is called in the order of time.

use std::time::Duration;

use breaker::{
    Breaker, Cause, Errand, Mode, Outcome, Permit, Recovery, Rule, Rung, SlowKind, SlowRule, State,
    Transition,
};

use super::line::Request;
use super::{EndpointReport, Trip, moment};

/// Every breaker's seed, so that the same log gives the same cool-downs.
const SEED: u64 = 0;

/// One endpoint on its way through the log.
pub(super) struct Track<'a> {
    rule: &'a Rule,
    breaker: Breaker,
    /// When the cool-down or the ramp is over; `None` while neither runs.
    due: Option<Duration>,
    /// The cool-downs so far, each to its end.
    open: Duration,
    report: EndpointReport,
}

impl<'a> Track<'a> {
    /// An endpoint whose circuit is closed.
    pub(super) fn new(key: String, rule: &'a Rule) -> Self {
        let shadow = Rule { mode: Mode::Shadow, ..rule.clone() };
        Self {
            rule,
            breaker: Breaker::new(shadow, SEED),
            due: None,
            open: Duration::ZERO,
            report: EndpointReport { key, requests: 0, trips: Vec::new(), open_ms: 0 },
        }
    }

    /// What is slow here.
    pub(super) fn slow_rule(&self) -> &'a SlowRule {
        &self.rule.slow
    }

    /// Takes a request that was sent at `now`; `None` never happens, for a shadow refuses nothing.
    pub(super) fn admit(&mut self, now: Duration) -> Option<Permit> {
        self.report.requests += 1;
        self.pass(now);
        let (permit, transition) = self.breaker.admit(now, Errand::Request { prompt_tokens: 0 });
        self.note(transition);
        permit.ok()
    }

    /// Hears that a request crossed a slow limit.
    pub(super) fn slow(&mut self, now: Duration, permit: &mut Permit, kind: SlowKind) {
        self.pass(now);
        let transition = self.breaker.slow(now, permit, kind);
        self.note(transition);
    }

    /// Hears how a request ended. One that timed out after it was slow is no fault besides, as in
    /// the gateway.
    pub(super) fn settle(&mut self, now: Duration, permit: Permit, request: &Request) {
        self.pass(now);
        let outcome = match request.outcome {
            Outcome::Fault { weight: _, cause: Cause::Timeout } if permit.is_slow() => {
                Outcome::Slow(SlowKind::Total)
            }
            outcome => outcome,
        };
        let transition = self.breaker.settle_timed(now, permit, outcome, request.timing());
        self.note(transition);
    }

    /// Says what it did up to the `end` of the log.
    pub(super) fn finish(mut self, end: Duration) -> EndpointReport {
        if self.breaker.state() == State::Open {
            let beyond = self.due.unwrap_or(end).saturating_sub(end);
            self.open = self.open.saturating_sub(beyond);
        }
        self.report.open_ms = millis(self.open);
        self.report
    }

    /// Lets time pass up to `now`. What is done when something is due makes a canary rung or a
    /// closed circuit, and neither ends by the clock; so once is enough.
    fn pass(&mut self, now: Duration) {
        if let Some(due) = self.due.take_if(|due| *due <= now) {
            let transition = self.breaker.tick(due);
            self.note(transition);
        }
    }

    fn note(&mut self, transition: Option<Transition>) {
        let Some(Transition { to, rung, reason, remaining, at, .. }) = transition else {
            return;
        };
        let period = match to {
            State::Closed => None,
            State::HalfOpen => self.ramp().filter(|_| rung == Some(Rung::Ramp)),
            State::Open => {
                let cool_down = remaining.unwrap_or_default();
                self.open = self.open.saturating_add(cool_down);
                self.report.trips.push(Trip {
                    at: moment::render(at),
                    reason: reason.to_string(),
                    cool_down_ms: millis(cool_down),
                });
                Some(cool_down)
            }
        };
        self.due = period.map(|period| at.saturating_add(period));
    }

    fn ramp(&self) -> Option<Duration> {
        match self.rule.recovery {
            Recovery::Staged { probe: _, ramp } => Some(ramp),
            Recovery::Lazy { ttl: _ } => None,
        }
    }
}

fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}
