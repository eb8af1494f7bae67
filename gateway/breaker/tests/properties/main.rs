//! Random schedules against what must hold in all of them.
//!
//! A schedule is a rule and a row of steps drawn from one seed: time passes or jumps back, requests
//! of all kinds come and go in any order, are slow, are forgotten, the fleet holds, lends and releases,
//! the rule is another from now on, the process stops and starts again. The promises are checked after
//! every step. A failure prints its seed; `SEED=… cargo test` plays that one schedule again, and
//! `SCHEDULES=…` runs another number of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod chance;
mod promises;
mod world;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use breaker::{
    Breaker, HALF_OPEN_REQUESTS_MAX, Reason, Rung, SavedPhase, Snapshot, State, Transition,
};

use crate::chance::{Chance, Step, change_rule, some_pause, some_rule, some_step, wild_rule};
use crate::world::World;

/// The usual number of schedules of the largest test; the others run a part of it.
const SCHEDULES: u64 = 30_000;
const STEPS: u64 = 24;

/// Reads a whole number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap())
}

/// Runs `schedule` for one part of the seeds and names the seed of the first that fails.
fn for_each_seed(part: u64, schedule: impl Fn(&mut Chance)) {
    let count = number("SCHEDULES").unwrap_or(SCHEDULES) / part;
    let seeds = number("SEED").map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| schedule(&mut Chance::seeded(seed)))) {
            eprintln!("failed with SEED={seed}");
            resume_unwind(cause);
        }
    }
}

fn same<T: Debug + PartialEq>(left: T, right: T) {
    assert_eq!(left, right);
}

/// Does some steps, without forgetting permits if `is_careful`.
fn live(world: &mut World, chance: &mut Chance, steps: u64, is_careful: bool) {
    for _ in 0..steps {
        let pause = some_pause(chance);
        let step = match some_step(chance, world.permits.len()) {
            Step::Forget(_) if is_careful => Step::Tick,
            step => step,
        };
        world.step(step, world.now + pause);
        world.check_bounds();
    }
}

#[test]
fn the_promises_hold_in_every_schedule() {
    for_each_seed(1, |chance| live(&mut World::new(chance), chance, STEPS, false));
}

#[test]
fn long_schedules_hold_too() {
    for_each_seed(100, |chance| live(&mut World::new(chance), chance, 1_000, false));
}

#[test]
fn half_open_ends_once_a_permit_is_lost() {
    for_each_seed(4, |chance| {
        let mut world = World::new(chance);
        live(&mut world, chance, STEPS, false);
        world.permits.clear();
        let before = world.view();
        let deadline = world.rule.half_open.deadline;
        let transition = world.breaker.tick(world.now + deadline);
        let is_lost = transition.is_some_and(|change| change.reason == Reason::PermitLost);
        assert_eq!(is_lost, before.half_open_in_flight > 0);
    });
}

#[test]
fn a_ramp_ends_by_the_clock_unless_it_is_held() {
    for_each_seed(4, |chance| {
        let mut world = World::new(chance);
        live(&mut world, chance, STEPS, false);
        let before = world.view();
        if before.rung == Some(Rung::Ramp) {
            world.step(Step::Tick, world.now + Duration::from_secs(60));
            let expected = if before.held { State::HalfOpen } else { State::Closed };
            assert_eq!(world.view().state, expected);
        }
    });
}

#[test]
fn the_weight_only_rises_while_the_ramp_lasts() {
    for_each_seed(20, |chance| {
        let mut world = World::new(chance);
        live(&mut world, chance, STEPS, false);
        let mut last = 0.0;
        for second in 0..70 {
            let share = world.breaker.share(world.now + Duration::from_secs(second));
            assert!(share >= last, "{share} after {last}");
            last = share;
        }
    });
}

#[test]
fn slow_requests_open_every_rung() {
    for_each_seed(20, |chance| {
        let mut world = World::new(chance);
        live(&mut world, chance, STEPS, false);
        let before = world.view();
        let is_tried = |(permit, _): &(breaker::Permit, breaker::Errand)| {
            permit.epoch() == before.epoch
                && permit.terms() == breaker::Terms::HalfOpen
                && !permit.is_slow()
        };
        if world.permits.iter().any(is_tried) && before.state == State::HalfOpen {
            world.slow_all(breaker::SlowKind::Total);
            assert_ne!(world.view().state, State::HalfOpen);
        }
    });
}

