//! A fleet of processes whose members come and go by signals and by orders, at the cost of no request.
//!
//! `QUORUMGATE_ROLLS` says how many times the five are restarted one after the other; once by default.
//! `QUORUMGATE_OLDER` names the binary of an earlier version, see `rolling/upgrade.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "rolling/load.rs"]
mod load;
#[path = "process/mod.rs"]
mod process;
#[path = "rolling/town.rs"]
mod town;
#[path = "rolling/upgrade.rs"]
mod upgrade;

use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::{Method, StatusCode};
use serde_json::json;

use crate::fleet::{B, Fleet, Plan, is_in};
use crate::load::Load;
use crate::process::{Gateway, call, until};
use crate::town::{Town, news, order, seen};

/// Clients with HTTP/1.1, and as many with HTTP/2.
const CLIENTS: usize = 6;

fn rolls() -> usize {
    std::env::var("QUORUMGATE_ROLLS").ok().and_then(|rolls| rolls.parse().ok()).unwrap_or(1)
}

/// Restarts one node under load. Returns how long it took to go, and until the others no longer
/// counted it.
async fn restart(town: &mut Town, load: &Load, index: usize) -> (Duration, Duration) {
    let others: Vec<usize> = (0..town.nodes.len()).filter(|other| *other != index).collect();
    let (witness, name) = (town.nodes[others[0]].operators, town.nodes[index].name.clone());
    let (before, life) = seen(witness, &name).await.unwrap();
    assert_eq!(before, "live");
    let (_, since) = news(witness, "0").await;
    let began = Instant::now();
    town.nodes[index].signal("TERM");
    let size = town.nodes.len() as u64;
    until("the electorate shrinks", async || town.electorate(others[1]).await == size - 1).await;
    let shrank = began.elapsed();
    let code = tokio::task::block_in_place(|| town.nodes[index].wait());
    let took = began.elapsed();
    assert_eq!(code, Some(0), "{name}: {:?}", town.nodes[index].log());
    let (changes, _) = news(witness, &since).await;
    let of_it = |(member, state): (String, String)| (member == name).then_some(state);
    let states: Vec<String> = changes.into_iter().filter_map(of_it).collect();
    assert_eq!(states, ["draining", "left"], "{name} as others saw it");

    let seed = town.nodes[others[0]].gossip;
    town.nodes[index] = town.raise(index + 1, seed);
    load.moves(index, town.nodes[index].clients, town.nodes[index].operators);
    town.is_whole(town.nodes.len()).await;
    let (after, next) = seen(witness, &name).await.unwrap();
    assert!(after == "live" && next > life, "{after}, {next} after {life}");
    (took, shrank)
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_a_rolling_restart_of_five_loses_no_request_and_cuts_no_stream() {
    let mut town = Town::start(5, "1500ms").await;
    let places = town.nodes.iter().map(|node| (node.clients, node.operators)).collect();
    let load = Load::on(places, CLIENTS).await;
    let (mut took_max, mut shrank_max) = (Duration::ZERO, Duration::ZERO);
    let count = rolls() * town.nodes.len();
    for number in 0..count {
        let (took, shrank) = restart(&mut town, &load, number % 5).await;
        took_max = took_max.max(took);
        shrank_max = shrank_max.max(shrank);
    }
    let tally = load.stop().await;
    eprintln!(
        "{count} restarts: {} answers, {} streams, {} refused by who was not ready, {} failures; \
         slowest to go {took_max:?}, slowest to be counted out {shrank_max:?}",
        tally.plain,
        tally.streams,
        tally.refused,
        tally.failures.len()
    );
    assert_eq!(tally.failures, [""; 0]);
    assert!(tally.plain > 20 * count && tally.streams > 5 * count, "hardly any load: {tally:?}");
    assert!(shrank_max < Duration::from_secs(3), "{shrank_max:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_go_and_come_by_orders_to_any_node() {
    let mut town = Town::start(4, "200ms").await;
    let reason = r#"{"reason": "new disk"}"#;
    // Drained by way of another node: out of traffic, and still a member.
    let (status, said) = order(&town.nodes[0], "members/gw-4/drain", reason).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    assert_eq!(said, json!({ "member": "gw-4", "order": "drain", "reason": "new disk" }));
    until("gw-4 has drained", async || {
        let (status, body) =
            call(town.nodes[3].operators, Method::GET, "/readyz", &[], "").await.unwrap();
        status == StatusCode::SERVICE_UNAVAILABLE && body.contains("\"drained\":true")
    })
    .await;
    assert!(tokio::net::TcpStream::connect(town.nodes[3].clients).await.is_err());
    assert_eq!(seen(town.nodes[1].operators, "gw-4").await.unwrap().0, "draining");
    assert_eq!(town.electorate(1).await, 4);
    // And asked to leave by way of a third.
    let (status, said) = order(&town.nodes[2], "members/gw-4/leave", "").await;
    assert_eq!((status, &said["order"]), (StatusCode::OK, &json!("leave")));
    until("it no longer counts", async || town.electorate(1).await == 3).await;
    assert_eq!(seen(town.nodes[1].operators, "gw-4").await.unwrap().0, "left");
    until("it knows it", async || seen(town.nodes[3].operators, "gw-4").await.unwrap().0 == "left")
        .await;
    let (status, said) = order(&town.nodes[3], "members/gw-1/drain", "").await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::CONFLICT, &json!("has_left")));
    let mut gone = town.nodes.pop().unwrap();
    gone.signal("INT");
    assert_eq!(tokio::task::block_in_place(|| gone.wait()), Some(0));

    // One is killed; all forget it at the word of one.
    let (status, said) = order(&town.nodes[0], "members/gw-3/forget", "").await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::CONFLICT, &json!("not_lost")));
    town.nodes.pop().unwrap().kill();
    until("gw-3 is lost", async || {
        seen(town.nodes[0].operators, "gw-3").await.unwrap().0 == "lost"
    })
    .await;
    let (status, _) = order(&town.nodes[0], "members/gw-3/drain", "").await;
    assert_eq!(status, StatusCode::CONFLICT, "nothing reaches who is lost");
    let (status, _) = order(&town.nodes[0], "members/gw-3/forget", "").await;
    assert_eq!(status, StatusCode::OK);
    until("both forget", async || town.electorate(0).await == 2 && town.electorate(1).await == 2)
        .await;

    // One that knows nobody is told of a seed.
    let alone = town.raise(5, None);
    assert_eq!(alone.look("/admin/v1/cluster").await["electorate"], 1);
    let seed = town.nodes[1].gossip.unwrap().to_string();
    let (status, said) = order(&alone, "join", &json!({ "seeds": [seed] }).to_string()).await;
    assert_eq!((status, said), (StatusCode::OK, json!({ "seeds": [seed] })));
    town.nodes.push(alone);
    town.is_whole(3).await;
}

