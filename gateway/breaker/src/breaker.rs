//! The machine: closed, open, half-open, and the fleet's hold beside them.
//!
//! It moves only inside a call and only forward in time; whatever moves is returned. What is due by
//! the clock alone (a cool-down that is over, a permit that is overdue) is done by the next call
//! that may do it, at the time of that call.
//!
//! Invariants:
//! - Data of a state exists only in that state, so leaving it forgets it.
//! - At most one transition per call.
//! - The hold is not a state: beneath it the node keeps its own opinion, but nothing is admitted on
//!   it and an open circuit does not become half-open.

mod closed;

use std::time::Duration;

use crate::breaker::closed::Closed;
use crate::permit::{Permit, Place, Places};
use crate::rule::{JITTER, Rule};
use crate::window::Weight;
use crate::{Errand, Outcome, Reason, Refusal, SlowKind, State, Transition, View};

/// The highest exponent of a cool-down; by then every base has met its maximum.
const LEVEL_MAX: u32 = 31;

/// The steps a cool-down's jitter is drawn in, as parts of the whole.
const JITTER_PARTS: u32 = 10_000;

/// One endpoint's circuit breaker on one node.
#[derive(Clone, Debug)]
pub struct Breaker {
    rule: Rule,
    seed: u64,
    /// The latest time seen; an earlier one is read as this.
    latest: Duration,
    epoch: u64,
    phase: Phase,
    /// The exponent of the latest cool-down; `None` when the next opening starts from the base.
    level: Option<u32>,
    /// Since when the fleet has the endpoint out.
    held: Option<Duration>,
    last_success: Option<Duration>,
}

/// The state with what belongs to it.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation in `settle`, and there is one breaker per endpoint"
)]
enum Phase {
    Closed(Closed),
    Open(Open),
    HalfOpen(HalfOpen),
}

/// What is known while open.
#[derive(Clone, Debug)]
struct Open {
    until: Duration,
    opened_for: Reason,
}

/// What is known while half-open.
#[derive(Clone, Debug)]
struct HalfOpen {
    opened_for: Reason,
    /// When half-open began or last admitted something.
    touched: Duration,
    successes: u32,
    places: Places,
}

impl Breaker {
    /// Makes a closed breaker. The seed decides the jitter of its cool-downs and nothing else; give
    /// each node and endpoint its own.
    pub fn new(rule: Rule, seed: u64) -> Self {
        let phase = Phase::Closed(Closed::new(Duration::ZERO, &rule));
        Breaker {
            rule,
            seed,
            latest: Duration::ZERO,
            epoch: 0,
            phase,
            level: None,
            held: None,
            last_success: None,
        }
    }

    /// Asks whether this errand may go to the endpoint at `now`.
    ///
    /// A cool-down that is over becomes half-open first, unless the endpoint is held, and an
    /// overdue half-open permit opens the circuit first; that transition is returned beside the
    /// answer.
    ///
    /// # Errors
    /// The [`Refusal`]; nothing is counted, and nothing needs to be settled.
    pub fn admit(
        &mut self,
        now: Duration,
        errand: Errand,
    ) -> (Result<Permit, Refusal>, Option<Transition>) {
        let transition = self.tick(now);
        let place = match errand {
            Errand::Request { prompt_tokens } => self.place(prompt_tokens),
            // A probe is synthetic and short by construction.
            Errand::Probe => self.place(0),
            Errand::PassThrough => Ok(self.place_in_spite_of_all()),
        };
        (place.map(|place| Permit::new(self.epoch, place)), transition)
    }

    /// Does what is due at `now` without admitting anything: a cool-down that is over becomes
    /// half-open, unless the endpoint is held, and an overdue half-open permit opens the circuit.
    pub fn tick(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        self.lose_overdue().or_else(|| self.cool_down())
    }

    /// Says that a request crossed a slow limit while it is still running.
    ///
    /// It counts once per permit: one request that crosses both limits is still one witness. A
    /// permit that said so settles neither as a success nor as slow again, but a fault that follows
    /// is a fault.
    pub fn slow(
        &mut self,
        now: Duration,
        permit: &mut Permit,
        kind: SlowKind,
    ) -> Option<Transition> {
        self.advance(now);
        let is_new = permit.mark_slow();
        if let Some(transition) = self.lose_overdue() {
            return Some(transition);
        }
        if !is_new || permit.epoch != self.epoch {
            return None;
        }
        let reason = match (&mut self.phase, permit.place) {
            (Phase::Closed(closed), Place::Closed) => {
                closed.add_slow(self.latest, &self.rule, kind)?
            }
            (Phase::HalfOpen(_), Place::HalfOpen { index: _ }) => Reason::HalfOpenSlow(kind),
            (
                Phase::Closed(_) | Phase::Open(_) | Phase::HalfOpen(_),
                Place::Closed | Place::HalfOpen { index: _ } | Place::PassThrough,
            ) => return None,
        };
        Some(self.open(reason))
    }

