//! Claims about the way back: one leads, one probes, and what is closed stays closed.

use std::time::Duration;

use super::carrier::DETECTION;
use super::ledger::Event;
use super::world::{ROUGH, World, rule};

/// A fleet whose first `quorum` nodes have voted a sick endpoint out.
fn opened(seed: u64, count: usize) -> World {
    let mut world = World::new(seed, count);
    world.is_sick = true;
    for index in 0..=count / 2 {
        world.trip(index);
    }
    world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
    world
}

fn until_probed(world: &mut World, probes: usize, limit: Duration) -> Duration {
    world.until(limit, "a probe is sent", |world| world.ledger.fences().len() == probes)
}

fn until_closed(world: &mut World, limit: Duration) -> Duration {
    world.until(limit, "all in", |world| world.agreed() == Some(false))
}

#[test]
fn exactly_one_probe_is_sent_for_an_incident_while_views_agree() {
    for count in 2..=9 {
        for seed in 0..2 {
            let mut world = opened(seed, count);
            world.is_sick = false;
            until_closed(&mut world, Duration::from_secs(9));
            world.run(Duration::from_secs(30));
            assert_eq!(world.ledger.fences(), [(1, 0)], "{count} nodes");
            assert!(world.nodes.iter().all(|node| node.opened.is_none()));
        }
    }
}

#[test]
fn a_failed_probe_lengthens_the_cool_down_and_moves_the_fence() {
    for seed in 0..4 {
        let mut world = opened(seed, 5);
        until_probed(&mut world, 4, Duration::from_secs(120));
        assert_eq!(world.ledger.fences(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        let starts: Vec<Duration> = world.ledger.flights.iter().map(|flight| flight.from).collect();
        let gaps: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Twice as long each time, within the jitter of a fifth either way.
        assert!(gaps[0] >= Duration::from_secs(8), "{gaps:?}");
        assert!(gaps[1] >= Duration::from_secs(16), "{gaps:?}");
        assert!(gaps[2] >= Duration::from_secs(32), "{gaps:?}");
        assert_eq!(world.ledger.most_in_flight(), 1);
        assert_eq!(world.agreed(), Some(true));
    }
}

#[test]
fn probes_do_not_overlap_on_a_rough_network() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.net = ROUGH;
        world.probe_takes = 9_000;
        world.run(Duration::from_secs(120));
        assert_eq!(world.ledger.most_in_flight(), 1);
    }
}

#[test]
fn when_the_steward_dies_before_its_probe_another_takes_over() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.kill(world.steward(0));
        let due = world.view(world.running()[0]).due_in.unwrap();
        let waited = until_probed(&mut world, 1, Duration::from_secs(60));
        let limit = due + world.recovery.probe_timeout + DETECTION;
        assert!(waited <= limit, "{waited:?} of {limit:?}");
        world.is_sick = false;
        until_closed(&mut world, Duration::from_secs(20));
    }
}

#[test]
fn when_the_steward_dies_with_its_probe_another_takes_over() {
    for seed in 0..6 {
        let mut world = opened(seed, 5);
        world.probe_takes = 5_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        world.is_sick = false;
        world.run(Duration::from_secs(1));
        world.kill(world.ledger.flights[0].node);
        let waited = until_probed(&mut world, 2, Duration::from_secs(60));
        assert!(waited <= world.recovery.probe_timeout + DETECTION, "{waited:?}");
        until_closed(&mut world, Duration::from_secs(20));
        assert_eq!(world.ledger.fences(), [(1, 0), (1, 0)]);
    }
}

#[test]
fn when_a_live_steward_never_hears_of_its_probe_the_next_in_rank_takes_over() {
    for seed in 0..6 {
        let mut world = opened(seed, 3);
        // Longer than any run: the answer is lost with the task that waited for it.
        world.probe_takes = 3_600_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        world.probe_takes = 300;
        world.is_sick = false;
        let limit = world.recovery.probe_timeout * 2 + Duration::from_secs(2);
        let waited = until_probed(&mut world, 2, Duration::from_secs(120));
        assert!(waited <= limit, "{waited:?} of {limit:?}");
        assert_ne!(world.ledger.flights[0].node, world.ledger.flights[1].node);
        until_closed(&mut world, Duration::from_secs(5));
    }
}

