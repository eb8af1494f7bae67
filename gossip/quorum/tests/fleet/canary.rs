//! Claims about the canary slot: one holder at a time, by rotation, and never lost with its holder.

use std::collections::BTreeSet;
use std::time::Duration;

use quorum::Way;

use super::carrier::DETECTION;
use super::ledger::Event;
use super::world::{ROUGH, World};

const TURN: Duration = Duration::from_secs(5);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A fleet that has a sick endpoint out and comes back by five canaries.
fn opened(seed: u64, count: usize, probe: bool) -> World {
    let mut world = World::new(seed, count);
    world.come_back_by(Way::Ladder { probe, canaries: 5, turn: TURN });
    world.is_sick = true;
    for index in 0..=count / 2 {
        world.trip(index);
    }
    world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
    world
}

fn holders(world: &World) -> Vec<usize> {
    let holds = |index: &usize| world.nodes[*index].traffic.holds();
    world.running().into_iter().filter(holds).collect()
}

fn lent(world: &World) -> Vec<(usize, u32, u32)> {
    let lent = |(_, node, event): &(Duration, usize, Event)| match event {
        Event::Lent { fence, successes } => Some((*node, fence.turn, *successes)),
        Event::Opened { .. }
        | Event::Closed { .. }
        | Event::Forced(_)
        | Event::Probe { .. }
        | Event::Recalled
        | Event::Asked { .. } => None,
    };
    world.ledger.events.iter().filter_map(lent).collect()
}

/// Lets time pass until all are in again; never do two nodes hold the slot.
fn until_closed(world: &mut World, limit: Duration) -> Duration {
    world.until(limit, "all in", |world| {
        assert!(holders(world).len() <= 1, "{:?} hold the slot", holders(world));
        world.agreed() == Some(false)
    })
}

#[test]
fn after_the_probe_five_canaries_of_one_node_close() {
    for seed in 0..4 {
        let mut world = opened(seed, 5, true);
        for node in &mut world.nodes {
            node.traffic.has_small = true;
        }
        world.is_sick = false;
        until_closed(&mut world, seconds(12));
        assert_eq!(world.ledger.fences(), [(1, 0)]);
        assert_eq!(world.ledger.canaries.len(), 5, "no more than it takes");
        assert_eq!(lent(&world).len(), 1, "{:?}", lent(&world));
        assert!(holders(&world).is_empty());
    }
}

#[test]
fn three_probes_of_one_member_that_say_nothing_lead_on_to_canaries() {
    for (seed, base) in [(0, 1), (1, 5), (2, 12), (3, 40), (4, 90)] {
        let mut world = opened(seed, 5, true);
        world.recovery.base = seconds(base);
        world.recovery.probe_timeout = seconds(3);
        world.reload();
        for node in &mut world.nodes {
            node.traffic.has_small = true;
        }
        (world.is_sick, world.refuses_probes) = (false, true);
        until_closed(&mut world, seconds(30 + 2 * base));
        assert_eq!(world.ledger.fences(), [(1, 0); 3]);
        let probers: BTreeSet<usize> = world.ledger.flights.iter().map(|one| one.node).collect();
        assert_eq!(probers.len(), 1, "nobody takes the probe for lost: {probers:?}");
        assert_eq!(world.ledger.canaries.len(), 5);
    }
}

#[test]
fn the_slot_finds_the_one_node_that_has_small_requests() {
    for seed in 0..6 {
        let mut world = opened(seed, 5, true);
        let busy = (seed % 5) as usize;
        world.nodes[busy].traffic.has_small = true;
        world.is_sick = false;
        until_closed(&mut world, seconds(14));
        assert!(world.ledger.canaries.iter().all(|(_, node)| *node == busy));
        assert!(lent(&world).len() <= 2, "{:?}", lent(&world));
    }
}

#[test]
fn a_slot_that_is_handed_back_where_nobody_has_a_use_for_it_is_lent_anew() {
    for seed in 0..4 {
        let mut world = opened(seed, 3, true);
        world.is_sick = false;
        world.until(seconds(14), "it is lent", |world| !lent(world).is_empty());
        let fence = world.ledger.events.iter().find_map(|(_, _, event)| match event {
            Event::Lent { fence, .. } => Some(*fence),
            Event::Opened { .. }
            | Event::Closed { .. }
            | Event::Forced(_)
            | Event::Probe { .. }
            | Event::Recalled
            | Event::Asked { .. } => None,
        });
        let (holder, key) = (lent(&world)[0].0, world.key.clone());
        let now = world.nodes[holder].clock(world.now);
        world.nodes[holder].council.hand_back(now, &key, fence.unwrap());
        world.run(Duration::from_millis(300));
        assert_eq!(lent(&world), [(holder, 0, 0), (holder, 1, 0)], "seed {seed}");
        assert_eq!(holders(&world), [holder]);
    }
}

#[test]
fn without_a_probe_the_canaries_begin_when_the_cool_down_is_over() {
    let mut world = opened(2, 3, false);
    world.nodes[1].traffic.has_small = true;
    world.is_sick = false;
    until_closed(&mut world, seconds(14));
    assert_eq!(world.ledger.fences(), []);
    assert_eq!(world.ledger.canaries.len(), 5);
}

