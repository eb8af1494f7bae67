//! Claims about operators' orders: the newest wins everywhere, and ends everywhere in time.

use std::time::Duration;

use quorum::Forced;

use super::world::{ROUGH, World};

fn everyone_has(world: &World, forced: Forced) -> bool {
    world.running().iter().all(|index| world.view(*index).forced == forced)
}

#[test]
fn an_order_reaches_every_node_and_ends_when_its_time_is_over() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.order(2, Forced::Open, Some(Duration::from_secs(60)));
        world.until(Duration::from_secs(1), "all obey", |w| everyone_has(w, Forced::Open));
        world.run(Duration::from_secs(58));
        assert!(everyone_has(&world, Forced::Open));
        world.until(Duration::from_secs(3), "it is over", |w| everyone_has(w, Forced::Auto));
    }
}

#[test]
fn of_two_orders_given_apart_all_obey_the_same() {
    for seed in 0..6 {
        let mut world = World::new(seed, 5);
        world.net = ROUGH;
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        world.order(0, Forced::Open, None);
        world.order(4, Forced::Closed, None);
        world.run(Duration::from_secs(3));
        // The second order of one side has seen one more than the only order of the other.
        world.order(1, Forced::Open, None);
        world.run(Duration::from_secs(10));
        world.heal();
        world.until(Duration::from_secs(10), "all obey", |w| everyone_has(w, Forced::Open));
        world.run(Duration::from_secs(20));
        assert!(everyone_has(&world, Forced::Open));
        world.order(3, Forced::Auto, None);
        world.until(Duration::from_secs(10), "the newest", |w| everyone_has(w, Forced::Auto));
    }
}

#[test]
fn equal_stamps_are_decided_by_the_greater_author() {
    let mut world = World::new(3, 4);
    world.partition(&[&[0, 1], &[2, 3]]);
    world.order(1, Forced::Open, None);
    world.order(2, Forced::Closed, None);
    world.run(Duration::from_secs(8));
    world.heal();
    world.until(Duration::from_secs(10), "all obey", |w| everyone_has(w, Forced::Closed));
}

#[test]
fn an_order_outranks_votes_and_no_probe_is_sent_under_it() {
    let mut world = World::new(4, 5);
    world.order(0, Forced::Closed, Some(Duration::from_secs(120)));
    world.run(Duration::from_secs(1));
    world.is_sick = true;
    for index in 0..3 {
        world.trip(index);
    }
    world.run(Duration::from_secs(60));
    assert!(everyone_has(&world, Forced::Closed));
    assert_eq!(world.ledger.fences(), []);
}

#[test]
fn when_an_order_ends_one_node_probes_and_not_all() {
    for seed in 0..6 {
        let mut world = World::new(seed, 5);
        world.is_sick = true;
        for index in 0..3 {
            world.trip(index);
        }
        world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
        world.order(1, Forced::Open, Some(Duration::from_secs(90)));
        world.run(Duration::from_secs(80));
        assert_eq!(world.ledger.fences(), []);
        world.probe_takes = 3_000;
        world.run(Duration::from_secs(60));
        assert_eq!(world.ledger.most_in_flight(), 1);
        world.order(2, Forced::Closed, None);
        world.run(Duration::from_secs(60));
        world.order(3, Forced::Auto, None);
        world.run(Duration::from_secs(60));
        assert_eq!(world.ledger.most_in_flight(), 1);
    }
}

#[test]
fn an_order_that_is_over_does_not_come_back_with_a_node_that_learns_of_it_late() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.order(0, Forced::Open, Some(Duration::from_secs(30)));
        world.run(Duration::from_secs(2));
        // What its author said last goes on being carried: thirty seconds to go.
        world.kill(0);
        world.run(Duration::from_secs(60));
        assert!(everyone_has(&world, Forced::Auto));
        world.kill(3);
        world.restart(3);
        world.run(Duration::from_secs(6));
        assert!(everyone_has(&world, Forced::Auto));
    }
}
