//! How the policies share requests out.

use super::*;

/// Keeps this many requests in flight at a time, `count` requests in all, each ended by `takes` ticks of
/// 10 ms and `outcome`. Returns how many each endpoint got.
fn crowd(
    fleet: &Fleet,
    count: usize,
    rate: usize,
    fate: impl Fn(&str) -> (u64, Outcome),
) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    let mut running: Vec<(Duration, Outcome, Admission)> = Vec::new();
    for number in 0..count {
        let now = at(1) + Duration::from_millis(10) * (number / rate) as u32;
        while let Some(place) = running.iter().position(|(due, _, _)| *due <= now) {
            let (due, outcome, mut admission) = running.swap_remove(place);
            admission.first_token(due);
            admission.settle(due, outcome);
        }
        let admission = ask(fleet, now).unwrap();
        let name = name(&admission).to_owned();
        let (takes, outcome) = fate(&name);
        *counts.entry(name).or_default() += 1;
        running.push((now + Duration::from_millis(10) * takes as u32, outcome, admission));
    }
    counts
}

/// As [`pool`], with breakers that only watch.
fn watched(policy: &str, names: &[&str]) -> Fleet {
    let endpoints: Vec<_> =
        names.iter().map(|name| (*name, ", circuit_breaker: { mode: off }")).collect();
    pool(policy, &endpoints)
}

#[test]
fn by_weight_each_has_exactly_its_share() {
    let fleet = pool("weighted", &[("a", ", weight: 5"), ("b", ""), ("c", ", weight: 4")]);
    assert_eq!(shares(&fleet, at(1), ["a", "b", "c"], 1_000), [500, 100, 400]);
}

#[test]
fn a_recovering_endpoint_has_its_share_of_its_weight() {
    let fleet = pool("weighted", &[("a", ""), ("b", "")]);
    open(&fleet, "a", at(1));
    returns(&fleet, "a", at(3));
    fleet.tick(at(30));
    let weight = u32::from(find(&fleet, "a").weight());
    let [a, b] = shares(&fleet, at(30), ["a", "b"], 1_000);
    assert!((a * 100).abs_diff(b * weight) <= 100 * 2, "{a} to {b} by {weight} %");
}

#[test]
fn by_requests_weights_share_out_what_is_in_flight() {
    fastrand::seed(3);
    let fleet = pool("least_request", &[("a", ", weight: 3"), ("b", "")]);
    let counts = crowd(&fleet, 4_000, 4, |_| (10, Outcome::Success));
    let a = counts["a"] as f64 / 4_000.0;
    assert!((0.72..0.78).contains(&a), "{counts:?}");
}

#[test]
fn by_requests_equals_get_equal_shares() {
    fastrand::seed(4);
    let names = ["a", "b", "c", "d", "e"];
    let fleet = pool("least_request", &names.map(|name| (name, "")));
    let counts = crowd(&fleet, 5_000, 4, |_| (10, Outcome::Success));
    assert!(names.iter().all(|name| (900..1_100).contains(&counts[*name])), "{counts:?}");
}

#[test]
fn one_that_fails_at_once_draws_no_more_than_its_share() {
    for policy in ["least_request", "ewma"] {
        fastrand::seed(5);
        let fleet = watched(policy, &["a", "b", "c"]);
        let fate = |name: &str| match name {
            "a" => (0, fault()),
            _ => (50, Outcome::Success),
        };
        let counts = crowd(&fleet, 3_000, 2, fate);
        assert!(counts["a"] < 1_100, "{policy}: {counts:?}");
    }
}

#[test]
fn where_nobody_is_busy_one_that_has_failed_is_still_asked() {
    fastrand::seed(6);
    let fleet = watched("least_request", &["a", "b"]);
    for _ in 0..3 {
        let errand = breaker::Errand::Request { prompt_tokens: 1 };
        find(&fleet, "a").admit(at(1), errand).unwrap().of_client(None).settle(at(1), fault());
    }
    assert_eq!(find(&fleet, "a").failures(at(1)), 3);
    let [a, b] = shares(&fleet, at(1), ["a", "b"], 400);
    assert!(a > 150 && b > 150, "{a} {b}");
}

#[test]
fn by_time_the_faster_one_gets_more() {
    fastrand::seed(8);
    let fleet = pool("ewma", &[("a", ""), ("b", "")]);
    let fate = |name: &str| (if name == "a" { 20 } else { 5 }, Outcome::Success);
    let counts = crowd(&fleet, 4_000, 1, fate);
    assert!(counts["b"] > 3 * counts["a"] / 2 && counts["a"] > 20, "{counts:?}");
}

#[test]
fn by_time_one_that_has_answered_nothing_yet_is_asked_one_request_at_a_time() {
    let fleet = pool("ewma", &[("a", ""), ("b", "")]);
    let held: Vec<_> = (0..6).map(|_| ask(&fleet, at(1)).unwrap()).collect();
    let of = |name_: &str| held.iter().filter(|one| name(one) == name_).count();
    assert_eq!((of("a"), of("b")), (3, 3));
    let (answered, _silent): (Vec<_>, Vec<_>) = held.into_iter().partition(|one| name(one) == "b");
    for admission in answered {
        admission.settle(at(2), Outcome::Success);
    }
    assert_eq!(shares(&fleet, at(2), ["b"], 20), [20], "a has not answered");
}

#[test]
fn ten_thousand_endpoints_cost_no_more_than_four() {
    for policy in ["least_request", "ewma"] {
        let names: Vec<String> = (0..10_000).map(|number| format!("e{number}")).collect();
        let endpoints: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        let fleet = pool(policy, &endpoints);
        let looked = allocation_counter::measure(|| {
            for _ in 0..1_000 {
                drop(ask(&fleet, at(1)).unwrap());
            }
        });
        assert_eq!(looked.count_total, 0, "{policy}: no list of them is made");
    }
}
