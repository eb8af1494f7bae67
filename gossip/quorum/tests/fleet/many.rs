//! Claims about many endpoints at once: the cap, suspicion, muting, and what a fleet at rest costs.

use std::time::Duration;

use quorum::view::Weight;
use quorum::{CouncilRule, Decision};

use super::committee::{Committee, ROUND, name};
use super::world::rule;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn trip_all(committee: &mut Committee, nodes: &[usize]) {
    for node in nodes {
        for endpoint in 0..committee.endpoints.len() {
            committee.trip(*node, endpoint);
        }
    }
}

fn capped(share_milli: u32) -> CouncilRule {
    CouncilRule { max_open_share_milli: share_milli, ..rule() }
}

/// How many statements, pulses included, five nodes publish in 200 seconds with `out` endpoints
/// out.
fn cost_at_rest(out: usize) -> usize {
    let mut committee = Committee::new(5, (2, 50), &rule());
    committee.cool_down(seconds(600));
    for endpoint in 0..out {
        for node in 0..3 {
            committee.trip(node, endpoint);
        }
    }
    committee.run(seconds(5));
    assert_eq!(committee.open(4), out);
    committee.published.fill(0);
    committee.run(seconds(200));
    for node in 0..5 {
        let count = committee.councils[node].count(committee.now, &committee.endpoints[0]);
        assert_eq!((count.first_hand, count.holders), (3, 5), "the votes stand by the pulse alone");
    }
    committee.published.iter().sum()
}

#[test]
fn a_fleet_at_rest_pays_one_pulse_for_each_member_however_much_is_out() {
    let (one, many) = (cost_at_rest(1), cost_at_rest(20));
    // Five nodes raise their pulse each two seconds; and of each endpoint the time left is told
    // anew by one of them, two or three times in a cool-down this long.
    assert!((480..=510).contains(&one), "{one}");
    assert!(many <= one + 20 * 2 * 3, "{many} after {one}");
}

#[test]
fn votes_of_who_no_longer_raises_its_pulse_lapse() {
    let mut committee = Committee::new(3, (1, 1), &rule());
    committee.trip(0, 0);
    committee.run(seconds(30));
    let key = committee.endpoints[0].clone();
    assert_eq!(committee.councils[1].count(committee.now, &key).counted, 1);
    // Its heart beats on, and it says nothing more.
    committee.councils[0] = Committee::new(3, (1, 1), &rule()).councils.remove(0);
    committee.opened.clear();
    committee.run(seconds(12));
    assert_eq!(committee.councils[1].count(committee.now, &key).counted, 0);
}

#[test]
fn no_more_of_a_pool_is_out_than_the_cap_and_all_have_the_same_out() {
    let mut committee = Committee::new(5, (2, 6), &capped(500));
    trip_all(&mut committee, &[0, 1, 2, 3, 4]);
    for _ in 0..100 {
        committee.run(ROUND);
        for node in 0..5 {
            assert!(committee.open(node) <= 6, "three of each pool");
        }
    }
    for node in 0..5 {
        assert_eq!(committee.open(node), 6);
        for key in &committee.endpoints {
            let (one, other) = (&committee.councils[0], &committee.councils[node]);
            assert_eq!(one.is_open(key), other.is_open(key), "{key} on gw-{node}");
        }
    }
}

#[test]
fn one_endpoint_of_a_pool_may_always_go_out_and_with_no_cap_all_of_it() {
    let mut tiny = Committee::new(3, (1, 3), &capped(100));
    trip_all(&mut tiny, &[0, 1]);
    tiny.run(seconds(2));
    assert_eq!((0..3).map(|node| tiny.open(node)).collect::<Vec<_>>(), [1; 3]);
    let mut free = Committee::new(3, (1, 3), &rule());
    trip_all(&mut free, &[0, 1]);
    free.run(seconds(2));
    assert_eq!((0..3).map(|node| free.open(node)).collect::<Vec<_>>(), [3; 3]);
}

