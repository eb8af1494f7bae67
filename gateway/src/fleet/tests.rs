//! What the fleet promises about choosing, with time and chance in the test's hands.

mod heirs;
mod limits;
mod policies;
mod prefixes;

use std::sync::Arc;
use std::time::Duration;

use breaker::{Cause, Outcome};

use super::*;

/// Opens at the first fault for a second, returns by one canary and then a ramp of 100 s.
const BREAKER: &str = "circuit_breaker: { failure_threshold: 1, open: { base: 1s, max: 1s }, \
    probe: { enabled: false }, half_open: { successes: 1, share: 1.0 }, ramp: { duration: 100s } }";

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A fleet with these models, each a line of YAML in flow style.
fn fleet(models: &[&str]) -> Fleet {
    let models: String = models.iter().map(|model| format!("  - {{ {model} }}\n")).collect();
    let text = format!("{BREAKER}\nmodels:\n{models}");
    let config = config::parse(&text, "test.yaml", &|_| None).unwrap();
    Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _))
}

/// An endpoint in flow style, with further keys.
fn endpoint(name: &str, more: &str) -> String {
    format!("{{ name: {name}, address: \"http://{name}\" {more} }}")
}

/// A fleet with one model, `m`, of these endpoints.
fn pool(policy: &str, endpoints: &[(&str, &str)]) -> Fleet {
    let endpoints: Vec<String> =
        endpoints.iter().map(|(name, more)| endpoint(name, more)).collect();
    let endpoints = endpoints.join(", ");
    fleet(&[&format!("name: m, on_all_open: reject, policy: {policy}, endpoints: [ {endpoints} ]")])
}

fn asker(prefix: u64) -> Asker<'static> {
    Asker { prompt_tokens: 10, tokens: 10, prefix, header: &|_| None }
}

fn m(fleet: &Fleet) -> &Pool {
    fleet.pool("m").unwrap()
}

fn ask(fleet: &Fleet, now: Duration) -> Result<Admission, Unavailable> {
    let chosen = m(fleet).choose(now, asker(1), &Tried::default());
    chosen.map(|chosen| chosen.admission)
}

fn name(admission: &Admission) -> &str {
    &admission.endpoint().config.name
}

/// The endpoint that a request gets, which ends well at once.
fn served(fleet: &Fleet, now: Duration) -> String {
    let admission = ask(fleet, now).unwrap();
    let name = name(&admission).to_owned();
    admission.settle(now, Outcome::Success);
    name
}

fn find<'f>(fleet: &'f Fleet, name: &str) -> &'f Arc<Endpoint> {
    fleet.endpoints().map(|(_, one)| one).find(|one| one.config.name == name).unwrap()
}

fn fault() -> Outcome {
    Outcome::Fault { weight: 1.0, cause: Cause::Other }
}

/// Opens the endpoint's circuit.
fn open(fleet: &Fleet, name: &str, now: Duration) {
    let errand = breaker::Errand::Request { prompt_tokens: 1 };
    find(fleet, name).admit(now, errand).unwrap().settle(now, fault());
}

/// How often each of these served, of this many requests one after the other.
fn shares<const N: usize>(fleet: &Fleet, now: Duration, of: [&str; N], count: u32) -> [u32; N] {
    let mut counts = [0; N];
    for _ in 0..count {
        let served = served(fleet, now);
        let place = of.iter().position(|name| *name == served).unwrap();
        counts[place] += 1;
    }
    counts
}

#[test]
fn a_higher_group_is_asked_only_when_nothing_is_left_in_the_lower() {
    for policy in ["least_request", "weighted", "ewma", "prefix_hash"] {
        let endpoints =
            [("a", ", priority: 1"), ("b", ", priority: 1"), ("c", ""), ("d", ", priority: 9")];
        let fleet = pool(policy, &endpoints);
        assert_eq!(shares(&fleet, at(1), ["c"], 50), [50], "{policy}");
        let mut tried = Tried::default();
        let mut seen = Vec::new();
        while let Ok(chosen) = m(&fleet).choose(at(1), asker(1), &tried) {
            seen.push(name(&chosen.admission).to_owned());
            tried.insert(chosen.admission.endpoint());
        }
        assert_eq!((seen.first().unwrap().as_str(), seen.last().unwrap().as_str()), ("c", "d"));
        assert_eq!(seen.len(), 4, "{policy}: {seen:?}");
        find(&fleet, "c").cool(at(1), at(5));
        let [a, b] = shares(&fleet, at(1), ["a", "b"], 50);
        assert!(a + b == 50, "{policy}");
        open(&fleet, "a", at(1));
        open(&fleet, "b", at(1));
        assert_eq!(shares(&fleet, at(1), ["d"], 50), [50], "{policy}");
        open(&fleet, "d", at(1));
        let told = ask(&fleet, at(1)).err().unwrap();
        assert!(matches!(told, Unavailable::AllOut { obstacle: Obstacle::Open, .. }), "{told:?}");
    }
}

