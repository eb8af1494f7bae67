//! The breaker against the running binary: what it remembers, what it only shows, what it compares.

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
use std::path::Path;
use std::process::Command;

use gateway::mock::{Behaviour, Mock};
use hyper::StatusCode;
use serde_json::Value;

use crate::process::{Gateway, endpoint_rows, until};

/// A gateway over one or two mock endpoints, with more in its configuration.
fn serve(directory: &Path, endpoints: &[(&str, SocketAddr)], more: &str) -> Gateway {
    let endpoints = endpoint_rows(endpoints);
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
{more}
models:
  - name: m
    on_all_open: reject
    endpoints:
{endpoints}"
    );
    Gateway::serve(directory, "gw", &yaml)
}

async fn local(gateway: &Gateway, key: &str) -> Value {
    gateway.explain(key).await["local"].clone()
}

fn failing(mock: &Mock) {
    mock.set(Behaviour { status: Some(500), ..Behaviour::default() });
}

#[tokio::test]
async fn b08_f42_a_gateway_that_was_killed_remembers_what_was_out() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    failing(&mock);
    let state = directory.path().join("state");
    let more = format!(
        "state: {{ file: {}, every: 1s }}\ncircuit_breaker: {{ open: {{ base: 60s }} }}",
        state.display()
    );
    let gateway = serve(directory.path(), &[("a", address)], &more);
    until("it opens", async || gateway.chat().await == StatusCode::SERVICE_UNAVAILABLE).await;
    // The file is written once a second; what matters is what it holds when the process dies.
    let before = std::fs::metadata(&state).ok().and_then(|file| file.modified().ok());
    until("the file is written", async || {
        let now = std::fs::metadata(&state).ok().and_then(|file| file.modified().ok());
        now.is_some() && now != before
    })
    .await;
    let left = local(&gateway, "m/a").await["remaining_ms"].as_u64().unwrap();
    gateway.kill();
    mock.set(Behaviour::default());
    let seen = mock.counts().requests;

    let again = serve(directory.path(), &[("a", address)], &more);
    assert_eq!(again.chat().await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(mock.counts().requests, seen, "the first choice already leaves it out");
    let local = local(&again, "m/a").await;
    assert_eq!(local["state"], "open");
    assert!(local["remaining_ms"].as_u64().unwrap() <= left, "{local} after {left} ms");
}

#[tokio::test]
async fn c05_a_restart_with_a_clock_that_ran_back_has_a_greater_generation() {
    let directory = tempfile::tempdir().unwrap();
    let (address, _mock) = process::mock("a").await;
    let state = directory.path().join("state");
    // The last life ran in the year 2100.
    let last: u64 = 4_102_444_800_000;
    std::fs::write(directory.path().join("state.generation"), last.to_string()).unwrap();
    let more = format!("state: {{ file: {} }}", state.display());
    let gateway = serve(directory.path(), &[("a", address)], &more);
    let members = gateway.look("/admin/v1/members").await;
    assert!(members["members"][0]["generation"].as_u64().unwrap() > last, "{members}");
}

#[tokio::test]
async fn x05_a_broken_state_file_is_set_aside_and_the_gateway_serves() {
    let directory = tempfile::tempdir().unwrap();
    let (address, _mock) = process::mock("a").await;
    let state = directory.path().join("state");
    std::fs::write(&state, b"not a state file").unwrap();
    let more = format!("state: {{ file: {} }}", state.display());
    let gateway = serve(directory.path(), &[("a", address)], &more);
    assert_eq!(gateway.chat().await, StatusCode::OK);
    assert!(directory.path().join("state.bad").is_file());
    assert!(gateway.log().iter().any(|line| line.contains("the state file was of no use")));
}

#[tokio::test]
async fn shadow_decides_and_shows_and_never_reroutes() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    failing(&mock);
    let gateway = serve(directory.path(), &[("a", address)], "circuit_breaker: { mode: shadow }");
    for _ in 0..20 {
        assert_eq!(gateway.chat().await, StatusCode::INTERNAL_SERVER_ERROR);
    }
    assert_eq!(mock.counts().requests, 20, "every request went there all the same");
    let view = gateway.explain("m/a").await;
    assert_eq!(
        (&view["local"]["mode"], &view["local"]["state"]),
        (&"shadow".into(), &"open".into())
    );
    let verdict = view["verdict"].as_str().unwrap();
    let wanted = "in: as a shadow it would be out because its breaker opened (consecutive faults)";
    assert_eq!((verdict, &view["in_rotation"]), (wanted, &true.into()));
    assert_eq!(view["cluster"]["votes_counted"], 0, "a shadow's vote does not count");
    assert_eq!(view["votes"][0]["weight"], "shadow", "it is shown all the same: {view}");
}

