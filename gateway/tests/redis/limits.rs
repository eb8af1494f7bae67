//! Limits of a fleet that decides in Redis: what three nodes admit together, to the request.

use std::path::Path;
use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::{Method, StatusCode};

use super::{all_are, figure, redis_of};
use crate::fleet::{Fleet, Plan, join_all};
use crate::process::{self, CHAT, Gateway, call, chat_body, until};
use crate::servers::Standalone;

const MINUTE: &str = "quorumgate{limit/model/m}:minute";
const SLOTS: &str = "quorumgate{limit/model/m}:slots";

async fn limited(server: &Standalone, limits: &str) -> Fleet {
    let redis = format!("urls: [\"{}\"]", server.url());
    let model = format!("limits: {limits}");
    let fleet = Fleet::start(Plan { redis: &redis, model: &model, ..Plan::new("60s") }).await;
    all_are(&fleet, "up").await;
    fleet
}

/// The requests that the ledger counts.
fn counted(server: &Standalone) -> u64 {
    let runs = server.server.cli(&["LRANGE", MINUTE, "0", "-1"]);
    let requests = |run: &str| run.split(' ').nth(2).unwrap().parse::<u64>().unwrap();
    runs.lines().filter(|run| !run.is_empty()).map(requests).sum()
}

/// How often a node did not get an answer in time, and went by its share.
async fn late(fleet: &Fleet) -> u64 {
    let mut sum = 0;
    for node in &fleet.nodes {
        sum += figure(node, "limit_asks_total{result=\"late\"}").await;
    }
    sum
}

fn served(told: &[StatusCode]) -> u64 {
    told.iter().filter(|status| **status == StatusCode::OK).count() as u64
}

/// Asks each of these nodes, all at once.
async fn at_once(nodes: impl Iterator<Item = &Gateway>) -> Vec<StatusCode> {
    let told = std::cell::RefCell::new(Vec::new());
    let calls = nodes.map(|node| async {
        let status = node.chat().await;
        told.borrow_mut().push(status);
    });
    join_all(calls).await;
    told.into_inner()
}

#[tokio::test]
async fn f22_three_nodes_admit_exactly_the_limit_however_the_requests_fall() {
    let server = Standalone::start();
    let fleet = limited(&server, "{ rpm: 10 }").await;
    let nodes = &fleet.nodes;
    for way in ["one after another", "all at one node", "ten at each at once"] {
        server.server.cli(&["DEL", MINUTE]);
        // What was refused is not repeated for longer than that.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let before = late(&fleet).await;
        let mut told = Vec::new();
        match way {
            "one after another" => {
                for _ in 0..10 {
                    for node in nodes {
                        told.push(node.chat().await);
                    }
                }
            }
            "all at one node" => {
                for _ in 0..30 {
                    told.push(nodes[1].chat().await);
                }
            }
            _ => told = at_once((0..30).map(|index| &nodes[index % 3])).await,
        }
        assert_eq!(told.len(), 30);
        let (served, late) = (served(&told), late(&fleet).await - before);
        println!("{way}: {served} of 30 served, {late} decided by a node's share");
        // What Redis has not said within its time, a node may admit by its share.
        assert!(served >= 10 && served <= 10 + late, "{way}: {served} served, {late} late");
        assert_eq!(counted(&server), served, "{way}");
    }
    // The figures told are the fleet's.
    let answer = call(nodes[0].clients, Method::POST, CHAT, &[], &chat_body(false)).await;
    let (status, body) = answer.unwrap();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(body.contains("The limit of 10 requests a minute of this model is reached."), "{body}");
}

