//! A breaker, the permits it gave, and what is known about it from outside; every step is checked.

use std::time::Duration;

use breaker::{
    Breaker, Errand, Mode, Outcome, Permit, Reason, Recovery, Refusal, Rule, Rung, SlowKind, State,
    Terms, Timing, Transition, View,
};

use super::chance::{Chance, Step, change_rule, some_rule};

/// No cool-down grows beyond this exponent.
const LEVEL_MAX: u32 = 31;

pub(crate) struct World {
    pub(crate) breaker: Breaker,
    pub(crate) rule: Rule,
    pub(crate) seed: u64,
    /// The permits in hand, each with what it was asked for.
    pub(crate) permits: Vec<(Permit, Errand)>,
    pub(crate) now: Duration,
    /// Successes settled in time on the present canary rung, or counted before it began.
    proofs: u32,
    /// The successes that came with the latest loan.
    lent: u32,
    /// Requests that asked on the present canary rung, and those that were admitted.
    asked: u64,
    admitted: u64,
    /// When the present ramp began.
    ramp_since: Duration,
    /// What of it was climbed before this world began.
    ramp_before: Duration,
    /// Permits of the present epoch that were dropped on the probe or canary rung.
    forgotten: u32,
}

impl World {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let rule = some_rule(chance);
        let seed = chance.below(u64::MAX);
        let breaker = Breaker::new(rule.clone(), seed);
        World { seed, ..World::around(breaker, rule, Duration::ZERO) }
    }

    fn around(breaker: Breaker, rule: Rule, now: Duration) -> Self {
        let view = breaker.view(now);
        World {
            breaker,
            rule,
            seed: 0,
            permits: Vec::new(),
            now,
            proofs: view.half_open_successes,
            lent: 0,
            asked: view.canary_asked,
            admitted: view.canary_admitted,
            ramp_since: now,
            ramp_before: Duration::ZERO,
            forgotten: 0,
        }
    }

    /// The world of a breaker that took over from this one's.
    pub(crate) fn after_restart(&self, breaker: Breaker, now: Duration) -> Self {
        let ramp_before = self.now - self.ramp_since;
        World { ramp_before, ..World::around(breaker, self.rule.clone(), now) }
    }

    /// The same world, as it is before the first step.
    pub(crate) fn copy(&self) -> Self {
        World::around(self.breaker.clone(), self.rule.clone(), self.now)
    }

    pub(crate) fn view(&self) -> View {
        self.breaker.view(self.now)
    }

    fn ramp(&self) -> Duration {
        match self.rule.recovery {
            Recovery::Staged { ramp, .. } => ramp,
            Recovery::Lazy { .. } => Duration::ZERO,
        }
    }

    fn has_probe(&self) -> bool {
        let is_asked_for = matches!(self.rule.recovery, Recovery::Staged { probe: true, .. });
        is_asked_for && self.rule.mode == Mode::Enforce
    }

    /// Half-open permits of the present epoch that the world still has in its hands.
    fn half_open_permits(&self) -> u32 {
        let epoch = self.view().epoch;
        let is_out = |permit: &Permit| permit.terms() == Terms::HalfOpen && permit.epoch() == epoch;
        self.permits.iter().filter(|(permit, _)| is_out(permit)).count() as u32
    }

    /// Does a step and checks what can be said about it and the transition.
    pub(crate) fn step(&mut self, step: Step, now: Duration) -> (String, Option<Transition>) {
        self.now = self.now.max(now);
        let before = self.view();
        let transition = match step {
            Step::Admit(errand) => {
                let (result, transition) = self.breaker.admit(now, errand);
                let answer = format!("{result:?}");
                self.check_transition(&before, transition);
                self.check_admission(errand, &result);
                self.permits.extend(result.ok().map(|permit| (permit, errand)));
                return (answer, transition);
            }
            Step::Tick => self.breaker.tick(now),
            Step::Slow(which, kind) => self.breaker.slow(now, &mut self.permits[which].0, kind),
            Step::Settle(which, outcome, timing) => self.settle(now, which, outcome, timing),
            Step::Forget(which) => {
                let (permit, _) = self.permits.swap_remove(which);
                let is_out = permit.terms() == Terms::HalfOpen && permit.epoch() == before.epoch;
                self.forgotten += u32::from(is_out && before.rung != Some(Rung::Ramp));
                None
            }
            Step::Hold => self.breaker.hold(now),
            Step::Lend(successes) => {
                let transition = self.breaker.lend(now, successes);
                self.lent = transition.map_or(self.lent, |_| successes);
                transition
            }
            Step::Release => self.breaker.release(now),
            Step::Convict => self.breaker.convict_relative(now),
            Step::Discard(age) => {
                self.breaker.discard_slow(now, now.saturating_sub(age));
                None
            }
            Step::SetRule(seed) => {
                change_rule(&mut self.rule, seed);
                self.breaker.set_rule(self.rule.clone())
            }
        };
        self.check_transition(&before, transition);
        (String::new(), transition)
    }

    fn check_admission(&mut self, errand: Errand, result: &Result<Permit, Refusal>) {
        let obeyed = self.expected(errand);
        let expected = match self.rule.mode {
            Mode::Enforce => obeyed,
            Mode::Shadow => Ok(obeyed.unwrap_or(Terms::PassThrough)),
            Mode::Off => Ok(Terms::PassThrough),
        };
        assert_eq!(result.as_ref().map(Permit::terms).map_err(|refusal| *refusal), expected);
        if let Err(Refusal::Open { remaining }) = expected {
            assert!(!remaining.is_zero(), "open and not held is open for a while");
        }
    }

    /// What an obeyed breaker must say in the state that it shows.
    fn expected(&mut self, errand: Errand) -> Result<Terms, Refusal> {
        let view = self.view();
        let out = self.half_open_permits() + self.forgotten;
        let is_forced = errand == Errand::PassThrough;
        if view.held {
            return if is_forced { Ok(Terms::PassThrough) } else { Err(Refusal::Held) };
        }
        match (view.state, view.rung) {
            (State::Closed, None) => Ok(Terms::Closed),
            (State::HalfOpen, Some(Rung::Ramp)) => Ok(Terms::HalfOpen),
            (State::Open, None) | (State::HalfOpen, Some(Rung::Probe | Rung::Canary))
                if is_forced =>
            {
                Ok(Terms::PassThrough)
            }
            (State::Open, None) => Err(Refusal::Open { remaining: view.remaining.unwrap() }),
            (State::HalfOpen, Some(Rung::Canary)) => self.expected_on_canary(errand, out),
            (State::HalfOpen, Some(Rung::Probe)) if errand != Errand::Probe => {
                Err(Refusal::AwaitsProbe)
            }
            (State::HalfOpen, Some(Rung::Probe)) if out > 0 => Err(Refusal::HalfOpenFull),
            (State::HalfOpen, Some(Rung::Probe)) => Ok(Terms::HalfOpen),
            (State::HalfOpen, None) | (State::Closed | State::Open, Some(_)) => {
                panic!("half-open alone has a rung: {view:?}")
            }
        }
    }

    fn expected_on_canary(&mut self, errand: Errand, out: u32) -> Result<Terms, Refusal> {
        let is_full = out >= self.rule.half_open.max_requests;
        let Errand::Request { prompt_tokens } = errand else {
            return if is_full { Err(Refusal::HalfOpenFull) } else { Ok(Terms::HalfOpen) };
        };
        self.asked += 1;
        // The shares drawn are whole hundredths, so that whole numbers can judge.
        let hundredths = (self.rule.half_open.share * 100.0).round() as u64;
        let is_spent = self.admitted > 0 && (self.admitted + 1) * 100 > hundredths * self.asked;
        if prompt_tokens > self.rule.half_open.max_prompt_tokens {
            Err(Refusal::PromptTooLarge)
        } else if is_full {
            Err(Refusal::HalfOpenFull)
        } else if is_spent {
            Err(Refusal::ShareSpent)
        } else {
            self.admitted += 1;
            Ok(Terms::HalfOpen)
        }
    }

    fn settle(
        &mut self,
        now: Duration,
        which: usize,
        outcome: Outcome,
        timing: Option<Timing>,
    ) -> Option<Transition> {
        let before = self.view();
        let (permit, errand) = self.permits.swap_remove(which);
        let (epoch, terms, was_slow) = (permit.epoch(), permit.terms(), permit.is_slow());
        let transition = self.breaker.settle_timed(now, permit, outcome, timing);
        let after = self.view();
        let is_due = |change: Transition| {
            let is_end_of_ramp = before.rung == Some(Rung::Ramp);
            change.reason == Reason::PermitLost
                || change.reason == Reason::Recovered && is_end_of_ramp
        };
        if transition.is_some_and(is_due) {
            return transition;
        }
        let is_unheard = terms == Terms::PassThrough
            && (before.state != State::Open || errand != Errand::PassThrough);
        if epoch != before.epoch || is_unheard {
            assert_eq!((transition, after), (None, before), "it has no say");
        } else if outcome == Outcome::Neutral {
            let mut expected = before;
            let is_tried = terms == Terms::HalfOpen && before.rung != Some(Rung::Ramp);
            expected.half_open_in_flight -= u32::from(is_tried);
            assert_eq!((transition, after), (None, expected), "neutral frees a place at most");
        } else if terms == Terms::HalfOpen && outcome == Outcome::Success {
            assert!(!was_slow, "a slow half-open request had its say");
            self.proofs += u32::from(before.rung == Some(Rung::Canary));
        } else if terms == Terms::HalfOpen {
            assert_eq!(after.state, State::Open, "half-open forgives nothing");
        }
        transition
    }

    fn check_transition(&mut self, before: &View, transition: Option<Transition>) {
        let after = self.view();
        let Some(change) = transition else {
            let place = |view: &View| (view.state, view.rung, view.epoch);
            assert_eq!(place(&after), place(before));
            return;
        };
        let is_climb = matches!(
            change.reason,
            Reason::ProbePassed | Reason::CanaryPassed | Reason::ProbeAbolished
        );
        assert_eq!((change.from, change.to), (before.state, after.state));
        assert_eq!(change.epoch, before.epoch + u64::from(!is_climb));
        assert_eq!((after.epoch, after.rung), (change.epoch, change.rung));
        assert_eq!(change.remaining.is_some(), change.to == State::Open);
        self.check_reason(before, &change);
        self.proofs = match change.reason {
            Reason::PassedThrough => 1,
            Reason::Lent => self.lent,
            _ => 0,
        };
        (self.asked, self.admitted) = (0, 0);
        (self.ramp_since, self.ramp_before) = (self.now, Duration::ZERO);
        if change.reason != Reason::ProbeAbolished {
            self.forgotten = 0;
        }
    }

    fn check_reason(&self, before: &View, change: &Transition) {
        let after = self.view();
        let path = (change.from, before.rung, change.to, after.rung);
        let (closed, open, half_open) = (State::Closed, State::Open, State::HalfOpen);
        let (probe, canary, ramp) = (Some(Rung::Probe), Some(Rung::Canary), Some(Rung::Ramp));
        let is_enough = self.proofs >= self.rule.half_open.successes;
        match change.reason {
            Reason::CooledDown => {
                assert!(!before.held, "the fleet's hold keeps an open circuit open");
                let is_lazy = matches!(self.rule.recovery, Recovery::Lazy { .. });
                let rung = if self.has_probe() { probe } else { canary };
                let to = if is_lazy { (closed, None) } else { (half_open, rung) };
                assert_eq!(path, (open, None, to.0, to.1));
            }
            Reason::PassedThrough => {
                assert!(!before.held, "one success proves nothing against the fleet");
                assert_eq!(path, (open, None, half_open, canary));
            }
            Reason::ProbePassed => assert_eq!(path, (half_open, probe, half_open, canary)),
            Reason::ProbeAbolished => {
                assert_eq!(path, (half_open, probe, half_open, canary));
                assert!(!self.has_probe());
            }
            Reason::CanaryPassed => {
                assert_eq!(path, (half_open, canary, half_open, ramp));
                assert!(is_enough && !self.ramp().is_zero(), "climbed without proof");
            }
            Reason::Recovered if before.rung == canary => {
                assert_eq!(path, (half_open, canary, closed, None));
                assert!(is_enough && self.ramp().is_zero(), "closed without proof");
            }
            Reason::Recovered => {
                assert_eq!(path, (half_open, ramp, closed, None));
                let is_over = self.now - self.ramp_since + self.ramp_before >= self.ramp();
                assert!(is_over && !before.held, "the ramp was cut short");
            }
            Reason::Held => {
                assert_eq!((before.held, after.held), (false, true));
                assert_eq!(path, (half_open, before.rung, half_open, before.rung));
                assert!(before.rung != ramp, "a ramp is kept beneath a hold");
                assert_eq!(after.half_open_in_flight, 0, "a hold voids what is out");
            }
            Reason::Lent => {
                assert_eq!((before.held, after.held), (true, false));
                assert_eq!((change.to, after.rung), (half_open, canary));
                assert_eq!(after.half_open_in_flight, 0);
            }
            Reason::Released => {
                assert_eq!((before.held, after.held), (true, false));
                let is_ramp = !self.ramp().is_zero();
                let to = if is_ramp { (half_open, ramp) } else { (closed, None) };
                assert_eq!((change.to, after.rung), to);
            }
            Reason::TurnedOff => assert_eq!((self.rule.mode, change.to), (Mode::Off, closed)),
            Reason::ConsecutiveFaults
            | Reason::FailureRatio
            | Reason::Slow(_)
            | Reason::FirstTokenP95
            | Reason::TotalP95
            | Reason::SlowerThanSiblings => {
                assert_eq!((change.from, change.to), (closed, open));
                self.check_cool_down(change.remaining.unwrap(), after.level);
            }
            Reason::HalfOpenFault(_) | Reason::HalfOpenSlow(_) | Reason::PermitLost => {
                assert_eq!((change.from, change.to), (half_open, open));
                self.check_growth(before, &after);
                self.check_cool_down(change.remaining.unwrap(), after.level);
            }
        }
    }

    fn check_growth(&self, before: &View, after: &View) {
        let is_fresh = before.opened_for.is_none() && after.level == 0;
        let is_lazy = matches!(self.rule.recovery, Recovery::Lazy { .. });
        let is_grown = after.level == (before.level + 1).min(LEVEL_MAX);
        assert!(is_lazy || is_fresh || is_grown, "each return grows the cool-down");
    }

    fn check_cool_down(&self, got: Duration, level: u32) {
        if let Recovery::Lazy { ttl } = self.rule.recovery {
            assert_eq!((got, level), (ttl, 0));
            return;
        }
        let open = &self.rule.open;
        let nominal = open.base.saturating_mul(1 << level.min(20)).min(open.max);
        let (low, high) = (nominal.mul_f64(0.8), nominal.mul_f64(1.2).min(open.max));
        assert!((low..=high).contains(&got), "{got:?} at level {level}");
    }

    /// After every step, whatever it was.
    pub(crate) fn check_bounds(&self) {
        let view = self.view();
        let out = view.half_open_in_flight;
        assert!(out <= self.rule.half_open.max_requests, "half-open admitted too many");
        if matches!(view.rung, Some(Rung::Probe | Rung::Canary)) {
            assert_eq!(out, self.half_open_permits() + self.forgotten, "a place leaked");
        } else {
            assert_eq!(out, 0);
        }
        assert!(view.rung != Some(Rung::Probe) || out <= 1, "two probes at a time");
        let hundredths = (self.rule.half_open.share * 100.0).round() as u64;
        let most = (hundredths * view.canary_asked / 100).max(1);
        assert!(view.canary_admitted <= most, "more canaries than their share");
        assert_eq!((view.canary_asked, view.canary_admitted), (self.asked, self.admitted));
        assert!(view.faults <= f64::from(view.requests) && view.successes <= view.requests);
        let share = self.breaker.share(self.now);
        let is_known = [0.0, 0.25, 0.5, 1.0].contains(&share);
        assert!(is_known && (self.rule.mode == Mode::Enforce || share == 1.0));
        if self.rule.mode == Mode::Off {
            let counted = (view.state, view.requests, view.streak, view.slow_pieces);
            assert_eq!(counted, (State::Closed, 0, 0, 0), "off and yet not idle");
        }
    }

    /// Settles all permits without a verdict, so that nothing is out.
    pub(crate) fn recall(&mut self) {
        while !self.permits.is_empty() {
            self.step(Step::Settle(0, Outcome::Neutral, None), self.now);
        }
    }

    pub(crate) fn slow_all(&mut self, kind: SlowKind) {
        for which in 0..self.permits.len() {
            self.step(Step::Slow(which, kind), self.now);
        }
    }
}
