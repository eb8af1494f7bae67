//! What one node decides, or an operator: its breaker, its ladder, its pauses, its limits, orders.

use breaker::{Errand, Mode, Outcome};
use quorum::Forced;

use super::*;

#[test]
fn nothing_held_against_it_is_said_so() {
    let view = fleet(3).explain(0, B);
    assert_eq!(verdict(&view), "in: nothing is held against it");
    assert_eq!((next(&view), &view["next_in_ms"]), ("nothing", &Value::Null));
    assert_eq!(denominator(&view), [3, 3, 2, 0]);
    assert_eq!(view["notes"].as_array().unwrap().len(), 0, "{view}");
}

#[test]
fn local_only_says_how_many_votes_are_missing_and_when_it_is_tried() {
    let mut fleet = fleet(3);
    // Who has served a moment ago does not second.
    [1, 2].iter().for_each(|node| fleet.succeed(*node, B, 1));
    fleet.fail(0, B, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    let wanted = "out on this node, not for the fleet: its breaker opened (consecutive faults); \
                  1 of 2 needed votes";
    assert_eq!(verdict(&view), wanted);
    assert!(next(&view).starts_with("this node sends it one probe in "), "{view}");
    assert!(within(&view) <= seconds(2), "{view}");
    assert_eq!((counts_as(&view, "gw-1"), counts_as(&view, "gw-2")), ("vote", "no_vote"));
    let view = fleet.explain(1, B);
    let wanted = "in: 1 of 3 votes stand against it (2 needed); gw-1: consecutive faults";
    assert_eq!((verdict(&view), &view["in_rotation"]), (wanted, &Value::Bool(true)));
}

#[test]
fn a_node_alone_speaks_of_no_votes() {
    let mut fleet = fleet(1);
    fleet.fail(0, B, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert_eq!(verdict(&view), "out: its breaker opened (consecutive faults)");
    assert!(next(&view).starts_with("this node sends it one probe in "), "{view}");
}

#[test]
fn the_ladder_of_a_node_alone_says_what_decides() {
    let mut fleet = fleet(1);
    fleet.fail(0, B, 1);
    fleet.run(seconds(3));
    let view = fleet.explain(0, B);
    assert_eq!(verdict(&view), "out on this node: a probe decides");
    assert_eq!(next(&view), "this node's probe decides");
    fleet
        .endpoint(0, B)
        .admit(fleet.now, Errand::Probe)
        .unwrap()
        .settle(fleet.now, Outcome::Success);
    let view = fleet.explain(0, B);
    assert_eq!(verdict(&view), "half-open on this node: a few small requests are let through");
    assert_eq!(next(&view), "after 1 more small requests that succeed it returns");
}

#[test]
fn a_pause_on_a_rung_is_said_since_nothing_is_let_through() {
    let mut fleet = fleet(1);
    fleet.fail(0, B, 1);
    fleet.run(seconds(3));
    let probe = fleet.endpoint(0, B).admit(fleet.now, Errand::Probe).unwrap();
    probe.settle(fleet.now, Outcome::Success);
    fleet.endpoint(0, B).cool(fleet.now, seconds(12));
    let view = fleet.explain(0, B);
    assert_eq!(view["local"]["rung"], "canary");
    assert_eq!(verdict(&view), "out for a while on this node: it asked for a pause");
    assert_eq!(next(&view), "the pause is over and requests are sent to it again in 12 s");
    assert_eq!((within(&view), &view["in_rotation"]), (seconds(12), &Value::Bool(false)));
}

#[test]
fn ramping_says_its_weight() {
    let mut fleet = fleet(1);
    fleet.fail(0, B, 1);
    fleet.run(seconds(3));
    fleet
        .endpoint(0, B)
        .admit(fleet.now, Errand::Probe)
        .unwrap()
        .settle(fleet.now, Outcome::Success);
    fleet.succeed(0, B, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert_eq!(verdict(&view), "in, with 25 % of its weight: it has just recovered");
    assert_eq!(next(&view), "its weight grows step by step to the whole");
    assert_eq!(view["weight_percent"], 25);
}

#[test]
fn a_pause_by_retry_after_says_when_it_is_over() {
    let fleet = fleet(3);
    fleet.endpoint(0, B).cool(fleet.now, seconds(12));
    let view = fleet.explain(0, B);
    assert_eq!(verdict(&view), "out for a while on this node: it asked for a pause");
    assert_eq!(next(&view), "the pause is over and requests are sent to it again in 12 s");
    assert_eq!((within(&view), &view["in_rotation"]), (seconds(12), &Value::Bool(false)));
    let paused = note(&view, "paused").unwrap();
    assert!(paused.contains("retry-after") && paused.contains("for 12 s more"), "{paused}");
}

#[test]
fn a_pause_for_a_limit_is_told_from_another() {
    let fleet = Rehearsal::new(3, "", &rest("", "", "quota_group: azure"));
    fleet.endpoint(0, B).limit(fleet.now, seconds(30));
    let view = fleet.explain(0, B);
    let wanted = "out for a while on this node: it says that a limit of its own is reached";
    assert_eq!((verdict(&view), within(&view)), (wanted, seconds(30)));
    let paused = note(&view, "paused").unwrap();
    assert!(paused.contains("another endpoint of quota group azure"), "{paused}");
}

#[test]
fn a_refused_credential_is_said_until_it_has_served_again() {
    let mut fleet = fleet(3);
    fleet.endpoint(0, B).refuse_credential(fleet.now, seconds(5));
    let view = fleet.explain(0, B);
    let wanted = "out for a while on this node: it refused our credential, see its api_key";
    assert_eq!((verdict(&view), within(&view)), (wanted, seconds(5)));
    assert!(note(&view, "credential").unwrap().contains("see its api_key"));
    fleet.run(seconds(6));
    let view = fleet.explain(0, B);
    let wanted = "in, but it refused our credential when it was last asked: see its api_key";
    assert_eq!((verdict(&view), &view["misconfigured"]), (wanted, &Value::Bool(true)));
    fleet.succeed(0, B, 1);
    assert_eq!(verdict(&fleet.explain(0, B)), "in: nothing is held against it");
}

#[test]
fn full_limits_say_which_and_until_when() {
    let fleet = Rehearsal::new(1, "", &rest("", "", "limits: { rpm: 1, tpm: 100 }"));
    let allowance = fleet.endpoint(0, B).allowance.clone().unwrap();
    let _charge = allowance.take(fleet.now, 10).unwrap();
    let view = fleet.explain(0, B);
    let wanted = "in, but full: this node's part of its requests per minute is used up";
    assert_eq!(verdict(&view), wanted);
    assert_eq!((next(&view), within(&view)), ("there is room again in 1 min", seconds(60)));
    assert_eq!(
        (&view["limits"]["full"], &view["limits"]["room_in_ms"]),
        (&"requests".into(), &60_000.into())
    );
    assert_eq!(view["limits"]["tokens"]["remaining"], 90);
    assert!(note(&view, "full").unwrap().contains("requests per minute"));
}

#[test]
fn slots_that_are_all_taken_are_said_so() {
    let fleet = Rehearsal::new(1, "", &rest("", "", "limits: { concurrency: 1 }"));
    let allowance = fleet.endpoint(0, B).allowance.clone().unwrap();
    let _charge = allowance.take(fleet.now, 10).unwrap();
    let view = fleet.explain(0, B);
    let wanted = "in, but full: as many requests are in flight as it may have";
    assert_eq!((verdict(&view), &view["limits"]["full"]), (wanted, &"concurrency".into()));
}

#[test]
fn an_order_says_by_whom_why_and_until_when_and_what_comes_then() {
    let mut fleet = fleet(3);
    fleet.order(1, B, (Forced::Open, Some(seconds(600))), "maintenance");
    fleet.run(seconds(1));
    for node in 0..3 {
        let view = fleet.explain(node, B);
        assert_eq!(verdict(&view), "out: an operator forced it open (on gw-2: maintenance)");
        let (told, left) = (next(&view), within(&view));
        assert!(told.starts_with("the order ends in 9 min 5"), "{told}");
        assert!(
            told.ends_with("; by the automatic rule it is in: nothing is held against it"),
            "{told}"
        );
        assert!(left > seconds(590) && left < seconds(600), "{left:?}");
        assert_eq!(view["in_rotation"], false);
    }
    fleet.order(0, B, (Forced::Closed, Some(seconds(60))), "");
    fleet.fail(2, B, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(2, B);
    assert_eq!(verdict(&view), "in: an operator forced it closed (on gw-1, no reason given)");
    assert_eq!(view["in_rotation"], true);
}

#[test]
fn a_shadow_says_what_would_be_so() {
    let mut fleet = Rehearsal::new(3, "", &rest("mode: shadow", "", ""));
    fleet.fail(0, B, 1);
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    let wanted = "in: as a shadow it would be out because its breaker opened (consecutive faults)";
    assert_eq!((verdict(&view), &view["in_rotation"]), (wanted, &Value::Bool(true)));
    assert_eq!((counts_as(&view, "gw-1"), next(&view)), ("shadow", "nothing"));
    let told = fleet.explain(1, B);
    let said = note(&told, "voter_shadow").unwrap();
    assert_eq!(said, "gw-1 would vote against it, but its breaker is only a shadow");
}

#[test]
fn a_breaker_that_is_off_is_said_to_be_off() {
    let mut fleet = Rehearsal::new(3, "", &rest("mode: off", "", ""));
    fleet.fail(0, B, 5);
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert_eq!(fleet.endpoint(0, B).config.rule.mode, Mode::Off);
    assert_eq!((verdict(&view), next(&view)), ("in: its breaker is off", "nothing"));
}
