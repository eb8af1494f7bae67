//! The operator's verbs as somebody meets them who was woken up: a fleet of real processes, asked and
//! ordered by the command line alone.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "process/mod.rs"]
mod process;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fleet::{B, Fleet, Plan, is_out};
use crate::process::{BINARY, Gateway, until};

const FULL: &str = "sk-CANARY-of-the-operators-full";
const READ: &str = "sk-CANARY-of-the-operators-read";

/// Seconds after which a command is given up.
const SECONDS_MAX: &str = "60";

/// How a command ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    /// What it said, as a document.
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// What it said to people, who have eighty columns.
    fn text(&self) -> &str {
        assert_eq!(self.code, 0, "{}", self.err);
        for line in self.out.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        &self.out
    }

    /// Asserts that it was refused with this code, in one line that says each of `told`.
    fn refused(&self, code: i32, told: &[&str]) {
        assert_eq!(self.code, code, "{} {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.out.is_empty(), "{}", self.out);
        for part in told {
            assert!(self.err.contains(part), "{part:?} is missing in {:?}", self.err);
        }
        assert!(!self.err.contains("CANARY"), "{}", self.err);
    }
}

fn command(admin: &str, token: Option<&str>, words: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args([SECONDS_MAX, BINARY])
        .args(words.split_whitespace())
        .env("QUORUMGATE_ADMIN", admin)
        .env_remove("QUORUMGATE_TOKEN")
        .stdin(Stdio::null());
    if let Some(token) = token {
        command.env("QUORUMGATE_TOKEN", token);
    }
    command
}

/// Runs a command to its end, while the test's own mocks go on.
async fn run(mut command: Command) -> Ended {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    Ended { code, out: text(output.stdout), err: text(output.stderr) }
}

