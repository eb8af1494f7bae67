//! Random schedules against what must hold in all of them.
//!
//! A schedule is a rule and a row of steps drawn from one seed: time passes or jumps back, requests
//! of all kinds come and go in any order, are slow, are forgotten, the fleet holds and releases. The
//! promises are checked after every step. A failure prints its seed; `SEED=… cargo test` plays that
//! one schedule again.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use breaker::{
    Breaker, Cause, Errand, HALF_OPEN_REQUESTS_MAX, Outcome, Permit, Reason, Refusal, Rule, Rung,
    SlowKind, State, Transition, View,
};

const SCHEDULES: u64 = 200_000;
const STEPS: u64 = 24;

/// SplitMix64 (Steele, Lea and Flood, 2014): small, seeded, the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Runs `schedule` once per seed and names the seed of the first that fails.
fn for_each_seed(count: u64, schedule: impl Fn(&mut Chance)) {
    let only = std::env::var("SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| schedule(&mut Chance(seed)))) {
            eprintln!("failed with SEED={seed}");
            resume_unwind(cause);
        }
    }
}

fn some_rule(chance: &mut Chance) -> Rule {
    let mut rule = Rule {
        failure_threshold: 1 + chance.below(5) as u32,
        failure_ratio: 0.25 * (1 + chance.below(4)) as f64,
        min_requests: 1 + chance.below(8) as u32,
        window: Duration::from_secs(10 + chance.below(50)),
        ..Rule::default()
    };
    rule.slow.confirmations = 1 + chance.below(2) as u32;
    rule.open.reset_after = Duration::from_secs(1 + chance.below(300));
    rule.half_open.max_requests = 1 + chance.below(3) as u32;
    rule.half_open.successes = 1 + chance.below(3) as u32;
    rule.check().unwrap();
    rule
}

fn some_kind(chance: &mut Chance) -> SlowKind {
    if chance.one_in(2) { SlowKind::Total } else { SlowKind::FirstToken }
}

fn fault(status: u16) -> Outcome {
    Outcome::Fault { weight: 1.0, cause: Cause::Status(status) }
}

fn some_outcome(chance: &mut Chance) -> Outcome {
    match chance.below(8) {
        0..=2 => Outcome::Success,
        3 | 4 => fault(500),
        5 => Outcome::Fault { weight: 0.5, cause: Cause::Cut },
        6 => Outcome::Slow(some_kind(chance)),
        _ => Outcome::Neutral,
    }
}

/// One thing that happens; the same step can be done to two breakers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit(Errand),
    Tick,
    Slow(usize, SlowKind),
    Settle(usize, Outcome),
    Forget(usize),
    Hold,
    Release,
    SetRule,
}

fn some_step(chance: &mut Chance, permits: usize) -> Step {
    let which = chance.below(permits.max(1) as u64) as usize;
    match chance.below(30) {
        0..=9 if permits < 12 => {
            Step::Admit(Errand::Request { prompt_tokens: chance.below(4) * 100 })
        }
        10 => Step::Admit(Errand::Probe),
        11 => Step::Admit(Errand::PassThrough),
        12 => Step::Hold,
        13 => Step::Release,
        14 => Step::SetRule,
        15 | 16 if permits > 0 => Step::Slow(which, some_kind(chance)),
        17 if permits > 0 => Step::Forget(which),
        18..=27 if permits > 0 => Step::Settle(which, some_outcome(chance)),
        _ => Step::Tick,
    }
}

fn some_pause(chance: &mut Chance) -> Duration {
    let seconds = [0, 0, 1, 1, 2, 6, 30, 100];
    let most = seconds[chance.below(8) as usize];
    Duration::from_millis(chance.below(most * 1_000 + 1))
}

/// A breaker, the permits it gave, and what is known about it from outside.
struct World {
    breaker: Breaker,
    rule: Rule,
    permits: Vec<Permit>,
    now: Duration,
    /// Successes settled in time by half-open permits of the present epoch.
    proofs: u32,
    /// Half-open permits of the present epoch that were dropped.
    forgotten: u32,
}

