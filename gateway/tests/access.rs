//! The access log: one line of JSON a request, whatever it is made of.
//!
//! What is claimed is about what stands on stderr, so that a real process is started.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::collections::BTreeSet;

use gateway::mock::Behaviour;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{CHAT, Gateway, endpoint_rows, mock, until};

/// The fields that a line of a request may have; those of the specification come first.
const FIELDS: [&str; 20] = [
    "request_id",
    "agent_id",
    "model",
    "endpoint",
    "upstream_status",
    "proxy_status",
    "latency_ms",
    "first_token_ms",
    "attempts",
    "blocked_reason",
    "input_tokens",
    "output_tokens",
    "caller",
    "repeat",
    "fallback",
    "end",
    "timestamp",
    "level",
    "target",
    "message",
];
/// Of these, those that every line has, and a line of a request that was served.
const ALWAYS: usize = 7;
const SERVED: usize = 12;

async fn gateway(directory: &std::path::Path) -> (Gateway, gateway::mock::Mock) {
    let (address, a) = mock("a").await;
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         log: {{ format: json, level: trace }}\nmodels:\n  - name: m\n    endpoints:\n{}",
        endpoint_rows(&[("a", address)])
    );
    (Gateway::serve(directory, "gw", &yaml), a)
}

/// The lines of requests, once there are so many.
async fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let lines = || {
        let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        let all = gateway.log().iter().map(read).collect::<Vec<_>>().into_iter();
        all.filter(|line| line["target"] == "access").collect::<Vec<_>>()
    };
    until("the requests are logged", async || lines().len() >= count).await;
    let lines = lines();
    assert_eq!(lines.len(), count);
    lines
}

/// Sends bytes as they are, and reads the answer to its end.
async fn send(gateway: &Gateway, head: &[u8], body: &str) -> String {
    let mut stream = TcpStream::connect(gateway.clients).await.unwrap();
    stream.write_all(head).await.unwrap();
    let rest = format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn question(model: &str, prompt: &str) -> String {
    let message = json!({ "role": "user", "content": prompt });
    json!({ "model": model, "messages": [message] }).to_string()
}

#[tokio::test]
async fn a_line_has_the_promised_fields_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let (gateway, a) = gateway(directory.path()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-agent-id: agent-7\r\nx-request-id: id-7\r\n");
    assert!(send(&gateway, head.as_bytes(), &question("m", "hello")).await.contains(" 200 "));
    assert!(send(&gateway, head.as_bytes(), &question("no", "hello")).await.contains(" 404 "));
    a.set(Behaviour { status: Some(500), ..Behaviour::default() });
    assert!(send(&gateway, head.as_bytes(), &question("m", "hello")).await.contains(" 500 "));
    let lines = lines(&gateway, 3).await;
    let known: BTreeSet<&str> = FIELDS.into_iter().collect();
    for line in &lines {
        let names: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(names.is_subset(&known), "{names:?}");
        let always = FIELDS.into_iter().take(ALWAYS).chain(["attempts", "blocked_reason"]);
        assert!(always.collect::<BTreeSet<_>>().is_subset(&names), "{names:?}");
    }
    let [served, unknown, failed] = lines.as_slice() else { panic!("{lines:?}") };
    for field in FIELDS.into_iter().take(SERVED) {
        assert!(!served[field].is_null(), "{field} in {served}");
    }
    assert_eq!((&served["request_id"], &served["agent_id"]), (&json!("id-7"), &json!("agent-7")));
    assert_eq!((&served["model"], &served["endpoint"]), (&json!("m"), &json!("m/a")));
    assert_eq!((&served["upstream_status"], &served["proxy_status"]), (&json!(200), &json!(200)));
    assert_eq!((&served["attempts"], &served["blocked_reason"]), (&json!(1), &json!("")));
    assert_eq!(unknown["blocked_reason"], "model_not_found");
    assert_eq!((&unknown["model"], &unknown["endpoint"]), (&json!(""), &json!("")));
    assert_eq!((&failed["upstream_status"], &failed["proxy_status"]), (&json!(500), &json!(500)));
}

#[tokio::test]
async fn m14_nobody_forges_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let (gateway, _) = gateway(directory.path()).await;
    let forged =
        "\",\"proxy_status\":200}\r\n{\"target\":\"access\",\"model\":\"forged\"}\u{1b}[2J\u{2028}";
    // A header cannot hold a line end; what it can hold is tried with everything else.
    for (header, value) in [
        ("x-agent-id", "\",\"model\":\"forged\"}{\"".to_owned()),
        ("x-agent-id", format!("{}forged\u{1b}[2J", "a".repeat(100))),
        ("x-agent-id", "\u{9b}31mforged\u{85}".to_owned()),
        ("x-request-id", "\u{1b}]0;forged\u{7}".to_owned()),
        ("user-agent", "forged\u{1b}[2J".to_owned()),
        ("traceparent", "forged\"}".to_owned()),
    ] {
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\n{header}: {value}\r\n");
        send(&gateway, head.as_bytes(), &question(forged, forged)).await;
        send(&gateway, head.as_bytes(), &question("m", forged)).await;
    }
    let path = "/v1/%0d%0a%7b%22target%22:%22access%22%7d%1b[2J";
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n");
    send(&gateway, head.as_bytes(), &question("m", "x")).await;
    until("the last is logged", async || {
        gateway.log().iter().any(|line| line.contains("path_not_allowed"))
    })
    .await;
    for line in gateway.log() {
        let is_plain = line.chars().all(|one| !one.is_control() && one != '\u{2028}');
        assert!(is_plain, "{}", line.escape_debug());
        let line: Value = serde_json::from_str(&line).unwrap();
        // Whatever was sent is a text in a field, or is not there at all.
        assert!(line["model"] != "forged" && line.get("forged").is_none(), "{line}");
        for field in ["model", "endpoint", "blocked_reason", "end", "message"] {
            assert!(!line[field].as_str().unwrap_or_default().contains("forged"), "{line}");
        }
    }
}