async fn ask(node: &Gateway, words: &str) -> Ended {
    run(command(&node.operators.to_string(), None, words)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_woken_up_finds_what_is_out_and_brings_it_back() {
    let fleet = Fleet::start(Plan::new("60s")).await;
    let node = &fleet.nodes[2];
    assert!(ask(node, "endpoints").await.text().ends_with("all 2 in\n"));
    fleet.convict(&[0, 1]).await;
    until("the third follows", async || is_out(node).await).await;

    let shown = ask(node, "endpoints").await;
    let row = shown.text().lines().find(|line| line.starts_with("m/b ")).unwrap();
    assert!(row.contains("OUT fleet"), "{row}");
    assert!(shown.out.contains("    out for the whole fleet"), "{}", shown.out);
    assert!(shown.out.contains("1 of 2 out"), "{}", shown.out);

    // The name alone is enough.
    let why = ask(node, "explain b").await;
    for part in ["m/b, as gw-3 sees it", "now  ", "next ", "votes", "gw-1", "lately"] {
        assert!(why.text().contains(part), "{part:?} is missing in\n{}", why.out);
    }
    assert_eq!(ask(node, "explain b -o json").await.json()["endpoint"], B);

    let closed = ask(node, "close b --for 10m --reason mended").await;
    assert_eq!(closed.text(), "m/b is forced in on every node, for 10m00s\n");
    until("it is in", async || ask(node, "endpoints").await.out.contains("in forced")).await;
    until("the others know", async || fleet.nodes[0].explain(B).await["forced"] == "force_closed")
        .await;
    assert!(ask(node, "explain m/b").await.text().contains("by gw-3"));
    let given_back = ask(node, "auto m/b -o json").await.json();
    assert_eq!(given_back["state"], "auto");

    members_cluster_events_and_top(node).await;
}

async fn members_cluster_events_and_top(node: &Gateway) {
    let members = ask(node, "members").await;
    let me = members.text().lines().find(|line| line.starts_with("gw-3*")).unwrap();
    assert_eq!(me.split_whitespace().nth(1), Some("live"), "{me}");
    assert_eq!(members.out.lines().count(), 4, "{}", members.out);
    assert_eq!(ask(node, "members -o json").await.json()["members"][2]["self"], true);

    let cluster = ask(node, "cluster").await;
    assert!(cluster.text().contains("can decide       yes"), "{}", cluster.out);
    assert_eq!(ask(node, "cluster -o json").await.json()["quorum"], 2);

    let told = ask(node, "events --no-follow").await;
    assert_eq!(told.code, 0, "{}", told.err);
    let flip = told.out.lines().find(|line| line.contains("  flip      m/b  ")).unwrap();
    assert_eq!(flip.split_whitespace().next().unwrap().len(), "11-30".len(), "{flip}");
    let events = ask(node, "events --no-follow -o json").await;
    let events: Vec<Value> =
        events.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event["kind"] == "override"), "{events:?}");
    let last = events.last().unwrap()["id"].as_str().unwrap();
    let after = ask(node, &format!("events --no-follow --since {last}")).await;
    assert_eq!((after.code, after.out.as_str()), (0, ""), "nothing came after it");

    let top = ask(node, "top").await;
    assert!(top.text().starts_with("gw-3 · 3 of 3 live, 2 decide · "), "{}", top.out);
    assert!(!top.out.contains('\u{1b}'), "no terminal, no sequences");
    let document = ask(node, "top -o json").await.json();
    assert_eq!(document["endpoints"]["endpoints"][1]["endpoint"], B);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_sent_away_and_forgotten_from_any_node() {
    let mut fleet = Fleet::start(Plan::new("60s")).await;
    fleet.nodes.remove(2).kill();
    let node = &fleet.nodes[0];
    ask(node, "drain gw2").await.refused(65, &["there is no member gw2", "did you mean gw-2?"]);
    ask(node, "forget gw-2").await.refused(65, &["gw-2"]);
    let drained = ask(node, "drain gw-2 --reason disk").await;
    assert!(drained.text().starts_with("gw-2 drains: "), "{}", drained.out);
    until("it drains", async || {
        ask(node, "members").await.out.lines().any(|line| {
            line.starts_with("gw-2 ") && line.split_whitespace().nth(1) == Some("draining")
        })
    })
    .await;
    until("the third is lost", async || {
        ask(node, "members").await.text().contains("quorumgate forget gw-3")
    })
    .await;
    assert_eq!(ask(node, "forget gw-3 -o json").await.json()["order"], "forget");
    until("it is forgotten", async || !ask(node, "members").await.out.contains("gw-3")).await;
    let left = ask(node, "leave gw-2").await;
    assert!(left.text().starts_with("gw-2 leaves: "), "{}", left.out);
    let joined = ask(node, "join 127.0.0.1:9").await;
    assert!(joined.text().contains("127.0.0.1:9"), "{}", joined.out);
    ask(node, "join nowhere").await.refused(65, &["seeds[0]", "no port"]);
}

fn locked(directory: &Path, upstream: SocketAddr) -> Gateway {
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0, token: {FULL}, read_token: {READ} }}
log: {{ format: json, level: trace }}
models: [ {{ name: m, endpoints: [ {{ name: gpu-a, address: \"http://{upstream}\" }} ] }} ]
"
    );
    Gateway::serve(directory, "locked", &yaml)
}

#[tokio::test]
async fn every_refusal_is_one_line_with_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _) = process::mock("a").await;
    let gateway = locked(directory.path(), upstream);
    let admin = gateway.operators.to_string();
    let by = async |token: Option<&str>, words: &str| run(command(&admin, token, words)).await;

    by(None, "endpoints").await.refused(77, &["a token is wanted", "QUORUMGATE_TOKEN"]);
    by(Some("sk-CANARY-wrong"), "endpoints").await.refused(77, &["not the right one"]);
    by(Some("sk-CANARY with space"), "members").await.refused(64, &["the token holds a space"]);
    assert_eq!(by(Some(READ), "endpoints").await.code, 0);
    by(Some(READ), "open gpu-a --for 1m").await.refused(77, &["may only look"]);
    by(Some(FULL), "explain gpu-b").await.refused(65, &["no endpoint gpu-b", "mean m/gpu-a?"]);
    by(Some(FULL), "explain n/gpu-a").await.refused(65, &["no endpoint n/gpu-a", "mean m/gpu-a?"]);
    by(Some(FULL), "explain x/y?z#../..").await.refused(65, &["no endpoint x/y?z#../.."]);
    by(Some(FULL), "forget gw-9").await.refused(65, &["there is no member gw-9"]);
    by(Some(FULL), "events --since 12x").await.refused(65, &["since must be"]);
    by(Some(FULL), "open gpu-a --for ten").await.refused(64, &["--for ten", "write 10s"]);
    by(Some(FULL), "open gpu-a --for 200h").await.refused(65, &["up to 168h"]);
    by(Some(FULL), "top --every 1ms").await.refused(64, &["use 200ms to 60s"]);

    // The last endpoint of a pool goes only by who means it.
    let last = by(Some(FULL), "open gpu-a --for 10m --reason test").await;
    last.refused(65, &["the last endpoint", "--yes"]);
    let sure = by(Some(FULL), "open gpu-a --for 10m --reason test --yes").await;
    assert_eq!(sure.text(), "m/gpu-a is forced out on every node, for 10m00s\n");
    let out = by(Some(READ), "endpoints").await;
    assert!(out.text().contains("OUT forced") && out.out.contains("test"), "{}", out.out);

    // A file, and an address with all that people write around it.
    let file = directory.path().join("token");
    std::fs::write(&file, format!("{READ}\n")).unwrap();
    let file = file.display();
    let words = format!("members --admin http://{admin}/ --token-file {file} -o json");
    assert_eq!(run(command("nowhere:1", None, &words)).await.json()["members"][0]["state"], "live");
    let gone = run(command(&admin, None, "members --token-file /nonexistent/token")).await;
    gone.refused(64, &["/nonexistent/token"]);
    let log = gateway.log().join("\n");
    assert!(!log.contains("CANARY"), "the log tells a secret");
}

#[tokio::test]
async fn health_is_told_by_exit_code_and_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _) = process::mock("a").await;
    let mut gateway = locked(directory.path(), upstream);
    let admin = gateway.operators.to_string();
    let health = async |words: &str| run(command(&admin, None, words)).await;
    assert_eq!(health("health").await.text(), "alive\n");
    assert!(health("health --ready").await.text().starts_with("ready"));
    // What could not be sent as a token is no ailment of the gateway.
    let odd = run(command(&admin, Some("of two words"), "health")).await;
    assert_eq!(odd.text(), "alive\n");
    assert_eq!(health("health --ready -o json").await.json()["ready"], true);
    let clients = gateway.clients.to_string();
    run(command(&clients, None, "health")).await.refused(69, &["clients' listener"]);
    run(command(&upstream.to_string(), None, "health")).await.refused(69, &["no admin API"]);

    // It drains, which is no illness.
    let order = run(command(&admin, Some(FULL), "drain single")).await;
    assert_eq!(order.code, 0, "{}", order.err);
    process::until("it is not ready", async || health("health --ready").await.code == 69).await;
    health("health --ready").await.refused(69, &[&admin, "not ready", "draining"]);
    assert_eq!(health("health").await.text(), "alive\n");
    gateway.signal("TERM");
    gateway.wait();
    health("health").await.refused(69, &["connection refused"]);
}