impl World {
    fn new(chance: &mut Chance) -> Self {
        let rule = some_rule(chance);
        let breaker = Breaker::new(rule.clone(), chance.below(u64::MAX));
        World { breaker, rule, permits: Vec::new(), now: Duration::ZERO, proofs: 0, forgotten: 0 }
    }

    fn view(&self) -> View {
        self.breaker.view(self.now)
    }

    /// Half-open permits of the present epoch that the world still has in its hands.
    fn half_open_permits(&self) -> u32 {
        let epoch = self.view().epoch;
        let is_out = |permit: &&Permit| permit.rung() == Rung::HalfOpen && permit.epoch() == epoch;
        self.permits.iter().filter(is_out).count() as u32
    }

    /// Does a step and checks what can be said about it and the transition.
    fn step(&mut self, step: Step, now: Duration) -> (String, Option<Transition>) {
        self.now = self.now.max(now);
        let before = self.view();
        let mut answer = String::new();
        let transition = match step {
            Step::Admit(errand) => {
                let (result, transition) = self.breaker.admit(now, errand);
                answer = format!("{result:?}");
                self.check_admission(errand, &result);
                self.permits.extend(result);
                transition
            }
            Step::Tick => self.breaker.tick(now),
            Step::Slow(which, kind) => {
                let permit = &mut self.permits[which];
                self.breaker.slow(now, permit, kind)
            }
            Step::Settle(which, outcome) => {
                let permit = self.permits.swap_remove(which);
                self.settle(now, permit, outcome)
            }
            Step::Forget(which) => {
                let permit = self.permits.swap_remove(which);
                let is_out = permit.rung() == Rung::HalfOpen && permit.epoch() == before.epoch;
                self.forgotten += u32::from(is_out);
                None
            }
            Step::Hold => {
                self.breaker.hold(now);
                None
            }
            Step::Release => self.breaker.release(now),
            Step::SetRule => {
                self.rule.open.base += Duration::from_secs(1);
                self.rule.window += Duration::from_secs(1);
                self.breaker.set_rule(self.rule.clone());
                None
            }
        };
        self.check_transition(&before, transition);
        (answer, transition)
    }

    fn check_admission(&self, errand: Errand, result: &Result<Permit, Refusal>) {
        let view = self.view();
        let rung = result.as_ref().map(Permit::rung);
        match errand {
            Errand::PassThrough => assert!(result.is_ok(), "a forced request always goes out"),
            Errand::Request { .. } | Errand::Probe if view.held => {
                assert_eq!(rung, Err(&Refusal::Held), "a held endpoint admits nothing");
            }
            Errand::Request { .. } | Errand::Probe => match view.state {
                State::Closed => assert_eq!(rung, Ok(Rung::Closed)),
                State::Open => {
                    let remaining = view.remaining.unwrap();
                    assert!(!remaining.is_zero(), "open and not held is open for a while");
                    assert_eq!(rung, Err(&Refusal::Open { remaining }));
                }
                State::HalfOpen => self.check_half_open_admission(errand, rung),
            },
        }
    }

    fn check_half_open_admission(&self, errand: Errand, rung: Result<Rung, &Refusal>) {
        let is_long = match errand {
            Errand::Request { prompt_tokens } => prompt_tokens > 256,
            Errand::Probe | Errand::PassThrough => false,
        };
        let out = self.half_open_permits() + self.forgotten;
        if is_long {
            assert_eq!(rung, Err(&Refusal::PromptTooLarge));
        } else if out >= self.rule.half_open.max_requests {
            assert_eq!(rung, Err(&Refusal::HalfOpenFull), "{out} are out");
        } else {
            assert_eq!(rung, Ok(Rung::HalfOpen), "{out} are out");
        }
    }

