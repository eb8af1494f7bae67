//! Properties of the majority rule over random tables of votes.
//!
//! The seed of a failing table stands in the message and repeats it.

#[path = "fleet/chance.rs"]
mod chance;

use std::collections::BTreeSet;

use chance::Chance;
use quorum::tally::quorum_of;
use std::time::Duration;

use quorum::conviction::Ground;
use quorum::{Ballot, Basis, Conviction, NodeId, Tally, Window, tally};

const TABLES: u64 = 20_000;

/// A random table: an electorate, the last closed incident, witnesses, and votes of members of that
/// electorate.
struct Table {
    electorate: usize,
    closed: u64,
    witnesses: usize,
    votes: Vec<(NodeId, Basis, u64)>,
}

fn table(chance: &mut Chance) -> Table {
    let electorate = 1 + chance.below(9) as usize;
    let closed = chance.below(6);
    let count = chance.below(2 * electorate as u64 + 1);
    let votes = (0..count).map(|_| vote(chance, electorate)).collect();
    let witnesses = chance.below(electorate as u64 + 1) as usize;
    Table { electorate, closed, witnesses, votes }
}

fn vote(chance: &mut Chance, electorate: usize) -> (NodeId, Basis, u64) {
    let voter = NodeId::new(&format!("gw-{}", chance.below(electorate as u64)));
    let basis = if chance.happens(600) { Basis::FirstHand } else { Basis::Seconded };
    let incident = if chance.happens(30) { u64::MAX } else { chance.below(10) };
    (voter, basis, incident)
}

fn count(table: &Table) -> Tally {
    let ballots = table.votes.iter().map(|(voter, basis, incident)| Ballot {
        voter,
        incident: *incident,
        basis: *basis,
    });
    tally(table.electorate, table.closed, table.witnesses, ballots)
}

fn for_each_table(claim: impl Fn(u64, &mut Chance, Table)) {
    for seed in 0..TABLES {
        let mut chance = Chance::new(seed);
        let table = table(&mut chance);
        claim(seed, &mut chance, table);
    }
}

#[test]
fn the_order_of_votes_changes_nothing() {
    for_each_table(|seed, chance, mut table| {
        let before = count(&table);
        chance.shuffle(&mut table.votes);
        assert_eq!(count(&table), before, "seed {seed}");
    });
}

#[test]
fn votes_told_twice_change_nothing_but_the_number_of_void_ones() {
    for_each_table(|seed, chance, mut table| {
        let before = count(&table);
        let again: Vec<_> = table.votes.iter().filter(|_| chance.happens(500)).cloned().collect();
        table.votes.extend(again);
        chance.shuffle(&mut table.votes);
        let after = count(&table);
        assert_eq!(Tally { void: before.void, ..after }, before, "seed {seed}");
    });
}

#[test]
fn counting_again_gives_the_same() {
    for_each_table(|seed, _, table| assert_eq!(count(&table), count(&table), "seed {seed}"));
}

#[test]
fn one_more_vote_for_open_never_closes() {
    for_each_table(|seed, chance, mut table| {
        let before = count(&table);
        let more = vote(chance, table.electorate);
        table.votes.push(more);
        let after = count(&table);
        assert!(after.is_open() || !before.is_open(), "seed {seed}");
        assert!(after.counted >= before.counted, "seed {seed}");
    });
}

#[test]
fn half_of_the_electorate_or_less_never_opens() {
    for_each_table(|seed, _, table| {
        let voters: BTreeSet<&NodeId> = table.votes.iter().map(|(voter, _, _)| voter).collect();
        if 2 * voters.len() <= table.electorate {
            assert!(!count(&table).is_open(), "seed {seed}");
        }
    });
}

#[test]
fn one_node_weighs_one() {
    for_each_table(|seed, chance, mut table| {
        let after = count(&table);
        assert!(after.counted <= table.electorate, "seed {seed}");
        // All votes in one name weigh one at most, whatever they say.
        let name = NodeId::new("gw-0");
        for vote in &mut table.votes {
            vote.0 = name.clone();
        }
        chance.shuffle(&mut table.votes);
        assert!(count(&table).counted <= 1, "seed {seed}");
    });
}

