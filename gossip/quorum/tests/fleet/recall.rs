//! Claims about the roll kept over a restart: who restarts while cut off knows how many there are.

use std::time::Duration;

use quorum::electorate::MEMBERS_MAX;
use quorum::{Council, NodeId};

use super::world::{World, rule};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn size(world: &World, index: usize) -> usize {
    world.nodes[index].council.electorate_size()
}

/// Five nodes, the first two of which are cut off and down.
fn two_of_five_down(seed: u64) -> World {
    let mut world = World::new(seed, 5);
    world.partition(&[&[0, 1], &[2, 3, 4]]);
    world.kill(0);
    world.kill(1);
    world.run(seconds(10));
    world
}

#[test]
fn two_of_five_that_restart_while_cut_off_do_not_flip_with_a_roll() {
    for seed in 0..4 {
        let mut world = two_of_five_down(seed);
        world.restart_with_roll(0);
        world.restart_with_roll(1);
        world.is_sick = true;
        world.run(seconds(10));
        world.trip(0);
        world.trip(1);
        world.run(seconds(300));
        assert_eq!(world.ledger.openings(), []);
        assert_eq!((size(&world, 0), size(&world, 1)), (5, 5));
        world.heal();
        world.trip(2);
        world.until(seconds(10), "three of five", |world| world.agreed() == Some(true));
        assert_eq!((size(&world, 0), size(&world, 2)), (5, 5));
    }
}

/// The limit of the rule: nothing tells them of the others.
#[test]
fn without_a_roll_they_take_themselves_for_the_fleet_unless_more_are_expected() {
    let mut world = two_of_five_down(1);
    world.restart(0);
    world.restart(1);
    world.electorate = 2;
    world.run(seconds(10));
    assert_eq!((size(&world, 0), size(&world, 1)), (2, 2));
    world.trip(0);
    world.trip(1);
    world.until(seconds(2), "two of two", |world| world.nodes[0].is_out && world.nodes[1].is_out);
}

#[test]
fn who_is_recalled_and_never_heard_of_drops_out_after_the_grace() {
    let mut world = World::new(2, 5);
    world.kill(0);
    world.kill(4);
    world.run(seconds(80));
    world.restart_with_roll(0);
    world.run(seconds(55));
    assert_eq!(size(&world, 0), 5);
    world.run(seconds(10));
    assert_eq!(size(&world, 0), 4);
}

#[test]
fn who_is_recalled_and_has_left_no_longer_counts() {
    let mut world = World::new(3, 5);
    world.kill(0);
    world.leave(4);
    world.restart_with_roll(0);
    assert_eq!(size(&world, 0), 5);
    world.until(seconds(4), "it hears of it", |world| size(world, 0) == 4);
}

#[test]
fn who_is_recalled_takes_its_seat_in_its_first_life_that_is_heard_of() {
    let mut world = World::new(4, 3);
    world.kill(0);
    world.restart_with_roll(0);
    world.until(seconds(4), "all are met", |world| world.nodes[0].council.live_count() == 3);
    assert_eq!(size(&world, 0), 3);
    world.is_sick = true;
    world.trip(0);
    world.trip(1);
    world.until(seconds(10), "all out", |world| world.agreed() == Some(true));
}

#[test]
fn a_roll_names_this_node_too_and_is_bounded() {
    let (me, other) = (NodeId::new("gw-0"), NodeId::new("gw-1"));
    let mut council = Council::new(me.clone(), rule(), seconds(1));
    council.recall(seconds(1), [other.clone(), me.clone(), other.clone()]);
    assert_eq!(council.roll_call(), [me, other]);
    assert_eq!((council.live_count(), council.electorate_size()), (1, 2));
    council.recall(seconds(1), (0..2 * MEMBERS_MAX).map(|n| NodeId::new(&format!("old-{n}"))));
    assert_eq!(council.roll_call().len(), MEMBERS_MAX);
}

#[test]
fn muting_who_is_not_known_leaves_no_trace() {
    let stranger = NodeId::new("gw-9");
    let mut council = Council::new(NodeId::new("gw-0"), rule(), seconds(1));
    assert!(!council.mute(&stranger, true));
    council.recall(seconds(1), [stranger.clone()]);
    assert!(council.members(seconds(1)).iter().all(|member| !member.is_muted));
    assert!(council.mute(&stranger, true));
    assert!(council.forget(&stranger));
    council.hear(seconds(2), &[]);
    council.recall(seconds(2), [stranger]);
    assert!(council.members(seconds(2)).iter().all(|member| !member.is_muted));
}