#[test]
fn when_the_warden_dies_the_next_keeps_the_count() {
    for warden in 0..5 {
        let mut committee = Committee::new(5, (1, 4), &capped(500));
        committee.dead.insert(warden);
        committee.run(seconds(1));
        let nodes: Vec<usize> = (0..5).filter(|node| *node != warden).collect();
        trip_all(&mut committee, &nodes);
        committee.run(seconds(2));
        assert!(nodes.iter().all(|node| committee.open(*node) == 2));
    }
}

#[test]
fn who_accuses_nearly_everything_alone_is_suspect_and_abstains() {
    let mut committee = Committee::new(3, (2, 4), &rule());
    trip_all(&mut committee, &[0]);
    committee.run(seconds(1));
    assert!(committee.councils[0].is_suspect());
    let members = committee.councils[2].members(committee.now);
    let suspects: Vec<bool> = members.iter().map(|member| member.is_suspect).collect();
    assert_eq!(suspects, [true, false, false]);
    // One more vote would be a majority with it.
    committee.trip(1, 0);
    committee.run(seconds(5));
    assert_eq!(committee.open(2), 0);
    let view = committee.councils[2].endpoint(committee.now, &committee.endpoints[0]).unwrap();
    let weight = view.votes.iter().find(|vote| vote.voter == name(0)).unwrap().weight;
    assert_eq!(weight, Weight::Abstains);
    // Its network is well again.
    committee.opened.clear();
    committee.run(seconds(1));
    assert!(!committee.councils[0].is_suspect());
}

#[test]
fn a_suspect_leads_nothing_while_others_can() {
    let mut committee = Committee::new(3, (2, 4), &rule());
    let led = |committee: &Committee| {
        let members = committee.councils[1].members(committee.now);
        members.iter().map(|member| member.steward_of).collect::<Vec<usize>>()
    };
    assert!(led(&committee).iter().all(|led| *led > 0), "{:?}", led(&committee));
    trip_all(&mut committee, &[2]);
    committee.run(seconds(1));
    assert_eq!(led(&committee)[2], 0);
    assert_eq!(led(&committee).iter().sum::<usize>(), 8);
}

#[test]
fn who_is_cleared_of_suspicion_does_not_lead_before_the_others_know() {
    let mut committee = Committee::new(5, (2, 4), &rule());
    committee.cool_down(seconds(10));
    let view = |committee: &Committee| {
        committee.councils[0].endpoint(committee.now, &committee.endpoints[0]).unwrap()
    };
    let first = view(&committee).steward.unwrap();
    let first = (0..5).find(|node| name(*node) == first).unwrap();
    trip_all(&mut committee, &[first]);
    committee.run(seconds(1));
    (0..5).filter(|node| *node != first).for_each(|node| committee.trip(node, 0));
    while view(&committee).due_in.is_none_or(|due| due > ROUND * 6) {
        committee.run(ROUND);
    }
    assert!(committee.councils[first].is_suspect());
    committee.opened.retain(|(node, endpoint), _| *node != first || *endpoint == 0);
    let probes = |committee: &Committee| {
        let is_probe = |decision: &Decision| matches!(decision, Decision::Probe { .. });
        committee.decisions.iter().filter(|(_, decision)| is_probe(decision)).count()
    };
    committee.run(seconds(2));
    assert!(!committee.councils[first].is_suspect());
    assert_eq!(probes(&committee), 0, "its turn is counted from when the others know");
    committee.run(seconds(1));
    assert_eq!(probes(&committee), 1);
}

#[test]
fn a_true_outage_of_everything_opens_all_of_it() {
    let mut committee = Committee::new(5, (2, 4), &rule());
    trip_all(&mut committee, &[0]);
    committee.run(seconds(1));
    assert!(committee.councils[0].is_suspect());
    for node in [1, 2] {
        trip_all(&mut committee, &[node]);
        committee.run(ROUND * 3);
    }
    committee.run(seconds(1));
    assert_eq!((0..5).map(|node| committee.open(node)).collect::<Vec<_>>(), [8; 5]);
    assert!(committee.councils.iter().all(|council| !council.is_suspect()));
}