    /// Settles a permit with what came of it.
    ///
    /// A permit of an older epoch changes nothing. Before anything else an overdue half-open permit
    /// opens the circuit, and if it is this one, its verdict came too late.
    pub fn settle(
        &mut self,
        now: Duration,
        permit: Permit,
        outcome: Outcome,
    ) -> Option<Transition> {
        self.advance(now);
        if let Some(transition) = self.lose_overdue() {
            return Some(transition);
        }
        if permit.epoch != self.epoch {
            return None;
        }
        match permit.place {
            Place::Closed => self.settle_closed(permit.is_slow(), outcome),
            Place::HalfOpen { index } => self.settle_half_open(index, outcome),
            Place::PassThrough => self.settle_pass_through(permit.is_slow(), outcome),
        }
    }

    /// Takes the endpoint out on behalf of the fleet: nothing but [`Errand::PassThrough`] is
    /// admitted and an open circuit does not become half-open. Permits that are out still settle.
    /// Doing it twice is doing it once.
    pub fn hold(&mut self, now: Duration) {
        self.advance(now);
        self.held.get_or_insert(self.latest);
    }

    /// Ends the hold because the fleet's incident is closed: the circuit closes, all evidence is
    /// dropped and older permits are void. The level of the cool-down stays until the recovery has
    /// lasted. Without a hold it does nothing, so that hearing of it twice is harmless.
    pub fn release(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        self.held?;
        self.level = self.level_at(self.latest);
        self.held = None;
        Some(self.close(Reason::Released))
    }

    /// The state as of the last call.
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// Whether the fleet has the endpoint out.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Replaces the rule and keeps all state: a running cool-down ends when it would have, permits
    /// stay valid and evidence that the new window reaches still counts. Nothing trips by this
    /// alone; the next piece of evidence is judged by the new rule.
    pub fn set_rule(&mut self, rule: Rule) {
        if let Phase::Closed(closed) = &mut self.phase {
            closed.resize(self.latest, &rule);
        }
        self.rule = rule;
    }

    /// Shows everything as it is at `now`, and moves nothing.
    pub fn view(&self, now: Duration) -> View {
        let now = now.max(self.latest);
        let mut view = View {
            state: self.phase.state(),
            epoch: self.epoch,
            held: self.is_held(),
            remaining: None,
            level: self.level_at(now).unwrap_or(0),
            streak: 0,
            requests: 0,
            faults: 0.0,
            successes: 0,
            slow_pieces: 0,
            half_open_in_flight: 0,
            half_open_successes: 0,
            half_open_idle: None,
            opened_for: None,
            last_success: self.last_success.map(|last| now.saturating_sub(last)),
        };
        match &self.phase {
            Phase::Closed(closed) => closed.show(now, &self.rule, &mut view),
            Phase::Open(open) => {
                view.remaining = Some(open.until.saturating_sub(now));
                view.opened_for = Some(open.opened_for);
            }
            Phase::HalfOpen(half_open) => {
                view.half_open_in_flight = half_open.places.out();
                view.half_open_successes = half_open.successes;
                view.half_open_idle = Some(now.saturating_sub(half_open.touched));
                view.opened_for = Some(half_open.opened_for);
            }
        }
        view
    }

    fn advance(&mut self, now: Duration) {
        self.latest = self.latest.max(now);
    }

    /// Opens when a half-open permit is overdue; otherwise a permit that someone forgot would keep
    /// the circuit half-open and full for ever.
    fn lose_overdue(&mut self) -> Option<Transition> {
        let Phase::HalfOpen(half_open) = &self.phase else {
            return None;
        };
        let is_lost = half_open.places.has_overdue(self.latest, self.rule.half_open.deadline);
        is_lost.then(|| self.open(Reason::PermitLost))
    }

