//! The breaker's cases against the running binary, by their ids.
//!
//! Times of minutes are scaled to fractions of a second by the configuration; each test says from what.
//! The pure stories of the breaker have the real figures.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;
#[path = "raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gateway::mock::{Behaviour, Hang};
use hyper::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::process::{CHAT, Gateway, call, chat_body, endpoint_rows, mock, until};
use crate::raw::{Act, Raw, answer, failed, good, json};

/// A gateway, and the directory of its configuration.
struct House {
    gateway: Gateway,
    _directory: TempDir,
}

impl std::ops::Deref for House {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

/// A gateway over these endpoints of the model `m`; nothing passes through, nothing is asked twice.
fn serve(endpoints: &[(&str, SocketAddr)], breaker: &str, more: &str) -> House {
    let directory = tempfile::tempdir().unwrap();
    let endpoints = endpoint_rows(endpoints);
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 2 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
retry: {{ on: [] }}
circuit_breaker: {breaker}
{more}
models:
  - name: m
    on_all_open: reject
    endpoints:
{endpoints}"
    );
    let gateway = Gateway::serve(directory.path(), "gw", &yaml);
    House { gateway, _directory: directory }
}

async fn local(house: &House, name: &str) -> Value {
    house.explain(&format!("m/{name}")).await["local"].clone()
}

async fn state(house: &House, name: &str) -> String {
    local(house, name).await["state"].as_str().unwrap().to_owned()
}

async fn evidence(house: &House, name: &str) -> Value {
    house.explain(&format!("m/{name}")).await["evidence"].clone()
}

async fn ask(house: &House) -> u16 {
    house.chat().await.as_u16()
}

/// Sends this many requests at once and returns their statuses.
async fn crowd(clients: SocketAddr, count: usize) -> Vec<u16> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        calls.spawn(async move {
            call(clients, Method::POST, CHAT, &[], &chat_body(false)).await.unwrap().0.as_u16()
        });
    }
    calls.join_all().await
}

