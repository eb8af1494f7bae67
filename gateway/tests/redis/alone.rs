//! What else may decide while Redis is away: each node alone, or nobody.

use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{all_are, figure, fleet, redis_of};
use crate::fleet::{B, is_out, join_all};
use crate::process::{self, CHAT, Gateway, TOKEN, call, chat_body, until};
use crate::servers::Standalone;

#[tokio::test]
async fn by_local_each_node_is_alone_while_redis_is_away() {
    let mut server = Standalone::start();
    let fleet = fleet(&server, "60s", ", on_unavailable: local").await;
    fleet.convict(&[0, 1]).await;
    until("the third has it out", async || is_out(&fleet.nodes[2]).await).await;
    server.server.kill();
    all_are(&fleet, "away").await;
    for node in &fleet.nodes {
        until("the fleet's opening is let go of", async || !is_out(node).await).await;
    }
    // As on a node that is cut off it comes back step by step, and where requests fail it goes.
    for node in &fleet.nodes[..2] {
        let is_out_here = until("its own breaker has it out", async || {
            let verdict = node.explain(B).await["verdict"].to_string();
            verdict.contains("Redis is away, and each node goes by its own breaker")
        });
        tokio::select! {
            () = is_out_here => {}
            () = traffic_of(node) => {}
        }
    }
    let third = fleet.nodes[2].explain(B).await;
    assert_eq!(third["in_rotation"], true, "two of three are no majority here: {third}");
    server.server.restart();
    all_are(&fleet, "up").await;
    until("the fleet has it out again", async || is_out(&fleet.nodes[2]).await).await;
}

/// Requests of clients at a node, without end.
async fn traffic_of(node: &Gateway) {
    loop {
        join_all((0..4).map(|_| node.chat())).await;
    }
}

/// A node of a fleet of one whose Redis is to be at `port`.
fn lone(directory: &std::path::Path, port: u16, endpoint: std::net::SocketAddr) -> Gateway {
    let head = process::member_head(directory, "gw-1", None);
    let rows = process::endpoint_rows(&[("a", endpoint)]);
    let yaml = format!(
        "{head}  backend: redis
redis: {{ urls: [\"redis://127.0.0.1:{port}\"], on_unavailable: fail_closed }}
models:
  - name: m
    endpoints:
{rows}"
    );
    Gateway::serve(directory, "gw-1", &yaml)
}

#[tokio::test]
async fn r01_f21_who_fails_closed_starts_without_redis_and_refuses_until_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    gossip::certs::throw_away(directory.path(), &["gw-1"]).unwrap();
    let (address, mock) = process::mock("a").await;
    let mut server = Standalone::start();
    server.server.kill();
    let node = lone(directory.path(), server.server.port, address);
    for path in [CHAT, "/v1/messages"] {
        let answer = call(node.clients, Method::POST, path, &[], &chat_body(false)).await;
        let (status, body) = answer.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["code"], "state_unavailable");
    }
    assert_eq!(mock.counts().requests, 0, "nothing was sent");
    let looked = call(node.clients, Method::GET, "/v1/models", &[], "").await.unwrap();
    assert_eq!(looked.0, StatusCode::OK, "to look is no request for a model");
    assert_eq!(figure(&node, "redis_up").await, 0);
    let rejects = "admission_rejects_total{reason=\"state_unavailable\"}";
    assert_eq!(figure(&node, rejects).await, 2);
    let ready = call(node.operators, Method::GET, "/readyz", &[], "").await.unwrap();
    assert!(ready.0 == StatusCode::SERVICE_UNAVAILABLE && ready.1.contains("redis_away"));
    let health = call(node.operators, Method::GET, "/healthz", &[], "").await.unwrap();
    assert_eq!(health.0, StatusCode::OK);

    server.server.restart();
    until("requests are served", async || node.chat().await == StatusCode::OK).await;
    assert_eq!(redis_of(&node).await["state"], "up");
    let faults = node.explain("m/a").await["evidence"]["faults"].clone();
    assert_eq!(faults.as_f64(), Some(0.0), "what was refused is no endpoint's fault");
    server.server.kill();
    until("they are refused again", async || node.chat().await == StatusCode::SERVICE_UNAVAILABLE)
        .await;
}

#[tokio::test]
async fn who_fails_closed_serves_on_while_one_entry_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    gossip::certs::throw_away(directory.path(), &["gw-1"]).unwrap();
    let (address, _) = process::mock("a").await;
    let server = Standalone::start();
    let votes = "quorumgate{m/a}:votes";
    server.server.cli(&["SET", votes, "somebody's"]);
    let node = lone(directory.path(), server.server.port, address);
    until("requests are served", async || node.chat().await == StatusCode::OK).await;
    let told = redis_of(&node).await;
    assert_eq!(
        [&told["state"], &told["entry"], &told["fallback"]],
        ["away", "m/a", "local"],
        "{told}"
    );
    let wanted = "the entry of m/a cannot be used (read: WRONGTYPE)";
    assert!(told["sentence"].as_str().unwrap().starts_with(wanted), "{told}");
    assert_eq!((figure(&node, "redis_up").await, node.chat().await), (0, StatusCode::OK));
    server.server.cli(&["DEL", votes]);
    until("Redis decides", async || redis_of(&node).await["state"] == "up").await;

    // What Redis does is no affair of a node that has left.
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let leave = "/admin/v1/members/gw-1/leave";
    let answer = call(node.operators, Method::POST, leave, &headers, "").await.unwrap();
    assert!(answer.0.is_success(), "{answer:?}");
    until("it has left", async || redis_of(&node).await.is_null()).await;
}
