//! Many clients at once: what a stream costs, what a reader that stops costs, and that a storm of
//! clients that come and go leaves nothing behind.
//!
//! The gateway is a process of its own, so that its memory and its sockets can be told from the
//! test's. `STREAMS=5000` makes the crowd as large as that.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may stop loudly, and says what it has measured"
)]

#[path = "local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "process/mod.rs"]
mod process;
#[path = "raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use local::{Ask, STREAM_QUESTION, read_until};
use process::{Gateway, endpoint_rows};
use raw::{Act, DONE, FINISH, ROLE, Raw, event, good, open_stream, whole_stream};

/// A stream costs the gateway no more than this, in KiB of resident memory.
const STREAM_KIB_MAX: u64 = 64;
/// A reader that stops costs it no more than this when events are short,
const STALLED_KIB_MAX: u64 = 256;
/// and when they are so long that they are put together from several reads.
const STALLED_LONG_KIB_MAX: u64 = 320;
/// Streams before anything is measured.
const WARM: usize = 60;
/// What upstreams say to readers that stop: more than all buffers on the way take.
const SAID_BYTES: usize = 3_000_000;
/// A crowd takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many streams there are at once; 300 by default.
fn streams() -> usize {
    std::env::var("STREAMS").map_or(300, |streams| streams.parse().unwrap())
}

/// The configuration of a gateway that serves the model `demo` from there.
fn yaml(upstream: SocketAddr) -> String {
    let head = "server: { listen: 127.0.0.1:0, workers: 1 }\nadmin: { listen: 127.0.0.1:0 }\n\
         log: { format: json, level: \"info,access=off\" }\nmodels:\n  - name: demo\n    endpoints:\n";
    format!("{head}{}", endpoint_rows(&[("a", upstream)]))
}

/// A gateway in a process of its own.
struct House {
    gateway: Gateway,
    _directory: TempDir,
}

impl House {
    /// Starts it. A few streams put every page of its code in place.
    async fn before(raw: &Raw) -> Self {
        let found = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let gateway = Gateway::serve(directory.path(), "gateway", &yaml(raw.address));
        let house = Self { gateway, _directory: directory };
        let asked = (0..WARM).map(|_| {
            let address = house.address();
            tokio::spawn(async move { Ask::stream().send(address).await.is_clean })
        });
        for one in asked.collect::<Vec<_>>() {
            assert!(one.await.unwrap());
        }
        house
    }

    fn address(&self) -> SocketAddr {
        self.gateway.clients
    }

