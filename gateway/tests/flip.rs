//! How long a flip takes on real sockets: from the deciding vote until the last of five has it out.
//!
//! Each of many endpoints is taken out once: two nodes have voted and everybody knows, then a third
//! node's breaker opens. The nodes note in their histories when that was and when each of them acted,
//! on the one clock of the machine they share. `QUORUMGATE_FLIPS=200` measures more than the usual few.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use gateway::mock::{Behaviour, Mock};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::process::{CHAT, Gateway, call, member_head, until};

const NODES: usize = 5;
/// The node whose vote decides.
const THIRD: usize = 2;
/// Flips of one fleet, and of the usual run; for more, one fleet follows another.
const FLIPS: usize = 40;
/// As many again stay well: a node that sees nearly everything fail would doubt itself.
const ENDPOINTS: usize = 2 * FLIPS;
/// Endpoints that are taken out before the histories are read.
const BATCH: usize = 20;
/// What the push may take beyond a round trip.
const PUSH_MAX: Duration = Duration::from_millis(50);
/// Upper bounds of the printed buckets, in milliseconds.
const BUCKETS: [u128; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 400, 1_000];
/// One fleet measures at a time: two would measure each other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A fleet of five over one mock, which serves every endpoint.
struct Fleet {
    nodes: Vec<Gateway>,
    mock: Mock,
    _directory: tempfile::TempDir,
}

/// What was measured.
struct Figures {
    /// From the deciding vote to the last flip.
    flips: Vec<Duration>,
    /// A request to all five at once, until the last has answered.
    round_trips: Vec<Duration>,
}