/// The value of a series of this gateway.
async fn measured(house: &House, series: &str) -> f64 {
    let (_, text) = call(house.operators, Method::GET, "/metrics", &[], "").await.unwrap();
    let values = text.lines().filter(|line| line.starts_with(series));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn slow(latency_ms: u64) -> Behaviour {
    Behaviour { latency_ms: Some(latency_ms), ..Behaviour::default() }
}

#[tokio::test]
async fn f01_fifty_refusals_pass_unchanged_and_nothing_is_held_against_the_endpoint() {
    let body = r#"{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#;
    let raw = Raw::always(vec![Act::Say(json(400, body))]).await;
    let house = serve(&[("a", raw.address)], "{ failure_threshold: 1 }", "");
    for _ in 0..50 {
        let answer = call(house.clients, Method::POST, CHAT, &[], &chat_body(false)).await.unwrap();
        assert_eq!((answer.0.as_u16(), answer.1.as_str()), (400, body));
    }
    assert_eq!((raw.count(), state(&house, "a").await), (50, "closed".to_owned()));
    let neutral = "quorumgate_attempts_total{endpoint=\"m/a\",outcome=\"neutral\"}";
    assert_eq!(measured(&house, neutral).await, 50.0);
    assert_eq!(house.explain("m/a").await["votes"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn f02_a_429_keeps_the_streak_and_a_503_counts_unless_it_means_busy() {
    let limit = || vec![Act::Say(answer(429, "retry-after: 0\r\n", "{}"))];
    let raw = Raw::start(move |number, _| match number {
        2 => limit(),
        _ => vec![Act::Say(failed(500))],
    })
    .await;
    let house = serve(&[("a", raw.address)], "{ failure_threshold: 3 }", "");
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(ask(&house).await);
    }
    assert_eq!((told, raw.count()), (vec![500, 500, 429, 500, 503], 4));

    let raw = Raw::always(vec![Act::Say(answer(429, "retry-after: 30\r\n", "{}"))]).await;
    let (b, sibling) = mock("b").await;
    let house = serve(&[("a", raw.address), ("b", b)], "{}", "");
    for _ in 0..100 {
        assert_eq!(ask(&house).await, 200);
    }
    assert_eq!((raw.count() <= 1, sibling.counts().completed), (true, 100));
    assert_eq!(state(&house, "a").await, "closed");

    for (codes, expected) in [("[429]", "open"), ("[429, 503]", "closed")] {
        let raw = Raw::always(vec![Act::Say(answer(503, "retry-after: 0\r\n", "{}"))]).await;
        let breaker = format!("{{ failure_threshold: 3, capacity_status_codes: {codes} }}");
        let house = serve(&[("a", raw.address)], &breaker, "");
        for _ in 0..3 {
            assert_eq!(ask(&house).await, 503);
        }
        assert_eq!((raw.count(), state(&house, "a").await.as_str()), (3, expected));
    }
}

#[tokio::test]
async fn f04_two_hundred_clients_that_leave_are_no_samples() {
    let (address, mock) = mock("a").await;
    mock.set(slow(60_000));
    let house = serve(&[("a", address)], "{ failure_threshold: 1 }", "");
    let body = chat_body(false);
    let request =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = TcpStream::connect(house.clients).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        clients.push(client);
    }
    until("all are there", async || mock.counts().in_flight == 200).await;
    let left = Instant::now();
    drop(clients);
    until("all are let go", async || mock.counts().in_flight == 0).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    until("all slots are free", async || house.explain("m/a").await["in_flight"] == 0).await;
    let evidence = evidence(&house, "a").await;
    assert_eq!((&evidence["requests"], &evidence["streak"]), (&0.into(), &0.into()));
    let gone = |line: &&String| line.contains("\"proxy_status\":499");
    until("the log has them", async || house.log().iter().filter(gone).count() == 200).await;
    mock.set(Behaviour::default());
    assert_eq!((ask(&house).await, state(&house, "a").await), (200, "closed".to_owned()));
}

#[tokio::test]
async fn f05_the_limit_of_a_client_is_an_answer_and_says_nothing_about_the_endpoint() {
    let (address, mock) = mock("a").await;
    mock.set(slow(1_000));
    let house = serve(&[("a", address)], "{ failure_threshold: 1 }", "");
    for name in ["x-stainless-read-timeout", "x-stainless-timeout"] {
        for _ in 0..5 {
            let headers = [(name, "0.1")];
            let began = Instant::now();
            let answer = call(house.clients, Method::POST, CHAT, &headers, &chat_body(false)).await;
            let (status, body) = answer.unwrap();
            assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
            assert_eq!(status.as_u16(), 504, "{body}");
            assert!(body.contains("\"upstream_timeout\""), "{body}");
        }
    }
    until("the upstream is let go", async || mock.counts().aborted == 10).await;
    let told = house.explain("m/a").await;
    assert_eq!((&told["local"]["state"], &told["cooling_ms"]), (&"closed".into(), &0.into()));
    assert_eq!(told["evidence"]["requests"], 0);
    for nonsense in ["0", "-0", "-1", "soon", "NaN", "9.3e18", "1e19", "1e99", "1e300"] {
        let headers = [("x-stainless-read-timeout", nonsense)];
        mock.set(Behaviour::default());
        let answer = call(house.clients, Method::POST, CHAT, &headers, &chat_body(false)).await;
        assert_eq!(answer.unwrap().0.as_u16(), 200, "{nonsense}");
    }
}

#[tokio::test]
async fn a_client_that_takes_its_time_to_ask_has_its_own_limit_whole() {
    let (address, _mock) = mock("a").await;
    let house = serve(&[("a", address)], "{}", "");
    let body = chat_body(false);
    let mut client = TcpStream::connect(house.clients).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         x-stainless-read-timeout: 0.3\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn f08_one_fault_disables_nothing_and_three_within_the_window_do() {
    for (faults, expected) in [(1, "closed"), (3, "open")] {
        let raw = Raw::start(move |number, _| {
            vec![Act::Say(if number < faults { failed(500) } else { good("yes") })]
        })
        .await;
        let house = serve(&[("a", raw.address)], "{ failure_threshold: 3, window: 5m }", "");
        for number in 0..21 {
            let status = ask(&house).await;
            let is_out = expected == "open" && number >= faults;
            let told = if number < faults { 500 } else { 200 };
            assert_eq!(status, if is_out { 503 } else { told }, "{faults}: {number}");
        }
        assert_eq!(state(&house, "a").await, expected);
    }
}

/// Scaled: an endpoint that is down for 30 s is down for one cool-down here.
#[tokio::test]
async fn f11_an_endpoint_that_is_well_again_serves_again_without_probe_or_restart() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { status: Some(500), ..Behaviour::default() });
    let breaker = "{ failure_threshold: 1, open: { base: 300ms, max: 300ms }, \
                   ramp: { duration: 300ms }, probe: { enabled: false } }";
    let house = serve(&[("a", address)], breaker, "");
    assert_eq!((ask(&house).await, ask(&house).await), (500, 503));
    mock.set(Behaviour::default());
    let began = Instant::now();
    until("it serves", async || ask(&house).await == 200).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    until("it is closed", async || {
        ask(&house).await;
        state(&house, "a").await == "closed"
    })
    .await;
}

#[tokio::test]
async fn f12_b02_half_open_admits_one_of_five_hundred() {
    let (a, ill) = mock("a").await;
    let (b, well) = mock("b").await;
    ill.set(Behaviour { status: Some(500), ..Behaviour::default() });
    let breaker = "{ failure_threshold: 1, open: { base: 300ms, max: 300ms }, \
                   half_open: { share: 1.0 }, probe: { enabled: false } }";
    let house = serve(&[("a", a), ("b", b)], breaker, "");
    until("a is out", async || {
        ask(&house).await;
        state(&house, "a").await != "closed"
    })
    .await;
    ill.set(Behaviour { hang: Some(Hang::Accept), ..Behaviour::default() });
    until("half-open", async || state(&house, "a").await == "half-open").await;
    let before = (ill.counts().requests, well.counts().completed);
    let clients = house.clients;
    let crowd = tokio::spawn(crowd(clients, 500));
    until("499 are served", async || well.counts().completed >= before.1 + 499).await;
    assert!(ill.counts().requests <= before.0 + 1, "{}", ill.counts().requests - before.0);
    ill.set(Behaviour::default());
    crowd.abort();
}

/// The task of a probe is lost for a while with its whole process.
#[tokio::test]
async fn f13_a_probe_that_stands_still_with_its_process_does_not_keep_the_endpoint_out() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { status: Some(500), ..Behaviour::default() });
    let breaker = "{ failure_threshold: 1, open: { base: 200ms, max: 200ms }, \
                   probe: { first_token: 600ms } }";
    let house = serve(&[("a", address)], breaker, "");
    assert_eq!(ask(&house).await, 500);
    mock.set(Behaviour { hang: Some(Hang::Accept), ..Behaviour::default() });
    until("a probe is under way", async || mock.counts().in_flight == 1).await;
    house.signal("STOP");
    std::thread::sleep(Duration::from_millis(1_500));
    mock.set(Behaviour::default());
    house.signal("CONT");
    until("it serves", async || ask(&house).await == 200).await;
    until("no slot is out", async || house.explain("m/a").await["in_flight"] == 0).await;
}

