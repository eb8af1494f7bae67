//! While Redis is there: it decides, one probe ends what it decided, and orders go through it.

use gateway::mock::Behaviour;

use super::{all_see, fleet, flips, kept, order};
use crate::fleet::{B, is_in};
use crate::process::until;
use crate::servers::Standalone;

#[tokio::test]
async fn a_fleet_flips_and_recovers_through_redis_by_one_probe() {
    let server = Standalone::start();
    let fleet = fleet(&server, "2s", "").await;
    assert_eq!(kept(&server, "step"), "", "nothing is held against it");
    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    assert_ne!(kept(&server, "step"), "", "the verdict stands in Redis");
    for node in &fleet.nodes {
        assert_eq!(flips(node, "open").await, 1, "{}", node.name);
        let view = node.explain(B).await;
        let notes = view["notes"].to_string();
        assert!(notes.contains("the fleet decides through Redis"), "{notes}");
    }
    fleet.b.set(Behaviour::default());
    let before = fleet.b.counts().probes;
    for node in &fleet.nodes {
        until("b is in again", async || {
            // Small requests for the canary slot, wherever it is.
            node.chat().await;
            is_in(node).await
        })
        .await;
    }
    let probes = fleet.b.counts().probes - before;
    assert_eq!(probes, 1, "one probe for the whole fleet");
    for node in &fleet.nodes {
        let counts = (flips(node, "open").await, flips(node, "close").await);
        assert_eq!(counts, (1, 1), "{}", node.name);
        let page = node.text("/metrics").await;
        let failed = |line: &&str| line.contains("redis_errors_total{") && !line.ends_with(" 0");
        // A busy machine may be late; nothing else may be wrong.
        let late = |line: &str| line.contains("\"timeout\"") || line.contains("\"away\"");
        let odd = page.lines().filter(failed).filter(|line| !late(line));
        assert_eq!(odd.collect::<Vec<_>>(), Vec::<&str>::new(), "{}", node.name);
    }
}

#[tokio::test]
async fn an_order_goes_through_redis_to_whoever_comes_later() {
    let server = Standalone::start();
    let mut fleet = fleet(&server, "60s", "").await;
    order(&fleet.nodes[0], "force_open").await;
    for node in &fleet.nodes {
        until("the order holds", async || node.explain(B).await["forced"] == "force_open").await;
    }
    until("it stands in Redis", async || !kept(&server, "order").is_empty()).await;
    // Whoever was away hears of it there, too.
    fleet.nodes.pop().unwrap().kill();
    let third = fleet.restart_third();
    until("the order holds", async || third.explain(B).await["forced"] == "force_open").await;
    fleet.nodes.push(third);
    order(&fleet.nodes[1], "auto").await;
    for node in &fleet.nodes {
        until("it is over", async || node.explain(B).await["forced"] == "auto").await;
    }
}

#[tokio::test]
async fn who_leaves_takes_back_its_word() {
    let server = Standalone::start();
    let mut fleet = fleet(&server, "60s", "").await;
    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    let word = || server.server.cli(&["HGET", "quorumgate{m/b}:votes", "gw-1"]);
    // No vote, no witness, no opening: the fields as redis-lua/lua/words.lua has them.
    let is_empty = |word: &str| {
        let fields: Vec<&str> = word.split(' ').collect();
        matches!(fields.as_slice(), [_, _, _, _, _, "*", "0", _, "*"])
    };
    until("it has said something", async || {
        let word = word();
        !word.is_empty() && !is_empty(&word)
    })
    .await;
    let mut first = fleet.nodes.remove(0);
    first.signal("TERM");
    until("it has taken that back", async || is_empty(&word())).await;
    assert_eq!(first.wait(), Some(0));
    all_see(&fleet, "open").await;
}