/// Brings an endpoint that is out onto its ramp.
fn returns(fleet: &Fleet, name: &str, now: Duration) {
    let endpoint = find(fleet, name);
    endpoint.tick(now);
    let errand = breaker::Errand::Request { prompt_tokens: 1 };
    endpoint.admit(now, errand).unwrap().settle(now, Outcome::Success);
    endpoint.tick(now);
    assert!((1..100).contains(&endpoint.weight()), "{}", endpoint.weight());
}

#[test]
fn what_falls_through_a_recovering_endpoint_goes_to_siblings_then_to_the_next_group() {
    for policy in ["least_request", "weighted", "ewma", "prefix_hash"] {
        fastrand::seed(7);
        let fleet = pool(policy, &[("a", ""), ("b", ", priority: 1")]);
        open(&fleet, "a", at(1));
        returns(&fleet, "a", at(3));
        fleet.tick(at(30));
        let weight = u32::from(find(&fleet, "a").weight());
        assert!((20..60).contains(&weight), "{weight}");
        let [a, _] = shares(&fleet, at(30), ["a", "b"], 2_000);
        assert!(a.abs_diff(20 * weight) < 150, "{policy}: {a} of 2000 by {weight} %");
        // Nobody else is left: it takes them all.
        find(&fleet, "b").cool(at(30), at(60));
        assert_eq!(shares(&fleet, at(30), ["a"], 50), [50], "{policy}");
    }
}

#[test]
fn two_that_return_together_take_together_what_their_weights_say() {
    fastrand::seed(11);
    let fleet = pool("least_request", &[("a", ""), ("b", ""), ("c", ", priority: 1")]);
    for name in ["a", "b"] {
        open(&fleet, name, at(1));
        returns(&fleet, name, at(3));
    }
    fleet.tick(at(30));
    let weight = u32::from(find(&fleet, "a").weight());
    let [a, b, _] = shares(&fleet, at(30), ["a", "b", "c"], 2_000);
    assert!((a + b).abs_diff(20 * weight) < 150, "{a} {b} of 2000 by {weight} %");
}

#[test]
fn f46_the_seconds_without_an_endpoint_are_counted() {
    let meters = Meters::new();
    let text =
        format!("{BREAKER}\nmodels: [ {{ name: m, endpoints: [ {} ] }} ]", endpoint("a", ""));
    let config = config::parse(&text, "test.yaml", &|_| None).unwrap();
    let fleet = Fleet::new(&config.pools, &meters, &(Arc::new(|_| {}) as _));
    let shows = |gauge: u32, seconds: u32| {
        let text = meters.render();
        let gauge = format!("quorumgate_pool_all_open{{model=\"m\"}} {gauge}\n");
        let seconds = format!("quorumgate_pool_all_open_seconds_total{{model=\"m\"}} {seconds}\n");
        assert!(text.contains(&gauge) && text.contains(&seconds), "{gauge}{seconds}{text}");
    };
    fleet.tick(at(10));
    shows(0, 0);
    // One that asked for a pause is known to live.
    find(&fleet, "a").cool(at(10), at(1));
    fleet.tick(at(10));
    shows(0, 0);
    find(&fleet, "a").force(quorum::Forced::Open);
    fleet.tick(at(11));
    fleet.tick(at(13));
    shows(1, 3);
    assert!(m(&fleet).note_degraded() && !m(&fleet).note_degraded(), "one word an episode");
    find(&fleet, "a").force(quorum::Forced::Auto);
    fleet.tick(at(71));
    shows(0, 3);
    assert!(m(&fleet).note_degraded());
}