#[tokio::test]
async fn u32_f09_forty_requests_slow_at_once_are_one_piece_of_evidence() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    mock.set(Behaviour { latency_ms: Some(1_500), ..Behaviour::default() });
    let slow = "circuit_breaker: { slow: { total: 500ms, first_token: off, dedup: 5s } }";
    let gateway = serve(directory.path(), &[("a", address)], slow);
    let mut calls = tokio::task::JoinSet::new();
    let clients = gateway.clients;
    for _ in 0..40 {
        calls.spawn(async move {
            let body = process::chat_body(false);
            process::call(clients, hyper::Method::POST, process::CHAT, &[], &body).await.unwrap().0
        });
    }
    while let Some(status) = calls.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    let view = gateway.explain("m/a").await;
    assert_eq!(view["evidence"]["slow_pieces"], 1, "{view}");
    assert_eq!(view["local"]["state"], "closed");
}

#[tokio::test]
async fn a_stream_that_falls_below_its_pace_is_slow_while_it_still_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    let crawling = Behaviour { interval_ms: Some(500), tokens: 60, ..Behaviour::default() };
    mock.set(crawling);
    let pace = "circuit_breaker: { slow: { min_tokens_per_second: 20 } }";
    let gateway = serve(directory.path(), &[("a", address)], pace);
    let clients = gateway.clients;
    let stream = tokio::spawn(async move {
        let body = process::chat_body(true);
        process::call(clients, hyper::Method::POST, process::CHAT, &[], &body).await
    });
    until("slow evidence", async || gateway.explain("m/a").await["evidence"]["slow_pieces"] == 1)
        .await;
    assert_eq!(mock.counts().in_flight, 1, "the stream still runs");
    stream.abort();
}

#[tokio::test]
async fn an_endpoint_much_slower_than_its_siblings_is_taken_out() {
    let directory = tempfile::tempdir().unwrap();
    let (mut endpoints, mut mocks) = (Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let (address, mock) = process::mock(name).await;
        endpoints.push((name, address));
        mocks.push(mock);
    }
    // Beside siblings that take no time at all the machine's own hiccups would be four times as long.
    for (mock, latency) in mocks.iter().zip([25, 200, 25]) {
        mock.set(Behaviour { latency_ms: Some(latency), ..Behaviour::default() });
    }
    let relative = "circuit_breaker: { slow: { relative: 4 } }";
    let gateway = serve(directory.path(), &endpoints, relative);
    let clients = gateway.clients;
    let stream = process::chat_body(true);
    until("b is found out", async || {
        for _ in 0..10 {
            let call = process::call(clients, hyper::Method::POST, process::CHAT, &[], &stream);
            assert_eq!(call.await.unwrap().0, StatusCode::OK);
        }
        local(&gateway, "m/b").await["state"] == "open"
    })
    .await;
    assert_eq!(local(&gateway, "m/b").await["reason"], "slower than its siblings");
    assert_eq!(local(&gateway, "m/a").await["state"], "closed");
}

#[tokio::test]
async fn a_health_path_that_fails_opens_without_any_traffic() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    failing(&mock);
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
circuit_breaker: {{ failure_threshold: 2 }}
models:
  - name: m
    endpoints:
      - name: a
        address: \"http://{address}\"
        health_path: /health
        health_interval: 1s
        health_timeout: 500ms
"
    );
    let gateway = Gateway::serve(directory.path(), "health", &yaml);
    until("it opens", async || local(&gateway, "m/a").await["state"] == "open").await;
    assert_eq!(mock.counts().requests - mock.counts().probes, 0, "no request was sent");
}

#[tokio::test]
async fn replay_tells_when_a_recorded_log_would_have_tripped() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = process::mock("a").await;
    failing(&mock);
    let gateway = serve(directory.path(), &[("a", address)], "circuit_breaker: { mode: off }");
    for _ in 0..6 {
        assert_eq!(gateway.chat().await, StatusCode::INTERNAL_SERVER_ERROR);
    }
    until("the log is there", async || {
        gateway.log().iter().filter(|line| line.contains("\"access\"")).count() == 6
    })
    .await;
    let log = directory.path().join("access.log");
    std::fs::write(&log, gateway.log().join("\n")).unwrap();
    let config = directory.path().join("try.yaml");
    let yaml = format!(
        "models: [{{ name: m, endpoints: [{{ name: a, address: \"http://{address}\" }}] }}]"
    );
    std::fs::write(&config, yaml).unwrap();
    let replay = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_quorumgate"))
            .arg("replay")
            .arg(&log)
            .arg("--config")
            .arg(&config)
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(replay(&[]).contains("consecutive faults"), "{}", replay(&[]));
    let json: Value = serde_json::from_str(&replay(&["-o", "json"])).unwrap();
    assert_eq!(json["endpoints"][0]["trips"].as_array().unwrap().len(), 1, "{json}");
}