/// The node that leads the recovery of `b`, or holds its canary slot, as the first node sees it.
async fn pointed_at(fleet: &Fleet, pointer: &str) -> Option<usize> {
    for node in &fleet.nodes {
        let view = node.explain(B).await;
        if let Some(name) = view.pointer(pointer).and_then(|name| name.as_str()) {
            return fleet.nodes.iter().position(|node| node.name == name);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drains_hands_on_the_recoveries_that_it_leads() {
    let fleet = Fleet::start(Plan::new("4s")).await;
    fleet.convict(&[0, 1, 2]).await;
    fleet.b.set(Behaviour::default());
    let steward = fleet.steward().await;
    let asked = &fleet.nodes[(steward + 1) % 3];
    let path = format!("members/{}/drain", fleet.nodes[steward].name);
    assert_eq!(order(asked, &path, "").await.0, StatusCode::OK);
    until("another leads", async || {
        pointed_at(&fleet, "/cluster/steward").await.is_some_and(|next| next != steward)
    })
    .await;
    until("b is probed", async || fleet.b.counts().probes > 0).await;
    let probed = |node: &Gateway| node.log().iter().any(|line| line.contains("has probed"));
    until("one says so", async || fleet.nodes.iter().any(probed)).await;
    assert_eq!(fleet.b.counts().probes, 1, "probes");
    assert!(!probed(&fleet.nodes[steward]), "who drains has probed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drains_hands_on_the_canary_slot() {
    let fleet = Fleet::start(Plan::new("2s")).await;
    fleet.convict(&[0, 1, 2]).await;
    fleet.b.set(Behaviour::default());
    let holds =
        |node: &Gateway| node.log().iter().any(|line| line.contains("holds the canary slot"));
    let holder = || fleet.nodes.iter().position(holds);
    until("one holds the slot", async || holder().is_some()).await;
    let first = holder().unwrap();
    let path = format!("members/{}/leave", fleet.nodes[first].name);
    assert_eq!(order(&fleet.nodes[(first + 1) % 3], &path, "").await.0, StatusCode::OK);
    let others: Vec<&Gateway> = fleet.nodes.iter().filter(|node| !holds(node)).collect();
    until("another holds it", async || others.iter().any(|node| holds(node))).await;
    until("b is back", async || is_in(others[0]).await && is_in(others[1]).await).await;
    assert_eq!(fleet.b.counts().probes, 1, "probes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_drain_at_once_and_says_so() {
    for (first, second, code) in [("TERM", "TERM", 143), ("INT", "INT", 130)] {
        let mut town = Town::start(1, "100ms").await;
        let endless = Behaviour { stall_after_tokens: Some(3), ..Behaviour::default() };
        town.mocks.iter().for_each(|mock| mock.set(endless.clone()));
        let (address, body) = (town.nodes[0].clients, process::chat_body(true));
        let stream = tokio::spawn(async move {
            call(address, Method::POST, process::CHAT, &[], &body).await.unwrap()
        });
        until("a stream flows", async || town.mocks.iter().any(|mock| mock.counts().in_flight > 0))
            .await;
        town.nodes[0].signal(first);
        until("it drains", async || tokio::net::TcpStream::connect(address).await.is_err()).await;
        assert!(!stream.is_finished());
        let began = Instant::now();
        town.nodes[0].signal(second);
        let ended = tokio::task::block_in_place(|| town.nodes[0].wait());
        assert_eq!(ended, Some(code), "{second}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        stream.abort();
    }
}
