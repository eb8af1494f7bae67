//! The supervised client and one server, real or fake, in all its moods.

mod running;
mod servers;

use std::time::{Duration, Instant};

use redis::Value;
use redis_lua::client::{Config, Health, Invocation, Mode};
use redis_lua::error::Trouble;
use redis_lua::script::Script;
use running::{RETURN, Running, WITHIN, add};
use servers::Standalone;
use servers::fake::{Fake, Mood, Proxy};
use tokio::time::{sleep, timeout};

fn at(url: String) -> Config {
    Config::new(vec![url], Mode::Standalone)
}

fn at_url(server: &str) -> Config {
    at(format!("redis://{server}"))
}

#[tokio::test]
async fn scripts_run_one_by_one_and_by_the_hundred() {
    let redis = Standalone::start();
    let running = Running::up(at(redis.url())).await;
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(1)));
    let many = running.client.run_all((0..300).map(|_| add("a{b}")).collect()).await;
    let wanted: Vec<_> = (2..302).map(|sum| Ok(Value::Int(sum))).collect();
    assert_eq!(many, wanted);
    let figures = running.client.figures();
    assert_eq!((figures.calls, figures.scripts_missing), (301, 1));
    assert!(figures.troubles.is_empty() && figures.latency > Duration::ZERO);
    running.end().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_dialled_until_it_is() {
    let mut redis = Standalone::start();
    redis.server.kill();
    let running = Running::start(at(redis.url()));
    sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    assert_eq!(running.add("a{b}").await, Err(Trouble::Away));
    assert!(began.elapsed() < Duration::from_millis(20), "{:?}", began.elapsed());
    redis.server.restart();
    let back = running.is_up_within(RETURN).await;
    println!("up {back:?} after the server");
    assert!(running.client.figures().reconnects > 1);
    running.end().await;
}

#[tokio::test]
async fn what_is_down_is_told_with_its_server_and_step() {
    let redis = Standalone::start();
    redis.server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let fake = Fake::start(Mood::FailsScripts("NOPERM not you")).await;
    let silent = Fake::start(Mood::Silent).await;
    let here = |port: u16| format!("127.0.0.1:{port}");
    for (server, wanted, at) in [
        ("127.0.0.1:1".to_owned(), Trouble::Away, "connect"),
        ("nowhere.invalid:6379".to_owned(), Trouble::Away, "resolve"),
        (here(silent.port), Trouble::Timeout, "HELLO"),
        (here(redis.server.port), Trouble::Refused("READONLY"), "ROLE"),
        (here(fake.port), Trouble::Refused("NOPERM"), "write"),
    ] {
        let running = Running::start(at_url(&server));
        let mut health = running.client.health();
        let said = health.wait_for(|health| match health {
            Health::Up => false,
            Health::Down { trouble, server: where_, step, .. } => {
                (*trouble, where_.as_str(), *step) == (wanted, server.as_str(), at)
            }
        });
        let said = timeout(Duration::from_secs(5), said).await.is_ok();
        assert!(said, "{server}: {:?}", *running.client.health().borrow());
        running.end().await;
    }
}

#[tokio::test]
async fn a_server_that_dies_is_down_within_a_second_and_comes_back() {
    let mut redis = Standalone::start();
    let running = Running::up(at(redis.url())).await;
    redis.server.kill();
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("killed: {trouble:?} after {took:?}");
    redis.server.restart();
    println!("up {:?} after the restart", running.is_up_within(RETURN).await);
    // The script is gone with the old process; nobody notices.
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(1)));
    redis.server.stop();
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("stopped: {trouble:?} after {took:?}");
    let began = Instant::now();
    assert_eq!(running.add("a{b}").await, Err(Trouble::Away));
    assert!(began.elapsed() < Duration::from_millis(20), "{:?}", began.elapsed());
    redis.server.cont();
    running.is_up_within(RETURN).await;
    running.end().await;
}

#[tokio::test]
async fn a_network_that_swallows_is_down_within_a_second() {
    let redis = Standalone::start();
    let proxy = Proxy::start(redis.server.port).await;
    let running = Running::up(at(proxy.url())).await;
    proxy.swallow();
    let began = Instant::now();
    assert_eq!(running.add("a{b}").await, Err(Trouble::Timeout));
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("swallowed: {trouble:?} after {took:?}");
    proxy.open();
    println!("up {:?} after the network", running.is_up_within(RETURN).await);
    running.end().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_costs_no_fall_back() {
    let redis = Standalone::start();
    let proxy = Proxy::start(redis.server.port).await;
    let running = Running::up(at(proxy.url())).await;
    sleep(Duration::from_millis(1_100)).await;
    let mut health = running.client.health();
    health.mark_unchanged();
    proxy.cut().await;
    let began = Instant::now();
    while running.add("a{b}").await.is_err() {
        assert!(began.elapsed() < WITHIN);
        sleep(Duration::from_millis(5)).await;
    }
    println!("calls again after {:?}", began.elapsed());
    assert!(!health.has_changed().unwrap());
    running.end().await;
}

#[tokio::test]
async fn every_refusal_that_means_redis_is_down_within_a_second() {
    let lines = [
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "MASTERDOWN Link with MASTER is down.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Errors writing to the AOF file.",
        "NOAUTH Authentication required.",
        "NOPERM this user has no permissions",
        "MOVED 1 127.0.0.1:1",
        "ERR unknown command 'EVALSHA'",
    ];
    let one = |line: &'static str| async move {
        let fake = Fake::start(Mood::Good).await;
        let running = Running::up(at(fake.url())).await;
        fake.is(Mood::FailsScripts(line));
        let (took, trouble) = running.is_down_within(WITHIN).await;
        assert_eq!(trouble.kind(), line.split(' ').next().unwrap());
        // One that answers nothing else either must not be taken for one that is back.
        fake.is(Mood::Fails(line));
        sleep(Duration::from_millis(300)).await;
        assert!(!running.client.health().borrow().is_up(), "{line}");
        fake.is(Mood::Good);
        let back = running.is_up_within(RETURN).await;
        println!("{}: down after {took:?}, up after {back:?}", trouble.kind());
        running.end().await;
    };
    let all: Vec<_> = lines.into_iter().map(|line| tokio::spawn(one(line))).collect();
    for each in all {
        each.await.unwrap();
    }
}

