//! The supervised client behind three sentinels: failover, and an old primary that comes back.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop loudly")]

mod running;
mod servers;

use std::time::{Duration, Instant};

use redis::Value;
use redis_lua::client::{Config, Mode};
use redis_lua::error::Trouble;
use running::{Running, WITHIN};
use servers::sentinels::{NAME, Sentinels};
use servers::wait_for;
use tokio::time::{sleep, timeout};

/// A failover after a second of silence, and the election.
const FAILOVER: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_failover_is_followed_and_an_old_primary_is_not_believed() {
    let mut all = Sentinels::start();
    let master = NAME.to_owned();
    let running = Running::up(Config::new(all.urls(), Mode::Sentinel { master })).await;
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(1)));
    let old = all.servers[0].port;
    // What is written must have reached the replicas, or the failover may lose it.
    wait_for(|| all.servers.iter().all(|server| server.cli(&["GET", "a{b}"]) == "1"));

    let began = Instant::now();
    all.servers[0].kill();
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("the primary is killed: {trouble:?} after {took:?}");
    running.is_up_within(FAILOVER).await;
    println!("up again behind another primary after {:?}", began.elapsed());
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(2)));
    let new = all.primary(0);
    assert_ne!(new, old);

    // It comes back believing that it is a primary, and takes writes until a sentinel finds it.
    all.servers[0].restart();
    wait_for(|| servers::cli(&["-p", &old.to_string(), "PING"]).is_some());
    for expected in 3..23 {
        assert_eq!(running.add("a{b}").await, Ok(Value::Int(expected)));
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(all.at(new).cli(&["GET", "a{b}"]), "22");

    deposed(&mut all, &running, new).await;
    running.end().await;
}

/// A primary is frozen until it is deposed, and goes on in the belief that it still is one.
async fn deposed(all: &mut Sentinels, running: &Running, frozen: u16) {
    let began = Instant::now();
    all.at(frozen).stop();
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("the primary is frozen: {trouble:?} after {took:?}");
    running.is_up_within(FAILOVER).await;
    println!("up again after {:?}", began.elapsed());
    let third = all.primary(0);
    assert_ne!(third, frozen);
    all.at(frozen).cont();
    let before = running.add("c{b}").await.unwrap();
    assert_eq!(before, Value::Int(1));
    for _ in 0..10 {
        running.add("c{b}").await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(all.at(third).cli(&["GET", "c{b}"]), "11");
}

#[tokio::test]
async fn sentinels_that_know_no_such_primary_are_said_so() {
    let all = Sentinels::start();
    let master = "nobody".to_owned();
    let running = Running::start(Config::new(all.urls(), Mode::Sentinel { master }));
    let mut health = running.client.health();
    let said = timeout(Duration::from_secs(3), async {
        loop {
            health.changed().await.unwrap();
            let redis_lua::client::Health::Down { trouble, .. } = *health.borrow() else {
                continue;
            };
            if trouble == Trouble::Refused("ERR") {
                return;
            }
        }
    });
    assert!(said.await.is_ok(), "{:?}", *running.client.health().borrow());
    running.end().await;
}
