//! What only the fleet can do, by real processes: convict together, hand a canary slot round, suspect.

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
use hyper::StatusCode;
use serde_json::Value;

use crate::fleet::{B, Fleet, Plan, is_in, is_out, join_all};
use crate::process::{Gateway, until};

fn failing() -> Behaviour {
    Behaviour { status: Some(500), ..Behaviour::default() }
}

fn of<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry[key] == name);
    found.unwrap_or(&Value::Null)
}

/// An address where nothing listens: the port was taken and closed again.
async fn closed_port() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Lets a node meet `faults` faults of `b`; each request is answered by the other endpoint.
async fn meet(node: &Gateway, faults: u64) {
    until("the node has met the faults", async || {
        if node.explain(B).await["evidence"]["streak"] == faults {
            return true;
        }
        assert_eq!(node.chat().await, StatusCode::OK);
        false
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_can_convict_by_alone_the_fleet_convicts_together() {
    let fleet = Fleet::start(Plan::new("60s")).await;
    fleet.b.set(failing());
    // Four in a row would open a breaker; two nodes meet two each, and the third none.
    for node in &fleet.nodes[..2] {
        meet(node, 2).await;
    }
    for node in &fleet.nodes {
        until("b is out for the fleet", async || is_out(node).await).await;
        let view = node.explain(B).await;
        assert_eq!(view["local"]["state"], "closed", "its own breaker had too little: {view}");
        let votes = view["votes"].as_array().unwrap();
        assert!(votes.iter().all(|vote| vote["basis"] == "seconded"), "{view}");
    }
    let first = &fleet.nodes[0];
    until("the windows are told no more", async || {
        first.explain(B).await["windows"].as_array().unwrap().is_empty()
    })
    .await;
    // Seconded votes weigh as much as their witnesses; what was opened by them stays so until it recovers.
    let view = first.explain(B).await;
    assert_eq!(view["cluster"]["state"], "open", "{view}");
    let votes = view["votes"].as_array().unwrap();
    assert!(!votes.is_empty() && votes.iter().all(|vote| vote["weight"] == "no_witness"), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_alone_has_met_convicts_nothing() {
    let fleet = Fleet::start(Plan::new("60s")).await;
    fleet.b.set(failing());
    until("the breaker of the first opens", async || {
        assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK);
        fleet.nodes[0].explain(B).await["local"]["state"] == "open"
    })
    .await;
    for node in &fleet.nodes {
        until("the vote is known", async || node.explain(B).await["cluster"]["votes_counted"] == 1)
            .await;
        assert!(!is_out(node).await, "one witness is none");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canaries_of_the_whole_fleet_are_one_at_a_time_and_as_many_as_the_rule_says() {
    let breaker = "half_open: { successes: 4, share: 1.0 }";
    let fleet = Fleet::start(Plan { breaker, ..Plan::new("3s") }).await;
    fleet.convict(&[0, 1]).await;
    for node in &fleet.nodes {
        until("b is out everywhere", async || is_out(node).await).await;
    }
    until("b is left alone", async || fleet.b.counts().in_flight == 0).await;
    // Slow enough to overlap if two were let through, and within every limit.
    fleet.b.set(Behaviour { latency_ms: Some(150), ..Behaviour::default() });
    let before = fleet.b.counts();
    let most = std::sync::atomic::AtomicU64::new(0);
    let watch = async {
        loop {
            let in_flight = fleet.b.counts().in_flight;
            // What was seen counts if nobody had let go by then: on the ramp many are let in.
            for node in &fleet.nodes {
                if !is_out(node).await {
                    return std::future::pending().await;
                }
            }
            most.fetch_max(in_flight, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let traffic = async {
        loop {
            let calls = fleet.nodes.iter().flat_map(|node| (0..4).map(|_| node.chat()));
            join_all(calls).await;
        }
    };
    let counted = async {
        until("the incident is over on some node", async || {
            let mut any = false;
            for node in &fleet.nodes {
                any |= !is_out(node).await;
            }
            any
        })
        .await;
        fleet.b.counts()
    };
    let after = tokio::select! {
        after = counted => after,
        () = watch => unreachable!(),
        () = traffic => unreachable!(),
    };
    assert_eq!(after.probes - before.probes, 1, "probes");
    assert_eq!(most.load(std::sync::atomic::Ordering::Relaxed), 1, "at b at the same time");
    let canaries = after.requests - before.requests - 1;
    // What the ramp lets in between the closing and the count is a few requests at most.
    assert!((4..=12).contains(&canaries), "{canaries} canaries");
    for node in &fleet.nodes {
        until("b is in", async || is_in(node).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_probe_the_fleet_begins_with_its_clients_small_requests() {
    let breaker = "half_open: { successes: 3, share: 1.0 }";
    let plan = Plan { breaker, probe: "enabled: false", ..Plan::new("3s") };
    let fleet = Fleet::start(plan).await;
    fleet.convict(&[0, 1]).await;
    fleet.b.set(Behaviour::default());
    until("b is left alone", async || fleet.b.counts().in_flight == 0).await;
    let before = fleet.b.counts();
    until("b is back everywhere", async || {
        let mut all = true;
        for node in &fleet.nodes {
            assert_eq!(node.chat().await, StatusCode::OK);
            all &= is_in(node).await;
        }
        all
    })
    .await;
    let after = fleet.b.counts();
    assert_eq!((after.probes, after.canaries), (before.probes, before.canaries), "none of its own");
    assert!(after.requests >= before.requests + 3, "the clients' requests were the canaries");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_opening_ends_everywhere_when_its_time_has_passed_and_nobody_probes() {
    let breaker = "recovery: lazy";
    let fleet = Fleet::start(Plan { breaker, ..Plan::new("60s, ttl: 4s") }).await;
    fleet.convict(&[0, 1]).await;
    let opened = Instant::now();
    fleet.b.set(Behaviour::default());
    let before = fleet.b.counts();
    for node in &fleet.nodes {
        until("b is out", async || is_out(node).await).await;
    }
    for node in &fleet.nodes {
        until("b is back", async || is_in(node).await).await;
    }
    let took = opened.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(7)).contains(&took), "{took:?}");
    assert_eq!(fleet.b.counts().probes, before.probes, "probes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_shows_its_vote_and_takes_nothing_out() {
    let fleet = Fleet::start(Plan { breaker: "mode: shadow", ..Plan::new("60s") }).await;
    fleet.b.set(failing());
    for node in &fleet.nodes[..2] {
        until("the shadow opens", async || {
            assert_eq!(node.chat().await, StatusCode::OK);
            node.explain(B).await["local"]["state"] == "open"
        })
        .await;
    }
    let third = &fleet.nodes[2];
    for voter in ["gw-1", "gw-2"] {
        until("its vote is shown", async || {
            of(&third.explain(B).await["votes"], "voter", voter)["weight"] == "shadow"
        })
        .await;
    }
    let view = third.explain(B).await;
    assert_eq!(view["cluster"]["votes_counted"], 0, "{view}");
    assert!(!is_out(third).await);
    let before = fleet.b.counts().requests;
    for _ in 0..30 {
        assert_eq!(fleet.nodes[0].chat().await, StatusCode::OK);
    }
    assert!(fleet.b.counts().requests > before, "a shadow reroutes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_a_node_whose_own_network_fails_suspects_itself_and_abstains() {
    // Nothing listens where the first node looks for the endpoints.
    let (near_a, near_b) = (closed_port().await, closed_port().await);
    let a_for = |index: usize, address| if index == 0 { near_a } else { address };
    let b_for = |index: usize, address| if index == 0 { near_b } else { address };
    let plan = Plan { a_for: &a_for, b_for: &b_for, has_second_pool: true, ..Plan::new("60s") };
    let fleet = Fleet::start(plan).await;
    until("the first node suspects itself", async || {
        for model in ["m", "n"] {
            fleet.nodes[0].chat_for(model).await;
        }
        fleet.nodes[0].look("/readyz").await["suspect"] == true
    })
    .await;
    for node in &fleet.nodes[1..] {
        until("the others know", async || {
            let members = node.look("/admin/v1/members").await;
            of(&members["members"], "id", "gw-1")["state"] == "suspect"
        })
        .await;
        for endpoint in ["m/a", "m/b", "n/c"] {
            let view = node.explain(endpoint).await;
            assert_eq!(view["cluster"]["votes_counted"], 0, "{view}");
            assert_eq!(view["cluster"]["state"], "closed");
        }
        assert_eq!(node.chat().await, StatusCode::OK);
        let metrics = node.text("/metrics").await;
        assert!(metrics.contains("quorumgate_node_suspect{node=\"gw-1\"} 1"), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_take_no_more_of_a_pool_than_the_cap_allows() {
    let plan = Plan { quorum: "max_open_share: 0.5", ..Plan::new("60s") };
    let fleet = Fleet::start(plan).await;
    for mock in [&fleet.a, &fleet.b] {
        mock.set(failing());
    }
    until("one is out for the fleet", async || {
        for node in &fleet.nodes {
            node.chat().await;
        }
        is_out(&fleet.nodes[0]).await
            || fleet.nodes[0].explain("m/a").await["cluster"]["state"] == "open"
    })
    .await;
    let out_on = async |node: &Gateway| {
        let mut out = Vec::new();
        for endpoint in ["m/a", "m/b"] {
            if node.explain(endpoint).await["cluster"]["state"] == "open" {
                out.push(endpoint);
            }
        }
        out
    };
    // Both have a majority against them by now or soon; only one goes.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        for node in &fleet.nodes {
            node.chat().await;
            assert!(out_on(node).await.len() <= 1, "more than half of the pool is out");
        }
    }
    let first = out_on(&fleet.nodes[0]).await;
    assert_eq!(first.len(), 1);
    for node in &fleet.nodes {
        assert_eq!(out_on(node).await, first, "{}", node.name);
    }
}
