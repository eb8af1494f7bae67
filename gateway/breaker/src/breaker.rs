//! The machine: closed, open, half-open, and the fleet's hold beside them.
//!
//! It moves only inside a call and only forward in time; whatever moves is returned. What is due by
//! the clock alone (a cool-down or a ramp that is over, a permit that is overdue) is done by the
//! next call that may do it, at the time of that call.
//!
//! Invariants:
//! - Data of a state exists only in that state, so leaving it forgets it.
//! - At most one transition per call.
//! - The hold is not a state: beneath it the node keeps its own opinion, but nothing is admitted on
//!   it, an open circuit does not become half-open, no rung is climbed and a ramp does not end.
//! - A breaker that is off is closed and stays so.

mod closed;
mod cool_down;
mod hold;
mod ladder;
mod look;
mod restart;

use std::time::Duration;

use crate::breaker::closed::Closed;
use crate::breaker::cool_down::{LEVEL_MAX, cool_down};
use crate::breaker::ladder::{HalfOpen, Progress};
use crate::permit::{Permit, Place};
use crate::rule::{Mode, Recovery, Rule};
use crate::times::{Times, Timing};
use crate::window::Weight;
use crate::{Errand, Gathered, Outcome, Reason, Refusal, Rung, SlowKind, State, Transition};

/// One endpoint's circuit breaker on one node.
#[derive(Clone, Debug)]
pub struct Breaker {
    rule: Rule,
    seed: u64,
    clock: Clock,
    /// The latest time seen; an earlier one is read as this.
    latest: Duration,
    epoch: u64,
    phase: Phase,
    /// The exponent of the latest cool-down; `None` when the next opening starts from the base.
    level: Option<u32>,
    /// Since when the fleet has the endpoint out.
    held: Option<Duration>,
    last_success: Option<Duration>,
    /// Times of requests while closed, empty in the other states. It takes 13 KB, so only a rule
    /// that judges by times has it; it is kept through all states so that closing allocates nothing.
    times: Option<Box<Times>>,
}

/// The distance between the caller's clock and the breaker's own, which goes on where it was before
/// a restart. One of the two is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    ahead: Duration,
    behind: Duration,
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

impl Breaker {
    /// Makes a closed breaker. The seed decides the jitter of its cool-downs and nothing else; give
    /// each node and endpoint its own.
    pub fn new(rule: Rule, seed: u64) -> Self {
        let phase = Phase::Closed(Closed::new(Duration::ZERO, &rule));
        let times = rule.needs_times().then(|| Box::new(Times::new(rule.window)));
        Breaker {
            rule,
            seed,
            clock: Clock::default(),
            latest: Duration::ZERO,
            epoch: 0,
            phase,
            level: None,
            held: None,
            last_success: None,
            times,
        }
    }

    /// Asks whether this errand may go to the endpoint at `now`.
    ///
    /// What is due is done first, as [`Breaker::tick`] does it, and returned beside the answer.
    ///
    /// # Errors
    /// The [`Refusal`]. Nothing needs to be settled, and nothing is counted but that a request asked
    /// on the canary rung. In [`Mode::Shadow`] and [`Mode::Off`] there is none.
    pub fn admit(
        &mut self,
        now: Duration,
        errand: Errand,
    ) -> (Result<Permit, Refusal>, Option<Transition>) {
        let transition = self.tick(now);
        let place = match (self.rule.mode, self.place(errand)) {
            (Mode::Shadow, Err(_)) => Ok(Place::Unheard),
            (Mode::Enforce | Mode::Shadow | Mode::Off, place) => place,
        };
        (place.map(|place| Permit::new(self.epoch, place)), transition)
    }

    /// Does what is due at `now` without admitting anything: an overdue permit opens the circuit, a
    /// ramp that is over closes it, and a cool-down that is over becomes half-open, or closed where
    /// recovery is lazy. The latter two wait while the endpoint is held.
    pub fn tick(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        self.end_rung().or_else(|| self.cool_down())
    }

