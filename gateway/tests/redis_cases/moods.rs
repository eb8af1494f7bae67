//! Clients notice nothing of a Redis in any mood: each is tried under load, and beside it good times.
//!
//! The load goes on from the first phase to the last, and each ill mood stands between two good
//! times, so that what else the machine does falls on both alike. Phases are cut into slices; the
//! median of their 99th percentiles is compared, which one hiccup of the machine does not move.

use std::time::{Duration, Instant};

use crate::load::{Sample, failures, p99};
use crate::process::until;
use crate::relay::Relay;
use crate::servers::Standalone;
use crate::servers::fake::{Fake, Mood};
use crate::town::{Plan, Town, figure, redis_of};

/// One question every so often: a rate that two busy cores carry.
const PACE: Duration = Duration::from_micros(1_600);
/// Questions of an ill mood.
const QUESTIONS: usize = 2_000;
/// How long good times last between two ill moods.
const GOOD_TIME: Duration = Duration::from_millis(1_300);
/// How often a node is asked how it fares.
const GLANCE: Duration = Duration::from_millis(80);
/// Questions of a slice.
const SLICE: usize = 200;
/// What the 99th percentile may be higher by than in any good time.
const DIFFERENCE_MAX: Duration = Duration::from_millis(1);
/// Within this every node has fallen back: a second, and what a busy machine takes.
const FALLEN_MAX: Duration = Duration::from_secs(2);

/// How often an endpoint's entry is read when nothing is known to have happened to it.
const INTERVAL: Duration = Duration::from_secs(1);
const SPOILED: &str = "flushed, WRONGTYPE, spoiled";

/// This process's session goes ahead of what else the machine has to do, until it is dropped; who may
/// not be preferred is not.
struct Preferred;

impl Preferred {
    fn new() -> Self {
        prefer(-15);
        Self
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        prefer(0);
    }
}

fn prefer(niceness: i32) {
    // It is no matter if there is no such file.
    let _ = std::fs::write("/proc/self/autogroup", niceness.to_string());
}

/// One mood.
struct Phase {
    name: &'static str,
    began: Instant,
    ended: Instant,
}

/// The fleet, its Redis, and the way between them.
struct Scene {
    town: Town,
    server: Standalone,
    relay: Relay,
    phases: Vec<Phase>,
}

#[tokio::test(flavor = "multi_thread")]
async fn f21_r02_r04_r05_r07_r08_r11_r14_clients_notice_nothing_of_redis_in_any_mood() {
    let _alone = crate::MACHINE.write().await;
    let _preferred = Preferred::new();
    let server = Standalone::start();
    let relay = Relay::to(server.server.port).await;
    let redis = format!("urls: [\"{}\"]", relay.url());
    let plan = Plan { redis: &redis, models: 1, endpoints: 2, base: "60s" };
    let town = Town::start(plan).await;
    let load = town.load(PACE);
    // The first answers open connections, and read code from the disk.
    tokio::time::sleep(GOOD_TIME).await;
    let mut scene = Scene { town, server, relay, phases: Vec::new() };
    let began = Instant::now();
    scene.in_any_mood().await;
    let ended = Instant::now();
    let samples = load.stop();
    let (count, some) = failures(&samples);
    assert_eq!(count, 0, "of {} questions: {some:#?}", samples.len());
    compare(&samples, began, ended, &scene.phases);
}

impl Scene {
    async fn in_any_mood(&mut self) {
        self.stopped().await;
        self.slow().await;
        self.killed().await;
        self.read_only().await;
        self.out_of_memory().await;
        self.loading().await;
        self.spoiled().await;
        tokio::time::sleep(GOOD_TIME).await;
    }

    async fn stopped(&mut self) {
        let began = self.begins().await;
        self.server.server.stop();
        let fallen = self.falls_back(began).await;
        self.server.server.cont();
        self.returns("stopped (SIGSTOP)", began, fallen).await;
    }

    /// F21: answers come after twenty seconds, on the connections that stand as on others.
    async fn slow(&mut self) {
        let began = self.begins().await;
        self.relay.holds(Some(Duration::from_secs(20)));
        let fallen = self.falls_back(began).await;
        self.relay.holds(None);
        self.returns("answers after 20 s", began, fallen).await;
    }

    async fn killed(&mut self) {
        let began = self.begins().await;
        self.server.server.kill();
        let fallen = self.falls_back(began).await;
        self.server.server.restart();
        self.returns("killed", began, fallen).await;
    }

    /// R04: what a primary says that was made a replica.
    async fn read_only(&mut self) {
        let began = self.begins().await;
        self.server.server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        let fallen = self.falls_back(began).await;
        self.server.server.cli(&["REPLICAOF", "NO", "ONE"]);
        self.returns("READONLY", began, fallen).await;
    }

    async fn out_of_memory(&mut self) {
        let began = self.begins().await;
        self.server.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let fallen = self.falls_back(began).await;
        self.server.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        self.returns("OOM", began, fallen).await;
    }