#[test]
fn the_only_node_left_probes_again_when_an_answer_is_lost() {
    let mut world = opened(3, 3);
    world.probe_takes = 3_600_000;
    until_probed(&mut world, 1, Duration::from_secs(20));
    let steward = world.ledger.flights[0].node;
    for index in (0..3).filter(|index| *index != steward) {
        world.leave(index);
    }
    world.probe_takes = 300;
    world.is_sick = false;
    let limit = world.recovery.probe_timeout * 4;
    until_closed(&mut world, limit);
}

#[test]
fn a_stale_steward_closes_nothing() {
    for seed in 0..8 {
        let mut world = opened(seed, 5);
        world.probe_takes = 2_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        let stale = world.ledger.flights[0].node;
        // Its probe passes while it sleeps; the endpoint then falls sick and fails another's.
        world.is_sick = false;
        world.run(Duration::from_secs(1));
        world.pause(stale);
        world.run(Duration::from_secs(3));
        world.is_sick = true;
        until_probed(&mut world, 2, Duration::from_secs(60));
        world.run(Duration::from_secs(4));
        world.resume(stale);
        world.run(Duration::from_secs(5));
        assert_eq!(world.agreed(), Some(true));
        let is_closing = |event: &Event| matches!(event, Event::Closed { .. });
        assert!(!world.ledger.events.iter().any(|(_, _, event)| is_closing(event)));
        assert!(world.ledger.fences().iter().all(|(incident, _)| *incident == 1));
    }
}

#[test]
fn a_late_answer_to_a_probe_that_was_overtaken_closes_nothing() {
    for seed in 0..4 {
        let mut world = opened(seed, 3);
        world.probe_takes = 25_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        world.probe_takes = 300;
        until_probed(&mut world, 2, Duration::from_secs(22));
        world.run(Duration::from_secs(1));
        // The first answer comes, and is good; but the second probe has failed meanwhile.
        world.is_sick = false;
        world.run(Duration::from_secs(6));
        assert_eq!(world.agreed(), Some(true));
        until_closed(&mut world, Duration::from_secs(20));
        assert_eq!(world.ledger.fences(), [(1, 0), (1, 0), (1, 1)]);
    }
}

#[test]
fn a_steward_that_wakes_does_not_probe_beside_the_one_that_took_over() {
    for seed in 0..8 {
        let mut world = opened(seed, 5);
        world.probe_takes = 9_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        world.run(Duration::from_secs(1));
        world.pause(world.ledger.flights[0].node);
        until_probed(&mut world, 2, Duration::from_secs(60));
        world.resume(world.ledger.flights[0].node);
        world.run(Duration::from_secs(60));
        assert_eq!(world.ledger.most_in_flight(), 1);
    }
}

#[test]
fn a_probe_that_failed_in_its_sleeping_steward_undoes_no_closing() {
    for seed in 0..8 {
        let mut world = opened(seed, 5);
        world.probe_takes = 2_000;
        until_probed(&mut world, 1, Duration::from_secs(20));
        let stale = world.ledger.flights[0].node;
        world.run(Duration::from_secs(1));
        world.pause(stale);
        world.run(Duration::from_secs(3));
        world.is_sick = false;
        until_closed(&mut world, Duration::from_secs(60));
        world.resume(stale);
        until_closed(&mut world, Duration::from_secs(10));
        world.run(Duration::from_secs(20));
        assert_eq!(world.agreed(), Some(false));
        assert_eq!(world.ledger.openings().len(), 5, "no node opens twice");
    }
}

#[test]
fn votes_that_come_after_the_closing_are_void_and_their_voters_released() {
    for seed in 0..8 {
        let mut world = opened(seed, 5);
        world.pause(0);
        world.pause(1);
        world.is_sick = false;
        until_closed(&mut world, Duration::from_secs(60));
        world.run(Duration::from_secs(1));
        // Two late votes of the first incident and one of the second are no majority.
        world.trip(2);
        world.run(Duration::from_secs(1));
        world.resume(0);
        world.resume(1);
        world.run(Duration::from_secs(30));
        assert_eq!(world.ledger.openings().len(), 5, "no node opens twice");
        assert_eq!(world.agreed(), Some(false));
        assert!(world.nodes[0].opened.is_none() && world.nodes[1].opened.is_none());
        assert_eq!(world.view(0).tally.counted, 1);
    }
}

