//! Without gossip: the members meet in Redis, and what they state travels by it.

use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::Method;
use serde_json::Value;

use super::{all_see, flips};
use crate::fleet::{B, Fleet, Plan, is_in, is_out};
use crate::process::{Gateway, TOKEN, call, until};
use crate::servers::Standalone;

/// A fleet that does not gossip.
async fn fleet(server: &Standalone, base: &str) -> Fleet {
    let redis = format!("urls: [\"{}\"], on_unavailable: local", server.url());
    Fleet::start(Plan { redis: &redis, has_gossip: false, ..Plan::new(base) }).await
}

/// The rows of all members, by one of them.
async fn rows(node: &Gateway) -> Vec<Value> {
    node.look("/admin/v1/members").await["members"].as_array().unwrap().clone()
}

/// How a member is, by another; empty if it is not known.
async fn state(node: &Gateway, member: &str) -> String {
    let rows = rows(node).await;
    let row = rows.iter().find(|row| row["id"] == member);
    row.map(|row| row["state"].as_str().unwrap().to_owned()).unwrap_or_default()
}

/// Asks something of a member by way of a node.
async fn ask(node: &Gateway, member: &str, verb: &str) {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let path = format!("/admin/v1/members/{member}/{verb}");
    let answer = call(node.operators, Method::POST, &path, &headers, "").await;
    let (status, body) = answer.unwrap();
    assert!(status.is_success(), "{verb} {member}: {status} {body}");
}

async fn electorate(node: &Gateway) -> u64 {
    node.look("/admin/v1/cluster").await["electorate"].as_u64().unwrap()
}

#[tokio::test]
async fn three_nodes_that_do_not_gossip_flip_and_recover() {
    let server = Standalone::start();
    let fleet = fleet(&server, "2s").await;
    for node in &fleet.nodes {
        assert_eq!(node.gossip, None);
        let others = rows(node).await.into_iter().filter(|row| row["self"] == false);
        assert!(
            others.clone().count() == 2
                && others.into_iter().all(|row| {
                    row["address"] == "redis"
                        && row["state"] == "live"
                        && !row["config_hash"].is_null()
                })
        );
    }
    fleet.convict(&[0, 1]).await;
    let decided = Instant::now();
    until("the third follows", async || is_out(&fleet.nodes[2]).await).await;
    assert!(decided.elapsed() < Duration::from_secs(2), "took {:?}", decided.elapsed());
    let view = fleet.nodes[2].explain(B).await;
    assert_eq!(view["local"]["state"], "closed", "an imposed opening is not its own");
    // Its own may stand beside them, seconded: the fleet's evidence is enough for that at times.
    let votes = view["votes"].as_array().unwrap();
    let first_hand = votes.iter().filter(|vote| vote["basis"] == "first_hand");
    assert_eq!(first_hand.count(), 2, "the votes themselves are heard: {view}");

    fleet.b.set(Behaviour::default());
    let before = fleet.b.counts().probes;
    for node in &fleet.nodes {
        until("b is in again", async || {
            node.chat().await;
            is_in(node).await
        })
        .await;
        assert!(flips(node, "open").await >= 1 && flips(node, "close").await >= 1);
    }
    assert!(fleet.b.counts().probes > before, "it came back by a probe");
}

#[tokio::test]
async fn members_that_do_not_gossip_come_and_go() {
    let server = Standalone::start();
    let mut fleet = fleet(&server, "60s").await;
    let generation = async |node: &Gateway| {
        let rows = rows(node).await;
        rows.iter().find(|row| row["id"] == "gw-3").unwrap()["generation"].as_u64().unwrap()
    };
    let first = generation(&fleet.nodes[0]).await;
    fleet.nodes.pop().unwrap().kill();
    let killed = Instant::now();
    until("it is lost", async || state(&fleet.nodes[0], "gw-3").await == "lost").await;
    assert!(killed.elapsed() < Duration::from_secs(10), "took {:?}", killed.elapsed());
    assert_eq!(electorate(&fleet.nodes[0]).await, 3, "and still counts");
    // It is one member again in its next life.
    let third = fleet.restart_third();
    until("it is back", async || {
        let is_next = generation(&fleet.nodes[1]).await > first;
        is_next && state(&fleet.nodes[1], "gw-3").await == "live"
    })
    .await;
    assert_eq!(rows(&fleet.nodes[1]).await.len(), 3);
    // From any node it is asked to drain, and then to leave.
    ask(&fleet.nodes[0], "gw-3", "drain").await;
    until("it drains", async || state(&fleet.nodes[1], "gw-3").await == "draining").await;
    ask(&fleet.nodes[1], "gw-3", "leave").await;
    until("it has left", async || state(&fleet.nodes[0], "gw-3").await == "left").await;
    drop(third);
}

#[tokio::test]
async fn while_redis_is_away_members_that_do_not_gossip_are_kept() {
    let mut server = Standalone::start();
    let fleet = fleet(&server, "60s").await;
    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    server.server.kill();
    for node in &fleet.nodes {
        until("nobody is heard", async || {
            let cluster = node.look("/admin/v1/cluster").await;
            cluster["live"] == 1 && cluster["electorate"] == 3 && cluster["can_decide"] == false
        })
        .await;
        assert!(!is_out(node).await, "the fleet's opening is let go of");
    }
    // An empty Redis is all that comes back: words and rows are written anew.
    server.server.restart();
    for node in &fleet.nodes {
        until("all are heard", async || {
            let cluster = node.look("/admin/v1/cluster").await;
            cluster["live"] == 3 && cluster["can_decide"] == true
        })
        .await;
    }
    fleet.convict(&[0, 1]).await;
    until("the third follows again", async || is_out(&fleet.nodes[2]).await).await;
}
