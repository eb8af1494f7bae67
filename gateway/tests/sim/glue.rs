//! How one node's breakers and its council are joined: a mirror of what the gateway does.
//!
//! The gateway's own glue (its `cluster` room and the endpoint of its `fleet` room) needs a runtime
//! and sockets. What it does with the two rules is repeated here in the same order and with the same
//! conditions, and nothing else is: who changes the one changes the other.

use std::time::Duration;

use breaker::{
    Breaker, Errand, Outcome, Permit, Refusal, Rung, SlowKind, Snapshot, State, Transition,
};
use quorum::{
    CanaryFence, CanaryWord, Council, Decision, EndpointKey, Evidence, Local, LocalOpening, Member,
    ProbeResult, Said, Window,
};

use crate::sabotage::Sabotage;

/// After a restart the fleet's verdicts are heard anew within this, counted from the end of
/// observing.
const RELEARN: Duration = Duration::from_secs(5);

/// The pause before an endpoint that awaits a probe of this node's own gets one.
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// How long a small request proves that there are more.
const SMALL_LASTS: Duration = Duration::from_secs(5);

/// One node's seat in the fleet.
pub(crate) struct Seat {
    pub(crate) council: Council,
    pub(crate) endpoints: Vec<Endpoint>,
    /// How many successes end the canary rung.
    canaries: u32,
    has_probe: bool,
    sabotage: Option<Sabotage>,
}

/// One endpoint as one node sees it.
pub(crate) struct Endpoint {
    pub(crate) key: EndpointKey,
    pub(crate) breaker: Breaker,
    /// What this node saw when its breaker last opened on its own traffic; `None` while closed.
    pub(crate) opened: Option<LocalOpening>,
    /// The hold of the fleet's canary slot, with the successes last reported.
    pub(crate) lent: Option<(CanaryFence, u32)>,
    /// When a client last asked with a small prompt.
    small_at: Option<Duration>,
}

/// What the node must do or has learned, beside what its breakers did by themselves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// The fleet took an endpoint out here.
    Opened { endpoint: usize, incident: u64, counted: usize, electorate: usize },
    /// An incident is over here.
    Closed { endpoint: usize, incident: u64, was_open: bool },
    /// The node sends the fleet's probe.
    Lead { endpoint: usize, fence: (u64, u32) },
    /// The node sends a probe of its own, which holds a permit of its breaker.
    Try { endpoint: usize },
    /// The canary slot came or went.
    Slot { endpoint: usize, is_here: bool },
}

impl Seat {
    /// A seat with closed breakers.
    pub(crate) fn new(
        council: Council,
        endpoints: Vec<(EndpointKey, Breaker)>,
        (canaries, has_probe): (u32, bool),
        sabotage: Option<Sabotage>,
    ) -> Self {
        let endpoints = endpoints
            .into_iter()
            .map(|(key, breaker)| Endpoint {
                key,
                breaker,
                opened: None,
                lent: None,
                small_at: None,
            })
            .collect();
        Self { council, endpoints, canaries, has_probe, sabotage }
    }

    /// One round: hear, state, decide, apply; what is to be published is [`Seat::statements`].
    pub(crate) fn round(&mut self, now: Duration, members: Option<&[Member]>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for endpoint in &mut self.endpoints {
            endpoint.change(|breaker| ((), breaker.tick(now)));
        }
        self.report(now);
        if let Some(members) = members {
            self.council.hear(now, members);
        }
        self.apply(now, &mut effects);
        for endpoint in &self.endpoints {
            let local = endpoint.local(now);
            self.council.state(now, &endpoint.key, local);
        }
        self.apply(now, &mut effects);
        self.let_go(now);
        self.recover_locally(now, &mut effects);
        effects
    }

    /// What this node states, as a whole set, if there is news.
    pub(crate) fn statements(&mut self, now: Duration) -> Option<Said> {
        self.council.statements(now)
    }

