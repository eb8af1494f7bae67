//! What the fleet decides, and what keeps it from deciding.

use breaker::{Errand, Outcome};
use quorum::{NodeId, ProbeResult};

use super::*;

/// A configuration with a cool-down that outlasts every test.
fn patient() -> String {
    rest("", "", "").replace("base: 2s, max: 10s", "base: 60s, max: 60s")
}

#[test]
fn quorum_reached_says_who_votes_why_and_who_probes_when() {
    let fleet = convicted(fleet(3), &[0, 1, 2]);
    let view = fleet.explain(2, B);
    let begins = "out for the whole fleet: incident 1, ";
    assert!(verdict(&view).starts_with(begins), "{view}");
    assert!(verdict(&view).contains(" of 3 votes stand (2 needed); gw-"), "{view}");
    assert!(verdict(&view).contains(": consecutive faults"), "{view}");
    let steward = view["cluster"]["steward"].as_str().unwrap();
    let begins = format!("{steward} sends one probe for the whole fleet in ");
    assert!(next(&view).starts_with(&begins) && within(&view) <= seconds(3), "{view}");
    assert_eq!((denominator(&view), &view["in_rotation"]), ([3, 3, 2, 0], &Value::Bool(false)));
    let votes = view["votes"].as_array().unwrap();
    assert!(
        votes.iter().all(|vote| vote["basis"] == "first_hand" && vote["evidence"]["faults"] == 1.0)
    );
}

#[test]
fn a_probe_that_is_overdue_is_said_to_be_due_and_by_whom() {
    for (more, late, what) in [
        ("", 5, "sends one probe for the whole fleet: that is due"),
        ("probe: { enabled: false }", 5, "gives the canary slot to one member: that is due"),
        ("recovery: lazy", 120, "its time is over and it returns on every node: that is due"),
    ] {
        let mut fleet = convicted(Rehearsal::new(3, "", &rest(more, "", "")), &[0, 1, 2]);
        // The time passes and nobody acts on it.
        fleet.now += seconds(late);
        let view = fleet.explain(2, B);
        let steward = view["cluster"]["steward"].as_str().unwrap();
        let by = if more == "recovery: lazy" { String::new() } else { format!("{steward} ") };
        assert_eq!(next(&view), format!("{by}{what}"));
        assert_eq!(view["next_in_ms"], Value::Null);
    }
}

