//! The ladder back to closed: a probe, then canaries, then ever more traffic.
//!
//! An endpoint that has just come back is cold, and a queue of clients is waiting for it. Each rung
//! risks a little more than the one below: nobody's request, a few small ones, a share of all. What
//! is found out on a rung, here is only counted; falling and closing are the machine's.
//!
//! Invariants:
//! - The rungs are climbed in order and none is climbed twice.
//! - On the probe rung at most one permit is out, on the canary rung as many as the rule says.
//! - On the canary rung at most one request, or the rule's share of those that asked, is admitted.

use std::time::Duration;

use crate::permit::{Place, Places};
use crate::rule::{HALF_OPEN_REQUESTS_MAX, HalfOpenRule, Rule};
use crate::snapshot::SavedPhase;
use crate::{Errand, Reason, Refusal, Rung, View};

/// Millionths in a whole, so that a share written in decimals is met exactly.
const WHOLE: u64 = 1_000_000;

/// The weights of the ramp's three parts, as shares of the endpoint's usual weight.
const RAMP_WEIGHTS: [f64; 3] = [0.25, 0.5, 1.0];

/// What is known while half-open.
#[derive(Clone, Debug)]
pub(super) struct HalfOpen {
    opened_for: Option<Reason>,
    /// When half-open began or last admitted something.
    touched: Duration,
    /// When the rung was reached.
    since: Duration,
    places: Places,
    step: Step,
}

/// A rung with what is counted on it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Probe,
    Canary(Canary),
    Ramp,
}

/// What is counted on the canary rung.
#[derive(Clone, Copy, Debug, Default)]
struct Canary {
    successes: u32,
    asked: u64,
    admitted: u64,
}

/// What becomes of half-open after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It stays on its rung.
    Stays,
    /// It has reached the next rung.
    Climbed(Reason),
    /// There is no rung left.
    Done,
}

impl HalfOpen {
    /// Begins on a rung.
    pub(super) fn new(now: Duration, opened_for: Option<Reason>, rung: Rung) -> Self {
        let step = match rung {
            Rung::Probe => Step::Probe,
            Rung::Canary => Step::Canary(Canary::default()),
            Rung::Ramp => Step::Ramp,
        };
        HalfOpen { opened_for, touched: now, since: now, places: Places::default(), step }
    }

    /// Begins on the canary rung with successes that came before it.
    pub(super) fn with_successes(
        now: Duration,
        opened_for: Option<Reason>,
        successes: u32,
    ) -> Self {
        let step = Step::Canary(Canary { successes, ..Canary::default() });
        HalfOpen { step, ..HalfOpen::new(now, opened_for, Rung::Canary) }
    }

    /// Why the circuit opened.
    pub(super) fn opened_for(&self) -> Option<Reason> {
        self.opened_for
    }

    /// The rung it stands on.
    pub(super) fn rung(&self) -> Rung {
        match self.step {
            Step::Probe => Rung::Probe,
            Step::Canary(_) => Rung::Canary,
            Step::Ramp => Rung::Ramp,
        }
    }

    /// Finds a place for an errand.
    pub(super) fn admit(
        &mut self,
        now: Duration,
        rule: &HalfOpenRule,
        errand: Errand,
    ) -> Result<Place, Refusal> {
        // A rule that admits nothing would be a circuit that never closes.
        let canaries = rule.max_requests.clamp(1, HALF_OPEN_REQUESTS_MAX);
        let most = match (&mut self.step, errand) {
            (Step::Ramp, Errand::Request { .. } | Errand::Probe | Errand::PassThrough) => {
                self.touched = now;
                return Ok(Place::Ramp);
            }
            (Step::Probe | Step::Canary(_), Errand::PassThrough) => return Ok(Place::PassThrough),
            (Step::Probe, Errand::Request { .. }) => return Err(Refusal::AwaitsProbe),
            (Step::Probe, Errand::Probe) => 1,
            (Step::Canary(_), Errand::Probe) => canaries,
            (Step::Canary(canary), Errand::Request { prompt_tokens }) => {
                canary.ask(rule, prompt_tokens, self.places.out() >= canaries)?;
                canaries
            }
        };
        let index = self.places.take(now, most).ok_or(Refusal::HalfOpenFull)?;
        self.touched = now;
        Ok(Place::Tried { index })
    }

    /// Gives the place of a permit back.
    pub(super) fn free(&mut self, index: usize) {
        self.places.free(index);
    }

    /// Whether a permit has been out for the rule's deadline or longer.
    pub(super) fn has_overdue(&self, now: Duration, rule: &Rule) -> bool {
        self.places.has_overdue(now, rule.half_open.deadline)
    }

