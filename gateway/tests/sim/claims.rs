//! The claims of the simulation.

use std::ops::Range;

use breaker::{Errand, Outcome, Rung};

use crate::ledger::Figures;
use crate::node::Mould;
use crate::plan::Plan;
use crate::replay;
use crate::rules::{WINDOW, time};
use crate::runner::{Draw, failures_max, ledger_seeds, run, run_seeds, seeds};
use crate::seat::Seat;
use crate::world::Manner;

#[test]
fn no_seed_breaks_a_promise() {
    let figures = no_promise_is_broken(Plan::draw, seeds());
    assert!(figures.seconded > 0 && figures.loans > 0, "the whole rule should be at work");
}

#[test]
fn no_seed_breaks_a_promise_of_a_fleet_with_a_ledger() {
    let figures = no_promise_is_broken(Plan::draw_with_ledger, ledger_seeds());
    assert!(figures.committed > 0 && figures.loans > 0, "the whole rule should be at work");
}

/// Runs the seeds. Returns what they came to.
fn no_promise_is_broken(draw: Draw, seeds: Range<u64>) -> Figures {
    let begun = std::time::Instant::now();
    let report = run_seeds(seeds.clone(), (draw, Manner::default()), failures_max());
    let figures = report.figures;
    eprintln!(
        "{} seeds ({seeds:?}) in {:.1} s, {} of them opened something; {figures:?}",
        report.seeds,
        begun.elapsed().as_secs_f64(),
        report.eventful
    );
    let mut failures = report.failures;
    failures.sort_by_key(|(seed, _)| *seed);
    for (seed, violation) in &failures {
        eprintln!("seed {seed}: {} at {}: {}", violation.invariant, violation.at, violation.what);
    }
    if let Some((seed, violation)) = failures.first() {
        panic!("{}", replay::keep(&draw(*seed), Manner::default(), violation));
    }
    assert!(report.eventful * 2 > report.seeds, "most seeds should open something");
    assert!(figures.parted * 100 <= report.seeds, "views differ for seconds too often");
    figures
}

#[test]
fn what_once_failed_is_replayed() {
    for (name, text) in replay::kept() {
        let plan = Plan::read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(violation) = run(&plan, Manner::default()).violation {
            panic!("{name}: {violation:?}");
        }
    }
}

/// No clock that can jump is read anywhere. What is left to jump is where a node's own clock began,
/// as after a reboot, and nothing may depend on that.
#[test]
fn where_clocks_began_changes_nothing() {
    for seed in 0..150 {
        let plan = Plan::draw(seed);
        let moved = Manner { origin: 7_000 * WINDOW, ..Manner::default() };
        let (here, there) = (run(&plan, Manner::default()), run(&plan, moved));
        assert_eq!(here.trace, there.trace, "seed {seed}");
    }
}

#[test]
fn a_seed_is_repeated_exactly() {
    let drawn: [(Draw, u64); 2] = [(Plan::draw, 150), (Plan::draw_with_ledger, 40)];
    for (draw, seeds) in drawn {
        for seed in 0..seeds {
            let plan = draw(seed);
            let (once, again) = (run(&plan, Manner::default()), run(&plan, Manner::default()));
            assert_eq!(once.trace, again.trace, "seed {seed}");
        }
    }
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    for seed in 0..2_000 {
        for plan in [Plan::draw(seed), Plan::draw_with_ledger(seed)] {
            assert_eq!(Plan::read(&plan.to_string()), Ok(plan), "seed {seed}");
        }
    }
}

/// Where news is late, a closing may be the first that a holder hears of its slot being gone. Where
/// nobody asks with small requests and nothing is probed, no canary would ever lead it on.
#[test]
fn a_holder_of_the_slot_goes_on_with_all_others_when_the_incident_ends() {
    let plan = (0..).map(Plan::draw).find(|plan| plan.knobs.canaries > 0).unwrap();
    let seat = Seat::new(&Mould::of(&plan, None), 0, time(0));
    let endpoint = &seat.endpoints[0];
    endpoint.hold(time(1));
    endpoint.lend(time(2), 0);
    assert_eq!(endpoint.rung(), Some(Rung::Canary));
    endpoint.release(time(3));
    assert_eq!(endpoint.rung(), Some(Rung::Ramp));
}

/// Where news is late, a slot may come back to its holder before that has heard of its being gone.
#[test]
fn what_a_holder_counted_under_an_older_hold_does_not_count_under_the_next() {
    let plan = (0..).map(Plan::draw).find(|plan| plan.knobs.canaries > 1).unwrap();
    let seat = Seat::new(&Mould::of(&plan, None), 0, time(0));
    let endpoint = &seat.endpoints[0];
    endpoint.hold(time(1));
    endpoint.lend(time(2), 0);
    endpoint.admit(time(3), Errand::Probe).ok().unwrap().settle(time(4), Outcome::Success);
    assert_eq!(endpoint.view(time(4)).half_open_successes, 1);
    endpoint.lend(time(5), 0);
    let view = endpoint.view(time(1_000));
    assert_eq!(view.half_open_successes, 0);
    assert_eq!(view.half_open_idle, Some(time(995)), "the new hold is idle anew");
}

/// Prints what happens in the run of one seed or of one kept replay, for whoever looks for a cause.
#[test]
fn a_run_can_be_told() {
    let wish = std::env::var("TELL").unwrap_or_default();
    let kept = replay::kept().into_iter().find(|(name, _)| *name == wish);
    let ledger_wish = wish.strip_prefix("ledger-").and_then(|seed| seed.parse().ok());
    let plan = match (wish.parse(), kept) {
        _ if ledger_wish.is_some() => Plan::draw_with_ledger(ledger_wish.unwrap_or(0)),
        (_, Some((_, text))) => Plan::read(&text).unwrap(),
        (Ok(seed), None) => Plan::draw(seed),
        (Err(_), None) => Plan::draw(1),
    };
    let outcome = run(&plan, Manner { is_told: true, ..Manner::default() });
    assert!(!outcome.story.is_empty());
    if !wish.is_empty() {
        eprintln!("{plan}{}\n{:?}", outcome.story.join("\n"), outcome.violation);
    }
}
