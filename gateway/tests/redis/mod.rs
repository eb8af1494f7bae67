//! What the tests of fleets in Redis have in common.

mod alone;
mod away;
mod decides;

use hyper::Method;
use serde_json::{Value, json};

use crate::fleet::{B, Fleet, Plan};
use crate::process::{Gateway, TOKEN, call, until};
use crate::servers::Standalone;

/// A fleet whose Redis is `server`, and which begins to recover after `base`.
async fn fleet(server: &Standalone, base: &str, more: &str) -> Fleet {
    let redis = format!("urls: [\"{}\"]{more}", server.url());
    let fleet = Fleet::start(Plan { redis: &redis, ..Plan::new(base) }).await;
    all_are(&fleet, "up").await;
    fleet
}

/// Waits until Redis is so for every node.
async fn all_are(fleet: &Fleet, state: &str) {
    for node in &fleet.nodes {
        until(&format!("Redis is {state} for {}", node.name), async || {
            redis_of(node).await["state"] == state
        })
        .await;
    }
}

/// How a node stands with its Redis.
async fn redis_of(node: &Gateway) -> Value {
    node.look("/admin/v1/cluster").await["redis"].clone()
}

/// Waits until every node has `b` out, or in, by the fleet's verdict.
async fn all_see(fleet: &Fleet, state: &str) {
    for node in &fleet.nodes {
        until(&format!("b is {state} on {}", node.name), async || {
            node.explain(B).await["cluster"]["state"] == state
        })
        .await;
    }
}

/// How often a node saw the fleet flip an endpoint in this direction.
async fn flips(node: &Gateway, direction: &str) -> u64 {
    figure(node, &format!("cluster_flips_total{{direction=\"{direction}\"}}")).await
}

/// A whole figure of the page of metrics.
async fn figure(node: &Gateway, series: &str) -> u64 {
    let page = node.text("/metrics").await;
    let begin = format!("quorumgate_{series} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&begin));
    value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
}

/// Gives a node an order about `b`.
async fn order(node: &Gateway, forced: &str) {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let path = format!("/admin/v1/endpoints/{B}/override");
    let body = match forced {
        "auto" => json!({ "state": forced }),
        _ => json!({ "state": forced, "for": "10m", "reason": "a test" }),
    };
    let body = body.to_string();
    let answer = call(node.operators, Method::POST, &path, &headers, &body).await;
    let (status, body) = answer.unwrap();
    assert!(status.is_success(), "{status} {body}");
}

/// A field of the entry of `b` in the ledger; empty if there is none.
fn kept(server: &Standalone, field: &str) -> String {
    server.server.cli(&["HGET", "quorumgate{m/b}:state", field])
}
