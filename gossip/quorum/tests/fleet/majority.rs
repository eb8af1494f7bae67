//! Claims about the flip: only a majority of true voters opens, and all that hear it agree.

use std::time::Duration;

use quorum::view::Weight;

use super::world::{CALM, Net, ROUGH, World};

/// The nodes from `from` to `to`, the latter left out.
fn range(from: usize, to: usize) -> Vec<usize> {
    (from..to).collect()
}

fn flips_at_the_quorum_only(seed: u64, count: usize, net: Net, limit: Duration) {
    let mut world = World::new(seed, count);
    world.net = net;
    let quorum = count / 2 + 1;
    for index in 0..quorum - 1 {
        world.trip(index);
    }
    world.run(Duration::from_secs(30));
    assert_eq!(world.ledger.openings(), [], "{count} nodes, one vote too few");
    world.is_sick = true;
    world.trip(quorum - 1);
    world.until(limit, "all have it out", |world| world.agreed() == Some(true));
}

#[test]
fn a_fleet_flips_at_the_vote_that_makes_a_majority_and_not_before() {
    for count in 2..=9 {
        for seed in 0..2 {
            flips_at_the_quorum_only(seed, count, CALM, Duration::from_secs(2));
            flips_at_the_quorum_only(seed + 100, count, ROUGH, Duration::from_secs(10));
        }
    }
}

#[test]
fn a_minority_partition_neither_flips_nor_shrinks_its_electorate() {
    for count in 3..=9 {
        let mut world = World::new(count as u64, count);
        world.is_sick = true;
        let minority = (count - 1) / 2;
        world.partition(&[&range(0, minority), &range(minority, count)]);
        for index in 0..minority {
            world.trip(index);
        }
        for _ in 0..60 {
            world.run(Duration::from_secs(5));
            for index in 0..minority {
                assert_eq!(world.nodes[index].council.electorate_size(), count);
            }
        }
        assert_eq!(world.ledger.openings(), [], "{minority} of {count} flipped");
    }
}

#[test]
fn a_node_that_restarts_within_a_minority_does_not_make_it_a_majority() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.is_sick = true;
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        world.run(Duration::from_secs(8));
        world.kill(0);
        world.restart(0);
        world.run(Duration::from_secs(10));
        world.trip(0);
        world.trip(1);
        world.run(Duration::from_secs(120));
        assert_eq!(world.ledger.openings(), []);
    }
}

#[test]
fn two_against_two_of_four_never_flips() {
    for seed in 0..4 {
        let mut world = World::new(seed, 4);
        world.is_sick = true;
        world.partition(&[&[0, 1], &[2, 3]]);
        world.trip(0);
        world.trip(1);
        world.run(Duration::from_secs(180));
        world.assert_everyone("counts four", |node| node.council.electorate_size() == 4);
        assert_eq!(world.ledger.openings(), []);
    }
}

#[test]
fn what_a_majority_opened_in_a_partition_all_have_out_within_ten_seconds_of_the_heal() {
    for seed in 0..6 {
        let mut world = World::new(seed, 5);
        world.net = ROUGH;
        world.is_sick = true;
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        for index in 2..5 {
            world.trip(index);
        }
        world.run(Duration::from_secs(20));
        assert_eq!(world.ledger.openings().len(), 3);
        world.heal();
        world.until(Duration::from_secs(10), "views agree", |world| world.agreed() == Some(true));
    }
}

#[test]
fn what_a_majority_closed_in_a_partition_all_have_in_within_ten_seconds_of_the_heal() {
    for seed in 0..6 {
        let mut world = World::new(seed, 5);
        world.net = ROUGH;
        world.is_sick = true;
        for index in 0..3 {
            world.trip(index);
        }
        world.until(Duration::from_secs(10), "out", |world| world.agreed() == Some(true));
        // The smaller side must wait for the ranks of the greater one, if it may probe at all.
        world.partition(&[&[0], &[1, 2, 3, 4]]);
        world.is_sick = false;
        world.until(Duration::from_secs(60), "the greater side is in", |world| {
            (1..5).all(|index| !world.nodes[index].is_out)
        });
        world.heal();
        world.until(Duration::from_secs(10), "views agree", |world| world.agreed() == Some(false));
        world.run(Duration::from_secs(30));
        assert_eq!(world.agreed(), Some(false));
        assert!(world.nodes.iter().all(|node| node.opened.is_none()), "each voter is released");
    }
}