#[tokio::test]
async fn who_asks_at_the_wrong_address_is_told_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _) = process::mock("a").await;
    let gateway = locked(directory.path(), upstream);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = async |admin: &str| run(command(admin, Some(FULL), "members")).await;
    at(&free.to_string()).await.refused(69, &[&free.to_string(), "connection refused", "--admin"]);
    at(&gateway.clients.to_string()).await.refused(69, &["clients' listener", "admin.listen"]);
    at(&upstream.to_string()).await.refused(69, &[&upstream.to_string()]);
    at("https://gw-1").await.refused(64, &["without TLS", "ssh -L"]);
    at("a:b:c").await.refused(64, &["write HOST:PORT"]);
    at("no-such-host.invalid").await.refused(69, &["no-such-host.invalid:9090: cannot connect"]);
}

#[tokio::test]
async fn a_file_is_read_again_and_one_that_is_wrong_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _) = process::mock("a").await;
    let yaml = |more: &str| {
        format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
models:
  - name: m
    endpoints:
      - {{ name: a, address: \"http://{upstream}\", api_key: sk-CANARY-up }}
{more}"
        )
    };
    let gateway = Gateway::serve(directory.path(), "again", &yaml(""));
    let file = directory.path().join("again.yaml");
    assert!(ask(&gateway, "reload").await.text().starts_with("nothing has changed"));

    std::fs::write(&file, yaml("      - { name: b, address: \"http://127.0.0.1:1\" }\n")).unwrap();
    let read = ask(&gateway, "reload").await;
    // The file is watched as well, and whoever sees it first reads it.
    if !read.text().starts_with("nothing has changed") {
        assert!(read.out.contains("added: m/b"), "{}", read.out);
    }
    assert!(ask(&gateway, "endpoints").await.text().contains("m/b"));

    std::fs::write(&file, yaml("      - { nam: b }\n")).unwrap();
    ask(&gateway, "reload").await.refused(65, &["again.yaml:8:", "did you mean \"name\"?"]);
    let held = ask(&gateway, "config").await;
    assert!(held.out.contains("name: b") && held.err.contains("refused since"), "{}", held.err);
    assert!(!held.out.contains("CANARY"), "{}", held.out);
    let checked = directory.path().join("shown.yaml");
    std::fs::write(&checked, &held.out).unwrap();
    let checked = run(command("", None, &format!("check {} -o json", checked.display()))).await;
    assert_eq!(checked.json()["hash"], ask(&gateway, "config -o json").await.json()["hash"]);
}