    fn apply(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        for decision in self.council.step(now) {
            match decision {
                Decision::Opened { endpoint, opening, tally, electorate } => {
                    let Some(endpoint) = self.index(&endpoint) else { continue };
                    self.endpoints[endpoint].change(|breaker| ((), breaker.hold(now)));
                    if self.sabotage == Some(Sabotage::ImposedVotes) {
                        self.endpoints[endpoint].impose(now);
                    }
                    let (incident, counted) = (opening.incident, tally.counted);
                    effects.push(Effect::Opened { endpoint, incident, counted, electorate });
                }
                Decision::Closed { endpoint, incident, was_open } => {
                    let Some(endpoint) = self.index(&endpoint) else { continue };
                    self.endpoints[endpoint].release(now);
                    effects.push(Effect::Closed { endpoint, incident, was_open });
                }
                Decision::Probe { endpoint, fence } => {
                    let Some(endpoint) = self.index(&endpoint) else { continue };
                    effects.push(Effect::Lead { endpoint, fence });
                }
                Decision::Lend { endpoint, fence, successes } => {
                    let Some(endpoint) = self.index(&endpoint) else { continue };
                    self.endpoints[endpoint].lend(now, fence, successes);
                    effects.push(Effect::Slot { endpoint, is_here: true });
                }
                Decision::Recall { endpoint } => {
                    let Some(endpoint) = self.index(&endpoint) else { continue };
                    self.endpoints[endpoint].recall(now);
                    effects.push(Effect::Slot { endpoint, is_here: false });
                }
                Decision::Forced { .. } => {}
            }
        }
    }

    /// Reports what the canaries of a lent slot have met.
    fn report(&mut self, now: Duration) {
        for endpoint in &mut self.endpoints {
            let Some((fence, counted)) = endpoint.lent else { continue };
            let view = endpoint.breaker.view(now);
            let word = match (view.state, view.rung) {
                (State::Open, _) => {
                    endpoint.lent = None;
                    endpoint.breaker.hold(now);
                    Some(CanaryWord::Failed)
                }
                (State::HalfOpen, Some(Rung::Canary)) if view.half_open_successes > counted => {
                    endpoint.lent = Some((fence, view.half_open_successes));
                    Some(CanaryWord::Counted(view.half_open_successes))
                }
                (State::HalfOpen, Some(Rung::Canary)) => {
                    let turn = crate::rules::time(crate::rules::TURN);
                    let is_idle = view.half_open_idle.is_some_and(|idle| idle >= turn);
                    (is_idle && view.half_open_in_flight == 0).then_some(CanaryWord::Idle)
                }
                (State::Closed | State::HalfOpen, _) => {
                    endpoint.lent = None;
                    Some(CanaryWord::Counted(self.canaries))
                }
            };
            if let Some(word) = word {
                self.council.canaried(now, &endpoint.key, fence, word);
            }
        }
    }

    /// Lets go of what the snapshot says the fleet had out, once there was time to hear otherwise.
    fn let_go(&mut self, now: Duration) {
        if now < self.council.observing_until() + RELEARN {
            return;
        }
        for endpoint in &mut self.endpoints {
            if endpoint.breaker.is_held() && !self.council.is_open(&endpoint.key) {
                endpoint.release(now);
            }
        }
    }

    /// Probes what is half-open and what no client tries: by this node's own breaker, or because it
    /// holds the fleet's slot, for else a slot that nobody has small requests for goes round for ever.
    fn recover_locally(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if !self.has_probe {
            return;
        }
        let base = crate::rules::time(crate::rules::COOL_DOWN);
        let turn = crate::rules::time(crate::rules::TURN);
        for (index, endpoint) in self.endpoints.iter_mut().enumerate() {
            let pause = match endpoint.breaker.rung() {
                Some(Rung::Probe) => PROBE_PAUSE,
                Some(Rung::Canary) if endpoint.lent.is_some() => base.min(turn / 2),
                Some(Rung::Canary) => base,
                Some(Rung::Ramp) | None => continue,
            };
            let view = endpoint.breaker.view(now);
            let is_due = !view.held
                && view.half_open_in_flight == 0
                && view.half_open_idle.is_some_and(|idle| idle >= pause);
            if is_due {
                effects.push(Effect::Try { endpoint: index });
            }
        }
    }

    fn index(&self, key: &EndpointKey) -> Option<usize> {
        self.endpoints.iter().position(|endpoint| endpoint.key == *key)
    }

