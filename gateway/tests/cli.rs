//! The command line as a stranger meets it: bad configuration, the walk-through, the demo.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;
#[path = "cli/slips.rs"]
mod slips;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::process::{CHAT, Gateway, call, chat_body, until};

const GOOD: &str =
    "models:\n  - name: m\n    endpoints:\n      - { name: a, address: \"http://127.0.0.1:1\" }\n";

fn quorumgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorumgate")).args(arguments).output().unwrap()
}

fn check(yaml: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    std::fs::write(&file, yaml).unwrap();
    let output = quorumgate(&["check", file.to_str().unwrap()]);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Asserts that the configuration is refused with one line that says each of `told`.
fn refused(yaml: &str, told: &[&str]) {
    let (code, error) = check(yaml);
    assert_eq!(code, Some(64), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for part in told {
        assert!(error.contains(part), "{part:?} is missing in {error:?}");
    }
}

#[test]
fn k01_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    refused(
        &format!("server:\n  listn: 127.0.0.1:0\n{GOOD}"),
        &["gw.yaml:2:3", "listn", "\"listen\""],
    );
}

#[test]
fn k02_a_bad_duration_is_refused_with_the_cure() {
    let yaml = format!("timeouts:\n  connect: 10 secs\n{GOOD}");
    refused(&yaml, &["gw.yaml:2:", "timeouts.connect", "10s"]);
}

#[test]
fn a_doubled_endpoint_is_refused_with_its_place() {
    let doubled = "      - { name: a, address: \"http://127.0.0.1:2\" }\n";
    refused(&format!("{GOOD}{doubled}"), &["gw.yaml:5:", "(a).name", "taken in line 4"]);
}

#[test]
fn a_tab_is_refused_with_the_cure() {
    refused(&format!("server:\n\tlisten: 127.0.0.1:0\n{GOOD}"), &["gw.yaml:2:", "with spaces"]);
}

#[test]
fn k08_an_unset_variable_is_refused_by_its_name() {
    let yaml = format!("admin:\n  token: ${{QUORUMGATE_TEST_UNSET}}\n{GOOD}");
    refused(&yaml, &["gw.yaml:2:", "QUORUMGATE_TEST_UNSET"]);
}

#[test]
fn a_variable_overrides_the_file_and_a_mistyped_one_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    std::fs::write(&file, format!("server: {{ listen: 127.0.0.1:1 }}\n{GOOD}")).unwrap();
    let by = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorumgate"));
        command.arg("check").arg(&file).env(name, "127.0.0.1:8081").output().unwrap()
    };
    let output = by("QUORUMGATE__SERVER__LISTEN");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.contains("listen: 127.0.0.1:8081"), "{shown}");
    let output = by("QUORUMGATE__SERVER__LISTN");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert!(
        error.contains("QUORUMGATE__SERVER__LISTN: ") && error.contains("\"listen\""),
        "{error}"
    );
    assert!(!error.contains("8081"), "{error}");
    // The variables of the operators' commands are none of the configuration.
    assert!(by("QUORUMGATE_ADMIN").status.success());
}

