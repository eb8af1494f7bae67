//! Three gateway processes decide together: over real sockets, with mutual TLS, and one is killed.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "process/mod.rs"]
mod process;

use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::{Method, StatusCode};
use serde_json::json;

use crate::fleet::{B, Fleet, Link, Plan, is_in, is_out};
use crate::process::{call, until};

/// Two gossip intervals of the test fleet.
const TWO_INTERVALS: Duration = Duration::from_secs(2);

fn plan(base: &str) -> Plan<'_> {
    Plan::new(base)
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_f19_two_convict_and_the_third_that_sent_nothing_stops_using_it() {
    let fleet = Fleet::start(plan("60s")).await;
    fleet.convict(&[0, 1]).await;
    let decided = Instant::now();
    until("the third follows", async || is_out(&fleet.nodes[2]).await).await;
    assert!(decided.elapsed() <= TWO_INTERVALS, "took {:?}", decided.elapsed());

    let view = fleet.nodes[2].explain(B).await;
    assert_eq!(view["local"]["state"], "closed", "an imposed opening is not its own");
    assert_eq!(view["cluster"]["votes_counted"], 2);
    assert!(view["verdict"].as_str().unwrap().starts_with("out for the whole fleet"), "{view}");
    let voters = view["votes"].as_array().unwrap();
    assert!(voters.iter().all(|vote| vote["voter"] != "gw-3"), "an imposed opening is no vote");

    // Requests that were in flight to b when it went out have been counted; no new one is.
    until("b is left alone", async || fleet.b.counts().in_flight == 0).await;
    let before = (fleet.a.counts().requests, fleet.b.counts().requests);
    for _ in 0..50 {
        assert_eq!(fleet.nodes[2].chat().await, StatusCode::OK);
    }
    assert_eq!(fleet.b.counts().requests, before.1, "the third still sends to b");
    assert_eq!(fleet.a.counts().requests, before.0 + 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_one_gateway_with_a_broken_link_flips_nothing() {
    // What the first node takes for b is a port that was closed again: nothing listens there.
    let nothing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = nothing.local_addr().unwrap();
    drop(nothing);
    let b_for = |index: usize, address| if index == 0 { near } else { address };
    let fleet = Fleet::start(Plan { b_for: &b_for, ..plan("60s") }).await;

    until("the first node's own breaker opens", async || {
        assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK, "the other endpoint serves");
        fleet.nodes[0].explain(B).await["local"]["state"] == "open"
    })
    .await;
    until("the others have heard its vote", async || {
        fleet.nodes[1].explain(B).await["cluster"]["votes_counted"] == 1
            && fleet.nodes[2].explain(B).await["cluster"]["votes_counted"] == 1
    })
    .await;
    let before = fleet.b.counts().requests;
    for node in &fleet.nodes {
        assert!(!is_out(node).await, "one vote has flipped {}", node.name);
        for _ in 0..40 {
            assert_eq!(node.chat().await, StatusCode::OK);
        }
    }
    assert!(fleet.b.counts().requests > before + 20, "the others no longer use b");
    let view = fleet.nodes[0].explain(B).await;
    assert!(view["verdict"].as_str().unwrap().starts_with("out on this node, not for"), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_probe_of_the_whole_fleet_brings_it_back_everywhere() {
    let fleet = Fleet::start(plan("4s")).await;
    fleet.convict(&[0, 1, 2]).await;
    fleet.b.set(Behaviour::default());
    until("b is left alone", async || fleet.b.counts().in_flight == 0).await;
    let before = fleet.b.counts();
    until("b is back everywhere", async || {
        let mut all = true;
        for node in &fleet.nodes {
            all &= is_in(node).await;
        }
        all
    })
    .await;
    let after = fleet.b.counts();
    assert_eq!(after.probes - before.probes, 1, "probes");
    // Nobody asks, so that the holder of the slot sends the five small requests itself.
    assert_eq!(after.canaries - before.canaries, 5, "canaries");
    assert_eq!(after.requests - before.requests, 6, "requests, the probe included");
    for node in &fleet.nodes {
        for _ in 0..20 {
            assert_eq!(node.chat().await, StatusCode::OK);
        }
    }
    assert!(fleet.b.counts().requests > after.requests, "b is used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn f13_when_the_steward_is_killed_before_it_probes_another_takes_over() {
    let mut fleet = Fleet::start(plan("4s")).await;
    fleet.convict(&[0, 1, 2]).await;
    fleet.b.set(Behaviour::default());
    until("b is left alone", async || fleet.b.counts().in_flight == 0).await;
    let before = fleet.b.counts().probes;
    let steward = fleet.steward().await;
    fleet.nodes.remove(steward).kill();
    assert_eq!(fleet.b.counts().probes, before, "it probed before it was killed");
    let killed = Instant::now();
    until("another probes", async || fleet.b.counts().probes > before).await;
    assert!(killed.elapsed() < Duration::from_secs(15), "took {:?}", killed.elapsed());
    until("b is back on the two that are left", async || {
        is_in(&fleet.nodes[0]).await && is_in(&fleet.nodes[1]).await
    })
    .await;
    assert_eq!(fleet.b.counts().probes - before, 1, "probes");
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_a_killed_member_is_lost_within_ten_seconds_and_still_counts() {
    let mut fleet = Fleet::start(plan("60s")).await;
    fleet.nodes.remove(2).kill();
    let killed = Instant::now();
    until("the member is lost", async || {
        let members = fleet.nodes[0].look("/admin/v1/members").await;
        members["members"][2]["state"] == "lost"
    })
    .await;
    assert!(killed.elapsed() < Duration::from_secs(10), "took {:?}", killed.elapsed());
    let cluster = fleet.nodes[0].look("/admin/v1/cluster").await;
    assert_eq!((&cluster["electorate"], &cluster["quorum"]), (&json!(3), &json!(2)));
    assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_order_holds_on_every_node_and_ends_by_itself() {
    let fleet = Fleet::start(plan("60s")).await;
    let path = format!("/admin/v1/endpoints/{B}/override");
    let order = json!({ "state": "force_open", "for": "3s", "reason": "maintenance" }).to_string();
    let operators = fleet.nodes[1].operators;
    let (status, body) = call(operators, Method::POST, &path, &[], &order).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    for node in &fleet.nodes {
        until("the order is known", async || node.explain(B).await["forced"] == "force_open").await;
    }
    let before = fleet.b.counts().requests;
    for node in &fleet.nodes {
        assert_eq!(node.chat().await, StatusCode::OK);
    }
    assert_eq!(fleet.b.counts().requests, before);
    let view = fleet.nodes[0].explain(B).await;
    assert_eq!(
        (&view["forced_by"], &view["forced_reason"]),
        (&json!("gw-2"), &json!("maintenance"))
    );
    for node in &fleet.nodes {
        until("the order has ended", async || node.explain(B).await["forced"] == "auto").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_in_good_order_no_longer_counts() {
    let mut fleet = Fleet::start(plan("60s")).await;
    let mut leaving = fleet.nodes.remove(2);
    let signal = std::process::Command::new("kill").arg(leaving.id().to_string()).status();
    assert!(signal.unwrap().success());
    until("it is gone", async || {
        // Shown for as long as it is remembered, by its last word and not as one that was lost.
        let members = fleet.nodes[0].look("/admin/v1/members").await;
        members["members"][2]["id"] == "gw-3" && members["members"][2]["state"] == "left"
    })
    .await;
    assert_eq!(leaving.wait(), Some(0));
    // The floor of three stays: it was configured.
    let cluster = fleet.nodes[0].look("/admin/v1/cluster").await;
    assert_eq!((&cluster["electorate"], &cluster["live"]), (&3.into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_in_the_middle_of_the_run_opens_one_node_only() {
    let link = tokio::sync::OnceCell::new();
    let (b_address, b) = process::mock("elsewhere").await;
    let link: &Link = link.get_or_init(|| Link::to(b_address)).await;
    let near = link.address;
    let b_for = |index: usize, _| if index == 0 { near } else { b_address };
    let fleet = Fleet::start(Plan { b_for: &b_for, ..plan("60s") }).await;
    for _ in 0..20 {
        assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK);
    }
    assert!(b.counts().requests > 0, "the link works");
    link.cut();
    until("the first node's own breaker opens", async || {
        assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK);
        fleet.nodes[0].explain(B).await["local"]["state"] == "open"
    })
    .await;
    assert!(!is_out(&fleet.nodes[1]).await);
    assert!(is_in(&fleet.nodes[2]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn f42_a_restarted_node_goes_on_with_what_the_fleet_had_out_and_lets_go_of_what_it_no_longer_has()
 {
    let mut fleet = Fleet::start(plan("6s")).await;
    fleet.convict(&[0, 1]).await;
    until("the third follows", async || is_out(&fleet.nodes[2]).await).await;
    let before = fleet.third_wrote();
    until("the third keeps it", async || fleet.third_wrote() != before).await;
    fleet.nodes.remove(2).kill();

    let third = fleet.restart_third();
    let view = third.explain(B).await;
    assert_eq!((&view["local"]["held"], &view["in_rotation"]), (&json!(true), &json!(false)));
    third.kill();

    fleet.b.set(Behaviour::default());
    for node in &fleet.nodes {
        until("b is back", async || is_in(node).await).await;
    }
    let third = fleet.restart_third();
    until("the third lets go", async || is_in(&third).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_member_is_shown_with_its_age_and_configurations_are_compared() {
    let fleet = Fleet::start(plan("60s")).await;
    let told = fleet.nodes[0].look("/admin/v1/members").await;
    for row in told["members"].as_array().unwrap() {
        let is_me = row["self"] == true;
        let age = row["age_ms"].as_u64().unwrap();
        assert!(if is_me { age == 0 } else { age < 10_000 }, "{row}");
        assert_eq!((row["uptime_ms"].is_u64(), &row["suspect"]), (is_me, &json!(false)), "{row}");
    }
    let cluster = fleet.nodes[0].look("/admin/v1/cluster").await;
    assert_eq!(cluster["config_skew"], false, "{cluster}");
    let view = fleet.nodes[0].explain(B).await;
    let roles: Vec<&str> = view["denominator"]["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["counts_as"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["no_vote", "no_vote", "no_vote"], "{view}");
    let ready = fleet.nodes[0].look("/readyz").await;
    assert_eq!((&ready["ready"], &ready["reasons"]), (&json!(true), &json!([])), "{ready}");
}
