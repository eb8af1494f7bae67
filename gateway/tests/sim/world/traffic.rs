//! Clients, endpoints and probes: what is sent, and what comes back.

use breaker::{Errand, Outcome, Permit, Rung, Terms};
use quorum::ProbeResult;

use super::World;
use super::events::{Attempt, Event, Reply};
use crate::invariants::Happening;
use crate::ledger::{Bad, TrialKind};
use crate::plan::{Ms, What};
use crate::rules;
use crate::sabotage::Sabotage;

/// A request that the gateway sees as slow is over after this.
const SLOW_TAKES: Ms = rules::SLOW + 700;

impl World {
    /// A client asks a node for one of the models.
    pub(super) fn ask(&mut self, node: usize) {
        self.await_client(node);
        self.ledger.tally.requests += 1;
        let pool = self.chance.below(self.plan.pools.len() as u64) as usize;
        let is_small = self.chance.happens(self.plan.small);
        let prompt_tokens = if is_small { 50 } else { 2_000 };
        let choice = self.plan.endpoints_of(pool);
        let (start, count) = (self.chance.below(choice.len() as u64) as usize, choice.len());
        let now = self.nodes[node].clock.read(self.now);
        if is_small {
            for endpoint in choice.clone() {
                self.nodes[node].seat.endpoints[endpoint].note_small(now);
            }
        }
        let errand = Errand::Request { prompt_tokens };
        for turn in 0..count {
            let endpoint = choice.start + (start + turn) % count;
            if let Some(permit) = self.admit(node, endpoint, errand) {
                return self.dispatch(node, endpoint, permit);
            }
        }
        let endpoint = choice.start + start;
        if self.plan.knobs.passes_through
            && let Some(permit) = self.admit(node, endpoint, Errand::PassThrough)
        {
            self.dispatch(node, endpoint, permit);
        }
    }

    /// Draws when the node's next client comes.
    pub(super) fn await_client(&mut self, node: usize) {
        if let Some(mean) = 100_000_u64.checked_div(self.plan.rates[node]) {
            let at = self.now + 1 + self.chance.below(2 * mean);
            let generation = self.nodes[node].generation;
            self.queue.put(at, (node, generation), Event::Client);
        }
    }

    fn admit(&mut self, node: usize, endpoint: usize, errand: Errand) -> Option<Permit> {
        let now = self.nodes[node].clock.read(self.now);
        self.nodes[node].seat.endpoints[endpoint].admit(now, errand).ok()
    }

    fn dispatch(&mut self, node: usize, endpoint: usize, permit: Permit) {
        let seen = &self.nodes[node].seat.endpoints[endpoint];
        let is_canary = seen.lent.is_some()
            && permit.terms() == Terms::HalfOpen
            && seen.breaker.rung() == Some(Rung::Canary);
        let reply = self.reply(node, endpoint);
        self.load[endpoint] += 1;
        if is_canary {
            self.ledger.of_mut(node, endpoint).canaries += 1;
            self.note(&Happening::Canary { node, endpoint });
        }
        let attempt = Attempt { endpoint, permit, reply, is_canary };
        let generation = self.nodes[node].generation;
        let (takes, event) = match reply {
            Reply::Good => (20 + self.chance.below(200), Event::Answer(attempt)),
            Reply::Fault => (5 + self.chance.below(50), Event::Answer(attempt)),
            Reply::Slow => (rules::SLOW, Event::Crosses(attempt)),
        };
        self.queue.put(self.now + takes, (node, generation), event);
    }

    /// What the endpoint makes of a request that arrives.
    fn reply(&mut self, node: usize, endpoint: usize) -> Reply {
        let mut reply = Reply::Good;
        for index in 0..self.active.len() {
            let fault = &self.plan.faults[self.active[index]];
            let worse = match fault.what {
                What::BadNode { node: bad } if bad == node => Reply::Fault,
                What::Fails { endpoint: ill, share } if ill == endpoint => {
                    if self.chance.happens(share) { Reply::Fault } else { Reply::Good }
                }
                What::Slow { endpoint: ill } if ill == endpoint => Reply::Slow,
                What::Flaps { endpoint: ill, turn } if ill == endpoint => {
                    let is_bad = ((self.now - fault.from) / turn).is_multiple_of(2);
                    if is_bad { Reply::Fault } else { Reply::Good }
                }
                What::Fragile { endpoint: ill } if ill == endpoint && self.load[endpoint] > 0 => {
                    Reply::Fault
                }
                What::BadNode { .. }
                | What::Fails { .. }
                | What::Slow { .. }
                | What::Flaps { .. }
                | What::Fragile { .. }
                | What::Parted { .. }
                | What::Deaf { .. }
                | What::Cut { .. }
                | What::Rough { .. }
                | What::Unpushed { .. }
                | What::Crash { .. }
                | What::Pause { .. }
                | What::Lies { .. } => Reply::Good,
            };
            reply = if reply == Reply::Good { worse } else { reply };
        }
        reply
    }