#[test]
fn an_imposed_opening_never_becomes_a_vote() {
    let mut world = World::new(7, 5);
    world.is_sick = true;
    world.has_traffic = false;
    for index in [1, 2, 4] {
        world.trip(index);
    }
    world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
    for _ in 0..20 {
        world.run(Duration::from_secs(3));
        for index in 0..5 {
            let view = world.view(index);
            assert_eq!(view.tally.counted, 3);
            assert_eq!(view.votes.len(), 3, "{:?}", view.votes);
        }
    }
}

#[test]
fn an_opening_outlives_the_votes_that_made_it() {
    let mut world = World::new(8, 5);
    world.is_sick = true;
    for index in 0..3 {
        world.trip(index);
    }
    world.until(Duration::from_secs(2), "all out", |world| world.agreed() == Some(true));
    for index in 0..3 {
        world.nodes[index].opened = None;
        world.ledger.appease(world.now, index);
    }
    world.run(Duration::from_secs(40));
    assert_eq!(world.agreed(), Some(true), "only the steward brings it back");
    let withdrawn = |vote: &quorum::view::VoteView| vote.weight == Weight::Withdrawn;
    assert!(world.view(4).votes.iter().all(withdrawn));
}

#[test]
fn a_vote_dies_with_its_voter() {
    let mut world = World::new(9, 5);
    world.trip(0);
    world.trip(1);
    world.run(Duration::from_secs(2));
    world.kill(0);
    world.run(Duration::from_secs(7));
    world.trip(2);
    world.run(Duration::from_secs(60));
    assert_eq!(world.ledger.openings(), []);
}

#[test]
fn the_last_vote_of_who_died_apart_does_not_count_when_the_heal_brings_it() {
    for seed in 0..8 {
        let mut world = World::new(seed, 5);
        world.partition(&[&[0, 1], &[2, 3, 4]]);
        world.trip(4);
        // Long enough, the second time, for the dead member to be dropped by those it was with.
        world.run(Duration::from_secs(10));
        world.kill(4);
        world.run(Duration::from_secs(if seed < 4 { 20 } else { 80 }));
        world.trip(0);
        world.trip(1);
        world.run(Duration::from_secs(1));
        world.heal();
        world.run(Duration::from_secs(30));
        assert_eq!(world.ledger.openings(), []);
    }
}

#[test]
fn the_last_vote_of_who_was_dropped_and_died_does_not_count_when_the_heal_brings_it() {
    for seed in 0..8 {
        let mut world = World::new(seed, 5);
        world.partition(&[&[0, 1, 2], &[3, 4]]);
        world.run(Duration::from_secs(70));
        assert_eq!(world.nodes[0].council.electorate_size(), 3);
        world.trip(4);
        world.run(Duration::from_secs(10));
        world.kill(4);
        world.run(Duration::from_secs(20));
        world.trip(0);
        world.run(Duration::from_secs(1));
        world.heal();
        world.run(Duration::from_millis(1_500));
        world.trip(1);
        world.run(Duration::from_secs(30));
        assert_eq!(world.ledger.openings(), []);
    }
}

#[test]
fn the_last_vote_of_who_died_meanwhile_does_not_count_for_who_wakes() {
    for seed in 0..8 {
        let mut world = World::new(seed, 3);
        world.pause(0);
        world.trip(1);
        world.run(Duration::from_secs(10));
        world.kill(1);
        world.run(Duration::from_secs(20));
        world.trip(0);
        // Its socket is full of what the other said while it was alive.
        world.resume(0);
        world.run(Duration::from_secs(30));
        assert_eq!(world.ledger.openings(), []);
    }
}

#[test]
fn a_withdrawn_vote_does_not_count() {
    let mut world = World::new(10, 3);
    world.trip(0);
    world.run(Duration::from_secs(2));
    world.nodes[0].opened = None;
    world.run(Duration::from_secs(2));
    world.trip(1);
    world.run(Duration::from_secs(30));
    assert_eq!(world.ledger.openings(), []);
}

#[test]
fn one_deaf_link_neither_flips_nor_parts_the_views() {
    let mut world = World::new(11, 5);
    world.cut(0, 1);
    world.trip(0);
    world.trip(1);
    world.run(Duration::from_secs(60));
    assert_eq!(world.ledger.openings(), []);
    world.is_sick = true;
    world.trip(2);
    world.until(Duration::from_secs(5), "all out", |world| world.agreed() == Some(true));
    world.run(Duration::from_secs(60));
    assert_eq!(world.ledger.openings().len(), 5, "each node flips once");
}
