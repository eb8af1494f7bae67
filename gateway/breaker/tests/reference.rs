//! Compares the breaker with a second one that was written to be read, not to be fast.
//!
//! The second one keeps every outcome it ever saw in a list and looks the answer up in that list
//! each time. Where the breaker has a ring, counters and slots, it has only the words of the
//! specification, so that a slip in the clever part shows as a difference. It covers what needs no
//! permit to be kept across steps: each request is over at once. What the fleet does is among it.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop loudly"
)]

use breaker::{
    Breaker, Cause, Errand, Evidence, Outcome, P95Rule, Reason, Recovery, Refusal, Rule, Rung,
    SlowKind, State, Timing, View,
};
use std::time::Duration;

const SCHEDULES: u64 = 20_000;
const STEPS: usize = 90;
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
    rung: Rung,
    /// When the ramp began.
    ramp_since: Duration,
    /// All requests that asked on the canary rung, and whether each was admitted.
    asked: Vec<bool>,
    proofs: u32,
    /// The times of all openings and closings, oldest first.
    openings: Vec<Duration>,
    closings: Vec<Duration>,
    level: u32,
    /// Since when the fleet has the endpoint out.
    held: Option<Duration>,
    last_success: Option<Duration>,
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
            rung: Rung::Probe,
            ramp_since: Duration::ZERO,
            asked: Vec::new(),
            proofs: 0,
            openings,
            closings,
            level: 0,
            held: None,
            last_success: None,
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

    /// Ages of the pieces of slow evidence, found by walking the story from its beginning.
    fn pieces(&self, now: Duration) -> Vec<Duration> {
        let mut ages = Vec::new();
        for kind in SlowKind::ALL {
            let mut last: Option<Duration> = None;
            for (time, what) in &self.story {
                let is_apart = last.is_none_or(|last| *time - last >= self.rule.slow.dedup);
                if *what == What::Slow(kind) && is_apart {
                    last = Some(*time);
                    ages.push(now - *time);
                }
            }
        }
        ages.retain(|age| *age < self.rule.window);
        ages.sort_unstable();
        ages
    }

    fn must_open(&self, now: Duration) -> bool {
        let (requests, thousandths) = self.recent(now);
        // The ratios drawn are whole tenths, so that whole numbers can judge without rounding.
        let tenths = (self.rule.failure_ratio * 10.0).round() as u64;
        let is_share_met = thousandths * 10 >= tenths * requests * 1_000;
        self.streak() >= self.rule.failure_threshold as usize
            || self.pieces(now).len() >= self.rule.slow.confirmations as usize
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
        let bounds = match self.rule.recovery {
            Recovery::Lazy { ttl } => ttl..=ttl,
            Recovery::Staged { .. } => {
                nominal.mul_f64(0.8)..=nominal.mul_f64(1.2).min(self.rule.open.max)
            }
        };
        assert!(bounds.contains(&remaining), "{remaining:?}");
        self.state = State::Open;
        self.until = now + remaining;
        self.openings.push(now);
        self.story.clear();
    }

    fn close(&mut self, now: Duration) {
        self.state = State::Closed;
        self.closings.push(now);
        self.story.clear();
    }

    fn ramp(&self) -> Duration {
        match self.rule.recovery {
            Recovery::Staged { ramp, .. } => ramp,
            Recovery::Lazy { .. } => Duration::ZERO,
        }
    }

    fn hold(&mut self, now: Duration) {
        if self.held.is_none() {
            self.held = Some(now);
            self.proofs = 0;
            self.asked.clear();
        }
    }

    /// Ends the hold, if there is one. Health counts until it began, and if it had lasted by then
    /// the past is forgotten.
    fn let_go(&mut self) -> bool {
        let Some(held) = self.held.take() else {
            return false;
        };
        let has_lasted = |closing: &Duration| held - *closing >= self.rule.open.reset_after;
        if self.state == State::Closed && self.closings.last().is_none_or(has_lasted) {
            self.openings.clear();
        }
        self.story.clear();
        self.asked.clear();
        true
    }

    fn lend(&mut self, successes: u32) -> bool {
        let is_lent = self.let_go();
        if is_lent {
            (self.state, self.rung, self.proofs) = (State::HalfOpen, Rung::Canary, successes);
        }
        is_lent
    }

    fn release(&mut self, now: Duration) -> bool {
        let is_released = self.let_go();
        if is_released && self.ramp().is_zero() {
            self.close(now);
        } else if is_released {
            (self.state, self.rung, self.ramp_since) = (State::HalfOpen, Rung::Ramp, now);
        }
        is_released
    }

    fn pass_time(&mut self, now: Duration) {
        if self.held.is_some() {
            return;
        }
        if self.state == State::Open && now >= self.until {
            match self.rule.recovery {
                Recovery::Lazy { .. } => self.close(now),
                Recovery::Staged { probe, .. } => {
                    self.state = State::HalfOpen;
                    self.rung = if probe { Rung::Probe } else { Rung::Canary };
                    self.asked.clear();
                    self.proofs = 0;
                }
            }
        } else if self.is_on(Rung::Ramp) && now - self.ramp_since >= self.ramp() {
            self.close(now);
        }
    }

    fn is_on(&self, rung: Rung) -> bool {
        self.state == State::HalfOpen && self.rung == rung
    }

    fn is_admitting(&mut self, now: Duration, errand: Errand) -> bool {
        self.pass_time(now);
        if self.held.is_some() {
            return false;
        }
        match (self.state, self.rung, errand) {
            (State::Closed, ..) | (State::HalfOpen, Rung::Ramp, _) => true,
            (State::Open, ..) => false,
            (State::HalfOpen, Rung::Probe | Rung::Canary, Errand::Probe) => true,
            (State::HalfOpen, Rung::Canary, Errand::Request { prompt_tokens }) => {
                // The shares drawn are whole hundredths, so that whole numbers can judge.
                let hundredths = (self.rule.half_open.share * 100.0).round() as usize;
                let admitted = self.asked.iter().filter(|is_admitted| **is_admitted).count();
                let is_within = (admitted + 1) * 100 <= hundredths * (self.asked.len() + 1);
                let is_admitted = prompt_tokens <= self.rule.half_open.max_prompt_tokens
                    && (admitted == 0 || is_within);
                self.asked.push(is_admitted);
                is_admitted
            }
            (State::HalfOpen, Rung::Probe, Errand::Request { .. } | Errand::PassThrough)
            | (State::HalfOpen, Rung::Canary, Errand::PassThrough) => false,
        }
    }

    /// Says whether the circuit must open, and climbs or closes if it must.
    fn settle(&mut self, now: Duration, what: Option<What>) -> bool {
        let Some(what) = what else {
            return false;
        };
        if what == What::Success {
            self.last_success = Some(now);
        }
        if self.state == State::Closed {
            self.story.push((now, what));
            return self.must_open(now);
        }
        if what != What::Success {
            return true;
        }
        if self.rung == Rung::Probe {
            self.rung = Rung::Canary;
        } else if self.rung == Rung::Canary {
            self.proofs += 1;
            let is_enough = self.proofs >= self.rule.half_open.successes;
            if is_enough && self.ramp().is_zero() {
                self.close(now);
            } else if is_enough {
                (self.rung, self.ramp_since) = (Rung::Ramp, now);
            }
        }
        false
    }

    fn check_view(&self, now: Duration, view: &View, share: f64, told: &str) {
        assert_eq!(view.state, self.state, "{told}");
        let is_half_open = self.state == State::HalfOpen;
        assert_eq!(view.rung, is_half_open.then_some(self.rung), "{told}");
        assert_eq!(view.held, self.held.is_some(), "{told}");
        if view.held {
            assert_eq!(share, 0.0, "{told}");
        } else if self.is_on(Rung::Ramp) {
            let thirds = (now - self.ramp_since).as_nanos() * 3 / self.ramp().as_nanos();
            let expected = if thirds < 1 {
                0.25
            } else if thirds < 2 {
                0.5
            } else {
                1.0
            };
            assert_eq!(share, expected, "{told}");
        }
        if self.state == State::Closed {
            let (requests, _) = self.recent(now);
            assert_eq!(u64::from(view.requests), requests, "{told}");
            assert_eq!(view.streak as usize, self.streak(), "{told}");
        }
        if self.is_on(Rung::Canary) {
            let admitted = self.asked.iter().filter(|is_admitted| **is_admitted).count() as u64;
            let counted = (view.canary_asked, view.canary_admitted);
            assert_eq!(counted, (self.asked.len() as u64, admitted), "{told}");
            assert_eq!(view.half_open_successes, self.proofs, "{told}");
        }
    }

    fn check_evidence(&self, now: Duration, evidence: &Evidence, told: &str) {
        // What is not closed has no story.
        let (requests, thousandths) = self.recent(now);
        assert_eq!(u64::from(evidence.requests), requests, "{told}");
        assert_eq!(evidence.fault_millionths, thousandths * 1_000, "{told}");
        let slow: Vec<Duration> = evidence.slow.iter().map_while(|age| *age).collect();
        assert_eq!(slow, self.pieces(now), "{told}");
        let age = self.last_success.map(|last| now - last);
        assert_eq!(evidence.last_success, age.filter(|age| *age < self.rule.window), "{told}");
    }
}