    /// Whether the ramp is over.
    pub(super) fn is_over(&self, now: Duration, rule: &Rule) -> bool {
        match self.step {
            Step::Probe | Step::Canary(_) => false,
            Step::Ramp => now.saturating_sub(self.since) >= rule.ramp(),
        }
    }

    /// Counts a success of this rung and climbs if that is enough.
    pub(super) fn succeed(&mut self, now: Duration, rule: &Rule) -> Progress {
        match &mut self.step {
            Step::Probe => self.climb(now, Rung::Canary, Reason::ProbePassed),
            Step::Canary(canary) => {
                canary.successes = canary.successes.saturating_add(1);
                if canary.successes < rule.half_open.successes {
                    Progress::Stays
                } else if rule.ramp().is_zero() {
                    Progress::Done
                } else {
                    self.climb(now, Rung::Ramp, Reason::CanaryPassed)
                }
            }
            // The ramp is a matter of time.
            Step::Ramp => Progress::Stays,
        }
    }

    /// Leaves the probe rung because there is none any more; a probe that is out goes on as a
    /// canary.
    pub(super) fn skip_probe(&mut self, now: Duration) -> Option<Reason> {
        let Step::Probe = self.step else {
            return None;
        };
        self.since = now;
        self.step = Step::Canary(Canary::default());
        Some(Reason::ProbeAbolished)
    }

    /// The weight that the chooser is to give, 0 to 1.
    pub(super) fn weight(&self, now: Duration, rule: &Rule) -> f64 {
        let [first, second, third] = RAMP_WEIGHTS;
        let part = rule.ramp() / 3;
        match self.step {
            Step::Probe => 0.0,
            // The rung keeps its own share of those that ask.
            Step::Canary(_) => 1.0,
            Step::Ramp => match now.saturating_sub(self.since) {
                age if age < part => first,
                age if age < part * 2 => second,
                _ => third,
            },
        }
    }

    /// Writes what is known into the view.
    pub(super) fn show(&self, now: Duration, view: &mut View) {
        let canary = self.canary();
        view.rung = Some(self.rung());
        view.half_open_in_flight = self.places.out();
        view.half_open_successes = canary.successes;
        view.canary_asked = canary.asked;
        view.canary_admitted = canary.admitted;
        view.half_open_idle = Some(now.saturating_sub(self.touched));
        view.opened_for = self.opened_for;
    }

    /// Says what is known, as ages at `now`. Permits that are out will be gone.
    pub(super) fn save(&self, now: Duration) -> SavedPhase {
        let Canary { successes, asked, admitted } = self.canary();
        SavedPhase::HalfOpen {
            opened_for: self.opened_for,
            idle: now.saturating_sub(self.touched),
            age: now.saturating_sub(self.since),
            rung: self.rung(),
            successes,
            asked,
            admitted,
        }
    }

    /// Puts back what was counted on the canary rung and when the rung was reached and used.
    pub(super) fn resume(
        &mut self,
        (since, touched): (Duration, Duration),
        counted: (u32, u64, u64),
    ) {
        (self.since, self.touched) = (since, touched);
        if let Step::Canary(canary) = &mut self.step {
            let (successes, asked, admitted) = counted;
            *canary = Canary { successes, asked, admitted };
        }
    }

    fn canary(&self) -> Canary {
        match self.step {
            Step::Probe | Step::Ramp => Canary::default(),
            Step::Canary(canary) => canary,
        }
    }

    /// The places are cleared: a permit that is out on a rung below may settle, but the ramp ends
    /// without it.
    fn climb(&mut self, now: Duration, rung: Rung, reason: Reason) -> Progress {
        *self = HalfOpen { touched: self.touched, ..HalfOpen::new(now, self.opened_for, rung) };
        Progress::Climbed(reason)
    }
}

impl Canary {
    /// Counts a request that asks and says whether it may be admitted.
    fn ask(
        &mut self,
        rule: &HalfOpenRule,
        prompt_tokens: u64,
        is_full: bool,
    ) -> Result<(), Refusal> {
        self.asked = self.asked.saturating_add(1);
        if prompt_tokens > rule.max_prompt_tokens {
            return Err(Refusal::PromptTooLarge);
        }
        if is_full {
            return Err(Refusal::HalfOpenFull);
        }
        // The conversion saturates, and what is not a number becomes zero.
        let share = (rule.share * WHOLE as f64).round() as u64;
        let admitted = self.admitted.saturating_add(1);
        // Without the first one the rung could take for ever to begin.
        if admitted > 1 && admitted.saturating_mul(WHOLE) > share.saturating_mul(self.asked) {
            return Err(Refusal::ShareSpent);
        }
        self.admitted = admitted;
        Ok(())
    }
}