#[tokio::test]
async fn f23_ten_at_once_run_in_parallel_and_none_is_lost_to_the_count() {
    let server = Standalone::start();
    let fleet = limited(&server, "{ rpm: 1000, concurrency: 100 }").await;
    let slow = Behaviour { latency_ms: Some(8_000), ..Behaviour::default() };
    fleet.a.set(slow.clone());
    fleet.b.set(slow);
    let began = Instant::now();
    let told = at_once((0..10).map(|index| &fleet.nodes[index % 2])).await;
    let took = began.elapsed();
    println!("ten requests of 8 s over two nodes took {took:?}");
    assert_eq!(served(&told), 10, "{told:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    until("all are counted, and nothing is set aside", async || counted(&server) == 10).await;
    until("all slots are free", async || server.server.cli(&["HLEN", SLOTS]).trim() == "0").await;
}

/// A node of a fleet of one; those that share a Redis share their limits all the same.
fn lone(directory: &Path, name: &str, server: &Standalone, rows: &str) -> Gateway {
    let head = process::member_head(directory, name, None);
    let redis = format!("  backend: redis\nredis: {{ urls: [\"{}\"] }}\n", server.url());
    let models = format!("models:\n  - name: m\n    endpoints:\n{rows}");
    Gateway::serve(directory, name, &format!("{head}{redis}{models}"))
}

#[tokio::test]
async fn an_endpoints_limit_is_for_all_nodes_and_what_is_beyond_it_goes_elsewhere() {
    let server = Standalone::start();
    let directory = tempfile::tempdir().unwrap();
    let names = ["gw-1", "gw-2"];
    gossip::certs::throw_away(directory.path(), &names).unwrap();
    let ((a_address, a), (b_address, b)) = (process::mock("a").await, process::mock("b").await);
    let rows = format!(
        "      - {{ name: a, address: \"http://{a_address}\", limits: {{ rpm: 5 }} }}
      - {{ name: b, address: \"http://{b_address}\", priority: 1 }}
"
    );
    let nodes = names.map(|name| lone(directory.path(), name, &server, &rows));
    for node in &nodes {
        until("Redis is up", async || redis_of(node).await["state"] == "up").await;
    }
    for _ in 0..8 {
        for node in &nodes {
            assert_eq!(node.chat().await, StatusCode::OK);
        }
    }
    let mut late = 0;
    for node in &nodes {
        late += figure(node, "limit_asks_total{result=\"late\"}").await;
    }
    let (first, other) = (a.counts().requests, b.counts().requests);
    println!("{first} went to the limited endpoint, {other} elsewhere, {late} asks were late");
    assert_eq!(first + other, 16);
    assert!(first >= 5 && first <= 5 + late, "{first}");
}

#[tokio::test]
async fn without_redis_each_node_admits_its_share_and_tells_of_it_when_redis_is_back() {
    let mut server = Standalone::start();
    let fleet = limited(&server, "{ rpm: 12 }").await;
    server.server.kill();
    all_are(&fleet, "away").await;
    for node in &fleet.nodes {
        let mut told = Vec::new();
        for _ in 0..6 {
            told.push(node.chat().await);
        }
        assert_eq!(served(&told), 4, "{told:?}");
        let refused = StatusCode::TOO_MANY_REQUESTS;
        assert!(told.iter().all(|status| *status == StatusCode::OK || *status == refused));
    }
    server.server.restart();
    all_are(&fleet, "up").await;
    until("the ledger knows of all", async || counted(&server) == 12).await;
    for node in &fleet.nodes {
        assert_eq!(node.chat().await, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn the_slots_of_a_node_that_dies_return_with_their_lease() {
    let server = Standalone::start();
    let mut fleet = limited(&server, "{ concurrency: 2 }").await;
    let hanging = Behaviour { latency_ms: Some(60_000), ..Behaviour::default() };
    fleet.a.set(hanging.clone());
    fleet.b.set(hanging);
    let third = fleet.nodes.pop().unwrap();
    let (address, body) = (third.clients, chat_body(false));
    let hang = async |body: &str| drop(call(address, Method::POST, CHAT, &[], body).await);
    let (one, other) = (hang(&body), hang(&body));
    let (one, other) = (Box::pin(one), Box::pin(other));
    let taken = until("both slots are taken", async || {
        server.server.cli(&["HGET", SLOTS, "gw-3"]).contains(" 2 ")
    });
    tokio::select! {
        () = taken => {}
        _ = async { tokio::join!(one, other) } => panic!("they hang"),
    }
    fleet.a.set(Behaviour::default());
    fleet.b.set(Behaviour::default());
    third.kill();
    let began = Instant::now();
    until("a slot has returned", async || fleet.nodes[0].chat().await == StatusCode::OK).await;
    println!("the slots of a dead node returned after {:?}", began.elapsed());
    println!("{} asks were late", late(&fleet).await);
    assert!(began.elapsed() < Duration::from_secs(10));
}
