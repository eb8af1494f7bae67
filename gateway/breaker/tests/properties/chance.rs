//! What can be drawn from a seed: rules, steps, and the time between them.

use std::time::Duration;

use breaker::{Cause, Errand, Mode, Outcome, P95Rule, Recovery, Rule, SlowKind, Timing};

/// SplitMix64 (Steele, Lea and Flood, 2014): small, seeded, the same everywhere. What somebody says in
/// its place comes first, byte by byte.
pub(crate) struct Chance {
    pub(crate) state: u64,
    pub(crate) said: std::vec::IntoIter<u8>,
}

impl Chance {
    /// All of it by chance.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: seed, said: Vec::new().into_iter() }
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if let Some(byte) = self.said.next() {
            // Far bounds are reached in even steps.
            return u64::from(byte) * (bound / 256).max(1) % bound;
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

pub(crate) fn some_rule(chance: &mut Chance) -> Rule {
    let mut rule = Rule {
        mode: some_mode(chance),
        failure_threshold: 1 + chance.below(5) as u32,
        failure_ratio: 0.25 * (1 + chance.below(4)) as f64,
        min_requests: 1 + chance.below(8) as u32,
        window: Duration::from_secs(10 + chance.below(50)),
        recovery: some_recovery(chance),
        ..Rule::default()
    };
    rule.slow.confirmations = 1 + chance.below(2) as u32;
    rule.slow.relative = chance.one_in(8).then_some(3.0);
    rule.slow.p95 = some_p95(chance);
    rule.open.reset_after = Duration::from_secs(1 + chance.below(300));
    rule.half_open.max_requests = 1 + chance.below(3) as u32;
    rule.half_open.successes = 1 + chance.below(3) as u32;
    rule.half_open.share = chance.of(&[0.05, 0.3, 0.5, 1.0]);
    rule.check().unwrap();
    rule
}

/// Mostly obeyed, since the other modes have less to show.
fn some_mode(chance: &mut Chance) -> Mode {
    match chance.below(12) {
        0 | 1 => Mode::Shadow,
        2 => Mode::Off,
        _ => Mode::Enforce,
    }
}

fn some_recovery(chance: &mut Chance) -> Recovery {
    let ramp = Duration::from_secs(chance.of(&[0, 3, 60]));
    match chance.below(6) {
        0 => Recovery::Lazy { ttl: Duration::from_secs(1 + chance.below(45)) },
        1..=3 => Recovery::Staged { probe: false, ramp },
        _ => Recovery::Staged { probe: true, ramp },
    }
}

/// Most schedules are too short for the samples of a P95, and its memory is dear.
fn some_p95(chance: &mut Chance) -> Option<P95Rule> {
    let first_token = Some(Duration::from_secs(5));
    chance.one_in(8).then_some(P95Rule { first_token, total: Some(Duration::from_secs(20)) })
}

/// Another rule for a breaker that runs.
pub(crate) fn change_rule(rule: &mut Rule, seed: u64) {
    let chance = &mut Chance::seeded(seed);
    rule.open.base += Duration::from_secs(1);
    match chance.below(6) {
        0 => rule.mode = some_mode(chance),
        1 => rule.recovery = some_recovery(chance),
        2 => rule.slow.p95 = some_p95(chance),
        3 => rule.window += Duration::from_secs(1),
        4 => rule.window = Duration::from_secs(10 + chance.below(50)),
        _ => {}
    }
    rule.check().unwrap();
}

/// A rule that no check has seen, made of the ends of every range.
pub(crate) fn wild_rule(chance: &mut Chance) -> Rule {
    let counts = [0, 1, 3, 17, u32::MAX];
    let lengths = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(9), Duration::MAX];
    let numbers = [f64::NAN, -1.0, 0.0, 0.5, f64::INFINITY];
    let mut rule = Rule { mode: some_mode(chance), ..Rule::default() };
    for field in [
        &mut rule.failure_threshold,
        &mut rule.min_requests,
        &mut rule.slow.confirmations,
        &mut rule.half_open.max_requests,
        &mut rule.half_open.successes,
    ] {
        *field = chance.of(&counts);
    }
    for field in [
        &mut rule.window,
        &mut rule.slow.dedup,
        &mut rule.open.base,
        &mut rule.open.max,
        &mut rule.open.reset_after,
        &mut rule.half_open.deadline,
    ] {
        *field = chance.of(&lengths);
    }
    rule.recovery = match chance.of(&lengths) {
        ttl if chance.one_in(3) => Recovery::Lazy { ttl },
        ramp => Recovery::Staged { probe: chance.one_in(2), ramp },
    };
    rule.failure_ratio = chance.of(&numbers);
    rule.half_open.share = chance.of(&numbers);
    rule.slow.relative = chance.one_in(8).then(|| chance.of(&numbers));
    rule
}

fn some_kind(chance: &mut Chance) -> SlowKind {
    chance.of(&SlowKind::ALL)
}

pub(crate) fn some_outcome(chance: &mut Chance) -> Outcome {
    match chance.below(10) {
        0..=5 => Outcome::Success,
        6 => Outcome::Fault { weight: 1.0, cause: Cause::Status(500) },
        7 => Outcome::Fault { weight: 0.5, cause: Cause::Cut },
        8 => Outcome::Slow(some_kind(chance)),
        _ => Outcome::Neutral,
    }
}

pub(crate) fn some_timing(chance: &mut Chance) -> Option<Timing> {
    let total = Duration::from_millis(chance.below(40_000));
    let first_token = chance.one_in(2).then_some(total / 3);
    (!chance.one_in(4)).then_some(Timing { first_token, total })
}

/// One thing that happens; the same step can be done to two breakers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Admit(Errand),
    Tick,
    Slow(usize, SlowKind),
    Settle(usize, Outcome, Option<Timing>),
    Forget(usize),
    Hold,
    /// The slot is lent with so many successes.
    Lend(u32),
    Release,
    Convict,
    /// Slow evidence this young is taken back.
    Discard(Duration),
    SetRule(u64),
}

pub(crate) fn some_step(chance: &mut Chance, permits: usize) -> Step {
    let which = chance.below(permits.max(1) as u64) as usize;
    match chance.below(34) {
        0..=9 if permits < 12 => {
            Step::Admit(Errand::Request { prompt_tokens: chance.below(4) * 100 })
        }
        10 | 11 => Step::Admit(Errand::Probe),
        12 => Step::Admit(Errand::PassThrough),
        13 if chance.one_in(2) => Step::Hold,
        13 => Step::Lend(chance.below(4) as u32),
        14 => Step::Release,
        15 if chance.one_in(2) => Step::SetRule(chance.below(u64::MAX)),
        16 => Step::Convict,
        17 => Step::Discard(Duration::from_millis(chance.below(10_000))),
        18 | 19 if permits > 0 => Step::Slow(which, some_kind(chance)),
        20 if permits > 0 => Step::Forget(which),
        21..=32 if permits > 0 => Step::Settle(which, some_outcome(chance), some_timing(chance)),
        _ => Step::Tick,
    }
}

pub(crate) fn some_pause(chance: &mut Chance) -> Duration {
    let most = chance.of(&[0, 0, 1, 1, 2, 6, 30, 100]);
    Duration::from_millis(chance.below(most * 1_000 + 1))
}