    /// Takes in how the fleet's probe went.
    pub(crate) fn probed(
        &mut self,
        now: Duration,
        endpoint: usize,
        fence: (u64, u32),
        result: ProbeResult,
    ) {
        self.council.probed(now, &self.endpoints[endpoint].key, fence, result);
    }
}

impl Endpoint {
    /// Asks to send `errand`.
    pub(crate) fn admit(&mut self, now: Duration, errand: Errand) -> Result<Permit, Refusal> {
        self.change(|breaker| breaker.admit(now, errand))
    }

    /// Says how an attempt went.
    pub(crate) fn settle(&mut self, now: Duration, permit: Permit, outcome: Outcome) {
        self.change(|breaker| ((), breaker.settle(now, permit, outcome)));
    }

    /// Says that an attempt is slow while it still runs.
    pub(crate) fn slow(&mut self, now: Duration, permit: &mut Permit) {
        self.change(|breaker| ((), breaker.slow(now, permit, SlowKind::Total)));
    }

    /// Notes that a client asks for the model with a small prompt.
    pub(crate) fn note_small(&mut self, now: Duration) {
        self.small_at = Some(now);
    }

    /// Goes on from what was kept over a restart.
    pub(crate) fn restore(
        &mut self,
        now: Duration,
        seed: u64,
        rule: breaker::Rule,
        kept: &Snapshot,
    ) {
        let restored = Breaker::restore(rule, seed, kept, now);
        self.change(|breaker| {
            *breaker = restored;
            ((), breaker.tick(now))
        });
    }

    fn release(&mut self, now: Duration) {
        // A holder that has not finished its rung when the incident ends goes on where all others do.
        if self.lent.take().is_some() && self.breaker.rung() == Some(Rung::Canary) {
            self.change(|breaker| ((), breaker.hold(now)));
        }
        self.change(|breaker| ((), breaker.release(now)));
    }

    fn lend(&mut self, now: Duration, fence: CanaryFence, successes: u32) {
        self.lent = Some((fence, successes));
        // A slot handed back to its holder is a new hold: it is idle anew.
        self.change(|breaker| ((), breaker.hold(now)));
        self.change(|breaker| ((), breaker.lend(now, successes)));
    }

    fn recall(&mut self, now: Duration) {
        self.lent = None;
        self.change(|breaker| ((), breaker.hold(now)));
    }

    fn impose(&mut self, now: Duration) {
        let evidence = Evidence::default();
        let reason = String::new();
        self.opened.get_or_insert(LocalOpening { since: now, reason, evidence });
    }

    fn local(&self, now: Duration) -> Local {
        let seen = self.breaker.evidence(now);
        let has_small = self.small_at.is_some_and(|at| now.saturating_sub(at) < SMALL_LASTS);
        Local {
            opening: self.opened.clone(),
            window: Window {
                requests: seen.requests,
                faults_milli: u32::try_from(seen.fault_millionths / 1_000).unwrap_or(u32::MAX),
                successes: seen.successes,
                slow: seen.slow.into_iter().flatten().collect(),
                last_success: seen.last_success,
                has_small,
            },
            is_shadow: false,
        }
    }

    /// Runs `deed` on the breaker and keeps what it saw when it opened.
    fn change<T>(&mut self, deed: impl FnOnce(&mut Breaker) -> (T, Option<Transition>)) -> T {
        let (answer, transition) = deed(&mut self.breaker);
        if let Some(transition) = &transition {
            let opened = self.opened.take();
            self.opened = match (transition.to, transition.rung) {
                // On the ramp it serves again: nothing is held against it any more.
                (State::Closed, _) | (State::HalfOpen, Some(Rung::Ramp)) => None,
                (State::HalfOpen, _) => opened,
                (State::Open, _) => opened.or_else(|| Some(opening(transition))),
            };
        }
        answer
    }
}

fn opening(transition: &Transition) -> LocalOpening {
    let gathered = &transition.gathered;
    LocalOpening {
        since: transition.at,
        reason: String::new(),
        evidence: Evidence {
            requests: gathered.requests,
            faults_milli: u32::try_from(gathered.fault_millionths / 1_000).unwrap_or(u32::MAX),
            successes: gathered.successes,
            slow_pieces: gathered.slow_pieces,
        },
    }
}
