//! Secrets stay where they are: canaries are planted wherever a secret can stand, and then everything
//! that a fleet of real processes shows is searched for them (case M13).
//!
//! The log is kept at `trace`, that of all dependencies included. What goes from node to node is
//! encrypted; so the memory of the other node is searched for what only the first was given.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use gateway::mock::Behaviour;
use hyper::Method;
use memchr::memmem;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::process::{BINARY, CHAT, Gateway, call, mock, until};

/// How every planted secret begins.
const CANARY: &str = "sk-CANARY-";
const CALLER: &str = "sk-CANARY-caller";
const ADMIN: &str = "sk-CANARY-admin";
const READER: &str = "sk-CANARY-reader";
const ENDPOINT: &str = "sk-CANARY-endpoint";
/// Bytes of an entry of `/proc/PID/pagemap`, and what its last byte says of a page that is there.
const PAGE_ENTRY: u64 = 8;
const PRESENT: u8 = 0x80;

/// Everything that was shown, by where.
#[derive(Default)]
struct Shown(Vec<(String, Vec<u8>)>);

impl Shown {
    fn add(&mut self, place: impl Into<String>, text: impl Into<Vec<u8>>) {
        self.0.push((place.into(), text.into()));
    }

    /// Says where a secret is, with some of what stands around it.
    fn leaks(&self) -> Vec<String> {
        let finder = memmem::Finder::new(CANARY);
        let around = |text: &[u8], at: usize| {
            let (from, to) = (at.saturating_sub(80), (at + 40).min(text.len()));
            String::from_utf8_lossy(&text[from..to]).into_owned()
        };
        let leak = |(place, text): &(String, Vec<u8>)| {
            finder.find(text).map(|at| format!("{place}: …{}…", around(text, at)))
        };
        self.0.iter().filter_map(leak).collect()
    }
}

fn head(directory: &Path, node: &str, seed: Option<SocketAddr>) -> String {
    let head = process::member_head(directory, node, seed);
    let head = head.replace("level: info", "level: trace");
    let tokens = "admin: { listen: 127.0.0.1:0, token: \"${ADMIN}\", read_token: \"${READER}\" }";
    head.replace("admin: { listen: 127.0.0.1:0 }", tokens)
}