    /// Resident memory, in KiB.
    fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.gateway.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Open files and sockets.
    fn handles(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.gateway.id())).unwrap().count()
    }

    async fn in_flight(&self) -> u64 {
        let endpoints = self.gateway.look("/admin/v1/endpoints/demo/a").await;
        endpoints["in_flight"].as_u64().unwrap()
    }

    async fn is_at_rest(&self) {
        let began = Instant::now();
        while self.in_flight().await > 0 {
            assert!(began.elapsed() < PATIENCE, "requests are still in flight");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A stream that says something, waits to be let on, and ends.
fn waiting_stream() -> Vec<Act> {
    let mut script = open_stream(&[ROLE, &event("one")]);
    for _ in 0..3 {
        script.push(Act::Rest(Duration::from_millis(100)));
        script.extend(open_stream(&[event("slow")]).into_iter().skip(1));
    }
    script.push(Act::Wait);
    script.extend(whole_stream(&[FINISH, DONE]).into_iter().skip(1));
    script
}

/// An upstream that answers like this, but for the first few requests.
async fn upstream(script: Vec<Act>) -> Raw {
    let first = whole_stream(&[ROLE, &event("one"), FINISH, DONE]);
    Raw::start(move |number, _| if number < WARM { first.clone() } else { script.clone() }).await
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn read_to_done(mut client: TcpStream) {
    let (mut end, mut piece) = (Vec::new(), [0; 1024]);
    while !end.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n") {
        let read = timeout(PATIENCE, client.read(&mut piece)).await;
        let length = read.unwrap().unwrap();
        assert!(length > 0, "ended early: {}", String::from_utf8_lossy(&end));
        end.extend(piece.iter().take(length));
    }
}

/// Asserts what each of a crowd costs at most.
fn costs(house: &House, before: u64, count: usize, kib_max: u64, what: &str) {
    let count = u64::try_from(count).unwrap();
    let each = house.resident_kib().saturating_sub(before) / count;
    println!("{what}: {each} KiB each of {count}, {} KiB in all", house.resident_kib());
    assert!(each <= kib_max, "{what}: {each} KiB each of {count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_slow_streams_is_served_to_its_end_for_little_memory() {
    let raw = upstream(waiting_stream()).await;
    let house = House::before(&raw).await;
    let count = streams();
    let (before, said) = (house.resident_kib(), raw.said());
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(Ask::stream().wire(house.address()).await);
        until("the crowd comes in", || number < raw.count() + 500).await;
    }
    // The head and five pieces each.
    until("all have begun", || raw.said() == said + count * 6).await;
    costs(&house, before, count, STREAM_KIB_MAX, "a stream");
    assert!(house.handles() >= count * 2);
    let readers: Vec<_> = clients.into_iter().map(|one| tokio::spawn(read_to_done(one))).collect();
    (0..count).for_each(|_| raw.go());
    for reader in readers {
        reader.await.unwrap();
    }
    house.is_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_on_few_connections_of_http2_is_served_to_its_end() {
    let raw = upstream(waiting_stream()).await;
    let house = House::before(&raw).await;
    let (count, before, said) = (streams(), house.resident_kib(), raw.said());
    let mut readers = Vec::new();
    let mut sender = None;
    for number in 0..count {
        if number % 100 == 0 {
            let io = TokioIo::new(TcpStream::connect(house.address()).await.unwrap());
            let shaken = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(shaken.1);
            sender = Some(shaken.0);
        }
        let mut sender = sender.clone().unwrap();
        readers.push(tokio::spawn(async move {
            let request = Request::builder().method(Method::POST);
            let request = request.uri("http://x/v1/chat/completions");
            let request = request.body(Full::new(Bytes::from(STREAM_QUESTION))).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let body = timeout(PATIENCE, answer.into_body().collect()).await.unwrap();
            assert!(body.unwrap().to_bytes().ends_with(DONE.as_bytes()));
        }));
    }
    until("all have begun", || raw.said() == said + count * 6).await;
    costs(&house, before, count, STREAM_KIB_MAX, "a stream of HTTP/2");
    (0..count).for_each(|_| raw.go());
    for reader in readers {
        reader.await.unwrap();
    }
    house.is_at_rest().await;
}

/// What a reader costs that stops, of a stream of events of this size.
async fn stalled(event_bytes: usize, kib_max: u64) {
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(event(&"y".repeat(event_bytes)), SAID_BYTES / event_bytes));
    let raw = upstream([open_stream(&parts), vec![Act::Hang]].concat()).await;
    // So many that what the process takes once is little against what each costs.
    let (house, count) = (House::before(&raw).await, 120);
    let before = house.resident_kib();
    let mut clients = Vec::new();
    for number in 1..=count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 * 1024).unwrap();
        let mut client = socket.connect(house.address()).await.unwrap();
        Ask::stream().write(&mut client).await;
        clients.push(client);
        until("it asks", || raw.count() == WARM + number).await;
        // One after the other: what is measured is what stays, and not what many need for a moment.
        let mut said = 0;
        while said != raw.said() {
            said = raw.said();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    costs(&house, before, count, kib_max, "a reader that stops");
    drop(clients);
    house.is_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_cost_little() {
    stalled(1_000, STALLED_KIB_MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_cost_little_even_when_events_are_long() {
    stalled(60_000, STALLED_LONG_KIB_MAX).await;
}

/// Lets clients come and go, 10 every 10 ms: some before they have said anything, some with their
/// request still on its way, most while they wait.
async fn storm(house: &House, seconds: u32) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = VecDeque::new();
    for number in 0..seconds * 1_000 {
        if number % 10 == 0 {
            ticks.tick().await;
        }
        let client = match number % 4 {
            0 => TcpStream::connect(house.address()).await.unwrap(),
            1 => Ask::chat().wire(house.address()).await,
            _ => Ask::stream().wire(house.address()).await,
        };
        client.set_zero_linger().unwrap();
        if number % 4 > 0 {
            waiting.push_back(client);
        }
        if waiting.len() > 60 {
            waiting.pop_front();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a07_a_storm_of_clients_that_leave_leaves_nothing_behind() {
    let raw = upstream(vec![Act::Hang]).await;
    let house = House::before(&raw).await;
    storm(&house, 1).await;
    house.is_at_rest().await;
    until("the sockets are closed", || house.handles() < 40).await;
    let (handles, resident) = (house.handles(), house.resident_kib());
    storm(&house, 3).await;
    house.is_at_rest().await;
    until("the sockets are closed", || house.handles() <= handles).await;
    let after = house.resident_kib();
    println!("{handles} handles; {resident} KiB, then {after} KiB");
    assert!(after <= resident + resident / 20, "{resident} KiB, then {after} KiB");
    assert!(raw.count() > 500, "the upstream was asked {} times only", raw.count());
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let mut low = Command::new("sh");
    low.args(["-c", "ulimit -Sn 200; ulimit -Hn 2000; exec \"$0\" \"$@\"", process::BINARY]);
    let nobody = "127.0.0.1:1".parse().unwrap();
    let gateway = Gateway::serve_by(low, directory.path(), "gateway", &yaml(nobody));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("2000"), "{line}");
    let log = gateway.log().join("\n");
    assert!(log.contains("open files") && log.contains("2000"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_has_no_file_left_says_so_and_blames_no_endpoint() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::serve(directory.path(), "gateway", &yaml(raw.address));
    // A client whose connection stands already.
    let mut client = Ask::get("/v1/models").wire(gateway.clients).await;
    read_until(&mut client, "demo").await;
    let id = Pid::from_raw(i32::try_from(gateway.id()).unwrap());
    // The hard limit is the test's own, which the gateway has inherited.
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let found = prlimit(id, Resource::Nofile, none).unwrap();
    // More than would open the circuit of an endpoint that refuses.
    for _ in 0..30 {
        Ask::chat().write(&mut client).await;
        let answer = read_until(&mut client, "\"code\"").await;
        assert!(answer.contains("503") && answer.contains("overloaded"), "{answer}");
    }
    assert_eq!(raw.count(), 0);
    prlimit(id, Resource::Nofile, found).unwrap();
    Ask::chat().write(&mut client).await;
    read_until(&mut client, "yes").await;
    let page = gateway.text("/metrics").await;
    let own = "quorumgate_connections_failed_total{endpoint=\"demo/a\",reason=\"own\"} ";
    let counted = page.lines().find_map(|line| line.strip_prefix(own)).unwrap();
    assert!(counted.parse::<u64>().unwrap() >= 30, "{counted}");
    assert!(page.contains("attempts_total{endpoint=\"demo/a\",outcome=\"fault\"} 0\n"), "{page}");
}