#[test]
fn votes_of_closed_incidents_change_no_verdict() {
    for_each_table(|seed, _, mut table| {
        let with = count(&table);
        let closed = table.closed;
        table.votes.retain(|(_, _, incident)| *incident > closed && *incident < u64::MAX);
        let without = count(&table);
        assert_eq!(without.void, 0, "seed {seed}");
        assert_eq!(Tally { void: 0, ..with }, without, "seed {seed}");
    });
}

#[test]
fn two_disjoint_majorities_do_not_fit_into_one_electorate() {
    for electorate in 1..=1_024 {
        let quorum = quorum_of(electorate);
        assert!(2 * quorum > electorate && quorum <= electorate);
    }
}

#[test]
fn seconded_votes_that_one_member_alone_bears_out_never_open_a_fleet_of_three_or_more() {
    for_each_table(|seed, _, mut table| {
        table.witnesses = table.witnesses.min(1);
        for (index, vote) in table.votes.iter_mut().enumerate() {
            vote.1 = if index == 0 { Basis::FirstHand } else { Basis::Seconded };
        }
        if table.electorate >= 3 && !table.votes.is_empty() {
            assert_eq!(table.votes[0].1, Basis::FirstHand);
            assert!(!count(&table).is_open(), "seed {seed}");
        }
    });
}

#[test]
fn one_more_witness_never_closes() {
    for_each_table(|seed, _, mut table| {
        let before = count(&table);
        table.witnesses += 1;
        let after = count(&table);
        assert!(after.is_open() || !before.is_open(), "seed {seed}");
        assert!(after.counted >= before.counted, "seed {seed}");
    });
}

fn conviction() -> Conviction {
    Conviction {
        failure_threshold: 4,
        failure_ratio_milli: 500,
        min_requests: 10,
        window: Duration::from_secs(30),
        dedup: Duration::from_secs(5),
        confirmations: 2,
    }
}

/// A random window of one member, with how long ago it was stated.
fn window(chance: &mut Chance) -> (Window, Duration) {
    let (faults, successes) = (chance.below(4) as u32, chance.below(4) as u32);
    let slow: Vec<Duration> =
        (0..chance.below(3)).map(|_| Duration::from_secs(chance.below(40))).collect();
    let requests = faults + successes + slow.len() as u32;
    let faults_milli = faults * 500 * (1 + chance.below(2) as u32);
    let window = Window { requests, faults_milli, successes, slow, ..Window::default() };
    (window, Duration::from_secs(chance.below(5)))
}

fn judged(windows: &[(Window, Duration)]) -> Option<Ground> {
    conviction().judge(windows.iter().map(|(window, ago)| (window, *ago))).0
}

fn for_each_pool(claim: impl Fn(u64, &mut Chance, Vec<(Window, Duration)>, Option<Ground>)) {
    let mut convicted = 0;
    for seed in 0..TABLES {
        let mut chance = Chance::new(seed);
        let windows: Vec<_> = (0..chance.below(7)).map(|_| window(&mut chance)).collect();
        let before = judged(&windows);
        convicted += u64::from(before.is_some());
        claim(seed, &mut chance, windows, before);
    }
    assert!(convicted > TABLES / 10 && convicted < TABLES * 9 / 10, "{convicted} of {TABLES}");
}

#[test]
fn windows_in_any_order_are_judged_the_same() {
    for_each_pool(|seed, chance, mut windows, before| {
        chance.shuffle(&mut windows);
        assert_eq!(judged(&windows), before, "seed {seed}");
    });
}

#[test]
fn one_more_window_of_nothing_but_faults_never_acquits() {
    for_each_pool(|seed, chance, mut windows, before| {
        let faults = 1 + chance.below(3) as u32;
        let more = Window { requests: faults, faults_milli: faults * 1_000, ..Window::default() };
        windows.push((more, Duration::ZERO));
        assert!(judged(&windows).is_some() || before.is_none(), "seed {seed}");
    });
}

#[test]
fn ten_more_successes_never_convict() {
    for_each_pool(|seed, _, mut windows, before| {
        let more = Window { requests: 10, successes: 10, ..Window::default() };
        windows.push((more, Duration::ZERO));
        assert!(judged(&windows).is_none() || before.is_some(), "seed {seed}");
    });
}