#[tokio::test]
async fn answers_that_take_twenty_seconds_are_down_within_a_second() {
    let fake = Fake::start(Mood::Good).await;
    let running = Running::up(at(fake.url())).await;
    fake.is(Mood::Slow(Duration::from_secs(20)));
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("slow: {trouble:?} after {took:?}");
    assert_eq!(trouble, Trouble::Timeout);
    let taken = fake.taken.load(std::sync::atomic::Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let dials = fake.taken.load(std::sync::atomic::Ordering::Relaxed) - taken;
    assert!(dials < 12, "{dials} dials in two seconds");
    fake.is(Mood::Good);
    running.is_up_within(RETURN).await;
    running.end().await;
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_or_full_is_down_until_it_is_not() {
    let redis = Standalone::start();
    let running = Running::up(at(redis.url())).await;
    redis.server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("replica: {trouble:?} after {took:?}");
    redis.server.cli(&["CONFIG", "SET", "replica-read-only", "no"]);
    sleep(Duration::from_millis(1_200)).await;
    assert!(!running.client.health().borrow().is_up(), "a writable replica is no primary");
    redis.server.cli(&["REPLICAOF", "NO", "ONE"]);
    running.is_up_within(RETURN).await;
    redis.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("full: {trouble:?} after {took:?}");
    assert_eq!(trouble, Trouble::Refused("OOM"));
    redis.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    running.is_up_within(RETURN).await;
    running.end().await;
}

#[tokio::test]
async fn scripts_that_are_flushed_all_the_time_fail_no_call() {
    let redis = Standalone::start();
    let running = Running::up(at(redis.url())).await;
    let began = Instant::now();
    let mut calls = 0;
    while began.elapsed() < Duration::from_millis(1_500) {
        redis.server.cli(&["SCRIPT", "FLUSH"]);
        let results = running.client.run_all((0..50).map(|_| add("a{b}")).collect()).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        calls += 50;
    }
    assert_eq!(redis.server.cli(&["GET", "a{b}"]), calls.to_string());
    let missing = running.client.figures().scripts_missing;
    println!("{calls} calls, the script was missing {missing} times");
    assert!(missing > 0);
    running.end().await;
}

#[tokio::test]
async fn a_key_of_another_type_is_the_trouble_of_its_call_only() {
    let redis = Standalone::start();
    let running = Running::up(at(redis.url())).await;
    redis.server.cli(&["HSET", "a{b}", "x", "y"]);
    assert_eq!(running.add("a{b}").await, Err(Trouble::Refused("WRONGTYPE")));
    let mut health = running.client.health();
    health.mark_unchanged();
    sleep(Duration::from_millis(700)).await;
    assert!(!health.has_changed().unwrap() && health.borrow().is_up());
    assert_eq!(running.client.figures().troubles, [("WRONGTYPE", 1)]);
    running.end().await;
}

#[tokio::test]
async fn a_script_that_blocks_the_server_does_not_block_its_callers() {
    static SPIN: Script = Script::new("spin", "while true do end");
    let redis = Standalone::with(&["--busy-reply-threshold", "200"]);
    let running = Running::up(at(redis.url())).await;
    let spin = Invocation { script: &SPIN, keys: vec!["a{b}".to_owned()], arguments: Vec::new() };
    assert_eq!(running.client.run(spin).await, Err(Trouble::Timeout));
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("busy: {trouble:?} after {took:?}");
    redis.server.cli(&["SCRIPT", "KILL"]);
    running.is_up_within(RETURN).await;
    running.end().await;
}

#[tokio::test]
async fn more_calls_than_there_is_room_for_are_refused_at_once() {
    let fake = Fake::start(Mood::Good).await;
    let running = Running::up(at(fake.url())).await;
    fake.is(Mood::Silent);
    let began = Instant::now();
    let calls: Vec<_> = (0..1_200)
        .map(|_| {
            let client = running.client.clone();
            tokio::spawn(async move { client.run(add("a{b}")).await })
        })
        .collect();
    let mut busy = 0;
    for call in calls {
        match call.await.unwrap() {
            Err(Trouble::Busy) => busy += 1,
            Err(Trouble::Timeout | Trouble::Away) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(busy, 1_200 - 1_024);
    println!("all answered after {:?}", began.elapsed());
    running.end().await;
}

#[tokio::test]
async fn notices_arrive_also_after_the_connection_was_lost() {
    let redis = Standalone::start();
    let proxy = Proxy::start(redis.server.port).await;
    let one = Running::up(at(redis.url())).await;
    let other = Running::up(at(proxy.url())).await;
    let mut notices = other.client.notices();
    for round in ["first", "second"] {
        let began = Instant::now();
        loop {
            one.client.publish(round.as_bytes().to_vec());
            match timeout(Duration::from_millis(50), notices.recv()).await {
                Ok(heard) if heard.as_deref() == Ok(round.as_bytes()) => break,
                Ok(_) | Err(_) => assert!(began.elapsed() < Duration::from_secs(5)),
            }
        }
        println!("{round} heard after {:?}", began.elapsed());
        proxy.cut().await;
    }
    one.end().await;
    other.end().await;
}