    async fn loading(&mut self) {
        let began = self.begins().await;
        let fake = Fake::start(Mood::Fails("LOADING Redis is loading the dataset in memory")).await;
        self.relay.leads(fake.port);
        let fallen = self.falls_back(began).await;
        self.relay.leads(self.server.server.port);
        self.returns("LOADING", began, fallen).await;
    }

    /// R05, R11, R14: everything is gone; then a key is somebody else's, with another type; then our
    /// fields hold what we never wrote.
    async fn spoiled(&mut self) {
        let began = self.begins().await;
        let (server, state) = (&self.server.server, "quorumgate{m0/e1}:state");
        server.cli(&["FLUSHALL"]);
        server.cli(&["SET", state, "somebody's"]);
        let fallen = self.falls_back(began).await;
        let server = &self.server.server;
        server.cli(&["DEL", state]);
        let (huge, lua) = ("9".repeat(4_096), "'); return redis.call('FLUSHALL') --");
        server.cli(&["HSET", state, "version", &huge, "step", lua, "order", "\\0", "count", "-1"]);
        self.returns(SPOILED, began, fallen).await;
        for node in &self.town.nodes {
            let log = node.log().join("\n");
            assert!(!log.contains("FLUSHALL") && !log.contains("99999999"), "{}", node.name);
        }
    }

    /// Good times, and then the moment at which a mood begins.
    async fn begins(&self) -> Instant {
        tokio::time::sleep(GOOD_TIME).await;
        Instant::now()
    }

    /// Waits until every node says at `/readyz` and on its page of metrics that Redis is away, and
    /// then until enough was asked.
    async fn falls_back(&self, began: Instant) -> Duration {
        for node in &self.town.nodes {
            until(&format!("{} falls back", node.name), async || {
                // Not to be asked so often that it shows in what is measured.
                tokio::time::sleep(GLANCE).await;
                node.look("/readyz").await.to_string().contains("redis_away")
            })
            .await;
        }
        let fallen = began.elapsed();
        for node in &self.town.nodes {
            let told = redis_of(node).await;
            assert_eq!(told["fallback"], "gossip", "{}: {told}", node.name);
            let is_told = until("it is told", async || figure(node, "redis_up").await == 0);
            is_told.await;
        }
        let enough = PACE * u32::try_from(QUESTIONS).unwrap();
        tokio::time::sleep(enough.saturating_sub(began.elapsed())).await;
        fallen
    }

    /// Waits until every node decides through Redis again.
    async fn returns(&mut self, name: &'static str, began: Instant, fallen: Duration) {
        let ill = Instant::now();
        for node in &self.town.nodes {
            until(&format!("{} is back", node.name), async || {
                tokio::time::sleep(GLANCE).await;
                redis_of(node).await["state"] == "up"
            })
            .await;
        }
        for node in &self.town.nodes {
            let is_told = until("it is told", async || figure(node, "redis_up").await == 1);
            is_told.await;
        }
        let ended = Instant::now();
        // What is wrong with one key shows at its next reading, which comes once in an interval.
        let met = if name == SPOILED { INTERVAL } else { Duration::ZERO };
        eprintln!("{name}: fallen back after {fallen:?}, back {:?} after its end", ended - ill);
        assert!(fallen < FALLEN_MAX + met, "{name}: {fallen:?}");
        self.phases.push(Phase { name, began, ended });
    }
}

/// Compares each mood with the good times.
fn compare(samples: &[Sample], began: Instant, ended: Instant, phases: &[Phase]) {
    let mut good = Vec::new();
    let mut from = began;
    let ends = phases.iter().map(|phase| (phase.began, phase.ended)).chain([(ended, ended)]);
    for (until, next) in ends {
        good.push(median(slices(samples, from, until)));
        from = next;
    }
    let (usual, worst) = (median(good.clone()), *good.iter().max().unwrap());
    // A machine that is busy with something else differs by more from itself; by as much again from
    // its worst good time a mood may differ.
    let noise = DIFFERENCE_MAX.max(worst - usual);
    eprintln!("good times: p99 {usual:?}, in the worst {worst:?}, of {}", good.len());
    let mut complaints = Vec::new();
    for phase in phases {
        let ill = slices(samples, phase.began, phase.ended);
        let (name, count) = (phase.name, ill.len() * SLICE);
        assert!(count >= QUESTIONS, "{name}: {count} questions");
        let of_mood = median(ill);
        let more = of_mood.as_secs_f64() * 1_000.0 - usual.as_secs_f64() * 1_000.0;
        eprintln!("{name}: p99 {of_mood:?}, {more:+.2} ms, {count} questions");
        if of_mood > worst + noise {
            complaints.push(format!("{name}: {of_mood:?}, in good times at most {worst:?}"));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// The 99th percentile of each slice of a time.
fn slices(samples: &[Sample], from: Instant, until: Instant) -> Vec<Duration> {
    let within: Vec<&Sample> =
        samples.iter().filter(|sample| (from..until).contains(&sample.at)).collect();
    within.chunks_exact(SLICE).map(|slice| p99(slice.iter().copied())).collect()
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    of[of.len() / 2]
}
