//! Claims about windows and seconded votes: what no node could convict by alone is judged together.

use std::time::Duration;

use quorum::view::Weight;
use quorum::{Basis, Denominator, Evidence};

use super::traffic::Met;
use super::world::{World, rule};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Lets each of `nodes` meet the endpoint once.
fn meet(world: &mut World, nodes: &[usize], met: Met) {
    let now = world.now;
    for index in nodes {
        world.nodes[*index].traffic.meet(now, met);
    }
}

#[test]
fn one_fault_on_each_of_four_nodes_opens_for_the_fleet() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.is_sick = true;
        meet(&mut world, &[0, 1, 2], Met::Fault);
        world.run(seconds(10));
        assert_eq!(world.ledger.openings(), [], "three are not enough");
        meet(&mut world, &[3], Met::Fault);
        world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
        let view = world.view(0);
        assert_eq!(view.witnesses, 4);
        assert!(view.votes.iter().all(|vote| vote.vote.basis == Basis::Seconded));
        world.is_sick = false;
        world.until(seconds(20), "all in", |world| world.agreed() == Some(false));
        world.run(seconds(60));
        assert_eq!(world.ledger.openings().len(), 5, "old evidence does not open it again");
    }
}

#[test]
fn one_nodes_bad_network_convinces_nobody() {
    let mut world = World::new(1, 5);
    for _ in 0..30 {
        meet(&mut world, &[0], Met::Fault);
        world.run(seconds(1));
    }
    world.trip(0);
    world.run(seconds(10));
    assert_eq!(world.ledger.openings(), []);
    let view = world.view(3);
    assert_eq!(view.witnesses, 1);
    let seconded = |vote: &&quorum::view::VoteView| vote.vote.basis == Basis::Seconded;
    assert!(view.votes.iter().filter(seconded).all(|vote| vote.weight == Weight::NoWitness));
}

#[test]
fn who_has_a_fresh_success_does_not_second() {
    let mut world = World::new(2, 5);
    for _ in 0..10 {
        meet(&mut world, &[0, 1], Met::Fault);
        meet(&mut world, &[0, 1], Met::Fault);
        meet(&mut world, &[2, 3, 4], Met::Success);
        world.run(seconds(1));
    }
    assert_eq!(world.ledger.openings(), [], "two of five see it fail, three do not");
    let voters: Vec<_> = world.view(4).votes.into_iter().map(|vote| vote.voter).collect();
    assert!(voters.iter().all(|id| *id == world.nodes[0].id || *id == world.nodes[1].id));
}

#[test]
fn two_witnesses_convince_those_who_saw_nothing() {
    let mut world = World::new(3, 9);
    world.is_sick = true;
    for _ in 0..2 {
        meet(&mut world, &[0, 1], Met::Fault);
    }
    world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
    assert_eq!(world.view(8).witnesses, 2);
}

/// Opens the breakers of `nodes` on five faults each.
fn trip(world: &mut World, nodes: &[usize]) {
    for index in nodes {
        let evidence = Evidence { requests: 5, faults_milli: 5_000, ..Evidence::default() };
        world.nodes[*index].evidence = evidence;
        world.trip(*index);
    }
}

#[test]
fn who_is_idle_seconds_by_what_the_voters_saw_for_as_long_as_they_vote() {
    for seed in 0..4 {
        let mut world = World::new(seed, 6);
        world.is_sick = true;
        trip(&mut world, &[0, 1, 2]);
        world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
        let mut late = World::new(seed, 6);
        late.is_sick = true;
        late.partition(&[&[0], &[1], &[2], &[3, 4, 5]]);
        trip(&mut late, &[0, 1, 2]);
        late.run(seconds(45));
        late.heal();
        late.until(seconds(8), "all out, long after", |world| world.agreed() == Some(true));
    }
}

#[test]
fn what_one_voter_saw_convinces_nobody() {
    let mut world = World::new(7, 6);
    trip(&mut world, &[0]);
    world.run(seconds(30));
    assert_eq!(world.ledger.openings(), []);
    let weights: Vec<Weight> = world.view(5).votes.into_iter().map(|vote| vote.weight).collect();
    assert_eq!(weights.iter().filter(|weight| **weight == Weight::Counts).count(), 1);
    assert!(weights.contains(&Weight::NoWitness), "{weights:?}");
}

