//! The synthetic probe of the running binary: what it asks of which server, what it takes for an answer,
//! and that nothing that happens to it keeps its endpoint half-open.

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
use std::path::Path;

use gateway::mock::{Behaviour, Hang, Mock};
use hyper::Method;
use serde_json::Value;

use crate::process::{CHAT, Gateway, call, chat_body, mock, until};
use crate::raw::{Act, Raw, failed, whole_stream};

/// One endpoint for each model, by its name; one fault opens, and the first cool-down is short.
fn serve(directory: &Path, endpoints: &[(&str, SocketAddr, &str)]) -> Gateway {
    let models: String = endpoints
        .iter()
        .map(|(name, address, more)| {
            format!(
                "  - {{ name: {name}, on_all_open: reject, endpoints: [ {{ name: a, \
                 address: \"http://{address}\"{more} }} ] }}\n"
            )
        })
        .collect();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
retry: {{ on: [] }}
circuit_breaker: {{ failure_threshold: 1, open: {{ base: 200ms, max: 400ms }}, \
         probe: {{ first_token: 500ms }} }}
models:
{models}"
    );
    Gateway::serve(directory, "gw", &yaml)
}

async fn ask(gateway: &Gateway, model: &str) -> u16 {
    let body = chat_body(false).replace("\"m\"", &format!("\"{model}\""));
    call(gateway.clients, Method::POST, CHAT, &[], &body).await.unwrap().0.as_u16()
}

async fn local(gateway: &Gateway, model: &str) -> Value {
    gateway.explain(&format!("{model}/a")).await["local"].clone()
}

/// Whether the endpoint has got beyond its probe.
async fn has_passed(gateway: &Gateway, model: &str) -> bool {
    let local = local(gateway, model).await;
    local["state"] == "closed" || (local["state"] == "half-open" && local["rung"] != "probe")
}

/// The value of a counter of this gateway.
async fn counted(gateway: &Gateway, series: &str) -> u64 {
    let (_, text) = call(gateway.operators, Method::GET, "/metrics", &[], "").await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

fn ill() -> Behaviour {
    Behaviour { status: Some(500), ..Behaviour::default() }
}

/// Opens the circuit, and has the endpoint behave so from there on.
async fn opens(gateway: &Gateway, model: &str, mock: &Mock, then: Behaviour) {
    mock.set(ill());
    assert_eq!(ask(gateway, model).await, 500);
    mock.set(then);
    assert_ne!(local(gateway, model).await["state"], "closed");
}

#[tokio::test]
async fn the_first_token_decides_and_not_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mock) = mock("a").await;
    let gateway = serve(directory.path(), &[("m", address, "")]);
    let late = Behaviour { first_token_ms: Some(60_000), ..Behaviour::default() };
    opens(&gateway, "m", &mock, late).await;
    let failures = "quorumgate_probes_total{endpoint=\"m/a\",result=\"failed\"}";
    until("a late one fails", async || counted(&gateway, failures).await >= 1).await;
    assert!(!has_passed(&gateway, "m").await);
    // The whole answer takes far longer than the limit for its first token.
    mock.set(Behaviour { interval_ms: Some(60_000), tokens: 16, ..Behaviour::default() });
    until("it passes", async || has_passed(&gateway, "m").await).await;
    assert!(mock.counts().requests > mock.counts().completed);
}

#[tokio::test]
async fn b01_f13_whatever_happens_to_a_probe_its_slot_is_free_and_the_endpoint_returns() {
    let directory = tempfile::tempdir().unwrap();
    let fate = |change: fn(&mut Behaviour)| {
        let mut behaviour = Behaviour::default();
        change(&mut behaviour);
        behaviour
    };
    let fates = [
        ("refusal", fate(|it| it.status = Some(400)), "inconclusive"),
        ("limit", fate(|it| it.status = Some(429)), "inconclusive"),
        ("key", fate(|it| it.status = Some(401)), "inconclusive"),
        ("garbage", fate(|it| it.body = Some("<html>".to_owned())), "failed"),
        ("embedded", fate(|it| it.error_in_stream = true), "failed"),
        ("reset", fate(|it| it.reset = true), "failed"),
        ("silence", fate(|it| it.hang = Some(Hang::Accept)), "failed"),
        ("head", fate(|it| it.hang = Some(Hang::Head)), "failed"),
        ("cut", fate(|it| it.cut_after_tokens = Some(0)), "failed"),
        ("status", fate(|it| it.status = Some(503)), "failed"),
    ];
    let mut mocks = Vec::new();
    for (name, _, _) in &fates {
        mocks.push(mock(name).await);
    }
    // However long a probe may take, three of them that say nothing are enough.
    let patient = ", circuit_breaker: { probe: { first_token: 80s } }";
    let more = |name| if name == "refusal" { patient } else { "" };
    let endpoints: Vec<_> = fates
        .iter()
        .zip(&mocks)
        .map(|((name, ..), (address, _))| (*name, *address, more(*name)))
        .collect();
    let gateway = serve(directory.path(), &endpoints);
    for ((name, fate, _), (_, mock)) in fates.iter().zip(&mocks) {
        opens(&gateway, name, mock, fate.clone()).await;
    }
    for ((name, _, result), (_, mock)) in fates.iter().zip(&mocks) {
        let series =
            format!("quorumgate_probes_total{{endpoint=\"{name}/a\",result=\"{result}\"}}");
        until(name, async || counted(&gateway, &series).await >= 2).await;
        if *result == "failed" {
            assert!(!has_passed(&gateway, name).await, "{name}");
        } else {
            // Three that say nothing leave it to canaries, and no probe alone closes it then.
            until(name, async || local(&gateway, name).await["rung"] == "canary").await;
        }
        mock.set(Behaviour::default());
    }
    for (name, ..) in &fates {
        until(name, async || has_passed(&gateway, name).await).await;
        until("the slot is free", async || {
            gateway.explain(&format!("{name}/a")).await["in_flight"] == 0
        })
        .await;
    }
}

