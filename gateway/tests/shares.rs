//! Limits that a fleet shares, by real processes: what three nodes admit together.

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

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::fleet::{Fleet, Plan};
use crate::process::{CHAT, Gateway, call, chat_body, until};

/// A fleet of which every node holds its part.
async fn sharing(limits: &str) -> Fleet {
    let fleet = Fleet::start(Plan { model: limits, ..Plan::new("60s") }).await;
    for (rank, node) in fleet.nodes.iter().enumerate() {
        until("the node holds its part", async || share(node).await == part(rank, 3)).await;
    }
    fleet
}

fn part(rank: usize, among: usize) -> serde_json::Value {
    json!({ "rank": rank, "among": among })
}

async fn share(node: &Gateway) -> serde_json::Value {
    node.look("/admin/v1/cluster").await["limit_share"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn f22_three_nodes_together_admit_no_more_than_the_limit() {
    let fleet = sharing("limits: { rpm: 12 }").await;
    let mut told = Vec::new();
    for _ in 0..12 {
        for node in &fleet.nodes {
            told.push(node.chat().await);
        }
    }
    let count = |status| told.iter().filter(|one| **one == status).count();
    assert_eq!(count(StatusCode::OK), 12, "{told:?}");
    assert_eq!(count(StatusCode::TOO_MANY_REQUESTS), 24, "{told:?}");
    // What is refused tells this node's part, and of what it is one.
    let clients = fleet.nodes[0].clients;
    let refused = call(clients, Method::POST, CHAT, &[], &chat_body(false)).await.unwrap().1;
    let message =
        "The limit of 4 requests a minute of this model (this node's share of 12) is reached.";
    assert!(refused.contains(message), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_divide_is_not_lost_and_a_dead_nodes_part_is_not_handed_out_at_once() {
    let mut fleet = sharing("limits: { rpm: 10 }").await;
    let third = fleet.nodes.pop().unwrap();
    third.kill();
    for node in &fleet.nodes {
        until("the death is known", async || node.look("/admin/v1/cluster").await["live"] == 2)
            .await;
    }
    let mut admitted = Vec::new();
    for node in &fleet.nodes {
        let mut count = 0;
        for _ in 0..10 {
            count += usize::from(node.chat().await == StatusCode::OK);
        }
        admitted.push(count);
    }
    // Of 10 the first has 4; the third's 3 wait for the grace, and the first has them not twice.
    assert_eq!(admitted, [4, 3]);
    for (rank, node) in fleet.nodes.iter().enumerate() {
        assert_eq!(share(node).await, part(rank, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_and_comes_back_does_not_make_the_others_admit_more() {
    let mut fleet = sharing("limits: { rpm: 12 }").await;
    let mut third = fleet.nodes.pop().unwrap();
    third.signal("TERM");
    third.wait();
    for node in &fleet.nodes {
        until("the leave is known", async || node.look("/admin/v1/cluster").await["live"] == 2)
            .await;
    }
    for (rank, node) in fleet.nodes.iter().enumerate() {
        assert_eq!(share(node).await, part(rank, 3));
    }
    // Back, it holds no more from its first moment on, when it has met nobody yet.
    let third = fleet.restart_third();
    let mut count = 0;
    for _ in 0..12 {
        count += usize::from(third.chat().await == StatusCode::OK);
    }
    assert_eq!(count, 4);
}
