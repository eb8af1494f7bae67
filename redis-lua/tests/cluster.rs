//! The supervised client and a cluster of six: fifty endpoints, slots that move, a primary that dies.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

mod running;
mod servers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use redis_lua::client::{Client, Config, Invocation, Mode};
use redis_lua::error::Trouble;
use redis_lua::script::Script;
use redis_lua::slot;
use running::{Running, WITHIN};
use servers::cluster::Cluster;
use tokio::time::{sleep, timeout};

/// Three keys, as a ledger's scripts have; one of them is seldom there.
static STEP: Script = Script::new(
    "step",
    "redis.call('HSET', KEYS[2], ARGV[1], 'x') redis.call('EXISTS', KEYS[3]) \
     return redis.call('HINCRBY', KEYS[1], 'version', 1)",
);

fn step(endpoint: usize) -> Invocation {
    let key = |part: &str| format!("quorumgate{{pool/endpoint-{endpoint}}}:{part}");
    let keys = vec![key("state"), key("votes"), key("lease")];
    Invocation { script: &STEP, keys, arguments: vec![b"gw-1".to_vec()] }
}

/// What fifty endpoints' calls came to.
#[derive(Debug, Default)]
struct Sums {
    good: u64,
    troubles: HashMap<Trouble, u64>,
    /// The longest time without a good answer, of any one endpoint.
    outage: Duration,
}

const ENDPOINTS: usize = 50;

/// Calls for all endpoints again and again until told to stop.
async fn load(client: Client, is_over: Arc<AtomicBool>) -> Sums {
    let mut sums = Sums::default();
    let mut last = vec![Instant::now(); ENDPOINTS];
    while !is_over.load(Ordering::Relaxed) {
        let results = client.run_all((0..ENDPOINTS).map(step).collect()).await;
        for (last, result) in last.iter_mut().zip(results) {
            match result {
                Ok(_) => {
                    sums.good += 1;
                    sums.outage = sums.outage.max(last.elapsed());
                    *last = Instant::now();
                }
                Err(trouble) => *sums.troubles.entry(trouble).or_default() += 1,
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    sums
}

fn never(sums: &Sums, codes: &[&'static str]) {
    for code in codes {
        assert!(!sums.troubles.contains_key(&Trouble::Refused(code)), "{sums:?}");
    }
}

/// Moves the slot of each of these endpoints to another primary, one after the other.
fn migrate(cluster: &Cluster, endpoints: std::ops::Range<usize>) -> usize {
    let primaries = cluster.primaries();
    let names: Vec<_> = primaries.iter().map(|at| cluster.name(*at)).collect();
    let mut moved = 0;
    for endpoint in endpoints {
        let key = step(endpoint).keys.remove(0);
        let slot = slot::of(key.as_bytes()).to_string();
        let holds = |at: &usize| cluster.servers[*at].cli(&["EXISTS", &key]) == "1";
        let from = primaries.iter().position(holds).unwrap();
        let to = (from + 1) % primaries.len();
        let (source, target) = (&cluster.servers[primaries[from]], &cluster.servers[primaries[to]]);
        let set = ["CLUSTER", "SETSLOT", slot.as_str()];
        assert_eq!(target.cli(&[&set[..], &["IMPORTING", &names[from]]].concat()), "OK");
        assert_eq!(source.cli(&[&set[..], &["MIGRATING", &names[to]]].concat()), "OK");
        let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        let port = target.port.to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", port.as_str(), "", "0", "1000", "KEYS"];
        command.extend(keys.lines());
        assert_eq!(source.cli(&command), "OK");
        for at in [target, source] {
            assert_eq!(at.cli(&[&set[..], &["NODE", &names[to]]].concat()), "OK");
        }
        moved += 1;
    }
    moved
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn fifty_endpoints_live_through_moving_slots_and_a_primary_that_dies() {
    let cluster = blocking(Cluster::start).await;
    let running = Running::up(Config::new(cluster.urls(), Mode::Cluster)).await;
    let results = running.client.run_all((0..ENDPOINTS).map(step).collect()).await;
    assert!(results.iter().all(|result| *result == Ok(Value::Int(1))), "{results:?}");
    hears(&running.client).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let loading = tokio::spawn(load(running.client.clone(), Arc::clone(&is_over)));
    let cluster = blocking(move || {
        let began = Instant::now();
        println!("{} slots moved in {:?}", migrate(&cluster, 0..20), began.elapsed());
        cluster
    })
    .await;
    sleep(Duration::from_millis(1_500)).await;
    is_over.store(true, Ordering::Relaxed);
    let sums = loading.await.unwrap();
    println!("while slots moved: {sums:?}");
    never(&sums, &["CROSSSLOT", "MOVED", "ASK", "NOSCRIPT"]);
    assert!(running.client.figures().redirects > 0);
    assert!(running.client.health().borrow().is_up());
    let results = running.client.run_all((0..ENDPOINTS).map(step).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");

    dies(cluster, &running).await;
    running.end().await;
}

/// A primary is killed under load; its replica takes over.
async fn dies(mut cluster: Cluster, running: &Running) {
    let is_over = Arc::new(AtomicBool::new(false));
    let loading = tokio::spawn(load(running.client.clone(), Arc::clone(&is_over)));
    let victim = cluster.primaries()[1];
    let began = Instant::now();
    cluster.servers[victim].kill();
    let (took, trouble) = running.is_down_within(WITHIN).await;
    println!("a primary is killed: {trouble:?} after {took:?}");
    running.is_up_within(Duration::from_secs(20)).await;
    println!("up again after {:?}", began.elapsed());
    sleep(Duration::from_millis(300)).await;
    is_over.store(true, Ordering::Relaxed);
    let sums = loading.await.unwrap();
    println!("while a primary died: {sums:?}");
    never(&sums, &["CROSSSLOT", "MOVED", "ASK", "NOSCRIPT"]);
    assert!(sums.outage < Duration::from_secs(10), "{:?}", sums.outage);
    let results = running.client.run_all((0..ENDPOINTS).map(step).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    hears(&running.client).await;
}

/// A notice comes back to its own sender, by the shard it belongs to.
async fn hears(client: &Client) {
    let mut notices = client.notices();
    let began = Instant::now();
    loop {
        client.publish(b"notice".to_vec());
        match timeout(Duration::from_millis(50), notices.recv()).await {
            Ok(Ok(heard)) => return assert_eq!(heard, b"notice"),
            Ok(Err(_)) | Err(_) => assert!(began.elapsed() < Duration::from_secs(5)),
        }
    }
}

#[tokio::test]
#[cfg_attr(debug_assertions, should_panic(expected = "keys without one slot"))]
async fn keys_of_two_slots_are_no_call() {
    let fake = servers::fake::Fake::start(servers::fake::Mood::Good).await;
    let running = Running::up(Config::new(vec![fake.url()], Mode::Standalone)).await;
    let mut bad = step(1);
    bad.keys.push("elsewhere".to_owned());
    assert_eq!(running.client.run(bad).await, Err(Trouble::Wrong("keys without one slot")));
}
