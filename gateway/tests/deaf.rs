//! A gateway whose log nobody reads serves on: its reader is stuck, or gone.
//!
//! The log is a pipe as from a supervisor. What is claimed holds for the real process alone, so that
//! one is started.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod process;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use hyper::{Method, StatusCode};
use process::{BINARY, CHAT, PATIENCE, call, chat_body, endpoint_rows, mock};
use serde_json::Value;

/// A gateway and its log, read as far as to the line that it serves.
struct Gateway {
    child: Child,
    log: Option<BufReader<ChildStderr>>,
    clients: SocketAddr,
    operators: SocketAddr,
}

impl Gateway {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (address, _mock) = mock("a").await;
        let file = directory.path().join("deaf.yaml");
        let yaml = format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1, drain_delay: 0s }}\n\
             admin: {{ listen: 127.0.0.1:0 }}\n\
             log: {{ format: json, level: info }}\n\
             models:\n  - name: m\n    endpoints:\n{}",
            endpoint_rows(&[("a", address)])
        );
        std::fs::write(&file, yaml).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&file).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let event = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "it does not serve: {seen}");
            match serde_json::from_str::<Value>(&line) {
                Ok(event) if event["message"] == "serving" => break event,
                _ => seen.push_str(&line),
            }
        };
        let address = |key: &str| event[key].as_str().unwrap().parse().unwrap();
        let (clients, operators) = (address("clients"), address("operators"));
        Self { child, log: Some(log), clients, operators }
    }

    async fn serves(&self, requests: u32) {
        let body = chat_body(false);
        for request in 0..requests {
            let asked = call(self.clients, Method::POST, CHAT, &[], &body);
            let answer = tokio::time::timeout(PATIENCE, asked).await;
            let answer = answer.unwrap_or_else(|_| panic!("request {request} is not answered"));
            assert_eq!(answer.unwrap().0, StatusCode::OK, "request {request}");
        }
    }

    /// Ends it as a supervisor does, and waits for it.
    async fn end(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        None
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_reader_is_stuck_holds_nobody_up() {
    let mut gateway = Gateway::start().await;
    // A pipe takes 64 KiB, and a line is some 400 bytes.
    gateway.serves(600).await;
    assert_eq!(gateway.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_reader_is_gone_ends_nobody_and_its_lines_are_counted() {
    let mut gateway = Gateway::start().await;
    drop(gateway.log.take());
    gateway.serves(20).await;
    let told = call(gateway.operators, Method::GET, "/metrics", &[], "").await.unwrap().1;
    let line = told.lines().find(|line| line.starts_with("quorumgate_log_lines_lost_total "));
    let lost: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    // The last may still be on its way.
    assert!(lost >= 15, "{lost}");
    assert_eq!(gateway.end().await, Some(0));
}