#[test]
fn a_seconded_vote_is_withdrawn_when_its_reason_is_gone() {
    let mut world = World::new(3, 9);
    meet(&mut world, &[2, 3, 4, 5, 6], Met::Success);
    for _ in 0..12 {
        meet(&mut world, &[0, 1], Met::Fault);
    }
    world.run(seconds(3));
    let stands = |world: &World| {
        world.view(7).votes.iter().filter(|vote| vote.weight == Weight::Counts).count()
    };
    assert!(stands(&world) >= 2, "the share convicts: {:?}", world.view(7).votes);
    world.run(seconds(40));
    assert_eq!(stands(&world), 0, "the window is over");
    assert_eq!(world.ledger.openings(), []);
}

#[test]
fn a_hiccup_that_all_saw_is_one_piece_and_two_apart_convict() {
    let mut world = World::new(4, 5);
    meet(&mut world, &[0, 1, 2, 3, 4], Met::Slow);
    world.run(seconds(2));
    meet(&mut world, &[1, 3], Met::Slow);
    world.run(seconds(4));
    assert_eq!(world.ledger.openings(), [], "all within one dedup interval");
    world.is_sick = true;
    meet(&mut world, &[2], Met::Slow);
    world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
}

#[test]
fn windows_are_stated_by_those_with_traffic_while_anybody_suspects_and_not_longer() {
    let mut world = World::new(5, 5);
    let stated = |world: &World| world.view(4).windows.len();
    meet(&mut world, &[0, 1, 2], Met::Success);
    world.run(seconds(3));
    let others = |world: &World| {
        let me = &world.nodes[4].id;
        world.view(4).windows.iter().filter(|(id, _, _)| id != me).count()
    };
    assert_eq!(others(&world), 0, "nobody suspects it");
    meet(&mut world, &[3], Met::Fault);
    world.run(seconds(2));
    assert_eq!(others(&world), 4, "those with traffic: {:?}", world.view(4).windows);
    world.run(seconds(40));
    assert_eq!(stated(&world), 0, "the fault is out of the window");
}

#[test]
fn a_shadow_votes_visibly_and_does_not_count() {
    let mut world = World::new(6, 3);
    world.nodes[0].is_shadow = true;
    world.trip(0);
    world.trip(1);
    world.run(seconds(20));
    assert_eq!(world.ledger.openings(), []);
    let view = world.view(2);
    assert!(view.votes.iter().any(|vote| vote.weight == Weight::Shadow), "{:?}", view.votes);
}

/// A fleet in which only those with traffic are asked.
fn observed(seed: u64, count: usize) -> World {
    let mut rule = rule();
    rule.of = Denominator::Observers;
    World::with(seed, count, rule)
}

#[test]
fn of_observers_two_with_traffic_are_enough_and_one_never_is() {
    for seed in 0..4 {
        let mut world = observed(seed, 7);
        world.electorate = 3;
        meet(&mut world, &[0, 1, 2], Met::Success);
        world.trip(0);
        world.run(seconds(10));
        assert_eq!(world.ledger.openings(), []);
        world.is_sick = true;
        meet(&mut world, &[0, 1, 2], Met::Success);
        world.trip(1);
        world.until(seconds(4), "all out", |world| world.agreed() == Some(true));
        let mut alone = observed(seed, 7);
        alone.trip(3);
        alone.run(seconds(30));
        assert_eq!(alone.ledger.openings(), [], "one observer is no majority");
    }
}

#[test]
fn a_minority_of_observers_does_not_shrink_itself_into_a_majority() {
    for seed in 0..4 {
        let mut world = observed(seed, 5);
        world.is_sick = true;
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        world.trip(0);
        world.trip(1);
        world.run(seconds(300));
        assert!(world.ledger.openings().iter().all(|(_, node)| *node > 1));
        assert!(!world.nodes[0].is_out && !world.nodes[1].is_out);
    }
}

#[test]
fn of_observers_the_seconded_vote_of_who_sees_nothing_does_not_count() {
    let mut world = observed(8, 7);
    world.electorate = 2;
    world.is_sick = true;
    meet(&mut world, &[0, 1], Met::Fault);
    meet(&mut world, &[0, 1], Met::Fault);
    world.until(seconds(4), "all out", |world| world.agreed() == Some(true));
    let (_, _, event) = &world.ledger.events[0];
    assert!(matches!(event, super::ledger::Event::Opened { .. }), "{event:?}");
    let votes = world.view(6).votes;
    let is_idle = |vote: &&quorum::view::VoteView| vote.weight == Weight::NotObserver;
    assert!(votes.iter().filter(is_idle).count() >= 1, "{votes:?}");
}