/// Answers one connection after the other with what is given, and tells the head of each request.
fn answering(answers: Vec<String>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            heads.send(head_of(&stream)).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, told)
}

fn head_of(stream: &TcpStream) -> String {
    let mut head = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if line.is_empty() {
            break;
        }
        head.push_str(&format!("{}\n", line.to_lowercase()));
    }
    head
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

#[tokio::test]
async fn whoever_follows_misses_nothing_when_the_connection_breaks() {
    let event = |seq: u32| format!("id: 7-{seq}\nevent: flip\ndata: {{\"seq\":{seq}}}\n\n");
    // The first breaks in the middle of an event.
    let first = format!("{STREAM}: beat\n\n{}{}id: 7-9\nevent: f", event(1), event(2));
    let second = format!("{STREAM}{}", event(3));
    let body = "{\"error\":{\"code\":\"unauthorized\",\"message\":\"-\"}}";
    let refusal =
        format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (address, heads) = answering(vec![first, second, refusal]);
    let ended = run(command(&address.to_string(), None, "events --since 0 -o json")).await;
    assert_eq!(ended.code, 77, "{}", ended.err);
    assert_eq!(ended.out, "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n");
    let heads: Vec<String> = heads.iter().collect();
    assert!(heads[0].starts_with("get /admin/v1/events?since=0 "), "{}", heads[0]);
    for (head, last) in [(&heads[1], "7-2"), (&heads[2], "7-3")] {
        assert!(head.starts_with("get /admin/v1/events http"), "{head}");
        assert!(head.contains(&format!("last-event-id: {last}\n")), "{head}");
    }
}

#[tokio::test]
async fn an_answer_cannot_steer_the_terminal_nor_fill_the_memory() {
    let body = "{\"members\":[{\"id\":\"gw\\u001b[2J\\u009b\",\"state\":\"li\\nve\"}]}";
    let whole =
        |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (address, _heads) = answering(vec![whole(body)]);
    let shown = run(command(&address.to_string(), None, "members")).await;
    assert_eq!(shown.text().lines().count(), 2, "{:?}", shown.out);
    assert!(!shown.out.contains(['\u{1b}', '\u{9b}']), "{:?}", shown.out);

    let raw = "{\"members\":[{\"id\":\"gw\u{9b}2J\u{7f}\u{2066}\"}]}";
    let (address, _heads) = answering(vec![whole(raw)]);
    let shown = run(command(&address.to_string(), None, "members -o json")).await;
    let same = "{\"members\":[{\"id\":\"gw\\u009b2J\\u007f\\u2066\"}]}\n";
    assert_eq!(shown.text(), same, "{:?}", shown.out);

    let (address, _heads) = answering(vec![whole("not json")]);
    let odd = run(command(&address.to_string(), None, "members")).await;
    odd.refused(69, &["no admin API"]);
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(65 * 1024 * 1024));
    let (address, _heads) = answering(vec![endless]);
    let long = run(command(&address.to_string(), None, "members")).await;
    long.refused(69, &["longer than 64 MiB"]);
}

#[tokio::test]
async fn a_connection_that_ends_without_an_answer_is_not_taken_for_a_stranger() {
    for (answer, arguments, part) in [
        ("", "members", "closed before an answer came; try again"),
        ("", "reload", "closed before an answer came; the order may have been taken"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "members", "cut off; try again"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
            "reload",
            "the order may have been taken",
        ),
        ("\u{15}\u{3}\u{3}\u{0}\u{2}", "members", "this is no admin API"),
    ] {
        let (address, _heads) = answering(vec![answer.to_owned()]);
        let ended = run(command(&address.to_string(), None, arguments)).await;
        ended.refused(69, &[part]);
    }
}