/// A fleet in two parts: three have the endpoint out in incident 1, one of the two others votes for
/// incident 2, since these have heard of an incident that came to nothing.
fn numbered_apart(seed: u64) -> World {
    let mut world = World::new(seed, 5);
    world.is_sick = true;
    world.partition(&[&[0, 1, 2], &[3, 4]]);
    world.trip(3);
    world.run(Duration::from_secs(2));
    world.nodes[3].opened = None;
    world.run(Duration::from_secs(2));
    for index in 0..4 {
        world.trip(index);
    }
    world.run(Duration::from_secs(2));
    assert_eq!(world.view(3).tally.incident, 2);
    assert_eq!(world.view(0).incident, 1);
    world
}

#[test]
fn one_closing_ends_what_was_numbered_apart_and_heard_of_during_the_probe() {
    for seed in 0..8 {
        let mut world = numbered_apart(seed);
        world.probe_takes = 9_000;
        until_probed(&mut world, 1, Duration::from_secs(10));
        world.heal();
        world.until(Duration::from_secs(8), "all out", |world| world.agreed() == Some(true));
        world.is_sick = false;
        until_closed(&mut world, Duration::from_secs(10));
        world.run(Duration::from_secs(30));
        assert_eq!(world.agreed(), Some(false));
        assert_eq!(world.ledger.fences().len(), 1);
    }
}

#[test]
fn one_closing_ends_an_incident_that_two_sides_numbered_apart() {
    for seed in 0..8 {
        let mut world = numbered_apart(seed);
        world.heal();
        world.until(Duration::from_secs(12), "all out", |world| world.agreed() == Some(true));
        world.is_sick = false;
        let first_in = world.until(Duration::from_secs(60), "one in", |world| {
            world.nodes.iter().any(|node| !node.is_out)
        });
        assert!(first_in < Duration::from_secs(30), "{first_in:?}");
        until_closed(&mut world, Duration::from_secs(10));
        world.run(Duration::from_secs(30));
        assert_eq!(world.agreed(), Some(false));
        assert_eq!(world.ledger.most_in_flight(), 1);
        assert!(world.nodes.iter().all(|node| node.opened.is_none()), "each voter is released");
    }
}

#[test]
fn a_second_incident_has_the_next_number_and_a_longer_cool_down() {
    let mut world = opened(5, 5);
    world.is_sick = false;
    until_closed(&mut world, Duration::from_secs(20));
    world.run(Duration::from_secs(20));
    world.is_sick = true;
    for index in 1..4 {
        world.trip(index);
    }
    world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
    for index in 0..5 {
        let view = world.view(index);
        assert_eq!((view.incident, view.level), (2, 1));
        assert!(view.due_in.unwrap() > Duration::from_secs(6), "{:?}", view.due_in);
    }
}

#[test]
fn max_open_ends_an_opening_that_no_probe_ended() {
    let mut rule = rule();
    rule.max_open = Duration::from_secs(90);
    let mut world = World::with(6, 5, rule);
    world.is_sick = true;
    for index in 0..3 {
        world.trip(index);
    }
    world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
    world.run(Duration::from_secs(85));
    assert_eq!(world.agreed(), Some(true));
    until_closed(&mut world, Duration::from_secs(6));
    world.run(Duration::from_secs(60));
    assert_eq!(world.agreed(), Some(false));
    assert_eq!(world.ledger.openings().len(), 5, "no node opens twice");
}

#[test]
fn a_node_that_wakes_from_a_pause_only_observes_for_a_while() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.is_sick = true;
        world.pause(4);
        world.run(Duration::from_secs(6));
        for index in 0..3 {
            world.trip(index);
        }
        world.run(Duration::from_secs(5));
        assert_eq!(world.ledger.openings().len(), 4);
        world.resume(4);
        world.run(Duration::from_millis(2_900));
        assert!(!world.nodes[4].is_out, "it flips within the time it observes");
        world.until(Duration::from_secs(8), "it follows", |world| world.nodes[4].is_out);
    }
}

#[test]
fn a_fleet_that_all_slept_wakes_without_a_storm_of_probes() {
    for seed in 0..4 {
        let mut world = opened(seed, 5);
        world.run(Duration::from_secs(1));
        for index in 0..5 {
            world.pause(index);
        }
        world.run(Duration::from_secs(120));
        for index in 0..5 {
            world.resume(index);
        }
        world.probe_takes = 2_000;
        world.run(Duration::from_secs(60));
        assert_eq!(world.ledger.most_in_flight(), 1);
        world.is_sick = false;
        until_closed(&mut world, Duration::from_secs(200));
    }
}
