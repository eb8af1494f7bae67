//! The page of metrics: every name is there with its meaning, and no client can make a series.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use breaker::State;
use bytes::Bytes;
use gateway::mock::Behaviour;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::local::{Ask, House, Plan, mock, nobody, until};

const PROMTOOL_CURE: &str = "install promtool (on Debian it is in the package prometheus)";
/// So many requests under names of their own; one series each would be seen. 20,000 by default.
fn strangers() -> usize {
    std::env::var("STRANGERS").map_or(20_000, |count| count.parse().unwrap())
}

/// The names that others script against, from the specification of the interfaces.
const PROMISED: [&str; 43] = [
    "quorumgate_requests_total{model=\"demo\",code=\"200\"}",
    "quorumgate_admission_rejects_total{reason=\"model_not_found\"}",
    "quorumgate_attempts_total{endpoint=\"demo/a\",outcome=\"success\"}",
    "quorumgate_attempts_total{endpoint=\"demo/a\",outcome=\"fault\"}",
    "quorumgate_attempts_total{endpoint=\"demo/a\",outcome=\"slow\"}",
    "quorumgate_attempts_total{endpoint=\"demo/a\",outcome=\"neutral\"}",
    "quorumgate_retries_total{reason=\"status\"}",
    "quorumgate_retry_budget_exhausted_total",
    "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"5xx\"}",
    "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"429\"}",
    "quorumgate_upstream_errors_total{endpoint=\"demo/gone\",kind=\"connect\"}",
    "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"timeout\"}",
    "quorumgate_breaker_state{endpoint=\"demo/a\",scope=\"local\"}",
    "quorumgate_breaker_state{endpoint=\"demo/a\",scope=\"cluster\"}",
    "quorumgate_breaker_transitions_total{endpoint=\"demo/gone\",from=\"closed\",to=\"open\",reason=\"consecutive_faults\"}",
    "quorumgate_evidence_total{endpoint=\"demo/a\",kind=\"fault\",deduped=\"false\"}",
    "quorumgate_evidence_total{endpoint=\"demo/a\",kind=\"first_token\",deduped=\"false\"}",
    "quorumgate_evidence_total{endpoint=\"demo/a\",kind=\"first_token\",deduped=\"true\"}",
    "quorumgate_probes_total{endpoint=\"demo/a\",result=\"failed\"}",
    "quorumgate_probes_total{endpoint=\"demo/a\",result=\"inconclusive\"}",
    "quorumgate_votes{endpoint=\"demo/a\"}",
    "quorumgate_quorum_required",
    "quorumgate_electorate",
    "quorumgate_cluster_flips_total{direction=\"open\"}",
    "quorumgate_cluster_flips_total{direction=\"close\"}",
    "quorumgate_flip_latency_seconds_count",
    "quorumgate_canary_in_flight{endpoint=\"demo/a\"}",
    "quorumgate_pool_all_open{model=\"demo\"}",
    "quorumgate_pool_all_open_seconds_total{model=\"demo\"}",
    "quorumgate_members{state=\"live\"}",
    "quorumgate_members{state=\"suspect\"}",
    "quorumgate_stream_aborts_total{side=\"client\"}",
    "quorumgate_stream_aborts_total{side=\"gateway\"}",
    "quorumgate_stream_aborts_total{side=\"upstream\"}",
    "quorumgate_overhead_seconds_bucket{le=\"0.001\"}",
    "quorumgate_endpoint_open_seconds_total{endpoint=\"demo/a\",scope=\"local\"}",
    "quorumgate_endpoint_open_seconds_total{endpoint=\"demo/a\",scope=\"cluster\"}",
    "quorumgate_limit_share",
    "quorumgate_build_info{version=\"",
    "gen_ai_server_request_duration_bucket{model=\"demo\",le=\"655.36\"}",
    "gen_ai_server_time_to_first_token_bucket{model=\"demo\",le=\"0.001\"}",
    "gen_ai_server_time_per_output_token_bucket{model=\"demo\",le=\"2.5\"}",
    "gen_ai_client_token_usage_bucket{model=\"demo\",type=\"output\",le=\"67108864\"}",
];

async fn page(house: &House) -> String {
    Ask::get("/metrics").send(house.app.admin_address).await.text().to_owned()
}

/// The value of a series; 0 if it is not there.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// The series on the page, without their values.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