#[test]
fn time_that_runs_back_changes_nothing() {
    for_each_seed(4, |chance| {
        let mut straight = World::new(chance);
        let mut jumping = straight.copy();
        let mut latest = Duration::ZERO;
        for _ in 0..STEPS {
            latest += some_pause(chance);
            let jump = if chance.one_in(2) { some_pause(chance) } else { Duration::ZERO };
            let step = match some_step(chance, straight.permits.len()) {
                // It names a moment by its distance from the time of the step.
                Step::Discard(_) => Step::Tick,
                step => step,
            };
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

/// The transition as told by a clock that is `ahead` of the other.
fn moved(transition: Option<Transition>, ahead: Duration) -> Option<Transition> {
    transition.map(|change| Transition { at: change.at + ahead, ..change })
}

#[test]
fn a_restored_breaker_answers_as_one_that_kept_running() {
    for_each_seed(4, |chance| {
        let mut kept = World::new(chance);
        let steps = chance.below(2 * STEPS);
        live(&mut kept, chance, steps, true);
        kept.recall();
        // A change of the rule tells no time, so both must have seen the same one.
        kept.step(Step::Tick, kept.now);
        let snapshot = kept.breaker.snapshot(kept.now);
        // The new clock is as often ahead of the old one as behind it; it has run for as long as
        // slow evidence can be taken back.
        let (old, new) = (kept.now, Duration::from_millis(10_000 + chance.below(1_000_000)));
        let restored = Breaker::restore(kept.rule.clone(), kept.seed, &snapshot, new);
        same(&snapshot, &restored.snapshot(new));
        let mut restored = kept.after_restart(restored, new);
        for _ in 0..STEPS {
            let pause = some_pause(chance);
            let step = some_step(chance, kept.permits.len());
            let expected = kept.step(step, kept.now + pause);
            let (answer, transition) = restored.step(step, restored.now + pause);
            same((expected.0, moved(expected.1, new)), (answer, moved(transition, old)));
            same(kept.view(), restored.view());
        }
        same(kept.breaker.snapshot(kept.now), restored.breaker.snapshot(restored.now));
    });
}

#[test]
fn no_rule_and_no_time_makes_it_panic() {
    for_each_seed(10, |chance| {
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
                Step::Settle(which, outcome, timing) => {
                    breaker.settle_timed(now, permits.swap_remove(which), outcome, timing);
                }
                Step::Forget(which) => drop(permits.swap_remove(which)),
                Step::Hold => drop(breaker.hold(now)),
                Step::Lend(successes) => drop(breaker.lend(now, successes)),
                Step::Release => drop(breaker.release(now)),
                Step::Convict => drop(breaker.convict_relative(now)),
                Step::Discard(age) => breaker.discard_slow(now, age),
                Step::SetRule(_) => drop(breaker.set_rule(wild_rule(chance))),
                Step::Tick => drop(breaker.tick(now)),
            }
            let snapshot = breaker.snapshot(now);
            if chance.one_in(4) {
                breaker = Breaker::restore(wild_rule(chance), 1, &snapshot, breaker_clock(chance));
            }
            assert!(breaker.view(now).half_open_in_flight <= HALF_OPEN_REQUESTS_MAX);
        }
    });
}

fn breaker_clock(chance: &mut Chance) -> Duration {
    chance.of(&[Duration::ZERO, Duration::from_secs(7), Duration::MAX])
}

/// A snapshot that no breaker has made.
fn wild_snapshot(chance: &mut Chance, mut snapshot: Snapshot) -> Snapshot {
    let lengths = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(9), Duration::MAX];
    snapshot.clock = chance.of(&lengths);
    snapshot.away = chance.of(&lengths);
    snapshot.epoch = chance.of(&[0, u64::MAX]);
    snapshot.level = chance.of(&[None, Some(0), Some(u32::MAX)]);
    snapshot.held_for = chance.of(&[None, Some(Duration::MAX)]);
    snapshot.last_success = Some(chance.of(&lengths));
    match &mut snapshot.phase {
        SavedPhase::Closed(evidence) => {
            evidence.age = chance.of(&lengths);
            evidence.streak = u32::MAX;
            evidence.window = chance.of(&lengths);
            evidence.slow_pieces = vec![chance.of(&lengths); chance.below(40) as usize];
            evidence.slow_latest = [Some(chance.of(&lengths)); 3];
            for counts in &mut evidence.counts {
                counts.age = chance.of(&lengths);
                (counts.requests, counts.fault_millionths) = (u32::MAX, u64::MAX);
            }
            for times in &mut evidence.times {
                times.age = chance.of(&lengths);
                times.total.push((u16::MAX, u32::MAX));
            }
        }
        SavedPhase::Open { remaining, .. } => *remaining = chance.of(&lengths),
        SavedPhase::HalfOpen { idle, age, successes, asked, admitted, .. } => {
            (*idle, *age) = (chance.of(&lengths), chance.of(&lengths));
            (*successes, *asked, *admitted) = (u32::MAX, chance.below(2), u64::MAX);
        }
    }
    snapshot
}

#[test]
fn no_snapshot_makes_it_panic_or_keeps_it_open_for_more_than_a_day() {
    for_each_seed(10, |chance| {
        let mut world = World::new(chance);
        live(&mut world, chance, STEPS, false);
        let snapshot = wild_snapshot(chance, world.breaker.snapshot(world.now));
        let mut rule = some_rule(chance);
        let mut breaker = Breaker::restore(rule.clone(), 1, &snapshot, Duration::from_secs(1));
        change_rule(&mut rule, chance.below(u64::MAX));
        breaker.set_rule(rule);
        breaker.snapshot(Duration::from_secs(2));
        breaker.release(Duration::from_secs(3));
        breaker.tick(Duration::from_secs(24 * 60 * 60 + 4));
        assert_ne!(breaker.state(), State::Open);
    });
}
