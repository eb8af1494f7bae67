//! A breaker for each tenant: what one tenant meets is nobody else's, and what holds for all holds for
//! each of them.

use std::time::Duration;

use breaker::State;
use gateway::clock;
use quorum::Forced;

use crate::local;
use crate::local::{Ask, House, Plan, Reply, until};
use crate::raw::{Act, Raw, failed, good};

const SCOPE: &str = "circuit_breaker: { scope: endpoint+tenant, tenant: { header: x-tenant-id, max: 50 }, \
                     failure_threshold: 2, open: { base: 300ms, max: 300ms }, ramp: { duration: 0s }, \
                     half_open: { successes: 1 } }\nretry: { on: [] }";

/// An endpoint that fails whoever calls itself ill.
async fn partial() -> (Raw, House) {
    let raw = Raw::start(|_, seen| {
        let is_ill = seen.text().contains("ill");
        vec![Act::Say(if is_ill { failed(500) } else { good("yes") })]
    })
    .await;
    let house =
        Plan::of(&[("a", raw.address)]).top(SCOPE).pool("on_all_open: reject").start().await;
    (raw, house)
}

/// A request of this tenant that the endpoint fails, or serves.
async fn ask(house: &House, tenant: &str, is_ill: bool) -> Reply {
    let word = if is_ill { "ill" } else { "well" };
    let ask = Ask::post("/v1/chat/completions", local::QUESTION.replace("hello", word));
    house.send(ask.header("x-tenant-id", tenant)).await
}

async fn explained(house: &House) -> serde_json::Value {
    house.admin("endpoints/demo/a/explain").await
}

#[tokio::test]
async fn what_one_tenant_meets_takes_the_endpoint_out_for_that_tenant_alone() {
    let (raw, house) = partial().await;
    assert_eq!(ask(&house, "t1", true).await.status, 500);
    assert_eq!(ask(&house, "t2", true).await.status, 500, "another's streak is its own");
    assert_eq!(ask(&house, "t1", true).await.status, 500);
    let refused = ask(&house, "t1", false).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "circuit_open"));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(ask(&house, "t2", false).await.status, 200);
    assert_eq!(house.ask().await.status, 200, "without a name the endpoint's own breaker judges");
    house.is_untouched("a").await;
    assert_eq!(house.endpoint("a").local_opening(), None, "a tenant's breaker never votes");

    let told = explained(&house).await;
    assert_eq!((&told["tenants"]["known"], &told["tenants"]["max"]), (&2.into(), &50.into()));
    assert_eq!(told["tenants"]["out"][0]["tenant"], "t1");
    assert_eq!(told["tenants"]["out"][0]["state"], "open");
    assert_eq!(told["tenants"]["out_count"], 1);
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    let wanted = "quorumgate_tenant_breakers_out{endpoint=\"demo/a\"} 1";
    assert!(metrics.text().contains(wanted), "{}", metrics.text());
    assert!(!metrics.text().contains("t1"), "no metric carries a tenant's name");

    // The cool-down passes, a canary of any length is enough, and nobody has probed for it.
    let before = raw.count();
    let long = local::QUESTION.replace("hello", &"long ".repeat(500));
    let long = Ask::post("/v1/chat/completions", long).header("x-tenant-id", "t1");
    until("the cool-down is over", || {
        let tenants = house.endpoint("a").tenants.as_ref().unwrap().all();
        let t1 = tenants.iter().find(|tenant| &*tenant.name == "t1").unwrap();
        t1.view(clock::now()).remaining == Some(Duration::ZERO)
    })
    .await;
    assert_eq!(house.send(long).await.status, 200);
    assert_eq!(raw.count(), before + 1);
    assert_eq!(explained(&house).await["tenants"]["out_count"], 0);
}

