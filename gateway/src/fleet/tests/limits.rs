//! Endpoints that are full, and quotas that they share.

use super::*;

fn told(fleet: &Fleet, now: Duration) -> (Duration, Obstacle) {
    match ask(fleet, now).err().unwrap() {
        Unavailable::AllOut { returns_in, obstacle } => (returns_in, obstacle),
        Unavailable::Exhausted => panic!("nothing was tried"),
        Unavailable::Unsure { .. } => panic!("there is no ledger"),
    }
}

#[test]
fn an_endpoint_that_hangs_takes_no_more_than_its_concurrency() {
    let fleet = pool("least_request", &[("a", ", limits: { concurrency: 3 }"), ("b", "")]);
    let (mut hanging, mut others) = (Vec::new(), Vec::new());
    while hanging.len() < 3 {
        let admission = ask(&fleet, at(1)).unwrap();
        if name(&admission) == "a" {
            hanging.push(admission)
        } else {
            others.push(admission)
        }
        assert!(others.len() < 10, "they are equals");
    }
    others.clear();
    assert_eq!(shares(&fleet, at(1), ["b"], 50), [50]);
    hanging.pop();
    find(&fleet, "b").cool(at(1), at(9));
    assert_eq!(shares(&fleet, at(1), ["a"], 50), [50], "its place is free again");
    assert_eq!(find(&fleet, "a").in_flight(), 2);
}

#[test]
fn when_all_are_full_the_reason_is_the_one_of_the_first_to_return() {
    let fleet =
        pool("weighted", &[("a", ", limits: { concurrency: 1 }"), ("b", ", limits: { rpm: 1 }")]);
    let _both = [ask(&fleet, at(1)).unwrap(), ask(&fleet, at(1)).unwrap()];
    assert_eq!(told(&fleet, at(1)), (at(1), Obstacle::Full));
    find(&fleet, "a").cool(at(1), at(600));
    let (returns_in, obstacle) = told(&fleet, at(1));
    assert_eq!(obstacle, Obstacle::Limited);
    assert!(returns_in >= at(59) && returns_in <= at(61), "{returns_in:?}");
    assert!(ask(&fleet, at(63)).is_ok());
}

#[test]
fn what_was_not_sent_is_given_back_and_what_was_used_is_corrected() {
    let fleet = pool("least_request", &[("a", ", limits: { rpm: 2, tpm: 100 }")]);
    for _ in 0..10 {
        ask(&fleet, at(1)).unwrap().withdraw();
    }
    let mut admission = ask(&fleet, at(1)).unwrap();
    admission.used(95);
    admission.settle(at(2), Outcome::Success);
    assert_eq!(told(&fleet, at(2)).1, Obstacle::Limited, "95 of 100 tokens are gone");
    // A probe is nobody's request.
    assert!(find(&fleet, "a").admit(at(2), breaker::Errand::Probe).is_ok());
}

#[test]
fn a_refusal_of_the_breaker_takes_nothing_of_the_limits() {
    let fleet = pool("least_request", &[("a", ", limits: { rpm: 3 }")]);
    open(&fleet, "a", at(1));
    let endpoint = find(&fleet, "a");
    endpoint.tick(at(3));
    let canary = ask(&fleet, at(3)).unwrap();
    for _ in 0..10 {
        assert!(ask(&fleet, at(3)).is_err(), "one canary at a time");
    }
    canary.settle(at(3), Outcome::Success);
    assert_eq!(shares(&fleet, at(3), ["a"], 2), [2]);
}

#[test]
fn a_request_beyond_what_a_minute_has_is_not_told_to_come_back_soon() {
    let fleet = pool("least_request", &[("a", ", limits: { tpm: 5 }")]);
    assert_eq!(told(&fleet, at(1)), (at(3_600), Obstacle::Limited));
}

#[test]
fn f28_a_quota_group_shares_its_pause_over_all_pools() {
    let of = |name: &str, group: &str| endpoint(name, &format!(", quota_group: {group}"));
    let fleet = fleet(&[
        &format!("name: m, on_all_open: reject, endpoints: [ {}, {} ]", of("a", "x"), of("b", "x")),
        &format!("name: n, endpoints: [ {}, {} ]", of("c", "x"), of("d", "y")),
    ]);
    assert_eq!(find(&fleet, "a").limit(at(1), at(6)), at(6));
    assert_eq!(find(&fleet, "b").limit(at(2), at(3)), at(5), "the longer one stands");
    for name in ["a", "b", "c"] {
        assert_eq!(find(&fleet, name).cooling_for(at(1)), at(6), "{name}");
    }
    assert!(find(&fleet, "d").cooling_for(at(1)).is_zero());
    assert_eq!(told(&fleet, at(1)), (at(6), Obstacle::Limited));
    // A credential is the endpoint's own.
    find(&fleet, "d").refuse_credential(at(1), at(30));
    find(&fleet, "c").refuse_credential(at(1), at(30));
    assert_eq!(find(&fleet, "a").cooling_for(at(1)), at(6));
    assert!(ask(&fleet, at(7)).is_ok());
}

#[test]
fn two_denials_in_a_row_are_believed_and_one_is_not() {
    let fleet = pool("least_request", &[("a", "")]);
    let endpoint = find(&fleet, "a");
    assert!(!endpoint.deny(at(1), at(30)));
    ask(&fleet, at(1)).unwrap().settle(at(1), Outcome::Success);
    assert!(!endpoint.deny(at(2), at(30)) && !endpoint.is_misconfigured());
    assert!(endpoint.deny(at(2), at(30)) && endpoint.is_misconfigured());
    assert_eq!(endpoint.cooling_for(at(2)), at(30));
}

#[test]
fn the_ledger_is_asked_for_a_second_attempt_at_the_same_endpoint_too() {
    let fleet = pool("weighted", &[("a", ""), ("b", ", limits: { rpm: 5 }")]);
    crate::limits::rely_on_one(fleet.share());
    let again = |name, may_ask| {
        let chosen = m(&fleet).choose_again(at(1), asker(1), find(&fleet, name), may_ask);
        chosen.map(|chosen| chosen.is_degraded)
    };
    assert_eq!(again("a", true), Ok(false), "nothing is limited");
    assert_eq!(again("b", true), Err(Unavailable::Unsure { index: 1 }));
    assert_eq!(again("b", false), Ok(false));
}