fn digest(secret: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(secret).into();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sections behind `cluster`; the first endpoint's key is `key`.
fn rest(directory: &Path, node: &str, key: &str, a: SocketAddr, gone: SocketAddr) -> String {
    format!(
        "state: {{ file: {}/{node}.state, every: 1s }}
fail_closed: {{ max_messages: 4, max_input_tokens: 2000 }}
api_keys: [ {{ name: team, sha256: {} }} ]
circuit_breaker: {{ failure_threshold: 1000, min_requests: 1000, open: {{ base: 300ms }} }}
models:
  - name: m
    endpoints:
      - {{ name: a, address: \"http://{a}\", api_key: {key} }}
      - {{ name: gone, address: \"http://{gone}\", api_key: {key}, priority: 1, circuit_breaker: {{ failure_threshold: 1, min_requests: 1 }} }}
",
        directory.display(),
        digest(CALLER)
    )
}

fn serve(directory: &Path, node: &str, yaml: &str, secrets: &[(&str, &str)]) -> Gateway {
    let mut command = Command::new(BINARY);
    command.envs(secrets.iter().copied());
    Gateway::serve_by(command, directory, node, yaml)
}

/// A chat of this content.
fn chat(model: &str, content: &str, is_stream: bool) -> String {
    let message = json!({ "role": "user", "content": content });
    json!({ "model": model, "messages": [message], "stream": is_stream, "user": "sk-CANARY-user" })
        .to_string()
}

/// Everything that a client can do, well and badly, with secrets in it.
async fn use_it(gateway: &Gateway, shown: &mut Shown) {
    let good = format!("Bearer {CALLER}");
    let prompt = "sk-CANARY-prompt \r\n\u{1b}[31m sk-CANARY-prompt";
    let long = "sk-CANARY-long ".repeat(2_000);
    let many =
        json!({ "model": "m", "messages": vec![json!({"role": "user", "content": prompt}); 9] });
    let cases = [
        ("served", CHAT, good.as_str(), chat("m", prompt, false)),
        ("streamed", CHAT, &good, chat("m", prompt, true)),
        ("query", "/v1/chat/completions?api_key=sk-CANARY-query", &good, chat("m", prompt, false)),
        ("wrong key", CHAT, "Bearer sk-CANARY-wrong", chat("m", prompt, false)),
        ("odd key", CHAT, "Basic sk-CANARY-basic", chat("m", prompt, false)),
        ("path", "/v1/sk-CANARY-path", &good, chat("m", prompt, false)),
        ("no such model", CHAT, &good, chat("sk-CANARY-model", prompt, false)),
        ("no JSON", CHAT, &good, "{\"model\": \"m\", sk-CANARY-json".to_owned()),
        ("too many", CHAT, &good, many.to_string()),
        ("too long", CHAT, &good, chat("m", &long, false)),
    ];
    for (what, path, authorization, body) in &cases {
        let headers = [
            ("authorization", *authorization),
            ("cookie", "session=sk-CANARY-cookie"),
            ("x-api-key", "sk-CANARY-header"),
            ("user-agent", "sk-CANARY-agent"),
            ("x-custom", "sk-CANARY-custom"),
            ("traceparent", "sk-CANARY-parent"),
        ];
        // The good key is the first that is looked for; a second would make the request ambiguous.
        let headers: Vec<_> = headers
            .into_iter()
            .filter(|(name, _)| *name != "x-api-key" || *what == "odd key")
            .collect();
        let answer = call(gateway.clients, Method::POST, path, &headers, body).await.unwrap();
        // What is served is the mock's, which repeats the question.
        if !answer.0.is_success() {
            shown.add(format!("the answer of {what}"), format!("{} {}", answer.0, answer.1));
        }
    }
}

/// Everything that an operator can look at, and wrong ways to ask.
async fn look_at(gateway: &Gateway, shown: &mut Shown) {
    let (good, reader) = (format!("Bearer {ADMIN}"), format!("Bearer {READER}"));
    let paths = [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/admin/v1/members",
        "/admin/v1/cluster",
        "/admin/v1/endpoints",
        "/admin/v1/endpoints/m/a",
        "/admin/v1/endpoints/m/a/explain",
        "/admin/v1/config",
        "/admin/v1/openapi.json",
        "/admin/v1/events?since=0&until=now",
        "/admin/v1/members?token=sk-CANARY-in-query",
        "/admin/v1/sk-CANARY-path",
    ];
    for token in [good.as_str(), &reader, "Bearer sk-CANARY-guess", "sk-CANARY-bare"] {
        for path in paths {
            let headers = [("authorization", token)];
            let answer = call(gateway.operators, Method::GET, path, &headers, "").await.unwrap();
            shown.add(format!("{path} of {}", gateway.name), answer.1);
        }
    }
    for (path, body) in [
        ("/admin/v1/endpoints/m/a/override", "{\"state\": \"sk-CANARY-state\"}"),
        ("/admin/v1/endpoints/m/a/override", "sk-CANARY-nonsense"),
        ("/admin/v1/endpoints/m/sk-CANARY-name/override", "{}"),
        ("/admin/v1/config/check", "admin: { token: sk-CANARY-checked }\nmodels: sk-CANARY-models"),
        ("/admin/v1/config/reload", "sk-CANARY-reload"),
        ("/admin/v1/members/sk-CANARY-member/forget", "sk-CANARY-reason"),
    ] {
        let headers = [("authorization", good.as_str())];
        let answer = call(gateway.operators, Method::POST, path, &headers, body).await.unwrap();
        shown.add(format!("POST {path}"), answer.1);
    }
}

/// Every file that the process keeps but for the configuration.
fn files(directory: &Path, shown: &mut Shown) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_file() && !name.ends_with(".yaml") {
            shown.add(name, std::fs::read(path).unwrap());
        }
    }
}

/// What a process shows of itself to others on its machine.
fn line_of(gateway: &Gateway, shown: &mut Shown) {
    let line = std::fs::read(format!("/proc/{}/cmdline", gateway.id())).unwrap();
    shown.add(format!("ps of {}", gateway.name), line);
    shown.add(format!("log of {}", gateway.name), gateway.log().join("\n"));
}

/// All of the memory that a process may write and has: what was only reserved is passed over.
fn memory(gateway: &Gateway) -> Vec<u8> {
    let place = format!("/proc/{}", gateway.id());
    let maps = std::fs::read_to_string(format!("{place}/maps")).unwrap();
    let open = |name: &str| std::fs::File::open(format!("{place}/{name}")).unwrap();
    let (mut memory, mut pages) = (open("mem"), open("pagemap"));
    let page = rustix::param::page_size() as u64;
    let mut found = Vec::new();
    for map in maps.lines().filter(|map| map.contains(" rw")) {
        let (from, to) = map.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut entries = vec![0; usize::try_from((to - from) / page * PAGE_ENTRY).unwrap()];
        pages.seek(SeekFrom::Start(from / page * PAGE_ENTRY)).unwrap();
        pages.read_exact(&mut entries).unwrap();
        let is_there = entries.chunks(PAGE_ENTRY as usize).map(|entry| entry[7] & PRESENT != 0);
        for (at, _) in (from..to).step_by(page as usize).zip(is_there).filter(|(_, there)| *there) {
            let begin = found.len();
            found.resize(begin + page as usize, 0);
            memory.seek(SeekFrom::Start(at)).unwrap();
            // What cannot be read is the kernel's, or gone meanwhile.
            let _ = memory.read_exact(&mut found[begin..]);
        }
    }
    found
}

fn holds(memory: &[u8], secret: &str) -> bool {
    memmem::find(memory, secret.as_bytes()).is_some()
}

#[tokio::test]
async fn m13_no_secret_is_shown_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    gossip::certs::throw_away(directory.path(), &["gw-1", "gw-2"]).unwrap();
    let (a, behaviour) = mock("a").await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = |node: &str, seed, key: &str| {
        format!(
            "{}{}",
            head(directory.path(), node, seed),
            rest(directory.path(), node, key, a, gone)
        )
    };
    let secrets = [("ADMIN", ADMIN), ("READER", READER), ("GPU_KEY", ENDPOINT)];
    let first = serve(directory.path(), "gw-1", &yaml("gw-1", None, "\"${GPU_KEY}\""), &secrets);
    let others = [("ADMIN", "another-admin-token"), ("READER", "another-reader-token")];
    let second =
        serve(directory.path(), "gw-2", &yaml("gw-2", first.gossip, "another-key"), &others);
    let mut shown = Shown::default();
    use_it(&first, &mut shown).await;
    // An endpoint that repeats our key in its refusal, by any status, and then one that is ill.
    for status in [500, 503, 429, 401] {
        let body = Some(format!("{{\"error\":{{\"message\":\"bad key {ENDPOINT}\"}}}}"));
        behaviour.set(Behaviour { status: Some(status), body, ..Behaviour::default() });
        use_it(&first, &mut shown).await;
    }
    until("the breaker opens", async || {
        let headers = [("authorization", "Bearer sk-CANARY-admin")];
        let path = "/admin/v1/endpoints/m/gone/explain";
        let answer = call(first.operators, Method::GET, path, &headers, "").await.unwrap();
        answer.1.contains("closed to open")
    })
    .await;
    look_at(&first, &mut shown).await;
    until("the state is kept", async || directory.path().join("gw-1.state").exists()).await;
    for gateway in [&first, &second] {
        line_of(gateway, &mut shown);
        shown.add("metrics", gateway.text("/metrics").await);
    }
    files(directory.path(), &mut shown);
    let log = first.log().join("\n");
    assert!(log.contains("\"TRACE\"") && log.contains("quinn"), "the log is kept in full");
    assert!(shown.0.len() > 80, "{}", shown.0.len());
    assert_eq!(shown.leaks(), Vec::<String>::new());
    // The first node does have what is looked for; the second was never told.
    assert!(holds(&memory(&first), ENDPOINT));
    let second = memory(&second);
    assert!(holds(&second, "another-admin-token") && holds(&second, "gw-1"), "{}", second.len());
    assert!(!holds(&second, CANARY), "a secret was told to another node");
}

fn run(arguments: &[&str], secrets: &[(&str, &str)]) -> Output {
    Command::new(BINARY).args(arguments).envs(secrets.iter().copied()).output().unwrap()
}

#[test]
fn m13_k08_what_is_wrong_with_a_configuration_is_said_without_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    let model = |endpoint: &str| {
        format!("models: [ {{ name: m, endpoints: [ {{ name: a, {endpoint} }} ] }} ]\n")
    };
    let good = model("address: \"http://h:1\", api_key: \"${GPU_KEY}\"");
    let (mut shown, mut accepted) = (Shown::default(), Vec::new());
    for (what, text) in [
        ("as it is", good.clone()),
        ("a user in the address", model("address: \"http://me:sk-CANARY-pass@h:1\"")),
        ("a query in the address", model("address: \"http://h:1/x?key=sk-CANARY-query\"")),
        ("a fragment in the address", model("address: \"http://h:1/x#sk-CANARY-fragment\"")),
        ("a key as the base path", model("address: \"http://h:1/sk-CANARY-base\"")),
        ("a key with a space", model("address: \"http://h:1\", api_key: \"sk-CANARY-a b\"")),
        ("a key with a line end", model("address: \"http://h:1\", api_key: \"${BROKEN}\"")),
        ("a key that is a list", model("address: \"http://h:1\", api_key: [sk-CANARY-list]")),
        ("a key in place of a name", model("address: \"http://h:1\", kind: sk-CANARY-kind")),
        (
            "a key in place of a digest",
            format!("{good}api_keys: [ {{ name: t, sha256: sk-CANARY-digest }} ]\n"),
        ),
        (
            "equal tokens",
            format!("{good}admin: {{ token: \"${{GPU_KEY}}\", read_token: \"${{GPU_KEY}}\" }}\n"),
        ),
        (
            "a collector with a user",
            format!("{good}telemetry: {{ otlp: {{ endpoint: \"http://u:sk-CANARY-otlp@h\" }} }}\n"),
        ),
        ("a key as a variable", model("address: \"http://h:1\", api_key: \"${sk-CANARY-name}\"")),
        ("no YAML", "admin: { token: sk-CANARY-open\n".to_owned()),
    ] {
        std::fs::write(&file, text).unwrap();
        let secrets = [("GPU_KEY", ENDPOINT), ("BROKEN", "sk-CANARY-one\nsk-CANARY-two")];
        for verb in [&["check"][..], &["serve", "--config"]] {
            // What is taken would be served.
            if accepted.contains(&what) {
                continue;
            }
            let arguments = [verb, &[file.to_str().unwrap()]].concat();
            let output = run(&arguments, &secrets);
            accepted.extend(output.status.success().then_some(what));
            shown.add(format!("{what}, told on stdout"), output.stdout);
            shown.add(format!("{what}, told on stderr"), output.stderr);
        }
    }
    assert_eq!(shown.leaks(), Vec::<String>::new());
    assert_eq!(accepted, ["as it is"]);
}

#[tokio::test]
async fn the_search_finds_what_is_there() {
    let mut shown = Shown::default();
    shown.add("here", "nothing");
    assert!(shown.leaks().is_empty());
    shown.add("there", format!("before {ENDPOINT} after"));
    assert_eq!(shown.leaks(), [format!("there: …before {ENDPOINT} after…")]);
}
