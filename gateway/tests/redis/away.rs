//! Redis goes, comes back, and forgets: what stood goes on to stand, and nothing closes by it.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{all_are, all_see, figure, fleet, flips, kept, redis_of};
use crate::fleet::B;
use crate::process::{BINARY, Gateway, TOKEN, until};
use crate::servers::Standalone;

/// Within this all nodes know that Redis is gone: a second, and what a busy machine takes.
const KNOWN_MAX: Duration = Duration::from_secs(2);

/// What follows events is cut off after this.
const PATIENCE_SECONDS: &str = "4";

#[tokio::test]
async fn r02_without_redis_the_gossip_majority_flips_and_redis_learns_of_it_later() {
    let mut server = Standalone::start();
    let fleet = fleet(&server, "60s", "").await;
    server.server.kill();
    let killed = Instant::now();
    all_are(&fleet, "away").await;
    assert!(killed.elapsed() < KNOWN_MAX, "{:?}", killed.elapsed());
    let told = redis_of(&fleet.nodes[0]).await;
    assert_eq!((&told["up"], &told["fallback"]), (&false.into(), &"gossip".into()), "{told}");
    let ready = fleet.nodes[0].look("/readyz").await;
    assert!(ready["ready"] == true && ready.to_string().contains("redis_away"), "{ready}");

    let table = asked(&fleet.nodes[0], &["cluster"]);
    assert!(table.contains("redis") && table.contains("Redis is away"), "{table}");
    let events = asked(&fleet.nodes[0], &["events", "--since", "0"]);
    assert!(events.contains("the fleet decides through Redis"), "{events}");
    assert!(
        events.contains(&format!("Redis is away (127.0.0.1:{}", server.server.port)),
        "{events}"
    );
    assert!(events.contains("by the gossip majority meanwhile"), "{events}");

    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    let view = fleet.nodes[2].explain(B).await;
    assert!(view["notes"].to_string().contains("by the gossip majority meanwhile"), "{view}");

    // It comes back and knows nothing.
    server.server.restart();
    all_are(&fleet, "up").await;
    until("Redis is told", async || !kept(&server, "step").is_empty()).await;
    stays_out(&fleet).await;
    for node in &fleet.nodes {
        assert!(figure(node, "redis_fallback_seconds_total").await >= 1, "{}", node.name);
        assert_eq!(figure(node, "redis_up").await, 1, "{}", node.name);
    }
}

#[tokio::test]
async fn r05_a_redis_that_forgets_closes_nothing_and_is_told_anew() {
    let server = Standalone::start();
    let fleet = fleet(&server, "60s", "").await;
    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    let version: u64 = kept(&server, "version").parse().unwrap();
    server.server.cli(&["FLUSHALL"]);
    until("Redis is told anew", async || !kept(&server, "step").is_empty()).await;
    let again: u64 = kept(&server, "version").parse().unwrap();
    assert!(again > version, "no number comes twice: {again} after {version}");
    stays_out(&fleet).await;
}

/// What the command line says of a node; what follows without end is cut off.
fn asked(node: &Gateway, words: &[&str]) -> String {
    let command = Command::new("timeout")
        .args([PATIENCE_SECONDS, BINARY])
        .args(words)
        .args(["--admin", &node.operators.to_string()])
        .env("QUORUMGATE_TOKEN", TOKEN)
        .output();
    String::from_utf8(command.unwrap().stdout).unwrap()
}

/// Once Redis knows of it again, `b` is out everywhere and was so without a break.
async fn stays_out(fleet: &crate::fleet::Fleet) {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        for node in &fleet.nodes {
            assert_eq!(node.explain(B).await["cluster"]["state"], "open", "{}", node.name);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for node in &fleet.nodes {
        let counts = (flips(node, "open").await, flips(node, "close").await);
        assert_eq!(counts, (1, 0), "{}", node.name);
    }
}

#[tokio::test]
async fn an_entry_that_somebody_spoiled_is_as_bad_as_no_redis_until_it_is_mended() {
    let server = Standalone::start();
    let fleet = fleet(&server, "60s", "").await;
    server.server.cli(&["DEL", "quorumgate{m/b}:state"]);
    server.server.cli(&["SET", "quorumgate{m/b}:state", "somebody's"]);
    all_are(&fleet, "away").await;
    let told = redis_of(&fleet.nodes[0]).await;
    assert_eq!([&told["trouble"], &told["entry"]], ["WRONGTYPE", B], "{told}");
    fleet.convict(&[0, 1]).await;
    all_see(&fleet, "open").await;
    server.server.cli(&["DEL", "quorumgate{m/b}:state"]);
    all_are(&fleet, "up").await;
    until("Redis is told", async || !kept(&server, "step").is_empty()).await;
}
