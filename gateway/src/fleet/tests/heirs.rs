//! What an endpoint, a pool and a quota group keep when the configuration is another.

use breaker::{Errand, Refusal, State};
use quorum::Forced;

use super::*;

/// A circuit that opens at the first fault, for a minute.
const MINUTE: &str = "circuit_breaker: { failure_threshold: 1, open: { base: 60s, max: 60s } }";

fn parsed(circuit: &str, endpoints: &[String]) -> config::Config {
    let endpoints = endpoints.join(", ");
    let text = format!("{circuit}\nmodels: [ {{ name: m, endpoints: [ {endpoints} ] }} ]");
    config::parse(&text, "test.yaml", &|_| None).unwrap()
}

/// A fleet of these endpoints of `m`.
fn built(circuit: &str, endpoints: &[String]) -> Fleet {
    let config = parsed(circuit, endpoints);
    Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _))
}

/// The heir of `fleet` by these endpoints of `m`, which enforces at `now`.
fn succeed(fleet: &Fleet, now: Duration, circuit: &str, endpoints: &[String]) -> Heir {
    let config = parsed(circuit, endpoints);
    let heir = fleet.heir(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _));
    heir.enforce(now);
    heir
}

const fn request() -> Errand {
    Errand::Request { prompt_tokens: 1 }
}

/// What is left of an endpoint's cool-down.
fn remaining(fleet: &Fleet, name: &str, now: Duration) -> Option<Duration> {
    find(fleet, name).view(now).remaining
}

#[test]
fn what_is_the_same_is_the_same_object_and_what_is_not_is_told() {
    let rows = |names: &[(&str, &str)]| -> Vec<String> {
        names.iter().map(|(name, more)| endpoint(name, more)).collect()
    };
    let before = built(BREAKER, &rows(&[("a", ""), ("b", ""), ("c", "")]));
    let other = rows(&[("a", ""), ("c", ", weight: 2"), ("d", "")]);
    let heir = succeed(&before, at(1), BREAKER, &other);
    let keys = |keys: &[EndpointKey]| keys.iter().map(EndpointKey::to_string).collect::<Vec<_>>();
    assert_eq!(keys(&heir.changes.added), ["m/d"]);
    assert_eq!(keys(&heir.changes.removed), ["m/b"]);
    assert_eq!(keys(&heir.changes.changed), ["m/c"]);
    assert!(Arc::ptr_eq(find(&before, "a"), find(&heir.fleet, "a")));
    assert!(heir.fleet.pool("m").unwrap().endpoints.iter().enumerate().all(|(i, e)| e.index == i));
    let again = succeed(&heir.fleet, at(2), BREAKER, &other);
    assert_eq!(again.changes, Changes::default());
    let pool = |fleet: &Fleet| Arc::clone(fleet.pool("m").unwrap());
    assert!(Arc::ptr_eq(&pool(&heir.fleet), &pool(&again.fleet)), "its budget and turns go on");
    assert!(Arc::ptr_eq(&m(&before).budget, &m(&heir.fleet).budget));
}

#[test]
fn an_opening_with_forty_seconds_left_has_them_under_another_rule() {
    let before = built(MINUTE, &[endpoint("a", ""), endpoint("b", "")]);
    find(&before, "a").admit(at(10), request()).unwrap().settle(at(10), fault());
    let whole = remaining(&before, "a", at(10)).unwrap();
    let rule = MINUTE.replace("threshold: 1", "threshold: 9").replace("60s", "2s");
    let heir = succeed(&before, at(30), &rule, &[endpoint("b", ""), endpoint("a", "")]);
    let left = whole.checked_sub(at(20)).unwrap();
    assert_eq!(remaining(&heir.fleet, "a", at(30)), Some(left));
    let refused = find(&heir.fleet, "a").admit(at(30), request()).err();
    assert!(matches!(refused, Some(Refusal::Open { remaining }) if remaining == left));
    assert_eq!(find(&heir.fleet, "a").weight(), 0, "choosing sees it");
}

