//! A thousand slow clients of each kind are let go in time, and good ones do not notice.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use crate::clients::Kind;
use crate::load::Load;
use crate::process::{Gateway, endpoint_rows, until};
use crate::raw::{Act, ROLE, Raw, event, good, open_stream};

/// How many come of each kind.
const CROWD: usize = 1_000;
/// How many of those that do not read, where nothing is optimised: what fills the buffers of a thousand is
/// 300 MB, which then is a load of seconds for both cores.
const READERS: usize = if cfg!(debug_assertions) { 200 } else { CROWD };
/// They are let go no later than this after their time is over.
const SLACK: Duration = Duration::from_secs(2);
/// What 99 % of the good answers stay within on a machine of two cores that has other things to do as
/// well. By itself it is some milliseconds, and what is printed is the figure to look at.
const P99_MAX: Duration = Duration::from_secs(2);
/// So long nobody is slow, for a comparison.
const QUIET: Duration = Duration::from_secs(1);
/// Slow clients come over this time,
const COMING: Duration = Duration::from_millis(500);
/// and those who do not read over this.
const READERS_COMING: Duration = Duration::from_secs(3);
/// What may be left of them in memory.
const GROWTH_KIB_MAX: u64 = 64 * 1_024;

/// How long the gateway of this test waits for a client: `QUORUMGATE_SLOW_MS` for a longer run.
fn patience() -> Duration {
    let wanted = std::env::var("QUORUMGATE_SLOW_MS").map(|text| text.parse().unwrap());
    Duration::from_millis(wanted.unwrap_or(1_000))
}

/// Lets this process and those that it starts open as many sockets as they may.
fn open_up() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let enough = 4 * CROWD as u64;
    let is_enough = maximum.is_none_or(|most| most >= enough);
    assert!(is_enough, "this test needs {enough} open files, the limit is {maximum:?}");
}

/// Streams begin with more than all buffers on the way take, and say nothing more; anything else is
/// answered at once. It has a thread of its own, so that slow clients are not in its way.
fn upstream() -> Raw {
    let (told, raw) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            told.send(endless().await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    raw.recv().unwrap()
}

async fn endless() -> Raw {
    let long = event(&"y".repeat(60_000));
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(long, 9));
    let stream = [open_stream(&parts), vec![Act::Hang]].concat();
    Raw::start(move |_, seen| {
        let is_stream = seen.text().contains("\"stream\":true");
        if is_stream { stream.clone() } else { vec![Act::Say(good("yes"))] }
    })
    .await
}

fn serve(directory: &std::path::Path, up: SocketAddr) -> Gateway {
    let wait = patience().as_millis();
    let timeouts = ["first_byte", "headers", "body_idle", "keep_alive", "write_stall"]
        .map(|key| format!("{key}: {wait}ms"))
        .join(", ");
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 2, timeouts: {{ {timeouts} }} }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: \"warn,quorumgate=info\" }}
models:
  - name: m
    endpoints:
{}",
        endpoint_rows(&[("a", up)])
    );
    Gateway::serve(directory, "gw", &yaml)
}

/// A figure of the page of metrics; all series of that name together.
async fn figure(gateway: &Gateway, series: &str) -> u64 {
    let page = gateway.text("/metrics").await;
    let lines = page.lines().filter(|line| line.starts_with(series));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum::<f64>() as u64
}

/// What counts the clients of a kind that were let go.
fn counter(kind: Kind) -> &'static str {
    match kind {
        Kind::Silent => "quorumgate_client_connections_cut_total{by=\"first_byte\"}",
        Kind::Head => "quorumgate_guard_refusals_total{reason=\"late\"}",
        Kind::Body => "quorumgate_admission_rejects_total{reason=\"request_timeout\"}",
        Kind::Reader => "quorumgate_client_connections_cut_total{by=\"write_stall\"}",
        Kind::Http2 => "quorumgate_client_connections_cut_total{by=\"idle\"}",
    }
}

