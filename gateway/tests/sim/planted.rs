//! Planted bugs: each is caught within so many seeds, by the promise that it breaks.
//!
//! `KEEP=1` keeps the plans, made smaller, among the replays.

use std::collections::BTreeSet;

use crate::plan::Plan;
use crate::replay;
use crate::runner::{Draw, run, run_seeds};
use crate::sabotage::Sabotage;
use crate::shrink::{breaks, shrink};
use crate::world::Manner;

/// So many seeds are run before looking whether the bug was caught.
const SEEDS_AT_ONCE: u64 = 50;

/// Requires that `sabotage` is caught by one of `invariants` within `seeds` seeds, and that the
/// plan made smaller still shows it, read back from its text too.
fn is_caught(sabotage: Sabotage, invariants: &[&str], seeds: u64) {
    is_caught_among(Plan::draw, sabotage, invariants, seeds);
}

/// The same among plans drawn by `draw`.
fn is_caught_among(draw: Draw, sabotage: Sabotage, invariants: &[&str], seeds: u64) {
    let manner = Manner { sabotage: Some(sabotage), ..Manner::default() };
    let mut others = BTreeSet::new();
    let caught = (0..seeds).step_by(SEEDS_AT_ONCE as usize).find_map(|first| {
        let report = run_seeds(first..first + SEEDS_AT_ONCE, (draw, manner), usize::MAX);
        let mut failures = report.failures;
        failures.sort_by_key(|(seed, _)| *seed);
        others.extend(failures.iter().map(|(_, one)| one.invariant));
        failures.into_iter().find(|(_, one)| invariants.contains(&one.invariant))
    });
    let Some((seed, violation)) = caught else {
        panic!("{sabotage:?} is not caught in {seeds} seeds; others: {others:?}");
    };
    let plan = draw(seed);
    let small = shrink(&plan, manner, violation.invariant);
    let text = format!(
        "# {sabotage:?} breaks {}: {}\n# {} faults made {}\n{small}",
        violation.invariant,
        violation.what,
        plan.faults.len(),
        small.faults.len()
    );
    eprintln!("{text}# the first of its kind is seed {seed}");
    assert!(small.faults.len() <= plan.faults.len());
    let read = Plan::read(&text).unwrap();
    assert!(breaks(&read, manner, violation.invariant), "the smaller plan shows it too");
    let honest = run(&read, Manner::default()).violation;
    let holds = honest.as_ref().is_none_or(|one| one.invariant != violation.invariant);
    assert!(holds, "without the bug the promise holds: {honest:?}");
    if std::env::var_os("KEEP").is_some() && honest.is_none() {
        let name = format!("planted-{sabotage:?}.txt").to_lowercase();
        std::fs::write(replay::folder().join(name), text).unwrap();
    }
}

#[test]
fn an_imposed_opening_taken_for_a_vote_is_caught() {
    is_caught(Sabotage::ImposedVotes, &["imposed"], 200);
}

#[test]
fn a_late_verdict_that_counts_is_caught() {
    is_caught(Sabotage::LateVerdicts, &["earned"], 3_000);
}

#[test]
fn a_stale_steward_that_closes_is_caught() {
    is_caught(Sabotage::StaleClosing, &["earned"], 1_000);
}

#[test]
fn a_lost_member_that_no_longer_counts_at_once_is_caught() {
    is_caught(Sabotage::LostShrinks, &["minority"], 1_000);
}

#[test]
fn one_slow_moment_that_counts_many_times_is_caught() {
    is_caught(Sabotage::NoDedup, &["hiccup"], 1_000);
}

#[test]
fn two_ballots_of_one_voter_are_caught() {
    is_caught(Sabotage::TwoBallots, &["minority", "weight"], 1_000);
}

/// Among fleets that decide by a ledger.
fn is_caught_by_ledger(sabotage: Sabotage, invariants: &[&str]) {
    is_caught_among(Plan::draw_with_ledger, sabotage, invariants, 1_000);
}

#[test]
fn a_step_written_on_an_old_version_is_caught() {
    is_caught_by_ledger(Sabotage::LostUpdate, &["committed"]);
}

#[test]
fn absence_taken_for_a_closing_is_caught() {
    is_caught_by_ledger(Sabotage::AbsenceCloses, &["earned"]);
}

#[test]
fn a_ledger_that_ignores_what_its_writers_have_seen_is_caught() {
    is_caught_by_ledger(Sabotage::FloorIgnored, &["committed"]);
}

#[test]
fn every_planted_bug_has_its_test() {
    assert_eq!(Sabotage::ALL.len(), 9);
}
