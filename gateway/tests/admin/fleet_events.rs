//! What a fleet does is told on each of its nodes: votes, flips, probes, canaries, members.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::desk::Ask;
use crate::fleet::{Fleet, Plan};
use crate::process::{Gateway, until};

async fn kept(node: &Gateway) -> Vec<Value> {
    let text = node.text("/admin/v1/events?since=0&until=now").await;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Whether the node has told something of this kind about this member or endpoint.
fn told(events: &[Value], kind: &str, node: &str, detail: (&str, &str)) -> bool {
    events.iter().any(|event| {
        event["kind"] == kind && event["node"] == node && event["detail"][detail.0] == detail.1
    })
}

#[tokio::test]
async fn what_the_fleet_does_is_told_on_every_node() {
    let mut fleet = Fleet::start(Plan::new("1s")).await;
    fleet.convict(&[0, 1]).await;
    for node in &fleet.nodes {
        let name = node.name.as_str();
        until("the flip is told", async || {
            let events = kept(node).await;
            let votes: BTreeSet<&str> = events
                .iter()
                .filter(|event| event["kind"] == "vote" && event["detail"]["state"] == "stands")
                .filter_map(|event| event["node"].as_str())
                .collect();
            votes.contains("gw-1")
                && votes.contains("gw-2")
                && told(&events, "flip", name, ("direction", "open"))
        })
        .await;
        let events = kept(node).await;
        for member in ["gw-1", "gw-2", "gw-3"] {
            assert!(told(&events, "member", member, ("state", "live")), "{member}: {events:?}");
        }
    }
    fleet.b.set(gateway::mock::Behaviour::default());
    until("a probe that passed and the return are told", async || {
        let mut has_passed = false;
        for node in &fleet.nodes {
            has_passed |= told(&kept(node).await, "probe", &node.name, ("result", "passed"));
        }
        let all_back = async |node: &Gateway| {
            told(&kept(node).await, "flip", &node.name, ("direction", "close"))
        };
        has_passed && all_back(&fleet.nodes[0]).await && all_back(&fleet.nodes[2]).await
    })
    .await;
    let third = fleet.nodes.pop().unwrap();
    third.kill();
    until("the loss is told", async || {
        told(&kept(&fleet.nodes[0]).await, "member", "gw-3", ("state", "lost"))
    })
    .await;
    let order = r#"{"state":"force_closed","for":"1m","reason":"to be told"}"#;
    let ask = Ask::new("POST", "/admin/v1/endpoints/m/a/override").body(order);
    assert_eq!(ask.send_to(fleet.nodes[0].operators).await.status, 200);
    until("an order given elsewhere is told", async || {
        told(&kept(&fleet.nodes[1]).await, "override", "gw-2", ("state", "force_closed"))
    })
    .await;
}
