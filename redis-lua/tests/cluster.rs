//! The supervised client and a cluster of six: fifty endpoints, slots that move, a primary that dies.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may stop loudly"
)]

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
use servers::Server;
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
    /// Calls that were answered well, by endpoint.
    good: Vec<i64>,
    /// Calls of which nobody knows whether they were carried out, by endpoint.
    unknown: Vec<i64>,
    troubles: HashMap<Trouble, u64>,
    /// The longest time without a good answer, of any one endpoint.
    outage: Duration,
}

const ENDPOINTS: usize = 50;

/// Calls for all endpoints again and again until told to stop.
async fn load(client: Client, is_over: Arc<AtomicBool>) -> Sums {
    let none = || vec![0; ENDPOINTS];
    let mut sums = Sums { good: none(), unknown: none(), ..Sums::default() };
    let mut last = vec![Instant::now(); ENDPOINTS];
    while !is_over.load(Ordering::Relaxed) {
        let results = client.run_all((0..ENDPOINTS).map(step).collect()).await;
        for (at, (last, result)) in last.iter_mut().zip(results).enumerate() {
            match result {
                Ok(_) => {
                    sums.good[at] += 1;
                    sums.outage = sums.outage.max(last.elapsed());
                    *last = Instant::now();
                }
                Err(trouble) => {
                    *sums.troubles.entry(trouble).or_default() += 1;
                    let is_unknown = matches!(trouble, Trouble::Timeout | Trouble::Away);
                    sums.unknown[at] += i64::from(is_unknown);
                }
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    sums
}

impl Sums {
    fn show(&self, when: &str) {
        let good = self.good.iter().sum::<i64>();
        println!("while {when}: {good} good, {:?}, outage {:?}", self.troubles, self.outage);
    }
}

fn never(sums: &Sums, codes: &[&'static str]) {
    for code in codes {
        assert!(!sums.troubles.contains_key(&Trouble::Refused(code)), "{sums:?}");
    }
}

/// A slot on its way from one primary to another; its keys are there already.
struct Move {
    slot: String,
    from: usize,
    to: usize,
}

impl Move {
    /// Begins with the slot of this key, which is there, to this server or to the next primary.
    fn begin(cluster: &Cluster, primaries: &[usize], key: &str, to: Option<usize>) -> Self {
        let slot = slot::of(key.as_bytes()).to_string();
        let holds = |at: &usize| cluster.servers[*at].cli(&["EXISTS", key]) == "1";
        let from = primaries.iter().position(holds).unwrap();
        let to = to.unwrap_or(primaries[(from + 1) % primaries.len()]);
        let from = primaries[from];
        let (source, target) = (&cluster.servers[from], &cluster.servers[to]);
        let set = |at: &Server, state: &str, other: usize| {
            let words = ["CLUSTER", "SETSLOT", &slot, state, &cluster.names[other]];
            assert_eq!(at.cli(&words), "OK");
        };
        set(target, "IMPORTING", from);
        set(source, "MIGRATING", to);
        let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        let port = target.port.to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", port.as_str(), "", "0", "1000", "KEYS"];
        command.extend(keys.lines());
        assert_eq!(source.cli(&command), "OK");
        Self { slot, from, to }
    }

    fn end(self, cluster: &Cluster) {
        for at in [self.to, self.from] {
            let words = ["CLUSTER", "SETSLOT", &self.slot, "NODE", &cluster.names[self.to]];
            assert_eq!(cluster.servers[at].cli(&words), "OK");
        }
    }
}

fn migrate(cluster: &Cluster, endpoints: std::ops::Range<usize>, to: Option<usize>) {
    let primaries = cluster.primaries();
    for endpoint in endpoints {
        Move::begin(cluster, &primaries, &step(endpoint).keys.remove(0), to).end(cluster);
    }
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
        migrate(&cluster, 0..10, None);
        println!("10 slots moved in {:?}", began.elapsed());
        cluster
    })
    .await;
    sleep(Duration::from_millis(1_500)).await;
    is_over.store(true, Ordering::Relaxed);
    let sums = loading.await.unwrap();
    sums.show("slots moved");
    never(&sums, &["CROSSSLOT", "MOVED", "ASK", "NOSCRIPT"]);
    assert!(running.client.figures().redirects > 0);
    assert!(running.client.health().borrow().is_up());
    let results = running.client.run_all((0..ENDPOINTS).map(step).collect()).await;
    for (at, result) in results.into_iter().enumerate() {
        // One call came before the load, and this one after it; no other was carried out twice.
        let Ok(Value::Int(version)) = result else { panic!("{result:?}") };
        let least = sums.good[at] + 2;
        assert!((least..=least + sums.unknown[at]).contains(&version), "{at}: {version} {sums:?}");
    }

    let cluster = joins(cluster, &running).await;
    dies(cluster, &running).await;
    running.end().await;
}

/// A primary joins that has no slot, so that nobody knows of it but by being sent there.
async fn joins(mut cluster: Cluster, running: &Running) -> Cluster {
    let (cluster, new, moving) = blocking(move || {
        let new = cluster.join();
        let moving =
            Move::begin(&cluster, &cluster.primaries(), &step(20).keys.remove(0), Some(new));
        (cluster, new, moving)
    })
    .await;
    let key = "quorumgate{pool/endpoint-20}:more";
    for sum in 1..10 {
        assert_eq!(running.add(key).await, Ok(Value::Int(sum)));
        sleep(Duration::from_millis(30)).await;
    }
    // The channel's slot moves too, which ends every subscription to it.
    assert_eq!(running.add("quorumgate{notices}:any").await, Ok(Value::Int(1)));
    let cluster = blocking(move || {
        moving.end(&cluster);
        let notices = "quorumgate{notices}:any";
        Move::begin(&cluster, &cluster.primaries(), notices, Some(new)).end(&cluster);
        migrate(&cluster, 21..25, Some(new));
        cluster
    })
    .await;
    assert_eq!(running.add(key).await, Ok(Value::Int(10)));
    hears(&running.client).await;
    let results = running.client.run_all((0..ENDPOINTS).map(step).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(running.client.health().borrow().is_up());
    cluster
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
    sums.show("a primary died");
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
