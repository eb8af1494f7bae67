//! Strangers that say something new each time: what is counted of them, what is logged, and how much.
//!
//! A hundred thousand things that nobody has said before are five in each of twenty thousand requests;
//! `QUORUMGATE_STRANGERS` asks for another number of requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;

use crate::process::{BINARY, Gateway, call, endpoint_rows, until};
use crate::raw::{Act, Raw, good};

/// Clients, each with a connection of its own.
const CLIENTS: usize = 4;
/// Longest page of metrics, in bytes.
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Longest line of the log, in bytes, whatever is asked.
const LINE_BYTES_MAX: usize = 1024;
/// What memory may grow by, in KiB, over all of them.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

fn strangers() -> usize {
    let wanted = std::env::var("QUORUMGATE_STRANGERS").map(|text| text.parse().unwrap());
    wanted.unwrap_or(20_000)
}

/// The request of this number: a path, a method, a model, or a good one with odd surroundings; and
/// always an agent, a name of a header, an id, and a user that nobody has had before.
fn request(number: usize) -> Vec<u8> {
    let (line, body) = match number % 8 {
        0 | 1 => (format!("GET /v1/strange-{number}%1b%5b31m"), String::new()),
        2 | 3 => (format!("STRANGE{number} /v1/models"), String::new()),
        4 => (format!("GET /v1/models/strange-{number}"), String::new()),
        5 | 6 => {
            let model = format!("strange-{number}\\u001b[31m\\r\\n{{}}");
            ("POST /v1/chat/completions".to_owned(), format!("{{\"model\":\"{model}\"}}"))
        }
        _ => ("POST /v1/chat/completions".to_owned(), crate::process::chat_body(false)),
    };
    let odd = ["\"", "\t\\", "\u{9b}31m", "\u{202e}"][number % 4].repeat(40);
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: strange-{number}\r\nuser-agent: strange-{number}\r\n\
         x-strange-{number}: {odd}\r\nx-agent-id: strange-{number}{odd}\r\n\
         x-request-id: strange-{number}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Sends these requests one after the other, and returns how many were answered by which status.
fn ask(gateway: SocketAddr, numbers: impl Iterator<Item = usize>) -> Vec<(u16, usize)> {
    let mut answers = std::collections::BTreeMap::new();
    let mut stream = BufReader::new(TcpStream::connect(gateway).unwrap());
    stream.get_ref().set_nodelay(true).unwrap();
    for number in numbers {
        stream.get_mut().write_all(&request(number)).unwrap();
        let (mut status, mut length, mut is_last, mut line) = (0, 0, false, String::new());
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "ended before {number}");
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().unwrap();
            }
            if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.trim_end().parse().unwrap();
            }
            is_last |= line == "connection: close\r\n";
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
        *answers.entry(status).or_default() += 1;
        if is_last {
            stream = BufReader::new(TcpStream::connect(gateway).unwrap());
        }
    }
    answers.into_iter().collect()
}

/// All of them: how many were answered so, and in what time.
fn come(gateway: SocketAddr, from: usize, to: usize) -> (Vec<(u16, usize)>, Duration) {
    let began = Instant::now();
    let client = |client| {
        let numbers = (from..to).filter(move |number| number / 8 % CLIENTS == client);
        std::thread::spawn(move || ask(gateway, numbers))
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut answers = std::collections::BTreeMap::new();
    for (status, count) in clients.into_iter().flat_map(|client| client.join().unwrap()) {
        *answers.entry(status).or_default() += count;
    }
    (answers.into_iter().collect(), began.elapsed())
}

fn yaml(up: SocketAddr, format: &str) -> String {
    format!(
        "server: {{ listen: 127.0.0.1:0, workers: 2 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: {format}, level: info }}
models:
  - name: m
    endpoints:
{}",
        endpoint_rows(&[("a", up)])
    )
}

/// The names and labels of all series.
fn series(page: &str) -> Vec<&str> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut series: Vec<_> = lines.map(|line| line.rsplit_once(' ').unwrap().0).collect();
    series.sort_unstable();
    series
}

/// Asserts that a line does nothing to a terminal and is no longer than a line may be.
fn is_plain(line: &str) {
    assert!(line.len() <= LINE_BYTES_MAX, "{} bytes: {line}", line.len());
    assert!(!line.chars().any(|one| one.is_control() && one != '\t'), "{}", line.escape_debug());
    assert!(!line.contains(['\u{202e}', '\u{2028}']), "{}", line.escape_debug());
}