#[test]
fn an_unreadable_file_is_refused_by_its_name() {
    let output = quorumgate(&["serve", "--config", "/nonexistent/gw.yaml"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(error.lines().count() == 1 && error.contains("/nonexistent/gw.yaml"), "{error}");
}

#[test]
fn a_good_file_is_shown_with_its_secrets_masked_and_can_be_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    std::fs::write(&file, format!("admin:\n  token: sk-CANARY-1\n{GOOD}")).unwrap();
    let output = quorumgate(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(!shown.contains("sk-CANARY-1") && shown.contains("failure_threshold: 4"), "{shown}");
    assert_eq!(check(&shown).0, Some(0));
}

#[test]
fn a_port_that_is_taken_is_one_line_and_exit_69() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    let address = taken.local_addr().unwrap();
    let yaml =
        format!("admin: {{ listen: \"{address}\" }}\nserver: {{ listen: 127.0.0.1:0 }}\n{GOOD}");
    std::fs::write(&file, yaml).unwrap();
    let output = quorumgate(&["serve", "--config", file.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{error}");
    assert!(
        error.contains(&address.to_string()) && error.contains("is the port taken?"),
        "{error}"
    );
}

#[test]
fn the_demo_tells_its_story_and_ends_well_within_ninety_seconds() {
    let began = Instant::now();
    let output = quorumgate(&["demo", "--exit"]);
    let story = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{story}");
    assert!(began.elapsed() < Duration::from_secs(90));
    assert!(story.contains("VERDICT: as promised. flip latency"), "{story}");
    assert!(story.contains("1 probe, 0 errors"), "{story}");
}

#[test]
fn certificates_are_made_once_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    assert_eq!(quorumgate(&["certs", "init", "--dir", dir]).status.code(), Some(0));
    assert_eq!(quorumgate(&["certs", "issue", "gw-1", "--dir", dir]).status.code(), Some(0));
    for name in ["ca.crt", "ca.key", "gw-1.crt", "gw-1.key"] {
        assert!(Path::new(dir).join(name).is_file(), "{name}");
    }
    let again = quorumgate(&["certs", "init", "--dir", dir]);
    assert_eq!(again.status.code(), Some(69));
    assert_eq!(String::from_utf8(again.stderr).unwrap().lines().count(), 1);
}

/// The gateway of the fourth design document, with its times divided by five.
async fn walk_through(directory: &Path) -> (std::net::SocketAddr, Gateway) {
    let (upstream, _) = process::mock("llm-primary").await;
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
fail_closed: {{ require_header: x-agent-id, allowed_paths: [/v1/chat/completions] }}
circuit_breaker: {{ failure_threshold: 3, open: {{ base: 1s, max: 6s }}, half_open: {{ successes: 1 }}, ramp: {{ duration: 0s }} }}
timeouts: {{ first_byte: 2s }}
models:
  - name: m
    on_all_open: reject
    endpoints: [ {{ name: llm-primary, address: \"http://{upstream}\" }} ]
"
    );
    (upstream, Gateway::serve(directory, "walk", &yaml))
}

async fn ask(gateway: &Gateway, agent: Option<&str>) -> (u16, Value) {
    let headers: Vec<_> = agent.map(|agent| ("x-agent-id", agent)).into_iter().collect();
    let answer = call(gateway.clients, Method::POST, CHAT, &headers, &chat_body(false)).await;
    let (status, body) = answer.unwrap();
    (status.as_u16(), serde_json::from_str(&body).unwrap())
}

async fn switch(upstream: std::net::SocketAddr, fault: &str, on: bool) {
    let path = format!("/__admin/{fault}");
    let body = json!({ fault: on }).to_string();
    let (status, _) = call(upstream, Method::POST, &path, &[], &body).await.unwrap();
    assert_eq!(status, StatusCode::OK);
}

async fn seen_by(upstream: std::net::SocketAddr) -> u64 {
    let (_, body) = call(upstream, Method::GET, "/__admin/counts", &[], "").await.unwrap();
    let counts: Value = serde_json::from_str(&body).unwrap();
    counts["requests"].as_u64().unwrap() - counts["probes"].as_u64().unwrap()
}

#[tokio::test]
async fn the_walk_through_of_the_design_document_holds_step_by_step() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, gateway) = walk_through(directory.path()).await;

    // A missing header is refused before anything is sent.
    let (status, body) = ask(&gateway, None).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("missing_required_header")));
    assert_eq!(seen_by(upstream).await, 0);
    assert_eq!(ask(&gateway, Some("agent-demo")).await.0, 200);
    let has_tokens =
        |line: &String| line.contains("\"input_tokens\":") && line.contains("\"output_tokens\":");
    until("the line is written", async || gateway.log().iter().any(has_tokens)).await;

    // Three failures are passed on, the fourth request meets the open circuit.
    switch(upstream, "fail", true).await;
    let before = seen_by(upstream).await;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, Some("agent-demo")).await.0, 502);
    }
    let (status, body) = ask(&gateway, Some("agent-demo")).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("circuit_open")));
    // The first two were asked for once more each; after the third the circuit was open.
    assert_eq!(seen_by(upstream).await, before + 2 + 2 + 1);

    // After the open time it recovers by itself.
    switch(upstream, "fail", false).await;
    until("it recovers", async || ask(&gateway, Some("agent-demo")).await.0 == 200).await;
    let view = gateway.explain("m/llm-primary").await;
    assert_eq!(view["local"]["state"], "closed", "{view}");

    // A slow answer is a time-out of the gateway's, and counts.
    switch(upstream, "slow", true).await;
    let (status, body) = ask(&gateway, Some("agent-demo")).await;
    assert_eq!((status, &body["error"]["code"]), (504, &json!("upstream_timeout")));
    assert_eq!(gateway.explain("m/llm-primary").await["evidence"]["streak"], 1);
}