#[tokio::test]
async fn what_the_fleet_an_operator_or_a_pause_says_holds_for_every_tenant() {
    let (_raw, house) = partial().await;
    let endpoint = house.endpoint("a");
    assert_eq!(ask(&house, "t1", false).await.status, 200);
    endpoint.hold(clock::now());
    for tenant in ["t1", "stranger"] {
        assert_eq!(ask(&house, tenant, false).await.status, 503, "held, {tenant}");
    }
    endpoint.release(clock::now());
    assert_eq!(ask(&house, "t1", false).await.status, 200);
    for _ in 0..2 {
        ask(&house, "t1", true).await;
    }
    assert_eq!(ask(&house, "t1", false).await.status, 503);
    endpoint.force(Forced::Closed);
    assert_eq!(ask(&house, "t1", false).await.status, 200, "an operator brings it in");
    endpoint.force(Forced::Open);
    for tenant in ["t1", "stranger"] {
        assert_eq!(ask(&house, tenant, false).await.status, 503, "forced open, {tenant}");
    }
    endpoint.force(Forced::Auto);
    endpoint.cool(clock::now(), Duration::from_secs(60));
    assert_eq!(ask(&house, "stranger", false).await.status, 503, "it asked for a pause");
}

#[tokio::test]
async fn while_this_node_tries_an_endpoint_for_the_fleet_no_tenant_gets_round_the_slot() {
    let (raw, house) = partial().await;
    let endpoint = house.endpoint("a");
    assert_eq!(ask(&house, "t1", false).await.status, 200);
    let long = local::QUESTION.replace("hello", &"long ".repeat(500));
    let long = Ask::post("/v1/chat/completions", long);
    endpoint.hold(clock::now());
    endpoint.lend(clock::now(), 0);
    let before = raw.count();
    for tenant in ["t1", "stranger"] {
        let refused = house.send(long.clone().header("x-tenant-id", tenant)).await;
        assert_eq!(refused.status, 503, "{tenant}: too long for a canary");
    }
    assert_eq!(raw.count(), before);
    // A short one is a canary of the fleet's, judged by the endpoint's own breaker.
    assert_eq!(ask(&house, "stranger", true).await.status, 500);
    assert_eq!(house.view("a").state, State::Open);
    assert_eq!(ask(&house, "t1", false).await.status, 503, "the canary has failed");
    assert_eq!(raw.count(), before + 1);
}

#[tokio::test]
async fn a_tenant_keeps_to_the_weight_of_an_endpoint_that_has_just_returned() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let other = Raw::always(vec![Act::Say(good("yes"))]).await;
    let top = SCOPE.replace("duration: 0s", "duration: 10m");
    let plan = Plan::of(&[("a", raw.address), ("b", other.address)]).top(&top);
    let house = plan.start().await;
    let endpoint = house.endpoint("a");
    endpoint.hold(clock::now());
    endpoint.release(clock::now());
    for number in 0..200 {
        assert_eq!(ask(&house, &format!("t{}", number % 7), false).await.status, 200);
    }
    // A quarter of one half would be 25; by its full weight it were 100.
    assert!((1..60).contains(&raw.count()), "{} of 200", raw.count());
}

#[tokio::test]
async fn strangers_are_remembered_up_to_the_bound_and_make_no_series() {
    let (_raw, house) = partial().await;
    for number in 0..200 {
        assert_eq!(ask(&house, &format!("tenant-{number}"), false).await.status, 200);
    }
    let long = "x".repeat(129);
    assert_eq!(ask(&house, &long, true).await.status, 500);
    assert_eq!(house.view("a").streak, 1, "a name that is none is nobody's");
    let told = explained(&house).await;
    assert_eq!((&told["tenants"]["known"], &told["tenants"]["out_count"]), (&50.into(), &0.into()));
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    assert!(!metrics.text().contains("tenant-"), "{}", metrics.text());
}

#[tokio::test]
async fn when_an_endpoint_is_out_for_a_tenant_its_request_passes_through_like_any_other() {
    let raw =
        Raw::start(|number, _| vec![Act::Say(if number < 2 { failed(500) } else { good("yes") })])
            .await;
    let house = Plan::of(&[("a", raw.address)]).top(SCOPE).start().await;
    for _ in 0..2 {
        assert_eq!(ask(&house, "t", false).await.status, 500);
    }
    let reply = ask(&house, "t", false).await;
    assert_eq!((reply.status, reply.header("x-quorumgate-degraded")), (200, "all-open"));
    assert_eq!(house.view("a").state, State::Closed);
}