    /// A request under way crosses the slow limit.
    pub(super) fn cross(&mut self, node: usize, mut attempt: Attempt) {
        let now = self.nodes[node].clock.read(self.now);
        let endpoint = attempt.endpoint;
        self.suffer(node, endpoint, true);
        self.nodes[node].seat.endpoints[endpoint].slow(now, &mut attempt.permit);
        self.wake(node, 1);
        let generation = self.nodes[node].generation;
        let at = self.now + SLOW_TAKES - rules::SLOW;
        self.queue.put(at, (node, generation), Event::Answer(attempt));
    }

    /// The endpoint has answered a request.
    pub(super) fn answer(&mut self, node: usize, attempt: Attempt) {
        let now = self.nodes[node].clock.read(self.now);
        let Attempt { endpoint, permit, reply, is_canary } = attempt;
        let outcome = match reply {
            Reply::Good | Reply::Slow => Outcome::Success,
            Reply::Fault => Outcome::Fault { weight: 1.0, cause: breaker::Cause::Status(500) },
        };
        match reply {
            Reply::Good => self.ledger.of_mut(node, endpoint).good_at = Some(self.now),
            Reply::Fault => self.suffer(node, endpoint, false),
            Reply::Slow => {}
        }
        if is_canary {
            let truth = self.ledger.of_mut(node, endpoint);
            truth.canaries = truth.canaries.saturating_sub(1);
            let seen = &self.nodes[node].seat.endpoints[endpoint];
            if let Some((fence, _)) = seen.lent {
                let is_good = reply == Reply::Good;
                let kind = if is_good { TrialKind::CanaryPassed } else { TrialKind::CanaryFailed };
                self.tried(node, endpoint, (fence.incident, fence.failures), kind);
            }
        }
        self.nodes[node].seat.endpoints[endpoint].settle(now, permit, outcome);
        if is_canary || reply != Reply::Good {
            self.wake(node, 1);
        }
    }

    fn suffer(&mut self, node: usize, endpoint: usize, is_slow: bool) {
        self.ledger.of_mut(node, endpoint).bad_at = Some(self.now);
        let is_gathered = self.nodes[node].seat.endpoints[endpoint].opened.is_none();
        self.ledger.bads.push(Bad { at: self.now, node, endpoint, is_slow, is_gathered });
    }

    /// The node sends the fleet's probe.
    pub(super) fn lead(&mut self, node: usize, endpoint: usize, fence: (u64, u32)) {
        self.ledger.tally.probes += 1;
        self.ledger.tally.doubled_probes += u64::from(self.is_probed(endpoint));
        self.tried(node, endpoint, fence, TrialKind::ProbeSent);
        let reply = self.reply(node, endpoint);
        let takes = match reply {
            Reply::Good | Reply::Fault => 20 + self.chance.below(300),
            Reply::Slow => rules::PROBE_TIMEOUT,
        };
        let generation = self.nodes[node].generation;
        let has_passed = reply == Reply::Good;
        let event = Event::ProbeAnswer { endpoint, fence, has_passed };
        self.queue.put(self.now + takes, (node, generation), event);
    }

    /// Whether a probe of the fleet's is under way to an endpoint.
    fn is_probed(&self, endpoint: usize) -> bool {
        let recent = self.ledger.trials.iter().rev();
        let mut recent = recent
            .take_while(|trial| self.now < trial.at + rules::PROBE_TIMEOUT)
            .filter(|trial| trial.endpoint == endpoint);
        let mut answered = Vec::new();
        recent.any(|trial| match trial.kind {
            TrialKind::ProbePassed | TrialKind::ProbeFailed => {
                answered.push(trial.node);
                false
            }
            TrialKind::ProbeSent => !answered.contains(&trial.node),
            TrialKind::CanaryPassed | TrialKind::CanaryFailed => false,
        })
    }

    /// The fleet's probe has been answered.
    pub(super) fn answer_probe(
        &mut self,
        node: usize,
        endpoint: usize,
        mut fence: (u64, u32),
        has_passed: bool,
    ) {
        let (kind, result) = if has_passed {
            (TrialKind::ProbePassed, ProbeResult::Passed)
        } else {
            (TrialKind::ProbeFailed, ProbeResult::Failed)
        };
        self.tried(node, endpoint, fence, kind);
        if self.mould.sabotage == Some(Sabotage::LateVerdicts)
            && let Some((incident, failures, _)) = self.step_of(node, endpoint)
        {
            fence = (incident, failures);
        }
        let now = self.nodes[node].clock.read(self.now);
        self.nodes[node].seat.probed(now, endpoint, fence, result);
        self.wake(node, 1);
    }

    /// The node sends a probe of its own, on its breaker's ladder.
    pub(super) fn try_out(&mut self, node: usize, endpoint: usize) {
        if let Some(permit) = self.admit(node, endpoint, Errand::Probe) {
            self.dispatch(node, endpoint, permit);
        }
    }
}