impl Fleet {
    async fn start(cluster: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names: Vec<String> = (1..=NODES).map(|number| format!("gw-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        gossip::certs::throw_away(directory.path(), &names).unwrap();
        let (address, mock) = process::mock("all").await;
        let mut nodes: Vec<Gateway> = Vec::new();
        for name in &names {
            let seed = nodes.first().and_then(|node| node.gossip);
            let head = head(directory.path(), name, seed, cluster);
            let yaml = format!("{head}{}", models(ENDPOINTS, address));
            nodes.push(Gateway::serve_by(process::preferred(), directory.path(), name, &yaml));
        }
        for node in &nodes {
            until("the fleet forms", async || {
                let cluster = node.look("/admin/v1/cluster").await;
                cluster["live"] == NODES && cluster["observing_ms"] == 0
            })
            .await;
        }
        Self { nodes, mock, _directory: directory }
    }

    /// Takes half of the endpoints out, one after the other.
    async fn measure(&self, figures: &mut Figures) {
        let all: Vec<usize> = (0..FLIPS).collect();
        for batch in all.chunks(BATCH) {
            // Those who do not vote know the endpoints as well, and for as long as the run takes: who
            // has no success of its own would second the first two, and nothing be left to decide.
            self.mock.set(Behaviour::default());
            self.ask(&[THIRD, 3, 4], batch, StatusCode::OK).await;
            self.mock.set(Behaviour { status: Some(500), ..Behaviour::default() });
            self.ask(&[0, 1], batch, StatusCode::INTERNAL_SERVER_ERROR).await;
            self.all_see("votes_counted", json!(2), batch).await;
            for endpoint in batch {
                // Any moment between two rounds of gossip is as good as another.
                tokio::time::sleep(Duration::from_millis(fastrand::u64(5..60))).await;
                self.ask(&[THIRD], &[*endpoint], StatusCode::INTERNAL_SERVER_ERROR).await;
                figures.round_trips.push(self.round_trip().await);
            }
            self.all_see("state", json!("open"), batch).await;
            for endpoint in batch {
                figures.flips.push(self.took(*endpoint).await);
            }
        }
    }

    async fn ask(&self, nodes: &[usize], endpoints: &[usize], wanted: StatusCode) {
        for (node, endpoint) in
            nodes.iter().flat_map(|node| endpoints.iter().map(move |e| (node, e)))
        {
            let message = json!([{ "role": "user", "content": "hello" }]);
            let body = json!({ "model": format!("m{endpoint}"), "messages": message }).to_string();
            let to = self.nodes[*node].clients;
            let (status, said) = call(to, Method::POST, CHAT, &[], &body).await.unwrap();
            assert_eq!(status, wanted, "{said}");
        }
    }

    /// Waits until every node holds this of these endpoints.
    async fn all_see(&self, key: &str, wanted: Value, endpoints: &[usize]) {
        for node in &self.nodes {
            until(&format!("{key} is {wanted} on {}", node.name), async || {
                let view = node.look("/admin/v1/endpoints").await;
                let rows = view["endpoints"].as_array().unwrap();
                endpoints.iter().all(|endpoint| {
                    let name = name(*endpoint);
                    let row = rows.iter().find(|row| row["endpoint"] == name.as_str());
                    row.unwrap()["cluster"][key] == wanted
                })
            })
            .await;
        }
    }

    async fn round_trip(&self) -> Duration {
        let began = Instant::now();
        let mut asked = tokio::task::JoinSet::new();
        for node in &self.nodes {
            let operators = node.operators;
            asked.spawn(async move { call(operators, Method::GET, "/healthz", &[], "").await });
        }
        for answer in asked.join_all().await {
            assert_eq!(answer.unwrap().0, StatusCode::OK);
        }
        began.elapsed()
    }

    /// From the third node's vote until the last node had the endpoint out, by their histories.
    async fn took(&self, endpoint: usize) -> Duration {
        let name = name(endpoint);
        let mut last = 0;
        for node in 0..NODES {
            let [flipped] = self.noted(node, &name, [("cluster", "opened:")]).await;
            last = last.max(number(&flipped, "unix_ms"));
        }
        // The breaker opened when its entry says so on the node's own clock; the entry's time of day
        // is read later, when the thread that writes it has its turn.
        let wanted = [("local", "closed to open"), ("cluster", "opened:")];
        let [vote, flip] = self.noted(THIRD, &name, wanted).await;
        let before = number(&vote, "age_ms").saturating_sub(number(&flip, "age_ms"));
        let decided = number(&flip, "unix_ms") - before;
        Duration::from_millis(last - decided)
    }

    /// The only entries of these kinds in a node's history of an endpoint.
    async fn noted<const COUNT: usize>(
        &self,
        node: usize,
        name: &str,
        wanted: [(&str, &str); COUNT],
    ) -> [Value; COUNT] {
        let view = self.nodes[node].explain(name).await;
        let entries = view["history"].as_array().unwrap();
        wanted.map(|(scope, what)| {
            let mut such = entries.iter().filter(|entry| {
                entry["scope"] == scope && entry["what"].as_str().unwrap().starts_with(what)
            });
            let entry = such.next().unwrap_or_else(|| panic!("no '{what}': {view}"));
            assert!(such.next().is_none(), "twice '{what}': {view}");
            entry.clone()
        })
    }
}

fn number(entry: &Value, key: &str) -> u64 {
    entry[key].as_u64().unwrap()
}

impl Figures {
    /// Measures as many flips as are asked for, of fleets with this in their `cluster` section.
    async fn of(cluster: &str) -> Self {
        let wanted = std::env::var("QUORUMGATE_FLIPS").map(|text| text.parse().unwrap());
        let mut figures = Self { flips: Vec::new(), round_trips: Vec::new() };
        while figures.flips.len() < *wanted.as_ref().unwrap_or(&FLIPS) {
            Fleet::start(cluster).await.measure(&mut figures).await;
        }
        figures
    }

    /// Requires that flips take at most `limit` beyond a round trip: 99 of 100 where there are that
    /// many, and of the usual few, whose 99th percentile is the longest alone, nine of ten.
    fn hold(&self, limit: Duration) {
        let share = if self.flips.len() >= 100 { 99 } else { 90 };
        let bound = limit + percentile(&self.round_trips, 99);
        let most = percentile(&self.flips, share);
        assert!(most <= bound, "p{share} {most:?}, bound {bound:?}");
    }

    fn print(&self, what: &str) {
        eprintln!("{what}: {} flips", self.flips.len());
        let mut from = 0;
        for to in BUCKETS {
            let within = |took: &&Duration| (from..to).contains(&took.as_millis());
            let count = self.flips.iter().filter(within).count();
            eprintln!("{from:>5} to {to:>5} ms {count:>4} {}", "#".repeat(count.min(60)));
            from = to;
        }
        let (flips, trips) = (&self.flips, &self.round_trips);
        let (half, most) = (percentile(flips, 50), percentile(flips, 99));
        eprintln!("p50 {half:?}, p99 {most:?}, longest {:?}", percentile(flips, 100));
        eprintln!("round trip p50 {:?}, p99 {:?}", percentile(trips, 50), percentile(trips, 99));
    }
}

fn percentile(sample: &[Duration], share: usize) -> Duration {
    let mut sorted = sample.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * share).div_ceil(100) - 1]
}

fn name(endpoint: usize) -> String {
    format!("m{endpoint}/only")
}

fn models(count: usize, address: SocketAddr) -> String {
    let model = |number: usize| {
        format!(
            "  - {{ name: m{number}, endpoints: [{{ name: only, address: \"http://{address}\" }}] }}\n"
        )
    };
    (0..count).map(model).collect()
}

fn head(directory: &Path, node: &str, seed: Option<SocketAddr>, cluster: &str) -> String {
    let head = member_head(directory, node, seed);
    format!(
        "{head}  quorum: {{ expected_members: 5, observe: 1s }}
  {cluster}
retry: {{ max_attempts: 1 }}
circuit_breaker:
  failure_threshold: 1
  window: 10m
  open: {{ base: 10m, max: 10m }}
models:
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_has_the_last_of_five_flip_fifty_milliseconds_and_a_round_trip_after_the_vote() {
    let _alone = ALONE.lock().await;
    let figures = Figures::of("gossip_interval: 1s").await;
    figures.print("with push, gossip every second");
    figures.hold(PUSH_MAX);
}

/// At a fifth of the usual interval, which makes the run shorter and the claim no smaller.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_push_the_last_of_five_flips_two_rounds_of_gossip_after_the_vote() {
    let _alone = ALONE.lock().await;
    let figures = Figures::of("gossip_interval: 200ms\n  push: false").await;
    figures.print("without push, gossip every 200 ms");
    figures.hold(Duration::from_millis(400));
}
