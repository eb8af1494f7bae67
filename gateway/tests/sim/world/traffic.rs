//! Clients, endpoints and probes: what is sent, and what comes back.

use breaker::{Cause, Outcome, SlowKind};
use gateway::cluster::Try;
use gateway::fleet::{Asker, Chosen, Tried};
use quorum::ProbeResult;

use super::World;
use super::events::{Attempt, Event, Reply};
use crate::invariants::Happening;
use crate::ledger::{Bad, TrialKind};
use crate::plan::{Ms, What};
use crate::rules;
use crate::sabotage::Sabotage;

/// What changes no breaker is seen when deadlines are next looked at.
const SOON: Ms = 100;

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
        let process = &self.nodes[node];
        let asker = Asker { prompt_tokens, tokens: prompt_tokens, prefix: 0, header: &|_| None };
        let now = process.clock.read(self.now);
        let chosen = process.seat.pools[pool].choose(now, asker, &Tried::default());
        if let Ok(Chosen { admission, is_degraded }) = chosen {
            let endpoint = self.plan.endpoints_of(pool).start + admission.endpoint().index;
            let is_canary = !is_degraded && self.nodes[node].seat.is_canarying(endpoint);
            let reply = self.dispatch(node, endpoint, is_canary);
            let attempt = Box::new(Attempt { endpoint, admission, reply, is_canary });
            let (takes, event) = match reply {
                Reply::Good => (20 + self.chance.below(200), Event::Answer(attempt)),
                Reply::Fault => (5 + self.chance.below(50), Event::Answer(attempt)),
                Reply::Slow => (rules::SLOW, Event::Crosses(attempt)),
            };
            let generation = self.nodes[node].generation;
            self.queue.put(self.now + takes, (node, generation), event);
        }
        self.heed_change(node);
    }

    /// Draws when the node's next client comes.
    pub(super) fn await_client(&mut self, node: usize) {
        if let Some(mean) = 100_000_u64.checked_div(self.plan.rates[node]) {
            let at = self.now + 1 + self.chance.below(2 * mean);
            let generation = self.nodes[node].generation;
            self.queue.put(at, (node, generation), Event::Client);
        }
    }

    /// A request goes out. Returns what the endpoint makes of it.
    fn dispatch(&mut self, node: usize, endpoint: usize, is_canary: bool) -> Reply {
        let reply = self.reply(node, endpoint);
        self.load[endpoint] += 1;
        if is_canary {
            self.ledger.of_mut(node, endpoint).canaries += 1;
            self.note(&Happening::Canary { node, endpoint });
        }
        reply
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
                | What::Lies { .. }
                | What::LedgerDown
                | What::LedgerAway { .. }
                | What::LedgerRough { .. }
                | What::LedgerFlush
                | What::LedgerLoses { .. } => Reply::Good,
            };
            reply = if reply == Reply::Good { worse } else { reply };
        }
        reply
    }

    /// A request under way crosses the slow limit.
    pub(super) fn cross(&mut self, node: usize, mut attempt: Box<Attempt>) {
        let now = self.nodes[node].clock.read(self.now);
        let endpoint = attempt.endpoint;
        self.suffer(node, endpoint, true);
        attempt.admission.slow(now, SlowKind::Total);
        self.wake(node, SOON);
        self.heed_change(node);
        let generation = self.nodes[node].generation;
        let at = self.now + SLOW_TAKES - rules::SLOW;
        self.queue.put(at, (node, generation), Event::Answer(attempt));
    }

    /// The endpoint has answered a request.
    pub(super) fn answer(&mut self, node: usize, attempt: Attempt) {
        let now = self.nodes[node].clock.read(self.now);
        let Attempt { endpoint, admission, reply, is_canary } = attempt;
        let outcome = match reply {
            Reply::Good | Reply::Slow => Outcome::Success,
            Reply::Fault => Outcome::Fault { weight: 1.0, cause: Cause::Status(500) },
        };
        match reply {
            Reply::Good => self.ledger.of_mut(node, endpoint).good_at = Some(self.now),
            Reply::Fault => self.suffer(node, endpoint, false),
            Reply::Slow => {}
        }
        if is_canary {
            let truth = self.ledger.of_mut(node, endpoint);
            truth.canaries = truth.canaries.saturating_sub(1);
            if let Some(fence) = self.nodes[node].seat.slot(endpoint) {
                let is_good = reply == Reply::Good;
                let kind = if is_good { TrialKind::CanaryPassed } else { TrialKind::CanaryFailed };
                self.tried(node, endpoint, (fence.incident, fence.failures), kind);
            }
        }
        admission.settle(now, outcome);
        if is_canary || reply != Reply::Good {
            self.wake(node, SOON);
        }
        self.heed_change(node);
    }

    fn suffer(&mut self, node: usize, endpoint: usize, is_slow: bool) {
        self.ledger.of_mut(node, endpoint).bad_at = Some(self.now);
        let is_gathered = self.nodes[node].seat.endpoints[endpoint].local_opening().is_none();
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
        let key = &self.mould.keys[endpoint];
        self.nodes[node].seat.deputy.probed(now, key, fence, result);
        self.wake(node, 1);
    }

    /// The node sends a request of its own. What is not there in time has failed.
    pub(super) fn try_out(&mut self, node: usize, due: Try) {
        let Try { admission, .. } = due;
        let endpoint = self.nodes[node].seat.index(&admission.endpoint().key);
        let endpoint = endpoint.expect("it is configured");
        let is_canary = self.nodes[node].seat.is_canarying(endpoint);
        let (reply, takes) = match self.dispatch(node, endpoint, is_canary) {
            Reply::Slow => (Reply::Fault, rules::PROBE_TIMEOUT),
            reply @ (Reply::Good | Reply::Fault) => (reply, 20 + self.chance.below(300)),
        };
        let attempt = Box::new(Attempt { endpoint, admission, reply, is_canary });
        let generation = self.nodes[node].generation;
        self.queue.put(self.now + takes, (node, generation), Event::Answer(attempt));
    }
}