    /// Becomes half-open when the cool-down is over and the fleet does not object.
    fn cool_down(&mut self) -> Option<Transition> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        if self.is_held() || self.latest < open.until {
            return None;
        }
        Some(self.half_open(open.opened_for, 0, Reason::CooledDown))
    }

    /// Finds a place for a request that the circuit may refuse.
    fn place(&mut self, prompt_tokens: u64) -> Result<Place, Refusal> {
        if self.is_held() {
            return Err(Refusal::Held);
        }
        let limits = &self.rule.half_open;
        match &mut self.phase {
            Phase::Closed(_) => Ok(Place::Closed),
            Phase::Open(open) => {
                Err(Refusal::Open { remaining: open.until.saturating_sub(self.latest) })
            }
            Phase::HalfOpen(_) if prompt_tokens > limits.max_prompt_tokens => {
                Err(Refusal::PromptTooLarge)
            }
            Phase::HalfOpen(half_open) => {
                // A rule that admits nothing would be a circuit that never closes.
                let most = limits.max_requests.max(1);
                let index = half_open.places.take(self.latest, most);
                let index = index.ok_or(Refusal::HalfOpenFull)?;
                half_open.touched = self.latest;
                Ok(Place::HalfOpen { index })
            }
        }
    }

    /// Finds a place for a request that goes out because nothing better is left. Only where there
    /// is nothing to pass through is it a request like any other.
    fn place_in_spite_of_all(&self) -> Place {
        match &self.phase {
            Phase::Closed(_) if !self.is_held() => Place::Closed,
            Phase::Closed(_) | Phase::Open(_) | Phase::HalfOpen(_) => Place::PassThrough,
        }
    }

    fn settle_closed(&mut self, was_slow: bool, outcome: Outcome) -> Option<Transition> {
        let Phase::Closed(closed) = &mut self.phase else {
            return None;
        };
        if outcome == Outcome::Success && !was_slow {
            self.last_success = Some(self.latest);
        }
        let reason = closed.settle(self.latest, &self.rule, was_slow, outcome)?;
        Some(self.open(reason))
    }

    /// A half-open permit that said slow is of an older epoch by now, so only its last word counts.
    fn settle_half_open(&mut self, index: usize, outcome: Outcome) -> Option<Transition> {
        let Phase::HalfOpen(half_open) = &mut self.phase else {
            return None;
        };
        half_open.places.free(index);
        match outcome {
            Outcome::Success => {
                half_open.successes = half_open.successes.saturating_add(1);
                self.last_success = Some(self.latest);
                let is_enough = half_open.successes >= self.rule.half_open.successes;
                is_enough.then(|| self.close(Reason::Recovered))
            }
            Outcome::Fault { weight, cause } => {
                Weight::new(weight)?;
                Some(self.open(Reason::HalfOpenFault(cause)))
            }
            Outcome::Slow(kind) => Some(self.open(Reason::HalfOpenSlow(kind))),
            Outcome::Neutral => None,
        }
    }

    /// An answer in spite of an open circuit proves the cool-down too pessimistic. It proves
    /// nothing against the fleet, which has seen more than this node.
    fn settle_pass_through(&mut self, was_slow: bool, outcome: Outcome) -> Option<Transition> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        if self.is_held() || was_slow || outcome != Outcome::Success {
            return None;
        }
        let opened_for = open.opened_for;
        self.last_success = Some(self.latest);
        Some(self.half_open(opened_for, 1, Reason::PassedThrough))
    }

    fn open(&mut self, reason: Reason) -> Transition {
        let level = match self.level_at(self.latest) {
            None => 0,
            Some(level) => level.saturating_add(1).min(LEVEL_MAX),
        };
        self.level = Some(level);
        let remaining = cool_down(&self.rule, level, self.seed, self.epoch);
        let until = self.latest.saturating_add(remaining);
        let phase = Phase::Open(Open { until, opened_for: reason });
        self.change(phase, reason, Some(remaining))
    }

    fn half_open(&mut self, opened_for: Reason, successes: u32, reason: Reason) -> Transition {
        let places = Places::default();
        let half_open = HalfOpen { opened_for, touched: self.latest, successes, places };
        self.change(Phase::HalfOpen(half_open), reason, None)
    }

    fn close(&mut self, reason: Reason) -> Transition {
        let closed = Closed::new(self.latest, &self.rule);
        self.change(Phase::Closed(closed), reason, None)
    }

    fn change(&mut self, phase: Phase, reason: Reason, remaining: Option<Duration>) -> Transition {
        let from = self.phase.state();
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
        Transition {
            from,
            to: self.phase.state(),
            reason,
            epoch: self.epoch,
            remaining,
            at: self.latest,
        }
    }

    /// The level the next opening grows from: `None` once a recovery has lasted. Time under a hold
    /// is no health, for nothing was asked of the endpoint.
    fn level_at(&self, now: Duration) -> Option<u32> {
        let Phase::Closed(closed) = &self.phase else {
            return self.level;
        };
        let healthy = self.held.unwrap_or(now).saturating_sub(closed.since());
        self.level.filter(|_| healthy < self.rule.open.reset_after)
    }
}

impl Phase {
    fn state(&self) -> State {
        match self {
            Phase::Closed(_) => State::Closed,
            Phase::Open(_) => State::Open,
            Phase::HalfOpen(_) => State::HalfOpen,
        }
    }
}

/// The length of a cool-down: capped first and then strayed from, so that nodes whose cool-down has
/// reached the cap still come back apart.
fn cool_down(rule: &Rule, level: u32, seed: u64, epoch: u64) -> Duration {
    let growth = 1_u32.checked_shl(level).unwrap_or(u32::MAX);
    let nominal = rule.open.base.saturating_mul(growth).min(rule.open.max);
    let stray = (JITTER * f64::from(JITTER_PARTS)) as u32;
    let steps = u64::from(stray) * 2 + 1;
    let step = (mix(seed, epoch) % steps) as u32;
    let parts = JITTER_PARTS - stray + step;
    (nominal / JITTER_PARTS).saturating_mul(parts).min(rule.open.max)
}

/// Draws a number from the seed and the epoch: one step of SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014), the epoch being its counter.
fn mix(seed: u64, epoch: u64) -> u64 {
    let mut mixed = seed.wrapping_add(epoch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