#[tokio::test]
async fn f14_b11_a_request_goes_on_to_another_endpoint_and_never_back() {
    let raw = Raw::always(vec![Act::Say(failed(500))]).await;
    let (b, well) = mock("b").await;
    let more = "";
    let house = serve(&[("a", raw.address), ("b", b)], "{ failure_threshold: 1 }", more);
    for _ in 0..30 {
        assert_eq!(ask(&house).await, 200);
    }
    assert_eq!((raw.count(), well.counts().completed), (1, 30));
}

#[tokio::test]
async fn u31_a_request_that_kills_wherever_it_goes_reaches_two_and_its_like_one() {
    let script = |_: usize, seen: &raw::Seen| {
        if seen.text().contains("death") { vec![Act::Reset] } else { vec![Act::Say(good("yes"))] }
    };
    let (a, b, c) = (Raw::start(script).await, Raw::start(script).await, Raw::start(script).await);
    let all = [("a", a.address), ("b", b.address), ("c", c.address)];
    let house = serve(&all, "{ failure_threshold: 4 }", "");
    let body = chat_body(false).replace("hello", "death");
    let reached = || a.count() + b.count() + c.count();
    let answer = call(house.clients, Method::POST, CHAT, &[], &body).await.unwrap();
    assert_eq!((answer.0.as_u16(), reached()), (502, 2), "{}", answer.1);
    let answer = call(house.clients, Method::POST, CHAT, &[], &body).await.unwrap();
    assert_eq!((answer.0.as_u16(), reached()), (502, 3), "its like: {}", answer.1);
    let mut streaks = 0;
    for name in ["a", "b", "c"] {
        assert_eq!(state(&house, name).await, "closed");
        streaks += evidence(&house, name).await["streak"].as_u64().unwrap();
    }
    assert_eq!(streaks, 2, "one sample for each of the first two deaths, none for its like");
    assert_eq!(ask(&house).await, 200);
}