#[tokio::test]
async fn an_engine_whose_cache_is_full_does_not_come_back_and_one_without_the_page_does() {
    let directory = tempfile::tempdir().unwrap();
    let full = || Behaviour { cache_usage_percent: Some(75), ..Behaviour::default() };
    let (a, vllm) = mock("vllm").await;
    let (b, sglang) = mock("sglang").await;
    let (c, pageless) = mock("pageless").await;
    let keys =
        |kind| format!(", kind: {kind}, circuit_breaker: {{ probe: {{ cache_usage_max: 0.75 }} }}");
    let (of_vllm, of_sglang) = (keys("vllm"), keys("sglang"));
    let endpoints = [("v", a, &*of_vllm), ("s", b, &*of_sglang), ("p", c, &*of_vllm)];
    let gateway = serve(directory.path(), &endpoints);
    opens(&gateway, "v", &vllm, full()).await;
    opens(&gateway, "s", &sglang, full()).await;
    opens(&gateway, "p", &pageless, Behaviour::default()).await;
    for (name, mock) in [("v", &vllm), ("s", &sglang)] {
        let series = |result: &str| {
            format!(
                "quorumgate_probe_cache_readings_total{{endpoint=\"{name}/a\",result=\"{result}\"}}"
            )
        };
        until("full", async || counted(&gateway, &series("full")).await >= 2).await;
        assert!(!has_passed(&gateway, name).await, "{name}");
        mock.set(Behaviour { cache_usage_percent: Some(74), ..Behaviour::default() });
        until("room", async || has_passed(&gateway, name).await).await;
        assert!(counted(&gateway, &series("below")).await >= 1, "{name}");
    }
    until("no page says nothing", async || has_passed(&gateway, "p").await).await;
    let series = "quorumgate_probe_cache_readings_total{endpoint=\"p/a\",result=\"unreadable\"}";
    assert!(counted(&gateway, series).await >= 1);
}

#[tokio::test]
async fn each_kind_of_server_is_asked_in_its_own_dialect() {
    let directory = tempfile::tempdir().unwrap();
    let event = |data: &str| format!("data: {data}\n\n");
    let openai = event(r#"{"choices":[{"delta":{"content":"a"}}]}"#);
    let anthropic = event(r#"{"type":"content_block_delta","delta":{"text":"a"}}"#);
    let mut raws = Vec::new();
    for token in [&openai, &openai, &openai, &openai, &anthropic] {
        let stream = whole_stream(&[token.clone(), event("[DONE]")]);
        let script = move |number, _: &raw::Seen| match number {
            0 => vec![Act::Say(failed(500))],
            _ => stream.clone(),
        };
        raws.push(Raw::start(script).await);
    }
    let rows = [
        ("openai", "/v1/chat/completions", "max_completion_tokens", "authorization", "Bearer k"),
        ("azure", "/openai/v1/chat/completions", "max_completion_tokens", "api-key", "k"),
        ("vllm", "/v1/chat/completions", "max_tokens", "authorization", "Bearer k"),
        ("sglang", "/v1/chat/completions", "max_tokens", "authorization", "Bearer k"),
        ("anthropic", "/v1/messages", "max_tokens", "x-api-key", "k"),
    ];
    let keys = rows.map(|(kind, ..)| format!(", kind: {kind}, api_key: k, upstream_model: big"));
    let endpoints: Vec<_> = rows
        .iter()
        .zip(&raws)
        .zip(&keys)
        .map(|((row, raw), keys)| (row.0, raw.address, keys.as_str()))
        .collect();
    let gateway = serve(directory.path(), &endpoints);
    for ((kind, path, limit, header, key), raw) in rows.iter().zip(&raws) {
        assert_eq!(ask(&gateway, kind).await, 500, "{kind}");
        until(kind, async || has_passed(&gateway, kind).await).await;
        let seen = raw.seen()[1].clone();
        assert!(seen.head.starts_with(&format!("POST {path} ")), "{}", seen.head);
        assert_eq!(seen.header(header), Some(*key), "{kind}");
        assert_eq!(seen.header("anthropic-version").is_some(), *kind == "anthropic");
        assert_eq!(seen.header("x-quorumgate-probe"), Some("1"));
        let body: Value = serde_json::from_str(seen.text()).unwrap();
        assert_eq!((&body["model"], &body["stream"]), (&"big".into(), &true.into()), "{kind}");
        assert_eq!(body[*limit], 16, "{kind}: {body}");
        assert!(!seen.text().contains("hello"), "B05: nobody's prompt is in a probe");
    }
}