#[test]
fn who_began_under_the_old_settings_settles_under_the_new() {
    let before = built(MINUTE, &[endpoint("a", "")]);
    let sent = find(&before, "a").admit(at(1), request()).unwrap();
    let heir = succeed(&before, at(2), MINUTE, &[endpoint("a", ", weight: 3")]);
    let a = find(&heir.fleet, "a");
    assert_eq!(a.in_flight(), 1);
    sent.settle(at(3), fault());
    assert_eq!((a.in_flight(), a.view(at(3)).state), (0, State::Open));
    assert_eq!(a.weight(), 0);
}

#[test]
fn at_another_address_it_is_another_machine_under_the_same_orders() {
    let before = built(MINUTE, &[endpoint("a", "")]);
    find(&before, "a").admit(at(1), request()).unwrap().settle(at(1), fault());
    find(&before, "a").cool(at(1), at(100));
    find(&before, "a").force(Forced::Closed);
    let moved = endpoint("a", "").replace("http://a", "http://elsewhere");
    let heir = succeed(&before, at(2), MINUTE, &[moved]);
    let a = find(&heir.fleet, "a");
    assert_eq!((a.view(at(2)).state, a.cooling_for(at(2))), (State::Closed, at(0)));
    assert_eq!(a.forced(), Forced::Closed);
    assert!(!a.goes_on_from(find(&before, "a")));
}

#[test]
fn a_pause_goes_on_but_not_for_a_credential_that_was_replaced() {
    let row = |key: &str| endpoint("a", &format!(", api_key: {key}"));
    let before = built(MINUTE, &[row("one-key"), endpoint("b", ", quota_group: g")]);
    find(&before, "a").cool(at(1), at(5));
    find(&before, "a").refuse_credential(at(1), at(500));
    find(&before, "b").cool(at(1), at(50));
    let heir =
        succeed(&before, at(2), MINUTE, &[row("one-key"), endpoint("c", ", quota_group: g")]);
    assert_eq!(find(&heir.fleet, "a").cooling_for(at(2)), at(499));
    assert_eq!(find(&heir.fleet, "c").cooling_for(at(2)), at(49), "its group was asked to pause");
    let heir = succeed(&heir.fleet, at(3), MINUTE, &[row("other-key")]);
    let a = find(&heir.fleet, "a");
    assert_eq!((a.cooling_for(at(3)), a.is_misconfigured()), (at(3), false));
}

#[test]
fn what_an_endpoint_was_asked_in_the_minute_counts_under_another_limit() {
    let row = |rpm: u32| endpoint("a", &format!(", limits: {{ rpm: {rpm} }}"));
    let before = built(MINUTE, &[row(2)]);
    (0..2).for_each(|_| drop(served(&before, at(1))));
    assert!(ask(&before, at(1)).is_err());
    let heir = succeed(&before, at(2), MINUTE, &[row(3)]);
    assert_eq!(served(&heir.fleet, at(2)), "a");
    assert!(ask(&heir.fleet, at(2)).is_err(), "three in the minute, of which two were before");
    let heir = succeed(&heir.fleet, at(3), MINUTE, &[row(1)]);
    assert!(ask(&heir.fleet, at(60)).is_err());
    assert!(ask(&heir.fleet, at(64)).is_ok());
}

#[test]
fn tenants_keep_their_breakers_under_another_rule() {
    let scope = |threshold: u32, most: u32| {
        let scope = format!("scope: endpoint+tenant, tenant: {{ header: x-t, max: {most} }}");
        format!("circuit_breaker: {{ failure_threshold: {threshold}, {scope} }}")
    };
    let before = built(&scope(1, 3), &[endpoint("a", "")]);
    for name in ["t1", "t2", "t3"] {
        let header = |header: &str| (header == "x-t").then_some(name);
        let asker = Asker { header: &header, ..asker(1) };
        let chosen = m(&before).choose(at(1), asker, &Tried::default()).unwrap();
        chosen.admission.settle(at(1), fault());
    }
    let count = |fleet: &Fleet| find(fleet, "a").tenants.as_ref().unwrap().count(at(1));
    assert_eq!(count(&before), (3, 3));
    let heir = succeed(&before, at(1), &scope(5, 2), &[endpoint("a", "")]);
    assert_eq!(count(&heir.fleet), (2, 2), "no more are remembered than may be");
    let other = scope(5, 2).replace("x-t", "x-u");
    let heir = succeed(&heir.fleet, at(1), &other, &[endpoint("a", "")]);
    assert_eq!(count(&heir.fleet), (0, 0), "by another header they are others");
}