#[test]
fn who_accuses_one_whole_pool_only_is_no_suspect() {
    let mut committee = Committee::new(3, (2, 4), &rule());
    for endpoint in 0..4 {
        committee.trip(0, endpoint);
    }
    committee.run(seconds(1));
    assert!(!committee.councils[0].is_suspect());
    committee.trip(1, 0);
    committee.run(seconds(1));
    assert_eq!(committee.open(2), 1);
}

#[test]
fn a_voter_that_changes_its_mind_all_the_time_does_not_count_until_it_is_calm() {
    let mut committee = Committee::new(3, (2, 10), &rule());
    let view = |committee: &Committee, node: usize| {
        committee.councils[node].endpoint(committee.now, &committee.endpoints[0]).unwrap()
    };
    for _ in 0..8 {
        committee.trip(0, 0);
        committee.run(ROUND * 2);
        committee.opened.clear();
        committee.run(ROUND * 2);
    }
    committee.trip(0, 0);
    committee.trip(1, 0);
    committee.run(seconds(5));
    for node in 0..3 {
        assert_eq!(committee.open(node), 0, "one of two votes flaps");
        let votes = view(&committee, node).votes;
        let flapping = votes.iter().find(|vote| vote.voter == name(0)).unwrap();
        assert_eq!(flapping.weight, Weight::Flapping, "as gw-{node} sees it");
    }
    committee.run(seconds(60));
    assert_eq!(committee.open(2), 1, "it was calm for a minute");
}

#[test]
fn the_votes_of_a_muted_member_do_not_count_where_it_is_muted() {
    let mut committee = Committee::new(3, (1, 2), &rule());
    for council in &mut committee.councils {
        assert!(council.mute(&name(0), true));
        assert!(!council.mute(&name(9), true), "there is no such member");
    }
    committee.trip(0, 0);
    committee.trip(1, 0);
    committee.run(seconds(2));
    assert_eq!(committee.open(2), 0);
    let view = committee.councils[2].endpoint(committee.now, &committee.endpoints[0]).unwrap();
    assert!(view.votes.iter().any(|vote| vote.weight == Weight::Muted));
    assert!(committee.councils[2].members(committee.now)[0].is_muted);
    for council in &mut committee.councils {
        council.mute(&name(0), false);
    }
    committee.run(seconds(1));
    assert_eq!(committee.open(2), 1);
}

#[test]
fn what_is_retired_is_forgotten_and_frees_its_place_under_the_cap() {
    let mut committee = Committee::new(3, (1, 4), &capped(500));
    trip_all(&mut committee, &[0, 1]);
    committee.run(seconds(2));
    assert_eq!(committee.open(0), 2);
    let gone: Vec<_> = committee
        .endpoints
        .iter()
        .filter(|key| committee.councils[0].is_open(key))
        .cloned()
        .collect();
    for council in &mut committee.councils {
        assert!(council.retire(&gone[0]));
        assert!(!council.retire(&gone[0]), "it is gone already");
        assert!(council.endpoint(committee.now, &gone[0]).is_none());
    }
    // One of three is what half of the pool allows, and one is out.
    committee.run(seconds(1));
    assert_eq!(committee.open(0), 1);
    let closed = |(_, decision): &(usize, Decision)| matches!(decision, Decision::Closed { .. });
    assert!(!committee.decisions.iter().any(closed));
}

#[test]
fn what_is_retired_is_taken_back_though_nothing_else_is_new() {
    let mut committee = Committee::new(3, (1, 1), &rule());
    trip_all(&mut committee, &[0, 1]);
    committee.run(seconds(2));
    assert_eq!(committee.open(0), 1);
    let (now, gone) = (committee.now, committee.endpoints[0].clone());
    for council in &mut committee.councils {
        assert!(council.retire(&gone));
        let said = council.statements(now).unwrap();
        assert_eq!(said.stated, []);
        assert_eq!(council.statements(now), None, "once is enough");
    }
}