/// Scaled: six minutes between two slow answers are 1 s here, and the window of 30 s is 600 ms.
#[tokio::test]
async fn u34_two_slow_answers_further_apart_than_the_window_do_not_trip_and_nearer_ones_do() {
    let (address, mock) = mock("a").await;
    mock.set(slow(200));
    let breaker = "{ window: 600ms, min_requests: 1, slow: { total: 100ms, first_token: off, \
                   dedup: 150ms, confirmations: 2 } }";
    let house = serve(&[("a", address)], breaker, "");
    for _ in 0..3 {
        assert_eq!(ask(&house).await, 200);
        assert_eq!(evidence(&house, "a").await["slow_pieces"], 1);
        until("it is too old", async || evidence(&house, "a").await["slow_pieces"] == 0).await;
        assert_eq!(state(&house, "a").await, "closed");
    }
    assert_eq!((ask(&house).await, ask(&house).await), (200, 200));
    assert_eq!(state(&house, "a").await, "open");
    assert_eq!(local(&house, "a").await["reason"], "slow (total)");
}

/// Scaled: 30 s good and 30 s bad are 300 ms each, the first cool-down of 5 s is 50 ms.
#[tokio::test]
async fn u35_an_endpoint_that_flaps_is_left_alone_for_longer_each_time() {
    let (address, mock) = mock("a").await;
    let breaker = "{ failure_threshold: 1, open: { base: 50ms, max: 1600ms }, \
                   half_open: { successes: 1, share: 1.0 }, ramp: { duration: 0s }, \
                   probe: { enabled: false } }";
    let house = serve(&[("a", address)], breaker, "");
    let began = Instant::now();
    let (mut levels, mut asked, mut refused) = (Vec::new(), 0, 0);
    while began.elapsed() < Duration::from_secs(6) {
        let is_bad = (began.elapsed().as_millis() / 300) % 2 == 1;
        mock.set(Behaviour { status: is_bad.then_some(500), ..Behaviour::default() });
        asked += 1;
        refused += u32::from(ask(&house).await == 503);
        levels.push(local(&house, "a").await["level"].as_u64().unwrap());
    }
    let highest = *levels.iter().max().unwrap();
    assert!(highest >= 4, "the cool-down grows: {highest}");
    assert!(refused < asked, "it is not out for ever");
    let opened =
        "quorumgate_breaker_transitions_total{endpoint=\"m/a\",from=\"half-open\",to=\"open\"";
    let reopened = measured(&house, opened).await;
    let first = opened.replace("half-open", "closed");
    let all = reopened + measured(&house, &first).await;
    // With a cool-down that did not grow, each bad phase of 300 ms would see four openings or more.
    assert!(all <= 16.0, "{all} openings in ten bad phases");
}

#[tokio::test]
async fn x10_what_a_process_that_stood_still_measured_is_no_evidence() {
    let (address, mock) = mock("a").await;
    let breaker = "{ slow: { total: 600ms, first_token: off, dedup: 100ms, confirmations: 1 } }";
    let house = serve(&[("a", address)], breaker, "");
    mock.set(slow(1_800));
    let clients = house.clients;
    let calls = tokio::spawn(crowd(clients, 8));
    until("all are under way", async || mock.counts().in_flight == 8).await;
    house.signal("STOP");
    std::thread::sleep(Duration::from_millis(1_200));
    house.signal("CONT");
    assert_eq!(calls.await.unwrap(), [200; 8]);
    let told = house.explain("m/a").await;
    assert_eq!(
        (&told["local"]["state"], &told["evidence"]["slow_pieces"]),
        (&"closed".into(), &0.into())
    );
    assert!(house.log().iter().any(|line| line.contains("this process is late")));
    let (_, metrics) = call(house.operators, Method::GET, "/metrics", &[], "").await.unwrap();
    assert!(metrics.contains("quorumgate_self_lag_seconds "), "{metrics}");
    // The same without standing still.
    assert_eq!(crowd(clients, 8).await, [200; 8]);
    assert_eq!(state(&house, "a").await, "open");
}