#[test]
fn a_probe_in_flight_decides_and_its_failure_doubles_the_time() {
    let mut fleet = convicted(fleet(3), &[0, 1, 2]);
    fleet.until("a probe is due", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    fleet.run(seconds(1));
    let view = fleet.explain(1, B);
    let steward = view["cluster"]["step"]["by"].as_str().unwrap();
    assert_eq!(next(&view), format!("the probe of {steward} is in flight and decides"));
    fleet.answer(ProbeResult::Failed);
    fleet.run(seconds(1));
    let view = fleet.explain(1, B);
    assert!(within(&view) > seconds(2), "4 s less a jitter and the second that passed: {view}");
    assert_eq!(
        (&view["cluster"]["level"], &view["cluster"]["step"]["failures"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn the_canary_slot_says_who_holds_it_and_how_far_it_has_come() {
    let mut fleet = convicted(fleet(3), &[0, 1, 2]);
    fleet.until("a probe is due", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    fleet.answer(ProbeResult::Passed);
    fleet.run(seconds(1));
    let view = fleet.explain(1, B);
    let holder = view["cluster"]["canary"]["holder"].as_str().unwrap();
    let begins = format!("{holder} holds the canary slot: 0 of 1 small requests have succeeded");
    assert!(next(&view).starts_with(&begins), "{view}");
    assert!(verdict(&view).starts_with("out for the whole fleet"), "{view}");
}

#[test]
fn a_lazy_recovery_says_that_time_alone_ends_it() {
    let lazy = rest("recovery: lazy", "", "");
    let fleet = convicted(Rehearsal::new(3, "", &lazy), &[0, 1, 2]);
    let view = fleet.explain(0, B);
    assert!(next(&view).starts_with("its time is over and it returns on every node in "), "{view}");
    assert!(within(&view) > seconds(1), "{view}");
}

#[test]
fn a_lapsed_vote_is_said_to_have_lapsed() {
    let mut fleet = Rehearsal::new(5, "", &patient());
    fleet.fail(1, B, 1);
    fleet.run(seconds(1));
    assert_eq!(fleet.explain(0, B)["cluster"]["votes_counted"], 1);
    fleet.mute_pulse(1);
    fleet.run(seconds(11));
    let view = fleet.explain(0, B);
    let said = note(&view, "vote_lapsed").unwrap();
    assert_eq!(said, "the vote of gw-2 has lapsed: its node has not stood by it of late");
    assert_eq!(
        (counts_as(&view, "gw-2"), &view["cluster"]["votes_counted"]),
        ("lapsed", &0.into())
    );
    assert_eq!(verdict(&view), "in: nothing is held against it");
}

#[test]
fn two_votes_of_five_are_not_enough_and_the_denominator_says_why() {
    let mut fleet = Rehearsal::new(5, "expected_members: 6", &rest("", "", ""));
    fleet.kill(4);
    fleet.run(seconds(1));
    // Who has served a moment ago does not second.
    [2, 3].iter().for_each(|node| fleet.succeed(*node, B, 1));
    [0, 1].iter().for_each(|node| fleet.fail(*node, B, 1));
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert!(verdict(&view).ends_with("; 2 of 4 needed votes"), "{view}");
    assert_eq!(denominator(&view), [6, 4, 4, 1]);
    let roles = ["gw-1", "gw-2", "gw-3", "gw-5"].map(|id| counts_as(&view, id));
    assert_eq!(roles, ["vote", "vote", "no_vote", "lost"]);
    let said = note(&view, "lost_members").unwrap();
    assert!(said.starts_with("2 of 6 members are not live and still count"), "{said}");
}

#[test]
fn a_suspect_node_says_so_and_others_say_whom_they_do_not_believe() {
    let mut fleet = fleet(3);
    for endpoint in [A, B, "n/c"] {
        fleet.fail(0, endpoint, 1);
    }
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert!(verdict(&view).contains("this node suspects itself and abstains"), "{view}");
    assert!(note(&view, "suspect").unwrap().contains("look at its network"));
    let view = fleet.explain(1, B);
    let said = note(&view, "voter_abstains").unwrap();
    assert_eq!(said, "gw-1 sees it fail and abstains: that node suspects itself");
    assert_eq!(
        (verdict(&view), counts_as(&view, "gw-1")),
        ("in: nothing is held against it", "abstains")
    );
}

#[test]
fn a_muted_voter_is_said_to_be_muted() {
    let mut fleet = fleet(5);
    fleet.fail(1, B, 1);
    fleet.run(seconds(1));
    assert!(fleet.nodes[0].deputy.council().mute(&NodeId::new("gw-2"), true));
    let view = fleet.explain(0, B);
    let said = note(&view, "voter_muted").unwrap();
    assert_eq!(said, "the vote of gw-2 does not count on this node: an operator muted it");
    assert_eq!((counts_as(&view, "gw-2"), &view["cluster"]["votes_counted"]), ("muted", &0.into()));
    assert!(note(&fleet.explain(2, B), "voter_muted").is_none(), "muted on that node only");
}

#[test]
fn a_cap_that_is_reached_says_how_many_may_be_out() {
    let mut fleet = Rehearsal::new(3, "max_open_share: 0.5", &rest("", "", ""));
    (0..3).for_each(|node| fleet.fail(node, A, 1));
    fleet.until("a is out", |fleet| (0..3).all(|node| fleet.has_out(node, A)));
    (0..3).for_each(|node| fleet.fail(node, B, 1));
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    let wanted =
        "but max_open_share lets the fleet have 1 of the 2 endpoints of its pool out at most";
    assert!(
        verdict(&view).starts_with("out on this node, not for the fleet")
            && verdict(&view).ends_with(wanted)
    );
    let cap = &view["denominator"]["cap"];
    assert_eq!([&cap["most"], &cap["of"], &cap["open"]], [&Value::from(1), &2.into(), &1.into()]);
    let warden = cap["warden"].as_str().unwrap();
    assert!(note(&view, "cap_reached").unwrap().ends_with(&format!("{warden} keeps the count")));
}

#[test]
fn without_a_live_majority_everything_is_frozen_and_said_to_be() {
    let mut fleet = convicted(fleet(5), &[0, 1, 2, 3, 4]);
    fleet.cut_off(&[3, 4]);
    fleet.run(seconds(1));
    let view = fleet.explain(4, B);
    let said = note(&view, "no_majority").unwrap();
    assert!(said.starts_with("no majority is live (2 of 5 members, 3 needed)"), "{said}");
    assert!(
        next(&view).contains("this node lets go of it and goes by its own breaker in "),
        "{view}"
    );
    assert!(within(&view) > seconds(55) && within(&view) <= seconds(60), "the grace: {view}");
    assert_eq!(denominator(&view), [5, 2, 3, 0]);
    fleet.fail(4, A, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(4, A);
    let ends = "only 2 of 5 members are live (3 needed), so that the fleet decides nothing";
    assert!(verdict(&view).ends_with(ends), "{view}");
}

#[test]
fn a_node_that_has_just_started_says_that_it_only_watches() {
    let mut fleet = Rehearsal::young(3, "", &rest("", "", ""));
    fleet.run(Duration::from_millis(200));
    let view = fleet.explain(0, B);
    let said = note(&view, "observing").unwrap();
    assert!(said.contains("has just started or was paused: for ") && said.contains("only watches"));
    fleet.run(seconds(3));
    assert!(note(&fleet.explain(0, B), "observing").is_none());
}

#[test]
fn votes_that_are_gone_leave_the_incident_and_are_said_to_be_gone() {
    let mut fleet = Rehearsal::new(3, "", &patient());
    fleet = convicted(fleet, &[0, 1, 2]);
    fleet.kill(0);
    fleet.mute_pulse(1);
    fleet.run(seconds(12));
    let view = fleet.explain(2, B);
    assert!(verdict(&view).starts_with("out for the whole fleet: incident 1, 1 of 3 votes stand"));
    let said = note(&view, "votes_gone").unwrap();
    assert!(said.contains("1 of these votes still stand"), "{said}");
}

#[test]
fn what_a_restart_still_holds_waits_for_the_word_of_the_fleet() {
    let fleet = Rehearsal::young(3, "", &rest("", "", ""));
    fleet.endpoint(0, B).hold(fleet.now);
    let view = fleet.explain(0, B);
    assert!(verdict(&view).starts_with("out on this node: the fleet had it out before"), "{view}");
    assert_eq!(next(&view), "what the fleet says of it decides");
    assert!(fleet.endpoint(0, B).admit(fleet.now, Errand::Request { prompt_tokens: 1 }).is_err());
}

#[test]
fn after_the_return_the_ramp_is_told_on_every_node() {
    let mut fleet = convicted(fleet(3), &[0, 1, 2]);
    fleet.until("a probe is due", |fleet| fleet.nodes.iter().any(|node| !node.probes.is_empty()));
    fleet.answer(ProbeResult::Passed);
    for _ in 0..30 {
        fleet.run(Duration::from_millis(100));
        for node in 0..3 {
            if let Ok(one) =
                fleet.endpoint(node, B).admit(fleet.now, Errand::Request { prompt_tokens: 1 })
            {
                one.settle(fleet.now, Outcome::Success);
            }
        }
    }
    for node in 0..3 {
        let view = fleet.explain(node, B);
        assert_eq!(verdict(&view), "in, with 25 % of its weight: it has just recovered", "{view}");
        assert_eq!(view["cluster"]["state"], "closed");
    }
}
