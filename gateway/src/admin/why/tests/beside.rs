//! What bears on an endpoint besides: its pool, its tenants, its times, the share of time it was out.

use breaker::{Cause, Outcome};

use crate::fleet::{Asker, Tried};

use super::*;

fn both_out(model: &str) -> Rehearsal {
    let mut fleet = Rehearsal::new(1, "", &rest("", model, ""));
    fleet.fail(0, A, 1);
    fleet.fail(0, B, 1);
    fleet.run(seconds(1));
    fleet
}

#[test]
fn requests_pass_through_when_all_are_out_and_it_is_said() {
    let view = both_out("").explain(0, B);
    let said = note(&view, "pass_through").unwrap();
    let begins = "every endpoint of m is out: requests pass through to this one all the same";
    assert!(said.starts_with(begins), "{said}");
    assert!(verdict(&view).starts_with("out: "), "{view}");
}

#[test]
fn a_fallback_comes_before_passing_through() {
    let view = both_out("fallback: [n]").explain(0, B);
    let said = note(&view, "pass_through").unwrap();
    assert!(said.contains("requests go to the fallback n first, and then requests pass through"));
}

#[test]
fn a_pool_that_refuses_says_so() {
    let view = both_out("on_all_open: reject").explain(0, B);
    let said = note(&view, "pool_out").unwrap();
    assert_eq!(said, "every endpoint of m is out: requests are refused (503)");
}

#[test]
fn one_that_is_forced_open_is_not_passed_through_to() {
    let mut fleet = both_out("");
    fleet.order(0, B, (quorum::Forced::Open, Some(seconds(60))), "broken");
    fleet.run(seconds(1));
    let view = fleet.explain(0, B);
    assert!(
        note(&view, "pass_through").unwrap().contains("not to one that an operator forced open")
    );
}

#[test]
fn tenants_for_whom_it_is_out_are_counted_and_named() {
    let scope = "scope: endpoint+tenant, tenant: { header: x-tenant, max: 100 }";
    let fleet = Rehearsal::new(1, "", &rest(scope, "", ""));
    let pool = fleet.nodes[0].fleet.pool("m").unwrap();
    for tenant in ["t-1", "t-2", "t-3"] {
        let ask = |name: &str| (name == "x-tenant").then_some(tenant);
        let asker = Asker { prompt_tokens: 1, tokens: 1, prefix: 1, header: &ask };
        // Until it was `b`'s turn.
        for _ in 0..50 {
            let Ok(chosen) = pool.choose(fleet.now, asker, &Tried::default()) else { break };
            let is_b = chosen.admission.endpoint().config.name == "b";
            let fault = Outcome::Fault { weight: 1.0, cause: Cause::Other };
            let is_bad = is_b && tenant != "t-3";
            chosen.admission.settle(fleet.now, if is_bad { fault } else { Outcome::Success });
            if is_bad {
                break;
            }
        }
    }
    let view = fleet.explain(0, B);
    let said = note(&view, "tenants").unwrap();
    assert!(said.starts_with("out for 2 of 3 tenants on this node (by x-tenant)"), "{said}");
    assert_eq!(verdict(&view), "in: nothing is held against it");
    assert_eq!(view["tenants"]["out"][0]["tenant"], "t-1", "{view}");
}

#[test]
fn times_and_the_share_of_time_out_are_told() {
    let mut fleet = fleet(1);
    assert_eq!(fleet.explain(0, B)["latency"]["total_p50_ms"], Value::Null);
    let began = fleet.now;
    fleet.fail(0, B, 1);
    fleet.run(seconds(1));
    let share = fleet.explain(0, B)["open_share"].as_f64().unwrap();
    assert!(share > 0.1 && share < 0.3, "one of six seconds: {share}");
    assert!(fleet.now > began);
}
