//! Claims about the electorate: who leaves, who is lost, who comes back.

use std::time::Duration;

use super::world::{World, rule};

fn sizes(world: &World) -> Vec<usize> {
    world.running().iter().map(|index| world.nodes[*index].council.electorate_size()).collect()
}

#[test]
fn a_node_that_leaves_in_good_order_shrinks_the_electorate_at_once() {
    let mut world = World::new(1, 5);
    for left in [4, 3] {
        world.leave(left);
        world.until(Duration::from_secs(1), "it no longer counts", |world| {
            sizes(world).iter().all(|size| *size == left)
        });
    }
    // It is listed as dead for long, and does not come back by that.
    world.run(Duration::from_secs(30));
    assert_eq!(sizes(&world), [3, 3, 3]);
    world.is_sick = true;
    world.trip(0);
    world.trip(1);
    world.until(Duration::from_secs(2), "two of three", |world| world.agreed() == Some(true));
}

#[test]
fn a_lost_member_drops_after_the_grace_while_a_majority_is_live() {
    let mut world = World::new(2, 5);
    world.kill(4);
    world.run(Duration::from_secs(62));
    assert_eq!(sizes(&world), [5; 4]);
    world.run(Duration::from_secs(10));
    assert_eq!(sizes(&world), [4; 4]);
    world.run(Duration::from_secs(120));
    assert_eq!(sizes(&world), [4; 4], "a dead name that is still listed stays out");
    world.restart(4);
    world.until(Duration::from_secs(5), "it counts again", |world| sizes(world) == [5; 5]);
}

#[test]
fn after_losing_most_of_the_fleet_the_electorate_is_frozen() {
    let mut world = World::new(3, 5);
    for index in 2..5 {
        world.kill(index);
    }
    world.run(Duration::from_secs(600));
    assert_eq!(sizes(&world), [5, 5]);
    world.assert_everyone("knows it has no quorum", |node| !node.council.has_quorum());
    world.trip(0);
    world.trip(1);
    world.run(Duration::from_secs(60));
    assert_eq!(world.ledger.openings(), []);
}

#[test]
fn time_spent_in_a_minority_is_no_part_of_the_grace() {
    let mut world = World::new(12, 5);
    world.kill(3);
    world.kill(4);
    world.run(Duration::from_secs(4));
    world.partition(&[&[0, 1], &[2]]);
    world.run(Duration::from_secs(300));
    assert_eq!(sizes(&world), [5; 3]);
    world.heal();
    world.run(Duration::from_secs(58));
    assert_eq!(sizes(&world), [5; 3], "it is live again for less than the grace");
    world.run(Duration::from_secs(10));
    assert_eq!(sizes(&world), [3; 3]);
}

#[test]
fn who_comes_back_one_by_one_does_not_shrink_the_electorate_of_a_minority() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.is_sick = true;
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        world.run(Duration::from_secs(300));
        world.partition(&[&[0, 1, 2], &[3, 4]]);
        world.trip(0);
        world.trip(1);
        for _ in 0..30 {
            world.run(Duration::from_secs(1));
            assert_eq!(world.nodes[0].council.electorate_size(), 5);
            assert_eq!(world.nodes[1].council.electorate_size(), 5);
        }
        assert!(world.ledger.openings().iter().all(|(_, node)| *node > 1));
    }
}

#[test]
fn time_spent_asleep_is_no_part_of_the_grace() {
    let mut world = World::new(4, 5);
    world.kill(4);
    world.run(Duration::from_secs(10));
    world.pause(0);
    world.run(Duration::from_secs(45));
    world.resume(0);
    world.run(Duration::from_secs(30));
    assert_eq!(world.nodes[0].council.electorate_size(), 5);
    world.run(Duration::from_secs(40));
    assert_eq!(world.nodes[0].council.electorate_size(), 4);
}

#[test]
fn the_electorate_is_never_smaller_than_expected() {
    let mut rule = rule();
    rule.electorate.expected_members = 5;
    let mut world = World::with(5, 3, rule);
    world.electorate = 5;
    assert_eq!(sizes(&world), [5; 3]);
    world.is_sick = true;
    world.kill(2);
    world.trip(0);
    world.trip(1);
    world.run(Duration::from_secs(120));
    assert_eq!(sizes(&world), [5; 2]);
    assert_eq!(world.ledger.openings(), []);
    world.restart(2);
    world.run(Duration::from_secs(10));
    world.trip(2);
    world.until(Duration::from_secs(2), "three of five", |world| world.agreed() == Some(true));
}

#[test]
fn a_restarted_member_counts_once_and_its_old_vote_not_at_all() {
    for seed in 0..4 {
        let mut world = World::new(seed, 3);
        world.trip(0);
        world.run(Duration::from_secs(2));
        world.kill(0);
        world.restart(0);
        world.until(Duration::from_secs(4), "it is known anew", |world| {
            let generation = world.nodes[0].generation;
            let knows = |index: usize| {
                let node = &world.nodes[index];
                let members = node.council.members(node.clock(world.now));
                members.iter().any(|member| member.generation == generation)
            };
            knows(1) && knows(2)
        });
        world.trip(1);
        for _ in 0..20 {
            world.run(Duration::from_secs(1));
            assert_eq!(sizes(&world), [3; 3]);
        }
        assert_eq!(world.ledger.openings(), []);
        world.is_sick = true;
        world.trip(0);
        world.until(Duration::from_secs(2), "both voters", |world| world.agreed() == Some(true));
    }
}

#[test]
fn a_lost_member_can_be_forgotten_by_hand_and_stays_so() {
    let mut world = World::new(6, 4);
    world.kill(3);
    let lost = world.nodes[3].id.clone();
    assert!(!world.nodes[0].council.forget(&lost), "it is not yet known to be lost");
    world.run(Duration::from_secs(8));
    for index in 0..3 {
        assert!(world.nodes[index].council.forget(&lost));
    }
    world.run(Duration::from_secs(30));
    assert_eq!(sizes(&world), [3; 3]);
}

#[test]
fn forgetting_a_live_member_is_refused_and_its_vote_goes_on_counting() {
    let mut world = World::new(7, 3);
    world.trip(2);
    world.run(Duration::from_secs(1));
    let live = world.nodes[2].id.clone();
    assert!(!world.nodes[0].council.forget(&live));
    assert_eq!(world.view(0).tally.counted, 1);
}