#[test]
fn a_failed_canary_is_a_failed_probe() {
    let mut world = opened(3, 5, true);
    world.nodes[4].traffic.has_small = true;
    world.is_sick = false;
    world.until(seconds(12), "two canaries", |world| world.ledger.canaries.len() == 2);
    world.is_sick = true;
    world.until(seconds(2), "it is taken back", |world| holders(world).is_empty());
    world.run(seconds(1));
    let view = world.view(0);
    assert_eq!(view.step.as_ref().map(|step| step.failures), Some(1));
    assert!(view.due_in.unwrap() > seconds(6), "twice as long: {:?}", view.due_in);
    assert_eq!(world.agreed(), Some(true));
    world.is_sick = false;
    until_closed(&mut world, seconds(20));
    assert_eq!(world.ledger.fences(), [(1, 0), (1, 1)]);
}

#[test]
fn successes_are_counted_across_holders() {
    let mut world = opened(4, 5, true);
    world.nodes[1].traffic.has_small = true;
    world.is_sick = false;
    world.until(seconds(14), "two canaries", |world| world.ledger.canaries.len() == 2);
    world.nodes[1].traffic.has_small = false;
    world.nodes[3].traffic.has_small = true;
    // Who holds the slot without a use for it gives it away at once, before its turn is over.
    until_closed(&mut world, TURN);
    assert_eq!(world.ledger.canaries.len(), 5);
    let last = lent(&world).last().copied().unwrap();
    assert_eq!((last.0, last.2), (3, 2), "{:?}", lent(&world));
}

#[test]
fn an_idle_slot_goes_round_and_waits_for_whoever_comes() {
    let mut world = opened(5, 3, true);
    world.is_sick = false;
    world.run(seconds(60));
    assert_eq!(world.agreed(), Some(true), "nobody has tried it");
    world.nodes[2].traffic.has_small = true;
    until_closed(&mut world, seconds(10));
}

#[test]
fn when_the_holder_dies_the_slot_is_taken_back() {
    for seed in 0..6 {
        let mut world = opened(seed, 5, true);
        for node in &mut world.nodes {
            node.traffic.has_small = true;
        }
        world.is_sick = false;
        world.until(seconds(12), "two canaries", |world| world.ledger.canaries.len() == 2);
        world.kill(holders(&world)[0]);
        let waited = until_closed(&mut world, seconds(30));
        assert!(waited < DETECTION + seconds(4), "{waited:?}");
        assert_eq!(lent(&world).last().unwrap().1, 1, "one turn more");
    }
}

#[test]
fn when_a_live_holder_is_stuck_the_slot_moves_on_and_its_late_word_counts_nothing() {
    for seed in 0..4 {
        let mut world = opened(seed, 5, true);
        for node in &mut world.nodes {
            node.traffic.has_small = true;
        }
        world.is_sick = false;
        world.until(seconds(12), "it is lent", |world| !holders(world).is_empty());
        let stuck = holders(&world)[0];
        world.nodes[stuck].traffic.is_stuck = true;
        let waited = until_closed(&mut world, seconds(60));
        assert!(waited <= TURN * 2 + world.recovery.probe_timeout * 2 + seconds(6), "{waited:?}");
        assert!(world.ledger.canaries.iter().all(|(_, node)| *node != stuck));
    }
}

#[test]
fn a_holder_that_wakes_is_told_that_the_slot_is_gone() {
    for seed in 0..4 {
        let mut world = opened(seed, 5, true);
        for node in &mut world.nodes {
            node.traffic.has_small = true;
        }
        world.is_sick = false;
        world.until(seconds(12), "a canary", |world| world.ledger.canaries.len() == 1);
        let stale = holders(&world)[0];
        world.pause(stale);
        world.until(seconds(40), "the others are in", |world| world.agreed() == Some(false));
        let sent = world.ledger.canaries.len();
        world.resume(stale);
        world.run(seconds(10));
        assert!(holders(&world).is_empty());
        assert_eq!(world.agreed(), Some(false));
        assert!(world.ledger.canaries.len() <= sent + 1, "the one that had waited in it");
    }
}

#[test]
fn on_a_rough_network_two_hold_the_slot_at_most_while_a_word_is_on_its_way() {
    for seed in 0..6 {
        let mut world = opened(seed, 5, true);
        world.net = ROUGH;
        for index in [1, 3] {
            world.nodes[index].traffic.has_small = true;
        }
        world.is_sick = false;
        let mut doubled = 0;
        world.until(seconds(40), "all in", |world| {
            doubled += usize::from(holders(world).len() > 1);
            world.agreed() == Some(false)
        });
        assert!(doubled <= 20, "two held the slot for {doubled} tenths of a second");
    }
}

#[test]
fn the_lazy_way_ends_for_everyone_at_once_and_nobody_probes() {
    let ttl = seconds(45);
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.come_back_by(Way::Lazy { ttl });
        world.is_sick = true;
        for index in 0..3 {
            world.trip(index);
        }
        world.until(seconds(2), "all out", |world| world.agreed() == Some(true));
        // One that comes late measures from the opening, and not from when it learned of it.
        world.run(seconds(10));
        world.kill(4);
        world.restart(4);
        world.until(seconds(8), "it joins", |world| world.nodes[4].is_out);
        world.run(seconds(22));
        assert_eq!(world.agreed(), Some(true));
        until_closed(&mut world, seconds(14));
        let closings: Vec<Duration> = world
            .ledger
            .events
            .iter()
            .filter(|(_, _, event)| matches!(event, Event::Closed { .. }))
            .map(|(at, _, _)| *at)
            .collect();
        let opened_at = world.ledger.openings()[0].0;
        assert!(closings.iter().all(|at| *at - opened_at < ttl + seconds(1)), "{closings:?}");
        assert!(closings.iter().all(|at| *at - opened_at + seconds(1) > ttl), "{closings:?}");
        assert_eq!(world.ledger.fences(), []);
    }
}