    fn settle(&mut self, now: Duration, permit: Permit, outcome: Outcome) -> Option<Transition> {
        let before = self.view();
        let (epoch, rung) = (permit.epoch(), permit.rung());
        let was_slow = permit.is_slow();
        let transition = self.breaker.settle(now, permit, outcome);
        let after = self.view();
        let is_lost = transition.is_some_and(|change| change.reason == Reason::PermitLost);
        if is_lost {
            return transition;
        }
        if epoch != before.epoch || rung == Rung::PassThrough && before.state != State::Open {
            assert_eq!((transition, after), (None, before), "it has no say");
        } else if outcome == Outcome::Neutral {
            let mut expected = before;
            expected.half_open_in_flight -= u32::from(rung == Rung::HalfOpen);
            assert_eq!((transition, after), (None, expected), "neutral frees a place at most");
        } else if rung == Rung::HalfOpen && outcome == Outcome::Success {
            assert!(!was_slow, "a slow half-open request had its say");
            self.proofs += 1;
        } else if rung == Rung::HalfOpen {
            assert_eq!(after.state, State::Open, "half-open forgives nothing");
        }
        transition
    }

    fn check_transition(&mut self, before: &View, transition: Option<Transition>) {
        let after = self.view();
        let Some(change) = transition else {
            assert_eq!((after.state, after.epoch), (before.state, before.epoch));
            return;
        };
        assert_eq!((change.from, change.to), (before.state, after.state));
        assert_eq!((change.epoch, change.at), (before.epoch + 1, self.now));
        assert_eq!(after.epoch, change.epoch);
        assert_eq!(change.remaining.is_some(), change.to == State::Open);
        self.check_reason(before, &change);
        self.proofs = u32::from(change.reason == Reason::PassedThrough);
        self.forgotten = 0;
    }

    fn check_reason(&self, before: &View, change: &Transition) {
        let after = self.view();
        match change.reason {
            Reason::CooledDown | Reason::PassedThrough => {
                assert!(!before.held, "the fleet's hold keeps an open circuit open");
                assert_eq!((change.from, change.to), (State::Open, State::HalfOpen));
            }
            Reason::Recovered => {
                assert_eq!((change.from, change.to), (State::HalfOpen, State::Closed));
                assert!(self.proofs >= self.rule.half_open.successes, "closed without proof");
            }
            Reason::Released => {
                assert_eq!((before.held, after.held), (true, false));
                assert_eq!(change.to, State::Closed);
                let evidence = (after.streak, after.requests, after.faults, after.slow_pieces);
                assert_eq!(evidence, (0, 0, 0.0, 0));
            }
            Reason::ConsecutiveFaults | Reason::FailureRatio | Reason::Slow(_) => {
                assert_eq!((change.from, change.to), (State::Closed, State::Open));
                self.check_cool_down(change.remaining.unwrap(), after.level);
            }
            Reason::HalfOpenFault(_) | Reason::HalfOpenSlow(_) | Reason::PermitLost => {
                assert_eq!((change.from, change.to), (State::HalfOpen, State::Open));
                assert_eq!(after.level, before.level + 1, "each return grows the cool-down");
                self.check_cool_down(change.remaining.unwrap(), after.level);
            }
        }
    }

    fn check_cool_down(&self, got: Duration, level: u32) {
        let open = &self.rule.open;
        let nominal = open.base.saturating_mul(1 << level.min(20)).min(open.max);
        let (low, high) = (nominal.mul_f64(0.8), nominal.mul_f64(1.2).min(open.max));
        assert!((low..=high).contains(&got), "{got:?} at level {level}");
    }

    /// After every step, whatever it was.
    fn check_bounds(&self) {
        let view = self.view();
        let out = view.half_open_in_flight;
        assert!(out <= self.rule.half_open.max_requests, "half-open admitted too many");
        if view.state == State::HalfOpen {
            assert_eq!(out, self.half_open_permits() + self.forgotten, "a place leaked");
        } else {
            assert_eq!(out, 0);
        }
        assert!(view.faults <= f64::from(view.requests) && view.successes <= view.requests);
    }
}

#[test]
fn the_promises_hold_in_every_schedule() {
    for_each_seed(SCHEDULES, |chance| {
        let mut world = World::new(chance);
        for _ in 0..STEPS {
            let pause = some_pause(chance);
            let step = some_step(chance, world.permits.len());
            world.step(step, world.now + pause);
            world.check_bounds();
        }
    });
}