/// A gateway whose endpoints have done everything wrong that there is.
async fn tried() -> House {
    let (address, a) = mock("a").await;
    let breaker = "circuit_breaker: { failure_threshold: 1000, min_requests: 1000, slow: { first_token: 50ms, confirmations: 5 } }";
    let plan =
        Plan::of(&[("a", address)]).top(breaker).pool("timeouts: { first_byte: 300ms }").endpoint(
            "gone",
            nobody().await,
            ", priority: 1, circuit_breaker: { failure_threshold: 1, min_requests: 1 }",
        );
    let house = plan.start().await;
    house.ask().await;
    house.ask_stream().await;
    let set = |status| a.set(Behaviour { status, ..Behaviour::default() });
    set(Some(500));
    house.ask().await;
    a.set(Behaviour { latency_ms: Some(100), ..Behaviour::default() });
    tokio::join!(house.ask(), house.ask());
    a.set(Behaviour { latency_ms: Some(2_000), ..Behaviour::default() });
    house.ask().await;
    set(Some(429));
    house.ask().await;
    house.reaches("gone", State::Open).await;
    house.send(Ask::post("/v1/chat/completions", r#"{"model":"no","messages":[]}"#)).await;
    house
}

#[tokio::test]
async fn every_promised_name_is_there_when_what_it_counts_has_happened() {
    let page = page(&tried().await).await;
    for name in PROMISED {
        assert!(page.lines().any(|line| line.starts_with(name)), "{name} in\n{page}");
    }
    for happened in [
        "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"5xx\"}",
        "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"429\"}",
        "quorumgate_upstream_errors_total{endpoint=\"demo/a\",kind=\"timeout\"}",
        "quorumgate_evidence_total{endpoint=\"demo/a\",kind=\"first_token\",deduped=\"true\"}",
        "quorumgate_overhead_seconds_count",
        "process_resident_memory_bytes",
    ] {
        assert!(value(&page, happened) > 0.0, "{happened} in\n{page}");
    }
}

#[tokio::test]
async fn every_series_says_what_it_means_and_promtool_finds_nothing_to_mend() {
    let page = page(&tried().await).await;
    let told = |what: &str| -> BTreeSet<String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(what));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let (types, helps) = (told("# TYPE "), told("# HELP "));
    assert_eq!(types.difference(&helps).collect::<Vec<_>>(), Vec::<&String>::new());
    let checked = promtool(&["check", "metrics"], &page);
    assert!(checked.is_empty(), "{checked}");
}

/// What promtool complains of.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = promtool.spawn();
    assert!(spawned.is_ok(), "{spawned:?}: {PROMTOOL_CURE}");
    let mut child = spawned.unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success() || !told.is_empty(), "promtool fails without a word");
    told
}

#[tokio::test]
async fn our_own_time_leaves_out_what_the_upstream_and_the_client_take() {
    let (address, a) = mock("a").await;
    let house = Plan::of(&[("a", address)]).start().await;
    a.set(Behaviour { latency_ms: Some(400), ..Behaviour::default() });
    for _ in 0..3 {
        assert_eq!(house.ask().await.status, 200);
    }
    let page = page(&house).await;
    assert_eq!(value(&page, "quorumgate_overhead_seconds_count"), 3.0);
    let ours = value(&page, "quorumgate_overhead_seconds_sum");
    assert!(ours > 0.0 && ours < 0.6, "{ours} s of 1.2 s");
}

#[tokio::test]
async fn the_share_of_time_out_is_counted_for_this_node() {
    let house = Plan::of(&[("a", nobody().await)])
        .top("circuit_breaker: { failure_threshold: 1 }")
        .start()
        .await;
    house.ask().await;
    house.reaches("a", State::Open).await;
    let out = "quorumgate_endpoint_open_seconds_total{endpoint=\"demo/a\",scope=\"local\"}";
    let meters = house.app.meters.clone();
    until("a second of it", || value(&meters.render(), out) >= 1.0).await;
}

#[tokio::test]
async fn strangers_make_no_series() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let (address, _) = mock("a").await;
    let house = Plan::of(&[("a", address)]).start().await;
    house.ask().await;
    let body = r#"{"model":"nobody","messages":[{"role":"user","content":"hello"}]}"#;
    house.send(Ask::post("/v1/chat/completions", body).header("x-agent-id", "first")).await;
    let before = series(&page(&house).await);
    let stream = TcpStream::connect(house.address()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let strangers = strangers();
    for number in 0..strangers {
        let name = format!("{:016x}", chance.u64(..));
        // Every hundredth is served, under an agent's name of its own.
        let model = if number % 100 == 0 { "demo" } else { name.as_str() };
        let body = body.replace("nobody", model);
        let request = Request::post("/v1/chat/completions")
            .header("host", "gateway")
            .header("x-agent-id", &name)
            .header("x-request-id", &name)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    let page = page(&house).await;
    let after = series(&page);
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
    let refused = value(&page, "quorumgate_admission_rejects_total{reason=\"model_not_found\"}");
    assert_eq!(refused as usize, strangers - strangers.div_ceil(100) + 1);
}