    /// Says that a request crossed a slow limit while it is still running.
    ///
    /// It counts once per permit: one request that crosses several limits is still one witness. A
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
        if let Some(transition) = self.end_rung() {
            return Some(transition);
        }
        if !is_new || permit.epoch != self.epoch {
            return None;
        }
        let reason = match (&mut self.phase, permit.place) {
            (Phase::Closed(closed), Place::Closed) => {
                closed.add_slow(self.latest, &self.rule, kind)?
            }
            (Phase::HalfOpen(_), Place::Tried { index: _ } | Place::Ramp) => {
                Reason::HalfOpenSlow(kind)
            }
            (
                Phase::Closed(_) | Phase::Open(_) | Phase::HalfOpen(_),
                Place::Closed
                | Place::Tried { index: _ }
                | Place::Ramp
                | Place::PassThrough
                | Place::Unheard,
            ) => return None,
        };
        Some(self.open(reason))
    }

    /// Takes the verdict of a request that was admitted; a verdict of an older epoch is dropped.
    pub fn settle(
        &mut self,
        now: Duration,
        permit: Permit,
        outcome: Outcome,
    ) -> Option<Transition> {
        self.settle_timed(now, permit, outcome, None)
    }

    /// Like [`Breaker::settle`], with how long the request took. Only the times of complete answers
    /// (success and slow) that were sent while closed are remembered, and only by a rule that judges
    /// by times.
    pub fn settle_timed(
        &mut self,
        now: Duration,
        permit: Permit,
        outcome: Outcome,
        timing: Option<Timing>,
    ) -> Option<Transition> {
        self.advance(now);
        if let Some(transition) = self.end_rung() {
            return Some(transition);
        }
        if permit.epoch != self.epoch {
            return None;
        }
        match permit.place {
            Place::Closed => self.settle_closed(permit.is_slow(), outcome, timing),
            Place::Tried { index } => self.settle_half_open(Some(index), outcome),
            Place::Ramp => self.settle_half_open(None, outcome),
            Place::PassThrough => self.settle_pass_through(permit.is_slow(), outcome),
            Place::Unheard => None,
        }
    }

    /// Opens a closed circuit because the endpoint is much slower than its siblings, as
    /// [`relative::outliers`](crate::relative::outliers) finds. It does nothing where the rule does
    /// not ask for that, and nothing once the samples that convict are gone.
    pub fn convict_relative(&mut self, now: Duration) -> Option<Transition> {
        self.advance(now);
        self.rule.slow.relative?;
        self.sample(now)?;
        Some(self.open(Reason::SlowerThanSiblings))
    }

    /// Takes back the slow evidence and the times that were noted from `since` on, because this
    /// process itself was late and measured its own delay. Times share buckets of a tenth of the
    /// window, and those that reach beyond `since` go as a whole. An opening that was already made
    /// stands.
    pub fn discard_slow(&mut self, now: Duration, since: Duration) {
        self.advance(now);
        let since = self.clock.read(since);
        if let Phase::Closed(closed) = &mut self.phase {
            closed.discard_slow(since);
        }
        if let Some(times) = &mut self.times {
            times.discard(since);
        }
    }

    /// Replaces the rule and keeps all state: a running cool-down ends when it would have, permits
    /// stay valid and evidence that the new window reaches still counts. Nothing trips by this
    /// alone; the next piece of evidence is judged by the new rule. Two things it does change: a
    /// breaker that is turned off closes and forgets, and a rung that the new rule does not have is
    /// left for the next.
    pub fn set_rule(&mut self, rule: Rule) -> Option<Transition> {
        if let Phase::Closed(closed) = &mut self.phase {
            closed.resize(self.latest, &rule);
        }
        self.times = match (self.times.take(), rule.needs_times()) {
            (Some(mut times), true) => {
                times.resize(self.latest, rule.window);
                Some(times)
            }
            (None, true) => Some(Box::new(Times::new(rule.window))),
            (Some(_) | None, false) => None,
        };
        let was = self.rule.mode;
        self.rule = rule;
        match (was, self.rule.mode) {
            (Mode::Off, Mode::Off) => None,
            (Mode::Enforce | Mode::Shadow, Mode::Off) => Some(self.close(Reason::TurnedOff)),
            (Mode::Enforce | Mode::Shadow | Mode::Off, Mode::Enforce | Mode::Shadow) => {
                self.skip_probe()
            }
        }
    }

    fn advance(&mut self, now: Duration) {
        self.latest = self.latest.max(self.clock.read(now));
    }

    fn skip_probe(&mut self) -> Option<Transition> {
        let Phase::HalfOpen(half_open) = &mut self.phase else {
            return None;
        };
        if self.rule.has_probe() {
            return None;
        }
        let reason = half_open.skip_probe(self.latest)?;
        Some(self.climbed(reason))
    }

    /// Opens when a permit is overdue; otherwise a permit that someone forgot would keep the circuit
    /// half-open and full for ever. Closes when the ramp is over.
    fn end_rung(&mut self) -> Option<Transition> {
        let Phase::HalfOpen(half_open) = &self.phase else {
            return None;
        };
        if half_open.has_overdue(self.latest, &self.rule) {
            return Some(self.open(Reason::PermitLost));
        }
        let is_over = !self.is_held() && half_open.is_over(self.latest, &self.rule);
        is_over.then(|| self.close(Reason::Recovered))
    }

    /// Becomes half-open when the cool-down is over and the fleet does not object.
    fn cool_down(&mut self) -> Option<Transition> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        if self.is_held() || self.latest < open.until {
            return None;
        }
        let opened_for = Some(open.opened_for);
        Some(match self.rule.recovery {
            Recovery::Lazy { ttl: _ } => self.close(Reason::CooledDown),
            Recovery::Staged { .. } => {
                let rung = if self.rule.has_probe() { Rung::Probe } else { Rung::Canary };
                let half_open = HalfOpen::new(self.latest, opened_for, rung);
                self.change(Phase::HalfOpen(half_open), Reason::CooledDown, None)
            }
        })
    }

    /// Finds a place for an errand that the circuit may refuse. One that goes out because nothing
    /// better is left is a request like any other where there is nothing to pass through.
    fn place(&mut self, errand: Errand) -> Result<Place, Refusal> {
        if self.rule.mode == Mode::Off {
            return Ok(Place::PassThrough);
        }
        let is_forced = errand == Errand::PassThrough;
        if self.is_held() {
            return if is_forced { Ok(Place::PassThrough) } else { Err(Refusal::Held) };
        }
        match &mut self.phase {
            Phase::Closed(_) => Ok(Place::Closed),
            Phase::Open(_) if is_forced => Ok(Place::PassThrough),
            Phase::Open(open) => {
                Err(Refusal::Open { remaining: open.until.saturating_sub(self.latest) })
            }
            Phase::HalfOpen(half_open) => {
                half_open.admit(self.latest, &self.rule.half_open, errand)
            }
        }
    }

    fn settle_closed(
        &mut self,
        was_slow: bool,
        outcome: Outcome,
        timing: Option<Timing>,
    ) -> Option<Transition> {
        let Phase::Closed(closed) = &mut self.phase else {
            return None;
        };
        if outcome == Outcome::Success && !was_slow {
            self.last_success = Some(self.latest);
        }
        let reason = closed.settle(self.latest, &self.rule, was_slow, outcome);
        let reason = reason.or_else(|| self.judge_times(outcome, timing))?;
        Some(self.open(reason))
    }

    /// Remembers how long a complete answer took and says why the circuit must open, if it must.
    fn judge_times(&mut self, outcome: Outcome, timing: Option<Timing>) -> Option<Reason> {
        let (times, timing) = (self.times.as_mut()?, timing?);
        match outcome {
            Outcome::Success | Outcome::Slow(_) => times.record(self.latest, timing),
            Outcome::Fault { .. } | Outcome::Neutral => return None,
        }
        closed::judge_times(self.latest, &self.rule, times)
    }

    /// A half-open permit that said slow is of an older epoch by now, so only its last word counts.
    fn settle_half_open(&mut self, index: Option<usize>, outcome: Outcome) -> Option<Transition> {
        let Phase::HalfOpen(half_open) = &mut self.phase else {
            return None;
        };
        if let Some(index) = index {
            half_open.free(index);
        }
        match outcome {
            Outcome::Success => {
                self.last_success = Some(self.latest);
                match half_open.succeed(self.latest, &self.rule) {
                    Progress::Stays => None,
                    Progress::Climbed(reason) => Some(self.climbed(reason)),
                    Progress::Done => Some(self.close(Reason::Recovered)),
                }
            }
            Outcome::Fault { weight, cause } => {
                Weight::new(weight)?;
                Some(self.open(Reason::HalfOpenFault(cause)))
            }
            Outcome::Slow(kind) => Some(self.open(Reason::HalfOpenSlow(kind))),
            Outcome::Neutral => None,
        }
    }

    /// An answer in spite of an open circuit proves the cool-down too pessimistic, and serves as the
    /// probe and the first canary. It proves nothing against the fleet, which has seen more than
    /// this node, nor against a time that is fixed.
    fn settle_pass_through(&mut self, was_slow: bool, outcome: Outcome) -> Option<Transition> {
        let (Phase::Open(open), Recovery::Staged { .. }) = (&self.phase, self.rule.recovery) else {
            return None;
        };
        if self.is_held() || was_slow || outcome != Outcome::Success {
            return None;
        }
        let half_open = HalfOpen::with_successes(self.latest, Some(open.opened_for), 1);
        self.last_success = Some(self.latest);
        Some(self.change(Phase::HalfOpen(half_open), Reason::PassedThrough, None))
    }

    fn open(&mut self, reason: Reason) -> Transition {
        let (level, remaining) = match self.rule.recovery {
            Recovery::Lazy { ttl } => (0, ttl),
            Recovery::Staged { .. } => {
                let level = match self.level_at(self.latest) {
                    None => 0,
                    Some(level) => level.saturating_add(1).min(LEVEL_MAX),
                };
                (level, cool_down(&self.rule.open, level, self.seed, self.epoch))
            }
        };
        self.level = Some(level);
        let until = self.latest.saturating_add(remaining);
        let phase = Phase::Open(Open { until, opened_for: reason });
        self.change(phase, reason, Some(remaining))
    }

    fn close(&mut self, reason: Reason) -> Transition {
        let closed = Closed::new(self.latest, &self.rule);
        self.change(Phase::Closed(closed), reason, None)
    }

    fn change(&mut self, phase: Phase, reason: Reason, remaining: Option<Duration>) -> Transition {
        let (from, gathered) = (self.phase.state(), self.gathered());
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(times) = &mut self.times {
            times.clear();
        }
        Transition { gathered, ..self.told(from, reason, remaining) }
    }

    /// Another rung is no other state, so verdicts on the rung below still count.
    fn climbed(&self, reason: Reason) -> Transition {
        self.told(State::HalfOpen, reason, None)
    }

    fn told(&self, from: State, reason: Reason, remaining: Option<Duration>) -> Transition {
        let (to, rung) = (self.phase.state(), self.rung());
        let at = self.clock.tell(self.latest);
        let gathered = Gathered::default();
        Transition { from, to, rung, reason, epoch: self.epoch, remaining, at, gathered }
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

impl Clock {
    /// Reads the caller's time.
    fn read(self, now: Duration) -> Duration {
        now.saturating_add(self.ahead).saturating_sub(self.behind)
    }

    /// Says a time on the caller's clock.
    fn tell(self, time: Duration) -> Duration {
        time.saturating_add(self.behind).saturating_sub(self.ahead)
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