#[test]
fn half_open_ends_once_a_permit_is_lost() {
    for_each_seed(SCHEDULES / 4, |chance| {
        let mut world = World::new(chance);
        for _ in 0..STEPS {
            let pause = some_pause(chance);
            let step = some_step(chance, world.permits.len());
            world.step(step, world.now + pause);
        }
        world.permits.clear();
        let before = world.view();
        let deadline = world.rule.half_open.deadline;
        let transition = world.breaker.tick(world.now + deadline);
        let is_lost = transition.is_some_and(|change| change.reason == Reason::PermitLost);
        assert_eq!(is_lost, before.half_open_in_flight > 0);
    });
}

#[test]
fn time_that_runs_back_changes_nothing() {
    for_each_seed(SCHEDULES / 4, |chance| {
        let mut straight = World::new(chance);
        let mut jumping = World { permits: Vec::new(), ..straight.copy() };
        let mut latest = Duration::ZERO;
        for _ in 0..STEPS {
            latest += some_pause(chance);
            let jump = if chance.one_in(2) { some_pause(chance) } else { Duration::ZERO };
            let step = some_step(chance, straight.permits.len());
            if jump > Duration::ZERO {
                // The jump back can be seen only by a breaker that has seen the later time.
                same(straight.step(Step::Tick, latest), jumping.step(Step::Tick, latest));
            }
            let expected = straight.step(step, latest);
            same(expected, jumping.step(step, latest.saturating_sub(jump)));
            // Some steps tell no time, so the view is asked at the time of the step.
            same(straight.view(), jumping.breaker.view(latest.saturating_sub(jump)));
        }
    });
}

impl World {
    fn copy(&self) -> Self {
        World {
            breaker: self.breaker.clone(),
            rule: self.rule.clone(),
            permits: Vec::new(),
            now: self.now,
            proofs: self.proofs,
            forgotten: self.forgotten,
        }
    }
}

fn same<T: Debug + PartialEq>(left: T, right: T) {
    assert_eq!(left, right);
}

/// A rule that no check has seen, made of the ends of every range.
fn wild_rule(chance: &mut Chance) -> Rule {
    let counts = [0, 1, 3, 17, u32::MAX];
    let lengths = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(9), Duration::MAX];
    let mut rule = Rule::default();
    for field in [
        &mut rule.failure_threshold,
        &mut rule.min_requests,
        &mut rule.slow.confirmations,
        &mut rule.half_open.max_requests,
        &mut rule.half_open.successes,
    ] {
        *field = counts[chance.below(5) as usize];
    }
    for field in [
        &mut rule.window,
        &mut rule.slow.dedup,
        &mut rule.open.base,
        &mut rule.open.max,
        &mut rule.open.reset_after,
        &mut rule.half_open.deadline,
    ] {
        *field = lengths[chance.below(4) as usize];
    }
    rule.failure_ratio = [f64::NAN, -1.0, 0.0, 0.5, f64::INFINITY][chance.below(5) as usize];
    rule
}

#[test]
fn no_rule_and_no_time_makes_it_panic() {
    for_each_seed(SCHEDULES / 10, |chance| {
        let mut breaker = Breaker::new(wild_rule(chance), chance.below(u64::MAX));
        let mut permits = Vec::new();
        for _ in 0..STEPS {
            let now = match chance.below(50) {
                0 => Duration::MAX,
                _ => Duration::from_nanos(chance.below(u64::MAX)),
            };
            match some_step(chance, permits.len()) {
                Step::Admit(errand) => permits.extend(breaker.admit(now, errand).0),
                Step::Slow(which, kind) => {
                    breaker.slow(now, &mut permits[which], kind);
                }
                Step::Settle(which, outcome) => {
                    breaker.settle(now, permits.swap_remove(which), outcome);
                }
                Step::Forget(which) => drop(permits.swap_remove(which)),
                Step::Hold => breaker.hold(now),
                Step::Release => drop(breaker.release(now)),
                Step::SetRule => breaker.set_rule(wild_rule(chance)),
                Step::Tick => drop(breaker.tick(now)),
            }
            assert!(breaker.view(now).half_open_in_flight <= HALF_OPEN_REQUESTS_MAX);
        }
    });
}