#[tokio::test]
async fn the_operators_listener_wants_its_token_and_the_read_only_one_may_only_look() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, mock) = process::mock("a").await;
    mock.set(Behaviour::default());
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0, token: sk-CANARY-full, read_token: sk-CANARY-read }}
log: {{ format: json, level: trace }}
models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://{upstream}\", api_key: sk-CANARY-up }} ] }} ]
"
    );
    let gateway = Gateway::serve(directory.path(), "admin", &yaml);
    let operators = gateway.operators;
    let look = async |token: &str| {
        let headers = [("authorization", token)];
        let path = "/admin/v1/endpoints";
        call(operators, Method::GET, path, &headers, "").await.unwrap().0.as_u16()
    };
    assert_eq!(look("").await, 401);
    assert_eq!(look("Bearer wrong").await, 401);
    assert_eq!(look("Bearer sk-CANARY-read").await, 200);
    assert_eq!(look("Bearer sk-CANARY-full").await, 200);

    let force = async |token: &str, body: &str| {
        let headers = [("authorization", token)];
        let path = "/admin/v1/endpoints/m/a/override";
        call(operators, Method::POST, path, &headers, body).await.unwrap().0.as_u16()
    };
    // It is the only endpoint, so that whoever forces it out has to mean it.
    let order = r#"{"state":"force_open","for":"1m","reason":"test","confirm":true}"#;
    assert_eq!(force("Bearer sk-CANARY-read", order).await, 403);
    assert_eq!(force("Bearer sk-CANARY-full", r#"{"state":"force_open"}"#).await, 400);
    assert_eq!(force("Bearer sk-CANARY-full", r#"{"state":"shut"}"#).await, 400);
    assert_eq!(force("Bearer sk-CANARY-full", order).await, 200);
    until("it is out", async || gateway.chat().await == StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(force("Bearer sk-CANARY-full", r#"{"state":"auto"}"#).await, 200);
    until("it is in", async || gateway.chat().await == StatusCode::OK).await;

    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, body) = call(operators, Method::GET, path, &[], "").await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(!body.contains("CANARY"), "{path} tells a secret");
    }
    let log = gateway.log().join("\n");
    assert!(!log.contains("CANARY"), "the log tells a secret");
}

#[tokio::test]
async fn the_metrics_carry_the_names_of_the_interface() {
    let directory = tempfile::tempdir().unwrap();
    let (_, gateway) = walk_through(directory.path()).await;
    assert_eq!(ask(&gateway, Some("agent")).await.0, 200);
    assert_eq!(ask(&gateway, None).await.0, 403);
    let (_, text) = call(gateway.operators, Method::GET, "/metrics", &[], "").await.unwrap();
    for line in [
        "quorumgate_requests_total{model=\"m\",code=\"200\"} 1",
        "quorumgate_admission_rejects_total{reason=\"missing_required_header\"} 1",
        "quorumgate_attempts_total{endpoint=\"m/llm-primary\",outcome=\"success\"} 1",
        "quorumgate_breaker_state{endpoint=\"m/llm-primary\",scope=\"local\"} 0",
        "quorumgate_breaker_state{endpoint=\"m/llm-primary\",scope=\"cluster\"} 0",
        "quorumgate_votes{endpoint=\"m/llm-primary\"} 0",
        "quorumgate_quorum_required 1",
        "quorumgate_electorate 1",
        "quorumgate_members{state=\"live\"} 1",
        "quorumgate_pool_all_open{model=\"m\"} 0",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn an_imported_file_passes_the_check_once_its_variables_are_set() {
    let directory = tempfile::tempdir().unwrap();
    let (theirs, ours) = (directory.path().join("config.yml"), directory.path().join("gw.yml"));
    std::fs::write(
        &theirs,
        "model_list:
  - model_name: llama
    litellm_params: { model: hosted_vllm/meta/llama, api_base: http://10.0.0.1:8000/v1, rpm: 5 }
  - model_name: llama
    litellm_params: { model: gpt-4o, api_key: sk-CANARY-clear }
  - { model_name: nova, litellm_params: { model: bedrock/nova } }
general_settings: { master_key: os.environ/MASTER }
",
    )
    .unwrap();
    let (from, to) = (theirs.to_str().unwrap(), ours.to_str().unwrap());
    let output = quorumgate(&["import", "litellm", from]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("set LLAMA_OPENAI_KEY to it"), "{told}");
    std::fs::write(&ours, &output.stdout).unwrap();
    let yaml = String::from_utf8(output.stdout).unwrap();
    assert!(!format!("{told}{yaml}").contains("CANARY"), "{told}{yaml}");

    let unset = quorumgate(&["check", to]);
    assert_eq!(unset.status.code(), Some(64));
    let checked = Command::new(env!("CARGO_BIN_EXE_quorumgate"))
        .args(["check", to])
        .envs([("LLAMA_OPENAI_KEY", "x"), ("MASTER", "y"), ("MASTER_SHA256", &*"1".repeat(64))])
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));

    let document = quorumgate(&["import", "litellm", from, "-o", "json"]).stdout;
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["yaml"], yaml);
    assert!(document["notes"][0].as_str().unwrap().contains("bedrock"), "{document}");
    for (file, part) in [("/nonexistent", "/nonexistent"), (to, "there is no model_list")] {
        let refused = quorumgate(&["import", "litellm", file]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(64));
        assert!(error.lines().count() == 1 && error.contains(part), "{error}");
    }
}

#[test]
fn what_is_printed_for_editors_and_shells_is_what_they_read() {
    let schema = quorumgate(&["schema"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema, gateway::config::schema());
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(quorumgate(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("endpoints") && script.contains("explain"), "{shell}");
    }
}

#[test]
fn help_names_the_codes_and_a_slip_is_64_with_what_to_write() {
    let help = quorumgate(&["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for part in ["quorumgate explain", "quorumgate close", "QUORUMGATE_TOKEN", "77 the token"] {
        assert!(help.contains(part), "{part:?} is missing in\n{help}");
    }
    for verb in ["endpoints", "open", "drain", "events", "top", "reload", "join"] {
        let output = quorumgate(&[verb, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text.contains("Exit codes: 0") && text.contains("--admin"), "{text}");
    }
    let slip = quorumgate(&["endpoint"]);
    assert_eq!(slip.status.code(), Some(64));
    let error = String::from_utf8(slip.stderr).unwrap();
    assert!(error.contains("'endpoints'"), "{error}");
}
