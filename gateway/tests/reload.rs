//! Another configuration while everything goes on: all of it or nothing, and nobody notices.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod process;
mod stand;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gateway::mock::Behaviour;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::process::{BINARY, CHAT, TOKEN, call, chat_body, mock, until};
use crate::stand::{HEAD, Stand, replace, yaml};

/// What must stand nowhere.
const CANARY: &str = "sk-CANARY-0123456789abcdef";

/// A circuit that opens at the second fault and stays so for a minute.
const STRICT: &str = "circuit_breaker: { failure_threshold: 2, open: { base: 60s, max: 60s } }\n";

#[tokio::test(flavor = "multi_thread")]
async fn k04_whatever_lies_in_the_file_the_old_configuration_stays() {
    let (address, _mock) = mock("a").await;
    let good = yaml("", &[("a", address)]);
    let stand = Stand::start(&good);
    let before = stand.config().await;
    assert_eq!(before["last_error"], Value::Null);
    let many: String = (0..10_001)
        .map(|n| format!("      - {{ name: e{n}, address: \"http://{address}\" }}\n"))
        .collect();
    let many = format!("{HEAD}models:\n  - name: m\n    endpoints:\n{many}");
    let resident = stand.resident();
    let break_by: [(&str, &dyn Fn()); 7] = [
        ("a syntax error", &|| stand.write("models: [ {")),
        ("an unknown key", &|| stand.write(&good.replace("models:", "modles:"))),
        ("nothing", &|| stand.write("")),
        ("more than may be configured", &|| stand.write(&many)),
        ("no file", &|| std::fs::remove_file(stand.file()).unwrap()),
        ("no regular file", &|| std::fs::create_dir(stand.file()).unwrap()),
        ("a gigabyte", &|| {
            std::fs::remove_dir(stand.file()).unwrap();
            std::fs::File::create(stand.file()).unwrap().set_len(1 << 30).unwrap();
        }),
    ];
    for (index, (what, deed)) in break_by.iter().enumerate() {
        deed();
        let (status, answer) = stand.reload().await;
        assert_eq!(status, StatusCode::CONFLICT, "{what}: {answer}");
        assert_eq!(answer["error"]["code"], "invalid_config", "{what}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("gw.yaml") && !message.contains('\n'), "{what}: {message}");
        assert_eq!(stand.gateway.chat().await, StatusCode::OK, "{what}");
        let status = stand.config().await;
        assert_eq!(status["yaml"], before["yaml"], "{what}");
        assert_eq!(status["last_error"]["message"], *message, "{what}");
        let ready = stand.gateway.look("/readyz").await;
        assert!(ready["ready"] == true && ready.to_string().contains("config_error"), "{ready}");
        let failed = stand.metric("config_reloads_total{result=\"error\"}").await;
        assert_eq!(failed, Some(index as f64 + 1.0), "{what}");
        assert_eq!(stand.metric("config_last_reload_success").await, Some(0.0));
    }
    assert!(stand.resident() < resident + 100 * 1024, "{} KiB", stand.resident());
    std::fs::remove_file(stand.file()).unwrap();
    let answer = stand.take(&good).await;
    assert_eq!(answer["changed"], false, "{answer}");
    assert_eq!(stand.config().await["last_error"], Value::Null);
    assert_eq!(stand.metric("config_last_reload_success").await, Some(1.0));
    let (status, answer) = stand.act("config/check", &good.replace("m\n", "other\n")).await;
    assert_eq!((status, &answer["ok"]), (StatusCode::OK, &true.into()), "{answer}");
    let (status, answer) = stand.act("config/check", "models: 1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(stand.config().await["yaml"], before["yaml"], "a check changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn k07_of_two_writes_close_together_the_last_one_counts_and_no_half_of_one() {
    let (address, _mock) = mock("a").await;
    let plan = |names: &[&str]| {
        let place = |index: u8| SocketAddr::from(([127, 0, 0, 1 + index], address.port()));
        let rows: Vec<_> =
            names.iter().zip(0..).map(|(name, index)| (*name, place(index))).collect();
        yaml("", &rows)
    };
    let stand = Stand::start(&plan(&["a"]));
    for round in 0..20 {
        let (first, second) = (format!("first-{round}"), format!("second-{round}"));
        // A text that ends in the middle is a text, too: one endpoint instead of three.
        let whole = plan(&["a", first.as_str(), second.as_str()]);
        let half = &whole[..whole.find("      - { name: first").unwrap()];
        let file = stand.file();
        let writer = std::thread::spawn({
            let (half, whole) = (half.to_owned(), whole.clone());
            move || {
                let began = Instant::now();
                std::fs::write(&file, half).unwrap();
                std::thread::sleep(Duration::from_millis(4));
                std::fs::write(&file, whole).unwrap();
                began.elapsed()
            }
        });
        let (status, answer) = stand.reload().await;
        let took = writer.join().unwrap();
        // A busy machine may have stopped the writer in the middle, for as long as it likes.
        let is_close = took < Duration::from_millis(10);
        assert!(status == StatusCode::OK || !is_close, "{answer}");
        if is_close && answer["changed"] == true {
            let added = answer["endpoints"]["added"].as_array().unwrap();
            assert_eq!(added.len(), 2, "a half was taken on: {answer}");
        }
        let (status, last) = stand.reload().await;
        assert_eq!(status, StatusCode::OK, "{last}");
        let yaml = stand.config().await["yaml"].as_str().unwrap().to_owned();
        assert!(yaml.contains(&second), "{last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k08_what_the_environment_lacks_refuses_and_what_it_holds_is_never_shown() {
    let (address, _mock) = mock("a").await;
    let plain = yaml("", &[("a", address)]);
    let with = |variable: &str| {
        let key = format!("\", api_key: \"${{{variable}}}\" }}");
        plain.replace("\" }\n", &format!("{key}\n"))
    };
    let mut by = Command::new(BINARY);
    by.env("GOOD_KEY", CANARY)
        .env("OTHER_KEY", CANARY)
        .env("EMPTY_KEY", "")
        .env("TORN_KEY", format!("{CANARY}\nx"))
        .env("QUORUMGATE__RETRY__MAX_ATTEMPTS", "7");
    let stand = Stand::start_by(by, &plain);
    let answer = stand.take(&with("GOOD_KEY")).await;
    assert_eq!(answer["endpoints"]["changed"][0], "m/a", "{answer}");
    let good = stand.config().await;
    assert!(good["yaml"].as_str().unwrap().contains("max_attempts: 7"), "{good}");
    for variable in ["NO_SUCH_KEY", "EMPTY_KEY", "TORN_KEY"] {
        stand.write(&with(variable));
        let (status, answer) = stand.reload().await;
        assert_eq!(status, StatusCode::CONFLICT, "{variable}: {answer}");
        assert!(!answer.to_string().contains("CANARY"), "{answer}");
        assert!(answer.to_string().contains(variable) || variable != "NO_SUCH_KEY", "{answer}");
    }
    let (_, checked) = stand.act("config/check", &with("GOOD_KEY")).await;
    let said = format!("{checked}{}{}", stand.config().await, stand.gateway.log().join("\n"));
    assert!(!said.contains("CANARY"), "{said}");
    // In a place where values are shown, what the environment holds is not; what it holds beside what the
    // file names is not even looked up.
    let shown = |variable: &str| with(variable).replace("api_key", "upstream_model");
    let (status, checked) = stand.act("config/check", &shown("GOOD_KEY")).await;
    assert_eq!(status, StatusCode::OK, "{checked}");
    assert!(!checked.to_string().contains("CANARY"), "{checked}");
    let (status, checked) = stand.act("config/check", &shown("OTHER_KEY")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{checked}");
    let checked = checked.to_string();
    assert!(checked.contains("OTHER_KEY") && !checked.contains("CANARY"), "{checked}");
    assert_eq!(stand.config().await["yaml"], good["yaml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_what_needs_a_restart_is_said_until_it_is_taken_back() {
    let (address, _mock) = mock("a").await;
    let plain = yaml("", &[("a", address)]);
    let stand = Stand::start(&plain);
    let moved = plain.replace("server: { listen: 127.0.0.1:0", "server: { listen: 127.0.0.1:1");
    let moved = moved.replace("workers: 1", "workers: 2");
    let answer = stand.take(&format!("{moved}state: {{ file: /tmp/x.state }}\n")).await;
    let keys = serde_json::json!(["server.listen", "server.workers", "state"]);
    assert_eq!((&answer["changed"], &answer["needs_restart"]), (&true.into(), &keys), "{answer}");
    assert_eq!(stand.config().await["needs_restart"], keys);
    assert_eq!(stand.gateway.chat().await, StatusCode::OK, "it serves where it did");
    let answer = stand.take(&plain).await;
    assert_eq!(answer["needs_restart"], serde_json::json!([]), "{answer}");
}

/// How many reloads the test of many makes; `RELOADS` in the environment makes it longer.
fn reloads() -> usize {
    std::env::var("RELOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn k10_a_thousand_reloads_under_load_cost_no_request_and_no_memory() {
    let ((a, _a), (b, _b), (c, _c)) = (mock("a").await, mock("b").await, mock("c").await);
    let stand = Stand::start(&yaml("", &[("a", a), ("b", b)]));
    let (clients, is_over) = (stand.gateway.clients, Arc::new(AtomicBool::new(false)));
    let load: Vec<_> = (0..4)
        .map(|number| {
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                let (mut asked, body) = (0, chat_body(number % 2 == 0));
                while !is_over.load(Ordering::Relaxed) {
                    let (status, text) =
                        call(clients, Method::POST, CHAT, &[], &body).await.unwrap();
                    assert_eq!(status, StatusCode::OK, "{text}");
                    assert!(number % 2 == 1 || text.trim_end().ends_with("[DONE]"), "{text}");
                    asked += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                asked
            })
        })
        .collect();
    let (total, mut early) = (reloads(), 0);
    for round in 0..total {
        // Endpoints come, go, change places and settings; a limit and a rule are others each time.
        let (one, two, three) = (("a", a), ("b", b), ("c", c));
        let rows = [vec![one, two], vec![two, three, one], vec![three, one], vec![two]];
        let limits = format!("retry: {{ max_attempts: {} }}\n", 2 + round % 3);
        let rule = format!("circuit_breaker: {{ failure_threshold: {} }}\n", 3 + round % 5);
        stand.write(&yaml(&format!("{limits}{rule}"), &rows[round % rows.len()]));
        let (status, answer) = stand.reload().await;
        // Now and then the look at the files comes first, and there is nothing left to do.
        assert_eq!(status, StatusCode::OK, "{answer}");
        if round == total / 5 {
            early = stand.resident();
        }
    }
    let loaded = stand.metric("config_reloads_total{result=\"ok\"}").await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    for one in load {
        asked += one.await.unwrap();
    }
    let late = stand.resident();
    println!("{loaded} reloads, {asked} requests, {early} KiB early, {late} KiB late");
    assert!(asked > total && loaded as usize == total, "{asked} requests, {loaded} reloads");
    assert!(late < early + early / 5, "{early} KiB became {late} KiB");
}

/// How long the breaker of an endpoint stays open, in milliseconds.
async fn remaining(stand: &Stand, endpoint: &str) -> Option<u64> {
    stand.gateway.explain(endpoint).await["local"]["remaining_ms"].as_u64()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_circuit_stays_open_for_as_long_as_it_would_have() {
    let ((a, bad), (b, _)) = (mock("a").await, mock("b").await);
    let plan = |circuit: &str, a| yaml(circuit, &[("a", a), ("b", b)]);
    let stand = Stand::start(&plan(STRICT, a));
    bad.set(Behaviour { status: Some(500), ..Behaviour::default() });
    until("the circuit opens", async || {
        assert_eq!(stand.gateway.chat().await, StatusCode::OK);
        remaining(&stand, "m/a").await.is_some()
    })
    .await;
    let (opened, left) = (Instant::now(), remaining(&stand, "m/a").await.unwrap());
    let same = async |what: &str| {
        let passed = u64::try_from(opened.elapsed().as_millis()).unwrap();
        let now = remaining(&stand, "m/a").await.unwrap_or_else(|| panic!("{what}: it closed"));
        assert!(now.abs_diff(left.saturating_sub(passed)) < 2_000, "{what}: {now} of {left}");
    };
    let other = "retry: { max_attempts: 2 }\n";
    stand.write(&plan(&format!("{STRICT}{other}"), a));
    stand.gateway.signal("HUP");
    until("the signal is followed", async || {
        stand.config().await["yaml"].as_str().unwrap().contains("max_attempts: 2")
    })
    .await;
    same("another setting").await;
    let rule = STRICT.replace("failure_threshold: 2", "failure_threshold: 7");
    let rule = rule.replace("base: 60s", "base: 1s");
    let answer = stand.take(&plan(&rule, a)).await;
    assert_eq!(answer["endpoints"]["changed"], serde_json::json!(["m/a", "m/b"]), "{answer}");
    same("another rule").await;
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], a.port()));
    stand.take(&plan(&rule, elsewhere)).await;
    assert_eq!(remaining(&stand, "m/a").await, None, "at another address it is another machine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_to_its_end_though_its_model_is_gone() {
    let ((a, slow), (b, _)) = (mock("a").await, mock("b").await);
    slow.set(Behaviour { interval_ms: Some(100), tokens: 30, ..Behaviour::default() });
    let stand = Stand::start(&yaml("", &[("a", a)]));
    let (clients, body) = (stand.gateway.clients, chat_body(true));
    let stream = tokio::spawn(async move { call(clients, Method::POST, CHAT, &[], &body).await });
    until("the stream runs", async || slow.counts().in_flight > 0).await;
    let other = yaml("", &[("b", b)]).replace("name: m\n", "name: other\n");
    let answer = stand.take(&other).await;
    assert_eq!(answer["endpoints"]["removed"], serde_json::json!(["m/a"]), "{answer}");
    assert_eq!(stand.gateway.chat().await, StatusCode::NOT_FOUND, "the next one meets the new");
    assert_eq!(stand.gateway.chat_for("other").await, StatusCode::OK);
    assert!(!stream.is_finished(), "the stream was to be longer than the reload");
    let (status, text) = stream.await.unwrap().unwrap();
    assert_eq!(status, StatusCode::OK);
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_a_token_that_are_taken_away_open_nothing_from_the_next_request_on() {
    let (address, _mock) = mock("a").await;
    let digest = |key: &str| {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(key.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let (one, two) = (digest("key-one"), digest("key-two"));
    let both = format!(
        "api_keys:\n  - {{ name: one, sha256: \"{one}\" }}\n  - {{ name: two, sha256: \"{two}\" }}\n"
    );
    let left = format!("api_keys:\n  - {{ name: two, sha256: \"{two}\" }}\n");
    let stand = Stand::start(&yaml(&both, &[("a", address)]));
    let ask = async |key: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str())];
        let clients = stand.gateway.clients;
        call(clients, Method::POST, CHAT, &headers, &chat_body(false)).await.unwrap().0
    };
    assert_eq!((ask("key-one").await, ask("key-two").await), (StatusCode::OK, StatusCode::OK));
    stand.take(&yaml(&left, &[("a", address)])).await;
    assert_eq!(ask("key-one").await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("key-two").await, StatusCode::OK);
    let locked = yaml(&left, &[("a", address)])
        .replace("admin: { listen", "admin: { token: another-token-than-the-tests, listen");
    stand.take(&locked).await;
    assert_eq!(stand.reload().await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_strangers_reach_keeps_its_token() {
    let (address, _mock) = mock("a").await;
    let plain = yaml("", &[("a", address)]);
    let open = format!("admin: {{ token: {TOKEN}, listen: 0.0.0.0:0 }}");
    let stand = Stand::start(&plain.replace("admin: { listen: 127.0.0.1:0 }", &open));
    // It would be allowed at the address that is configured, where nobody listens yet.
    stand.write(&plain);
    let (status, answer) = stand.reload().await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().starts_with("admin.token"), "{answer}");
    let path = "/admin/v1/config";
    let (status, _) = call(stand.gateway.operators, Method::GET, path, &[], "").await.unwrap();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_log_is_another_at_once() {
    let (address, _mock) = mock("a").await;
    let plain = yaml("", &[("a", address)]);
    let stand = Stand::start(&plain);
    let lines = async || {
        assert_eq!(stand.gateway.chat().await, StatusCode::OK);
        stand.gateway.log().iter().filter(|line| line.contains("\"target\":\"access\"")).count()
    };
    until("a line for each request", async || lines().await > 0).await;
    stand.take(&plain.replace("level: info", "level: error")).await;
    // Those of before are written with a delay.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = lines().await;
    for _ in 0..5 {
        assert_eq!(lines().await, before);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stand.take(&plain).await;
    until("a line for each request again", async || lines().await > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_link_is_seen_within_ten_seconds() {
    let (address, _mock) = mock("a").await;
    let plain = yaml("", &[("a", address)]);
    let directory = tempfile::tempdir().unwrap();
    let (here, at) = (directory.path(), |name: &str| directory.path().join(name));
    for (version, retries) in [("..v1", 2), ("..v2", 4)] {
        std::fs::create_dir(at(version)).unwrap();
        let text = format!("{plain}retry: {{ max_attempts: {retries} }}\n");
        std::fs::write(at(version).join("gw.yaml"), text).unwrap();
    }
    // As a ConfigMap is mounted: the file is a link through a link that is replaced.
    std::os::unix::fs::symlink("..v1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/gw.yaml", at("gw.yaml")).unwrap();
    let text = std::fs::read_to_string(at("gw.yaml")).unwrap();
    let stand = Stand { gateway: process::Gateway::serve(here, "gw", &text), directory };
    let holds = async |retries: u32| {
        let yaml = stand.config().await["yaml"].as_str().unwrap().to_owned();
        yaml.contains(&format!("max_attempts: {retries}"))
    };
    assert!(holds(2).await);
    std::os::unix::fs::symlink("..v2", stand.directory.path().join("..new")).unwrap();
    let swapped = Instant::now();
    let rename = |from: &str, to: &str| {
        std::fs::rename(stand.directory.path().join(from), stand.directory.path().join(to))
            .unwrap();
    };
    rename("..new", "..data");
    until("the swap is seen", async || holds(4).await).await;
    assert!(swapped.elapsed() < Duration::from_secs(12), "{:?}", swapped.elapsed());
    replace(&stand.directory.path().join("..v2/gw.yaml"), "models: [ {");
    until("the fault is seen", async || !stand.config().await["last_error"].is_null()).await;
    assert!(holds(4).await);
}
