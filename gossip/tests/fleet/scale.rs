//! Temporary.
use crate::world::*;
use std::time::{Duration, Instant};
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale() {
    let names: Vec<String> = (0..30).map(|n| format!("node-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let certificates = Certificates::for_nodes(&names);
    let begin = Instant::now();
    let mut fleet = start_fleet(&certificates, &names, Duration::from_millis(500)).await;
    println!("started {:?}", begin.elapsed());
    for node in &mut fleet {
        node.wait("all live", |ours| ours.members.iter().filter(|m| m.is_live).count() == 29).await;
    }
    println!("all live {:?}", begin.elapsed());
    for node in &mut fleet {
        node.wait_for_count("met", |c| read(&c.stats.connections) >= 29).await;
    }
    println!("met {:?}", begin.elapsed());
    let t = Instant::now();
    fleet[3].state(vec![vote("chat/a", 1, true)]);
    for (i, node) in fleet.iter_mut().enumerate() {
        if i != 3 {
            node.wait("vote", |ours| has_vote(ours, "node-3", "chat/a")).await;
        }
    }
    println!("push to all {:?}", t.elapsed());
    let t = Instant::now();
    fleet[4].state(vec![renewal("chat/b", 1)]);
    for (i, node) in fleet.iter_mut().enumerate() {
        if i != 4 {
            node.wait("vote", |ours| has_vote(ours, "node-4", "chat/b")).await;
        }
    }
    println!("gossip to all {:?}", t.elapsed());
    let mut flaps = 0;
    let mut looks = 0;
    let t = Instant::now();
    while t.elapsed() < Duration::from_secs(15) {
        fleet[0].carrier.ours.changed().await.unwrap();
        looks += 1;
        flaps += fleet[0].carrier.ours.borrow().members.iter().filter(|m| !m.is_live).count();
    }
    println!("{looks} looks, {flaps} not live");
    for node in &fleet[..3] {
        println!("{:?}", node.carrier.stats);
    }
    let d = fleet.pop().unwrap();
    d.kill().await;
    let t = Instant::now();
    for node in &mut fleet {
        node.wait("dead", |ours| !is_live(ours, "node-29")).await;
    }
    println!("dead after {:?}", t.elapsed());
}