fn is_about(gateway: &Gateway, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x07_a_hundred_thousand_new_names_make_no_series_and_no_long_or_odd_line() {
    let _alone = crate::ALONE.lock().await;
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::serve(directory.path(), "gw", &yaml(raw.address, "json"));
    // Of each kind one, and then as many as take the memory that is kept.
    let first = 2_000;
    let clients = gateway.clients;
    tokio::task::spawn_blocking(move || come(clients, 0, first)).await.unwrap();
    let before = gateway.text("/metrics").await;
    let memory = is_about(&gateway, "VmRSS:");
    let last = first + strangers();
    let (answers, took) =
        tokio::task::spawn_blocking(move || come(clients, first, last)).await.unwrap();
    let count = strangers();
    let expected = [(200, count / 8), (404, count / 8 * 5), (405, count / 8 * 2)];
    assert_eq!(answers, expected);
    let after = gateway.text("/metrics").await;
    assert_eq!(series(&after), series(&before));
    let told = after.lines().find(|line| line.contains("strange"));
    assert!(after.len() < PAGE_BYTES_MAX && told.is_none(), "{} bytes, {told:?}", after.len());
    let grown = is_about(&gateway, "VmRSS:").saturating_sub(memory);
    let access = |line: &&String| line.contains("\"target\":\"access\"");
    until("all of it is in the log", async || gateway.log().iter().filter(access).count() >= last)
        .await;
    let log = gateway.log();
    let bytes: usize = log.iter().map(String::len).sum();
    eprintln!(
        "{count} requests in {took:?}: {} series and {} bytes of metrics; {} lines of {} bytes each, \
         {:.0} lines a second; {grown} KiB more memory",
        series(&after).len(),
        after.len(),
        log.len(),
        bytes / log.len(),
        count as f64 / took.as_secs_f64()
    );
    assert_eq!(log.iter().filter(access).count(), last, "a request is one line");
    assert!(log.len() < last + 20, "{} lines", log.len());
    for line in &log {
        is_plain(line);
        let event: Value = serde_json::from_str(line).unwrap();
        let model = event["model"].as_str().unwrap_or_default();
        assert!(["", "m"].contains(&model), "{line}");
    }
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    looks_are_plain(&gateway).await;
}

/// Nothing that operators look at has a word of a stranger in it, or anything that steers a terminal.
async fn looks_are_plain(gateway: &Gateway) {
    for path in ["endpoints", "members", "cluster", "events?since=0&until=now", "config"] {
        let path = format!("/admin/v1/{path}");
        let (_, body) = call(gateway.operators, Method::GET, &path, &[], "").await.unwrap();
        assert!(!body.contains("strange") && !body.contains('\u{1b}'), "{path}: {body}");
    }
    let admin = gateway.operators.to_string();
    for words in
        [&["endpoints"][..], &["explain", "a"], &["events", "--since", "0", "--until", "now"]]
    {
        let mut command = Command::new(BINARY);
        let output = command.args(words).args(["--admin", &admin]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let is_steering = |one: char| one.is_control() && one != '\n';
        assert!(!text.contains(is_steering) && !text.contains("strange"), "{words:?}: {text}");
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves with a log of plain text; where clients connect, and what is logged.
fn serve_in_text(directory: &Path, up: SocketAddr) -> (Ended, SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let file = directory.join("text.yaml");
    std::fs::write(&file, yaml(up, "text")).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("--config").arg(&file).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut out = child.stderr.take().unwrap();
    let child = Ended(child);
    let log = Arc::<Mutex<Vec<u8>>>::default();
    let (kept, (told, clients)) = (Arc::clone(&log), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut piece = [0; 64 * 1024];
        while let Ok(length) = out.read(&mut piece) {
            if length == 0 {
                break;
            }
            let mut log = kept.lock().unwrap();
            log.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&log[..log.len().min(4096)]);
            let address = text.split("clients=").nth(1).and_then(|rest| rest.split(' ').next());
            if let Some(address) = address.and_then(|address| address.parse().ok()) {
                let _ = told.send(address);
            }
        }
    });
    let clients = clients.recv_timeout(crate::process::PATIENCE).unwrap();
    (child, clients, log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m14_a_log_of_text_is_as_plain_and_a_request_is_one_line() {
    const STRANGERS: usize = 1_000;
    let _alone = crate::ALONE.lock().await;
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let directory = tempfile::tempdir().unwrap();
    let (_gateway, clients, log) = serve_in_text(directory.path(), raw.address);
    tokio::task::spawn_blocking(move || come(clients, 0, STRANGERS)).await.unwrap();
    let read = || String::from_utf8(log.lock().unwrap().clone()).unwrap();
    let about = |text: &str| text.lines().filter(|line| line.contains(" access: ")).count();
    until("all of it is in the log", async || about(&read()) >= STRANGERS).await;
    let text = read();
    assert_eq!(about(&text), STRANGERS);
    text.lines().for_each(is_plain);
}
