//! No client hears of it when one of two upstreams is killed and restarted all the time.
//!
//! `QUORUMGATE_REQUESTS=100000` asks that often; without it, often enough for a few deaths.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::process::{BINARY, CHAT, Gateway, chat_body, endpoint_rows};

/// Requests where nobody says how many.
const REQUESTS: u64 = 20_000;
/// Clients that ask at the same time, each on a connection of its own.
const CLIENTS: usize = 16;
/// How long the upstream lives before it is killed, and how long it stays away.
const LIFE: Duration = Duration::from_millis(700);
const DEATH: Duration = Duration::from_millis(300);
/// A run that sees fewer deaths has shown nothing.
const DEATHS_MIN: u64 = 3;

/// A mock model server in a process of its own, on a port of ours.
struct Upstream {
    child: Child,
    address: SocketAddr,
}

impl Upstream {
    fn start(address: SocketAddr) -> Self {
        let child = Command::new(BINARY)
            .args(["mock", "--listen", &address.to_string()])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address }
    }

    async fn is_up(&self) {
        process::until("the mock listens", async || TcpStream::connect(self.address).await.is_ok())
            .await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Kills and restarts an upstream until it is told to end; how often it died.
async fn restless(address: SocketAddr, is_over: Arc<AtomicBool>) -> u64 {
    let mut deaths = 0;
    while !is_over.load(Ordering::Relaxed) {
        let upstream = Upstream::start(address);
        tokio::time::sleep(LIFE).await;
        drop(upstream);
        deaths += 1;
        tokio::time::sleep(DEATH).await;
    }
    deaths
}

/// One client on one connection; what went wrong.
async fn client(gateway: SocketAddr, left: Arc<AtomicU64>) -> Vec<String> {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut errors = Vec::new();
    let take = |left: u64| left.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let request = Request::post(CHAT).header("host", "gateway");
        let request = request.header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(chat_body(false)))).unwrap();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let (status, body) = (answer.status(), answer.into_body().collect().await);
        match body {
            Ok(_) if status == 200 => {}
            Ok(body) => {
                errors.push(format!("{status} {}", String::from_utf8_lossy(&body.to_bytes())));
            }
            Err(error) => errors.push(format!("{status} {error}")),
        }
    }
    errors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_an_upstream_that_is_killed_and_restarted_every_second() {
    let wanted = std::env::var("QUORUMGATE_REQUESTS").ok().and_then(|text| text.parse().ok());
    let requests: u64 = wanted.unwrap_or(REQUESTS);
    let directory = tempfile::tempdir().unwrap();
    let (restless_at, steady) = (free_port(), Upstream::start(free_port()));
    steady.is_up().await;
    let rows = endpoint_rows(&[("restless", restless_at), ("steady", steady.address)]);
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: \"info,access=off,attempt=off\" }}
circuit_breaker: {{ open: {{ base: 200ms, max: 200ms }} }}
models:
  - name: m
    endpoints:
{rows}"
    );
    let gateway = Gateway::serve(directory.path(), "restless", &yaml);

    let is_over = Arc::new(AtomicBool::new(false));
    let killer = tokio::spawn(restless(restless_at, Arc::clone(&is_over)));
    let (mut asked, mut errors) = (0, Vec::new());
    let began = Instant::now();
    let deaths_time = (LIFE + DEATH) * u32::try_from(DEATHS_MIN + 1).unwrap();
    // So many requests, and for as long as it takes to see a few deaths.
    while asked < requests || began.elapsed() < deaths_time {
        let round = requests.min(5_000);
        let left = Arc::new(AtomicU64::new(round));
        let clients =
            (0..CLIENTS).map(|_| tokio::spawn(client(gateway.clients, Arc::clone(&left))));
        for client in clients.collect::<Vec<_>>() {
            errors.extend(client.await.unwrap());
        }
        asked += round;
    }
    is_over.store(true, Ordering::Relaxed);
    let deaths = killer.await.unwrap();
    let metrics = gateway.text("/metrics").await;
    let faults = metrics.lines().find(|line| {
        line.starts_with("quorumgate_attempts_total{")
            && line.contains("m/restless\",outcome=\"fault")
    });
    eprintln!("{asked} requests, {deaths} deaths, {} errors; {faults:?}", errors.len());
    assert!(errors.is_empty(), "{} of {asked}: {:?}", errors.len(), errors.first());
    assert!(deaths >= DEATHS_MIN, "{deaths}");
    let faults = faults.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(faults > Some(0), "no attempt ever met the death of its upstream");
}
