//! Compares the breaker with a second one that was written to be read, not to be fast.
//!
//! The second one keeps every outcome it ever saw in a list and looks the answer up in that list
//! each time. Where the breaker has a ring, counters and slots, it has only the words of the
//! specification, so that a slip in the clever part shows as a difference. It covers what needs no
//! permit to be held across steps: each request is over at once.
#![expect(clippy::panic, reason = "a test may stop loudly")]

use breaker::{Breaker, Cause, Errand, Outcome, Refusal, Rule, SlowKind, State};
use std::time::Duration;

const SCHEDULES: u64 = 20_000;
const STEPS: usize = 60;
const TICKS_PER_WINDOW: u64 = 10;

#[derive(Clone, Copy, PartialEq)]
enum What {
    Success,
    Fault(u64),
    Slow(SlowKind),
}

/// The second breaker; time is counted in tenths of the window.
struct Reference {
    rule: Rule,
    state: State,
    /// All that was counted since the circuit closed, with its time.
    story: Vec<(Duration, What)>,
    until: Duration,
    proofs: u32,
    /// The times of all openings and closings, oldest first.
    openings: Vec<Duration>,
    closings: Vec<Duration>,
    level: u32,
}

impl Reference {
    fn new(rule: Rule) -> Self {
        let (openings, closings) = (Vec::new(), Vec::new());
        let (story, state) = (Vec::new(), State::Closed);
        Reference {
            rule,
            state,
            story,
            until: Duration::ZERO,
            proofs: 0,
            openings,
            closings,
            level: 0,
        }
    }

    /// Faults since the last success; slow requests neither add nor end.
    fn streak(&self) -> usize {
        let is_fault = |what: &&What| matches!(what, What::Fault(_));
        let after = self.story.iter().rev().map(|(_, what)| what);
        after.take_while(|what| **what != What::Success).filter(is_fault).count()
    }

    /// Requests and thousandths of faults in the tenth of the window that runs and the nine before.
    fn recent(&self, now: Duration) -> (u64, u64) {
        let tenth = |time: Duration| {
            let width = self.rule.window.as_nanos() / u128::from(TICKS_PER_WINDOW);
            (time.as_nanos() / width) as u64
        };
        let mut sum = (0, 0);
        for (time, what) in &self.story {
            if tenth(*time) + TICKS_PER_WINDOW > tenth(now) {
                sum.0 += 1;
                if let What::Fault(thousandths) = what {
                    sum.1 += thousandths;
                }
            }
        }
        sum
    }

    /// Times of the pieces of slow evidence, found by walking the story from its beginning.
    fn pieces(&self, now: Duration) -> usize {
        let mut count = 0;
        for kind in [SlowKind::Total, SlowKind::FirstToken] {
            let mut last: Option<Duration> = None;
            for (time, what) in &self.story {
                let is_apart = last.is_none_or(|last| *time - last >= self.rule.slow.dedup);
                if *what == What::Slow(kind) && is_apart {
                    last = Some(*time);
                    count += usize::from(now - *time < self.rule.window);
                }
            }
        }
        count
    }

    fn must_open(&self, now: Duration) -> bool {
        let (requests, thousandths) = self.recent(now);
        // The ratios drawn are whole tenths, so that whole numbers can judge without rounding.
        let tenths = (self.rule.failure_ratio * 10.0).round() as u64;
        let is_share_met = thousandths * 10 >= tenths * requests * 1_000;
        self.streak() >= self.rule.failure_threshold as usize
            || self.pieces(now) >= self.rule.slow.confirmations as usize
            || requests >= u64::from(self.rule.min_requests) && is_share_met
    }

    /// Takes over the length of the cool-down, which is chance, after checking its bounds.
    fn open(&mut self, now: Duration, remaining: Duration) {
        let has_lasted = |closing: &Duration| now - *closing >= self.rule.open.reset_after;
        let is_return = self.state == State::HalfOpen;
        let is_fresh = !is_return && self.closings.last().is_none_or(has_lasted);
        self.level = if self.openings.is_empty() || is_fresh { 0 } else { self.level + 1 };
        let mut nominal = self.rule.open.base;
        for _ in 0..self.level {
            nominal = (nominal * 2).min(self.rule.open.max);
        }
        let (low, high) = (nominal.mul_f64(0.8), nominal.mul_f64(1.2));
        assert!((low..=high.min(self.rule.open.max)).contains(&remaining), "{remaining:?}");
        self.state = State::Open;
        self.until = now + remaining;
        self.openings.push(now);
        self.story.clear();
    }

