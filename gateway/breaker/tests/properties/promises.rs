//! The promises one by one: one property, one name, told without the model that checks the rest.
//!
//! Each begins from a breaker that has lived through some random steps or from one that was just
//! opened, so that it is seen in every state, and then says one thing only.

use std::time::Duration;

use breaker::{
    Breaker, Cause, Errand, Mode, Outcome, Permit, Reason, Recovery, Refusal, Rule, Rung, SlowKind,
    State, Terms,
};

use crate::chance::{Chance, Step, some_outcome, some_rule, some_timing};
use crate::world::World;
use crate::{STEPS, for_each_seed, live};

const SMALL: Errand = Errand::Request { prompt_tokens: 1 };
const FAULT: Outcome = Outcome::Fault { weight: 1.0, cause: Cause::Status(500) };

/// A world after some steps, in which nothing is due at its time.
fn lived(chance: &mut Chance) -> World {
    let mut world = World::new(chance);
    let steps = chance.below(2 * STEPS);
    live(&mut world, chance, steps, false);
    // An overdue permit, and then the cool-down that came of it; at most one is done by a call.
    for _ in 0..3 {
        world.step(Step::Tick, world.now);
    }
    world
}

/// A rule that is obeyed.
fn obeyed(chance: &mut Chance) -> Rule {
    Rule { mode: Mode::Enforce, ..some_rule(chance) }
}

/// A breaker that was just opened by faults.
fn opened(rule: &Rule, seed: u64) -> Breaker {
    let mut breaker = Breaker::new(rule.clone(), seed);
    for _ in 0..rule.failure_threshold {
        if let Ok(permit) = breaker.admit(Duration::ZERO, SMALL).0 {
            breaker.settle(Duration::ZERO, permit, FAULT);
        }
    }
    assert_eq!(breaker.state(), State::Open, "so many faults open");
    breaker
}

#[test]
fn an_open_circuit_refuses_until_its_time_is_over() {
    for_each_seed(4, |chance| {
        let world = lived(chance);
        let is_open = world.view().state == State::Open && !world.view().held;
        let (mut breaker, now) = if is_open && world.rule.mode == Mode::Enforce {
            (world.breaker, world.now)
        } else {
            (opened(&obeyed(chance), chance.below(u64::MAX)), Duration::ZERO)
        };
        let whole = breaker.view(now).remaining.unwrap();
        let nanosecond = Duration::from_nanos(1);
        for passed in [Duration::ZERO, whole / 3, whole.saturating_sub(nanosecond)] {
            for errand in [SMALL, Errand::Probe, Errand::Request { prompt_tokens: u64::MAX }] {
                let (answer, transition) = breaker.admit(now + passed, errand);
                let refusal = Refusal::Open { remaining: whole - passed };
                assert_eq!((answer.map(|_| ()), transition), (Err(refusal), None));
            }
        }
        assert!(breaker.tick(now + whole).is_some(), "and not for longer");
    });
}

#[test]
fn half_open_never_admits_more_than_its_probes() {
    for_each_seed(4, |chance| {
        let mut rule = obeyed(chance);
        rule.recovery = Recovery::Staged { probe: chance.one_in(2), ramp: Duration::ZERO };
        let mut breaker = opened(&rule, chance.below(u64::MAX));
        let now = breaker.view(Duration::ZERO).remaining.unwrap();
        let most = match breaker.tick(now).and_then(|change| change.rung) {
            Some(Rung::Probe) => 1,
            Some(Rung::Canary) => rule.half_open.max_requests as usize,
            Some(Rung::Ramp) | None => panic!("a ladder begins below the ramp"),
        };
        let (mut in_hand, mut forgotten) = (Vec::new(), 0);
        for _ in 0..100 {
            let errand = chance.of(&[SMALL, Errand::Probe]);
            let answer: Result<Permit, Refusal> = breaker.admit(now, errand).0;
            in_hand.extend(answer);
            match chance.below(40) {
                0 => forgotten += usize::from(in_hand.pop().is_some()),
                1..=9 => in_hand.pop().into_iter().for_each(|permit| {
                    breaker.settle(now, permit, Outcome::Neutral);
                }),
                _ => {}
            }
            assert!(in_hand.len() + forgotten <= most, "more than {most} are out");
        }
    });
}

#[test]
fn half_open_always_ends() {
    for_each_seed(10, |chance| {
        let mut world = lived(chance);
        world.step(Step::Release, world.now);
        // One request a second, a twentieth of them canaries, of which at most three are asked for;
        // each may be forgotten until its deadline; and then the ramp.
        let longest = 20 * 3 + 90 * 3 + 90 + 60;
        let end = world.now + Duration::from_secs(longest);
        while world.view().state == State::HalfOpen {
            assert!(world.now < end, "half-open for {longest} s: {:?}", world.view());
            let is_probe = world.view().rung == Some(Rung::Probe);
            let errand = if is_probe { Errand::Probe } else { SMALL };
            world.step(Step::Admit(errand), world.now + Duration::from_secs(1));
            for which in (0..world.permits.len()).rev() {
                match chance.below(4) {
                    0 => world.step(Step::Forget(which), world.now),
                    1 => world.step(Step::Settle(which, FAULT, None), world.now),
                    _ => world.step(Step::Settle(which, Outcome::Success, None), world.now),
                };
            }
        }
    });
}