/// When clients of this kind are to be let go: one of HTTP/2 is asked to go first.
fn deadline(kind: Kind) -> Duration {
    match kind {
        Kind::Silent | Kind::Head | Kind::Body | Kind::Reader => patience(),
        Kind::Http2 => 2 * patience(),
    }
}

/// How many of a kind come, and over what time.
fn coming(kind: Kind) -> (usize, Duration) {
    match kind {
        Kind::Silent | Kind::Head | Kind::Body | Kind::Http2 => (CROWD, COMING),
        Kind::Reader => (READERS, READERS_COMING),
    }
}

/// They come: how long each was there, in order.
async fn crowd(kind: Kind, gateway: SocketAddr) -> Vec<Duration> {
    let mut visits = JoinSet::new();
    let (count, period) = coming(kind);
    let mut pace = tokio::time::interval(period / (count as u32 / 20));
    for number in 0..count {
        if number % 20 == 0 {
            pace.tick().await;
        }
        visits.spawn(kind.visit(gateway));
    }
    let mut taken = visits.join_all().await;
    taken.sort_unstable();
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_slow_clients_of_each_kind_are_gone_in_time_and_good_ones_do_not_notice() {
    let _alone = crate::ALONE.lock().await;
    open_up();
    let directory = tempfile::tempdir().unwrap();
    let raw = upstream();
    let gateway = serve(directory.path(), raw.address);
    until("it answers", async || gateway.chat().await == 200).await;
    let load = Load::on(gateway.clients);
    // What a first request makes is made.
    tokio::time::sleep(QUIET / 5).await;
    let began = Instant::now();
    tokio::time::sleep(QUIET).await;
    let quiet = (began, Instant::now());
    let (memory, files) = ("process_resident_memory_bytes", "process_open_fds");
    let at_rest = (figure(&gateway, memory).await / 1_024, figure(&gateway, files).await);
    let mut crowds = Vec::new();
    for kind in Kind::ALL {
        let (before, began) = (figure(&gateway, counter(kind)).await, Instant::now());
        let taken = crowd(kind, gateway.clients).await;
        let ended = Instant::now();
        // Nobody was let go for another reason, and none by himself.
        let count = figure(&gateway, counter(kind)).await - before;
        crowds.push((kind, taken, began, ended, count, figure(&gateway, memory).await / 1_024));
    }
    let record = load.stop();
    let is_empty = async || figure(&gateway, files).await <= at_rest.1;
    until("all sockets are closed", is_empty).await;
    let in_flight = async || figure(&gateway, "quorumgate_in_flight").await == 0;
    until("no request is left", in_flight).await;
    let (count, p50, p99) = record.within(quiet.0, quiet.1);
    let mut report = format!("quiet: {count} answers, p50 {p50:?}, p99 {p99:?}, {} KiB", at_rest.0);
    for (kind, taken, began, ended, _, kib) in &crowds {
        let (crowd, first, middle) = (taken.len(), taken[0], taken[taken.len() / 2]);
        let last = taken[crowd - 1];
        let (count, p50, p99) = record.within(*began, *ended);
        write!(
            report,
            "\n{crowd} {kind:?}: gone after {first:?} to {last:?}, half of them by {middle:?}; \
             {count} answers, p50 {p50:?}, p99 {p99:?}, {kib} KiB"
        )
        .unwrap();
    }
    eprintln!("{report}");
    for (kind, taken, began, ended, count, _) in crowds {
        let last = taken[taken.len() - 1];
        assert!(taken[0] + Duration::from_millis(100) >= patience(), "{kind:?}: {:?}", taken[0]);
        assert!(last <= deadline(kind) + SLACK, "{kind:?}: {last:?}");
        assert_eq!(count, taken.len() as u64, "{kind:?}: {}", counter(kind));
        let p99 = record.within(began, ended).2;
        assert!(p99 < P99_MAX, "{kind:?}: {p99:?}");
    }
    let left = figure(&gateway, memory).await / 1_024;
    assert!(left < at_rest.0 + GROWTH_KIB_MAX, "{} KiB at rest, {left} KiB left", at_rest.0);
    assert_eq!(gateway.chat().await, 200);
}
