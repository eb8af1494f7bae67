//! What a history says of an incident from the first vote to the return.

use std::time::Duration;

use quorum::{Forced, ProbeResult};

use crate::cluster::rehearsal::Rehearsal;

const REST: &str = "
circuit_breaker:
  failure_threshold: 1
  open: { base: 2s, max: 10s }
  half_open: { successes: 1 }
models:
  - { name: m, endpoints: [ { name: a, address: \"http://a\" }, { name: b, address: \"http://b\" } ] }
";
const B: &str = "m/b";

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What the history of `b` on a node holds within a scope.
fn told(fleet: &Rehearsal, node: usize, scope: &str) -> Vec<String> {
    let view = fleet.explain(node, B);
    let history = view["history"].as_array().unwrap().iter();
    let of = history.filter(|entry| entry["scope"] == scope);
    of.map(|entry| entry["what"].as_str().unwrap().to_owned()).collect()
}

fn out(fleet: &Rehearsal) -> bool {
    (0..fleet.nodes.len()).all(|node| fleet.has_out(node, B))
}

fn convicted(count: usize) -> Rehearsal {
    let mut fleet = Rehearsal::new(count, "", REST);
    (0..count).for_each(|node| fleet.fail(node, B, 1));
    fleet.until("the fleet takes it out", out);
    fleet
}

#[test]
fn a_flip_names_its_votes_and_who_cast_them() {
    let fleet = convicted(3);
    let votes = told(&fleet, 2, "vote").join(" | ");
    let is_told = votes.contains("voted out by gw-1") && votes.contains("gw-3: consecutive faults");
    assert!(is_told, "{votes}");
    let flips = told(&fleet, 2, "cluster");
    assert!(flips[0].starts_with("opened: incident 1, "), "{flips:?}");
    assert!(flips[0].contains(" of 3 votes (2 needed): "), "{flips:?}");
}

#[test]
fn votes_of_many_at_once_are_one_line() {
    let mut fleet = Rehearsal::new(9, "", REST);
    (1..9).for_each(|node| fleet.fail(node, B, 1));
    fleet.run(seconds(1));
    let votes = told(&fleet, 0, "vote");
    assert!(votes.len() <= 2, "{votes:?}");
    assert!(
        votes.iter().any(|line| line.contains("voted out by gw-2, gw-3, gw-4 and 5 more: ")),
        "{votes:?}"
    );
}

#[test]
fn a_probe_is_told_with_its_result_on_every_node() {
    let mut fleet = convicted(3);
    fleet.until("a probe is due", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    let sender = fleet.answer(ProbeResult::Failed)[0];
    fleet.run(seconds(1));
    let name = format!("gw-{}", sender + 1);
    for node in 0..3 {
        let lines = told(&fleet, node, "cluster");
        let failed = format!("probe failed (by {name}, failure 1): the next try is in ");
        assert!(lines.iter().any(|line| line.starts_with(&failed)), "{lines:?}");
    }
    fleet.until("a second probe", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    fleet.answer(ProbeResult::Passed);
    fleet.run(seconds(1));
    for node in 0..3 {
        let lines = told(&fleet, node, "cluster");
        let passed = lines.iter().any(|line| line.contains("the canary slot goes to gw-"));
        assert!(passed, "{lines:?}");
    }
}

#[test]
fn a_closing_says_who_closed_and_why() {
    let mut fleet = convicted(3);
    fleet.until("a probe is due", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    fleet.answer(ProbeResult::Passed);
    for _ in 0..100 {
        fleet.run(Duration::from_millis(100));
        (0..3).for_each(|node| fleet.succeed(node, B, 1));
    }
    for node in 0..3 {
        let lines = told(&fleet, node, "cluster");
        let closed = lines.iter().find(|line| line.starts_with("closed: incident 1, by gw-"));
        assert!(closed.is_some_and(|line| line.ends_with("it has recovered")), "{lines:?}");
    }
}

#[test]
fn what_closes_by_the_clock_has_not_recovered() {
    let lazy = REST.replace("circuit_breaker:", "circuit_breaker:\n  recovery: lazy");
    let longest = "max_open: 5s";
    for (cluster, rest) in [("", lazy.as_str()), (longest, REST)] {
        let mut fleet = Rehearsal::new(3, cluster, rest);
        (0..3).for_each(|node| fleet.fail(node, B, 1));
        fleet.until("the fleet takes it out", out);
        // A lazy opening has a fixed time, which is longer than that of a ladder's first step.
        fleet.run(seconds(130));
        for node in 0..3 {
            let lines = told(&fleet, node, "cluster");
            let closed = lines.iter().find(|line| line.starts_with("closed: incident 1, by gw-"));
            assert!(closed.is_some_and(|line| line.ends_with("its time was over")), "{lines:?}");
        }
    }
}

#[test]
fn a_vote_that_lapses_or_loses_its_voter_leaves_a_line() {
    let mut fleet = Rehearsal::new(5, "", REST);
    fleet.fail(1, B, 1);
    fleet.until("the vote is heard", |fleet| !told(fleet, 0, "vote").is_empty());
    fleet.kill(1);
    fleet.run(seconds(12));
    let votes = told(&fleet, 0, "vote");
    assert_eq!(votes[0], "voted out by gw-2: consecutive faults");
    assert!(votes[1].starts_with("the vote of gw-2 "), "{votes:?}");
}

#[test]
fn a_vote_that_is_taken_back_leaves_a_line() {
    let mut fleet = Rehearsal::new(5, "", REST);
    fleet.fail(1, B, 1);
    fleet.until("the breaker comes back", |fleet| {
        fleet.endpoint(1, B).local_opening().is_none() || fleet.endpoint(1, B).rung().is_some()
    });
    if let Ok(admission) = fleet.endpoint(1, B).admit(fleet.now, breaker::Errand::Probe) {
        admission.settle(fleet.now, breaker::Outcome::Success);
    }
    for _ in 0..20 {
        fleet.run(Duration::from_millis(100));
        fleet.succeed(1, B, 1);
    }
    let votes = told(&fleet, 0, "vote");
    assert_eq!(votes, ["voted out by gw-2: consecutive faults", "the vote of gw-2 is taken back"]);
}

#[test]
fn an_order_is_told_with_author_period_and_reason_and_so_is_its_end() {
    let mut fleet = Rehearsal::new(3, "", REST);
    fleet.order(1, B, (Forced::Open, Some(seconds(10))), "maintenance");
    fleet.run(seconds(12));
    let lines = told(&fleet, 0, "operator");
    assert!(lines[0].starts_with("force_open for ") && lines[0].ends_with(" by gw-2: maintenance"));
    assert_eq!(lines[1], "auto: the order has ended");
    fleet.order(2, B, (Forced::Closed, Some(seconds(10))), "");
    fleet.run(seconds(1));
    fleet.order(0, B, (Forced::Auto, None), "it was me");
    fleet.run(seconds(1));
    let lines = told(&fleet, 1, "operator");
    assert!(lines[2].ends_with(" by gw-3: no reason given"), "{lines:?}");
    assert_eq!(lines[3], "auto by gw-1: it was me");
}