#[test]
fn a_settled_permit_never_counts_twice() {
    for_each_seed(4, |chance| {
        let mut world = lived(chance);
        let Some(which) = (0..world.permits.len()).next_back() else {
            return;
        };
        let before = world.view();
        let is_first_word = !world.permits[which].0.is_slow();
        for _ in 0..chance.below(4) {
            world.step(Step::Slow(which, chance.of(&SlowKind::ALL)), world.now);
        }
        let (outcome, timing) = (some_outcome(chance), some_timing(chance));
        world.step(Step::Settle(which, outcome, timing), world.now);
        let after = world.view();
        if after.epoch == before.epoch {
            assert!(after.requests <= before.requests + 1);
            assert!(after.successes <= before.successes + 1);
            assert!(after.faults <= before.faults + 1.0);
            assert!(after.streak <= before.streak + 1);
            assert!(after.slow_pieces <= before.slow_pieces + u32::from(is_first_word));
            assert!(after.half_open_successes <= before.half_open_successes + 1);
        }
        // The ramp has no places, so whoever climbs to it leaves all of them.
        if (after.epoch, after.rung) == (before.epoch, before.rung) {
            assert!(before.half_open_in_flight <= after.half_open_in_flight + 1);
        }
    });
}

#[test]
fn a_late_verdict_never_changes_anything() {
    for_each_seed(4, |chance| {
        let mut world = lived(chance);
        if chance.one_in(2) {
            world.step(Step::Hold, world.now);
            world.step(chance.of(&[Step::Release, Step::Lend(1)]), world.now);
        }
        let (now, epoch) = (world.now, world.view().epoch);
        for (mut permit, _) in std::mem::take(&mut world.permits) {
            if permit.epoch() == epoch {
                continue;
            }
            let before = (world.breaker.snapshot(now), world.view());
            let slow = world.breaker.slow(now, &mut permit, chance.of(&SlowKind::ALL));
            let (outcome, timing) = (some_outcome(chance), some_timing(chance));
            let settled = world.breaker.settle_timed(now, permit, outcome, timing);
            assert_eq!((slow, settled), (None, None), "{outcome:?}");
            assert_eq!((world.breaker.snapshot(now), world.view()), before, "{outcome:?}");
        }
    });
}

#[test]
fn a_neutral_outcome_never_closes_nor_resets() {
    for_each_seed(4, |chance| {
        let mut world = lived(chance);
        let now = world.now;
        for (permit, _) in std::mem::take(&mut world.permits) {
            let weightless = Outcome::Fault { weight: 0.0, cause: Cause::Other };
            let outcome = chance.of(&[Outcome::Neutral, weightless]);
            let (snapshot, before) = (world.breaker.snapshot(now), world.view());
            let is_out = permit.terms() == Terms::HalfOpen && permit.epoch() == before.epoch;
            let frees = is_out && before.rung != Some(Rung::Ramp);
            let timing = some_timing(chance);
            assert_eq!(world.breaker.settle_timed(now, permit, outcome, timing), None);
            // A snapshot holds all but the permits that are out.
            assert_eq!(world.breaker.snapshot(now), snapshot, "{outcome:?}");
            let out = world.view().half_open_in_flight;
            assert_eq!(out, before.half_open_in_flight - u32::from(frees));
        }
    });
}

#[test]
fn the_evidence_is_what_the_view_shows_and_younger_than_the_window() {
    for_each_seed(4, |chance| {
        let world = lived(chance);
        let later = world.now + Duration::from_secs(chance.below(60));
        let (view, evidence) = (world.breaker.view(later), world.breaker.evidence(later));
        assert_eq!((evidence.requests, evidence.successes), (view.requests, view.successes));
        assert_eq!(evidence.fault_millionths as f64 / 1e6, view.faults);
        let ages: Vec<Duration> = evidence.slow.iter().flatten().copied().collect();
        assert_eq!(ages.len() as u32, view.slow_pieces);
        assert!(evidence.slow.iter().skip(ages.len()).all(Option::is_none), "a gap");
        assert!(ages.is_sorted() && ages.iter().all(|age| *age < world.rule.window));
        let last_success = view.last_success.filter(|age| *age < world.rule.window);
        assert_eq!(evidence.last_success, last_success);
        if view.state != State::Closed {
            let gathered = (evidence.requests, evidence.fault_millionths, ages.len());
            assert_eq!(gathered, (0, 0, 0));
        }
    });
}

#[test]
fn a_loan_that_is_taken_back_leaves_nothing_behind() {
    for_each_seed(4, |chance| {
        let mut world = lived(chance);
        world.step(Step::Hold, world.now);
        let before = world.view();
        world.permits.clear();
        let lent = world.step(Step::Lend(chance.below(3) as u32), world.now).1;
        let Some(lent) = lent.filter(|_| world.rule.mode == Mode::Enforce) else {
            assert_ne!(world.rule.mode, Mode::Enforce, "whoever is held can be lent the slot");
            return;
        };
        assert_eq!((lent.rung, lent.reason), (Some(Rung::Canary), Reason::Lent));
        for _ in 0..chance.below(8) {
            world.step(Step::Admit(chance.of(&[SMALL, Errand::Probe])), world.now);
        }
        let taken = world.step(Step::Hold, world.now).1.unwrap();
        assert_eq!((taken.reason, taken.epoch), (Reason::Held, lent.epoch + 1));
        let now = world.now + Duration::from_secs(chance.below(200));
        world.breaker.tick(now);
        let left = world.breaker.snapshot(now);
        for (permit, _) in std::mem::take(&mut world.permits) {
            assert_eq!(world.breaker.settle(now, permit, some_outcome(chance)), None);
        }
        assert_eq!(world.breaker.snapshot(now), left, "a verdict of the loan was heard");
        let after = world.breaker.view(now);
        assert_eq!((after.half_open_successes, after.canary_asked), (0, 0));
        assert_eq!((after.level, after.opened_for), (before.level, before.opened_for));
        let released = world.breaker.release(now).unwrap();
        assert_eq!(released.reason, Reason::Released);
        assert_eq!(world.breaker.release(now), None, "there is one ramp");
    });
}
