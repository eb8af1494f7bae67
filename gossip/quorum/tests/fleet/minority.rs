//! Claims about who is cut off, and who comes late: nobody leads without a majority, and an opening
//! is joined even if its votes are gone.

use std::time::Duration;

use super::ledger::Event;
use super::world::{ROUGH, World};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn opened(seed: u64, count: usize) -> World {
    let mut world = World::new(seed, count);
    world.is_sick = true;
    for index in 0..=count / 2 {
        world.trip(index);
    }
    world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
    world
}

#[test]
fn a_minority_sends_no_probe_and_closes_nothing() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.is_sick = false;
        world.partition(&[&[0, 1], &[2, 3], &[4]]);
        // What was begun before the others were found lost is let be.
        world.run(seconds(6));
        let sent = world.ledger.fences().len();
        world.run(seconds(50));
        assert_eq!(world.ledger.fences().len(), sent);
    }
}

#[test]
fn who_is_cut_off_lets_go_after_the_grace_and_follows_again_after_the_heal() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.cool_down_at_most(seconds(20));
        world.partition(&[&[0], &[1, 2, 3, 4]]);
        world.run(seconds(60));
        assert!(world.nodes[0].is_out, "not before the grace is over");
        world.run(seconds(12));
        assert!(!world.nodes[0].is_out);
        assert!((1..5).all(|index| world.nodes[index].is_out));
        world.heal();
        world.until(seconds(10), "it follows", |world| world.agreed() == Some(true));
        world.is_sick = false;
        world.until(seconds(60), "all in", |world| world.agreed() == Some(false));
    }
}

#[test]
fn what_all_let_go_of_opens_anew_with_a_cool_down_of_its_own() {
    for seed in 0..6 {
        let mut world = opened(seed, 4);
        world.partition(&[&[0, 1], &[2, 3]]);
        world.run(seconds(75));
        assert_eq!(world.agreed(), Some(false), "no side has a majority");
        world.heal();
        world.run(seconds(20));
        assert_eq!(world.agreed(), Some(false), "nobody votes for it any more");
        let sent = world.ledger.fences().len();
        for index in 0..3 {
            world.trip(index);
        }
        world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
        world.run(seconds(3));
        assert_eq!(world.ledger.fences().len(), sent, "it cools down first");
        world.is_sick = false;
        world.until(seconds(20), "all in", |world| world.agreed() == Some(false));
        assert_eq!(world.ledger.fences().len(), sent + 1);
    }
}

#[test]
fn a_node_that_restarts_joins_an_opening_whose_votes_are_gone() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.net = ROUGH;
        world.run(seconds(2));
        for index in 0..5 {
            world.nodes[index].opened = None;
            world.ledger.appease(world.now, index);
        }
        world.run(seconds(20));
        world.kill(3);
        world.run(seconds(10));
        world.restart(3);
        world.until(seconds(10), "it joins", |world| world.nodes[3].is_out);
        let (mine, theirs) = (world.view(3), world.view(0));
        assert_eq!(mine.tally.counted, 0, "no vote stands");
        assert_eq!(mine.incident, theirs.incident);
        let apart = mine.open_for.unwrap().abs_diff(theirs.open_for.unwrap());
        assert!(apart < seconds(40), "it knows about since when: {apart:?}");
        world.is_sick = false;
        world.until(seconds(130), "all in", |world| world.agreed() == Some(false));
    }
}

#[test]
fn what_half_the_fleet_has_out_is_not_joined() {
    for seed in 0..4 {
        let mut world = opened(seed, 4);
        for index in 0..4 {
            world.nodes[index].opened = None;
            world.ledger.appease(world.now, index);
        }
        world.run(seconds(15));
        for index in [0, 1] {
            world.kill(index);
            world.restart(index);
        }
        world.run(seconds(12));
        assert!(!world.nodes[0].is_out && !world.nodes[1].is_out);
        let opened = |(_, node, event): &(Duration, usize, Event)| {
            matches!(event, Event::Opened { .. }) && *node < 2
        };
        assert_eq!(world.ledger.events.iter().filter(|event| opened(event)).count(), 2);
    }
}