    fn is_admitting(&mut self, now: Duration, tokens: u64) -> bool {
        if self.state == State::Open && now >= self.until {
            self.state = State::HalfOpen;
            self.proofs = 0;
        }
        match self.state {
            State::Closed => true,
            State::Open => false,
            State::HalfOpen => tokens <= self.rule.half_open.max_prompt_tokens,
        }
    }

    /// Says whether the circuit must open, and closes it if it must close.
    fn settle(&mut self, now: Duration, what: Option<What>) -> bool {
        let Some(what) = what else {
            return false;
        };
        if self.state == State::Closed {
            self.story.push((now, what));
            return self.must_open(now);
        }
        if what != What::Success {
            return true;
        }
        self.proofs += 1;
        if self.proofs >= self.rule.half_open.successes {
            self.state = State::Closed;
            self.closings.push(now);
        }
        false
    }
}

struct Chance(u64);

impl Chance {
    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn some_rule(chance: &mut Chance) -> Rule {
    let mut rule = Rule {
        failure_threshold: 1 + chance.below(6) as u32,
        failure_ratio: (1 + chance.below(10)) as f64 / 10.0,
        min_requests: 1 + chance.below(10) as u32,
        window: Duration::from_millis(10_000 + 10 * chance.below(5_000)),
        ..Rule::default()
    };
    rule.slow.confirmations = 1 + chance.below(2) as u32;
    rule.open.reset_after = Duration::from_secs(1 + chance.below(60));
    rule.half_open.successes = 1 + chance.below(3) as u32;
    rule
}

fn some_outcome(chance: &mut Chance) -> (Outcome, Option<What>) {
    let fault = |thousandths: u64| {
        let weight = thousandths as f64 / 1_000.0;
        (Outcome::Fault { weight, cause: Cause::Other }, Some(What::Fault(thousandths)))
    };
    match chance.below(10) {
        0..=4 => (Outcome::Success, Some(What::Success)),
        5 | 6 => fault(1_000),
        7 => fault(1 + chance.below(1_000)),
        8 if chance.below(2) == 0 => (Outcome::Neutral, None),
        8 => (Outcome::Slow(SlowKind::Total), Some(What::Slow(SlowKind::Total))),
        _ => (Outcome::Slow(SlowKind::FirstToken), Some(What::Slow(SlowKind::FirstToken))),
    }
}

fn schedule(seed: u64) {
    let chance = &mut Chance(seed);
    let rule = some_rule(chance);
    let mut breaker = Breaker::new(rule.clone(), seed);
    let mut reference = Reference::new(rule);
    let mut now = Duration::ZERO;
    for step in 0..STEPS {
        let most = if chance.below(20) == 0 { 100_000 } else { 2_000 };
        now += Duration::from_millis(chance.below(most));
        let prompt_tokens = chance.below(300);
        let told = format!("SEED={seed}, step {step} at {now:?}");
        let (answer, _) = breaker.admit(now, Errand::Request { prompt_tokens });
        assert_eq!(answer.is_ok(), reference.is_admitting(now, prompt_tokens), "{told}");
        match answer {
            Ok(permit) => {
                let (outcome, what) = some_outcome(chance);
                let change = breaker.settle(now, permit, outcome);
                let opened = change.and_then(|change| change.remaining);
                assert_eq!(opened.is_some(), reference.settle(now, what), "{told}: {outcome:?}");
                opened.into_iter().for_each(|remaining| reference.open(now, remaining));
            }
            Err(Refusal::Open { remaining }) => assert_eq!(now + remaining, reference.until),
            Err(Refusal::PromptTooLarge) => assert_eq!(reference.state, State::HalfOpen),
            Err(Refusal::HalfOpenFull | Refusal::Held) => panic!("{told}: nothing is out or held"),
        }
        let view = breaker.view(now);
        assert_eq!(view.state, reference.state, "{told}");
        if view.state == State::Closed {
            let (requests, _) = reference.recent(now);
            assert_eq!(u64::from(view.requests), requests, "{told}");
            assert_eq!(view.streak as usize, reference.streak(), "{told}");
            assert_eq!(view.slow_pieces as usize, reference.pieces(now), "{told}");
        }
    }
}

#[test]
fn the_breaker_and_the_lists_agree() {
    let only =
        std::env::var("SEED").ok().map(|seed| seed.parse::<u64>().expect("SEED is a number"));
    only.map_or(0..SCHEDULES, |seed| seed..seed + 1).for_each(schedule);
}