/// One thing that the fleet does, to both; most of the time it does nothing.
fn fleet(
    chance: &mut Chance,
    now: Duration,
    breaker: &mut Breaker,
    reference: &mut Reference,
    told: &str,
) {
    let (reason, is_expected) = match chance.below(40) {
        0 => {
            breaker.hold(now);
            return reference.hold(now);
        }
        1 | 2 => (Reason::Released, reference.release(now)),
        3 | 4 => (Reason::Lent, reference.lend(chance.below(4) as u32)),
        _ => return,
    };
    let change = match reason {
        Reason::Released => breaker.release(now),
        _ => breaker.lend(now, reference.proofs),
    };
    assert_eq!(change.map(|change| change.reason), is_expected.then_some(reason), "{told}");
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
    rule.slow.confirmations = 1 + chance.below(4) as u32;
    rule.open.reset_after = Duration::from_secs(1 + chance.below(60));
    rule.half_open.successes = 1 + chance.below(3) as u32;
    rule.half_open.share = [0.05, 0.34, 1.0][chance.below(3) as usize];
    // Thirds of these ramps are whole nanoseconds.
    let ramp = Duration::from_secs([0, 3, 60][chance.below(3) as usize]);
    rule.recovery = match chance.below(5) {
        0 => Recovery::Lazy { ttl: Duration::from_secs(1 + chance.below(45)) },
        1 | 2 => Recovery::Staged { probe: false, ramp },
        _ => Recovery::Staged { probe: true, ramp },
    };
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
        _ => {
            let kind = SlowKind::ALL[chance.below(3) as usize];
            (Outcome::Slow(kind), Some(What::Slow(kind)))
        }
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
        let errand = match chance.below(4) {
            0 => Errand::Probe,
            _ => Errand::Request { prompt_tokens: chance.below(300) },
        };
        let told = format!("SEED={seed}, step {step} at {now:?}");
        fleet(chance, now, &mut breaker, &mut reference, &told);
        let (answer, _) = breaker.admit(now, errand);
        assert_eq!(answer.is_ok(), reference.is_admitting(now, errand), "{told}");
        match answer {
            Ok(permit) => {
                let (outcome, what) = some_outcome(chance);
                let change = breaker.settle(now, permit, outcome);
                let opened = change.and_then(|change| change.remaining);
                assert_eq!(opened.is_some(), reference.settle(now, what), "{told}: {outcome:?}");
                opened.into_iter().for_each(|remaining| reference.open(now, remaining));
            }
            Err(Refusal::Open { remaining }) => assert_eq!(now + remaining, reference.until),
            Err(Refusal::PromptTooLarge | Refusal::ShareSpent) => {
                assert!(reference.is_on(Rung::Canary), "{told}");
            }
            Err(Refusal::AwaitsProbe) => assert!(reference.is_on(Rung::Probe), "{told}"),
            Err(Refusal::Held) => assert!(reference.held.is_some(), "{told}"),
            Err(Refusal::HalfOpenFull) => panic!("{told}: nothing is out"),
        }
        reference.check_evidence(now, &breaker.evidence(now), &told);
        reference.check_view(now, &breaker.view(now), breaker.share(now), &told);
    }
}

/// The seeds of `usual` schedules, of as many as `SCHEDULES` says, or the one that `SEED` names.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"))
    };
    let count = number("SCHEDULES").map_or(usual, |count| usual.min(count));
    number("SEED").map_or(0..count, |seed| seed..seed + 1)
}

#[test]
fn the_breaker_and_the_lists_agree() {
    seeds(SCHEDULES).for_each(schedule);
}

/// The exact P95 by nearest rank of the times that still count, or `None` below 20.
fn exact_p95(story: &[(Duration, Duration)], window: Duration, now: Duration) -> Option<Duration> {
    let tenth = |time: Duration| time.as_nanos() / (window.as_nanos() / 10);
    let is_counted = |time: Duration| tenth(time) + 10 > tenth(now);
    let counted = story.iter().filter(|(time, _)| is_counted(*time));
    let mut times: Vec<Duration> = counted.map(|(_, took)| *took).collect();
    times.sort_unstable();
    let rank = (times.len() * 19).div_ceil(20);
    (times.len() >= 20).then(|| times[rank - 1])
}

fn p95_schedule(seed: u64) {
    let chance = &mut Chance(seed);
    let limit = Duration::from_millis(100 + chance.below(60_000));
    let mut rule = Rule { window: Duration::from_secs(10 + chance.below(50)), ..Rule::default() };
    rule.slow.p95 = Some(P95Rule { first_token: None, total: Some(limit) });
    let mut breaker = Breaker::new(rule.clone(), seed);
    let (mut story, mut now) = (Vec::new(), Duration::ZERO);
    let longest = limit.as_millis() as u64 * 11 / 10;
    for step in 0..200 {
        now += Duration::from_millis(chance.below(1_500));
        let told = format!("SEED={seed}, step {step} at {now:?}");
        let (answer, _) = breaker.admit(now, Errand::Request { prompt_tokens: 9 });
        let total = Duration::from_millis(8 + chance.below(longest));
        let timing = Some(Timing { first_token: None, total });
        let permit = answer.expect("the circuit is closed");
        let change = breaker.settle_timed(now, permit, Outcome::Success, timing);
        story.push((now, total));
        let exact = exact_p95(&story, rule.window, now);
        if let Some(change) = change {
            let exact = exact.expect("too few samples convicted");
            assert_eq!(change.reason, Reason::TotalP95, "{told}");
            assert!(exact.mul_f64(18.01 / 17.0) >= limit, "{told}: {exact:?} is within {limit:?}");
            return;
        }
        let got = breaker.view(now).total_p95;
        assert_eq!(got.is_some(), exact.is_some(), "{told}: {got:?} instead of {exact:?}");
        if let (Some(got), Some(exact)) = (got, exact) {
            let error = got.as_secs_f64() / exact.as_secs_f64() - 1.0;
            assert!(error.abs() <= 0.059 && got <= limit, "{told}: {got:?} instead of {exact:?}");
        }
    }
}

#[test]
fn the_p95_is_within_six_per_cent_of_the_lists() {
    seeds(2_000).for_each(p95_schedule);
}
