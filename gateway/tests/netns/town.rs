//! A fleet whose nodes are machines of their own on one bridge, with one machine for the endpoints.
//!
//! Pool `m` has the endpoints `a` and `b`, and pool `k` has `c` and `d`; `a` and `c` are one server,
//! `b` and `d` another. Thresholds are low enough for a test; gossip has its second.
//!
//! Invariants: nodes are numbered from 1, and a node that was killed leaves its place empty; every
//! wait has a limit and says what it waited for.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::process::{BINARY, Gateway, TOKEN, call, until};
use crate::wires::{Machine, UPSTREAM, Wires, run};

/// What two gossip rounds take.
pub(crate) const TWO_INTERVALS: Duration = Duration::from_secs(2);
/// How soon a node comes back, or a heal is complete.
pub(crate) const TEN_SECONDS: Duration = Duration::from_secs(10);
/// The nodes of a fleet of the usual size.
pub(crate) const ALL: [u8; 5] = [1, 2, 3, 4, 5];
/// The endpoint that falls ill.
pub(crate) const B: &str = "m/b";
/// The port of `a`.
pub(crate) const PORT_A: u16 = 9_001;
/// The port of `b`.
pub(crate) const PORT_B: u16 = 9_002;
/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// How a fleet is made.
pub(crate) struct Plan {
    /// How many nodes.
    pub(crate) size: u8,
    /// The first cool-down.
    pub(crate) base: &'static str,
    /// `cluster.quorum`, without the time of observing.
    pub(crate) quorum: &'static str,
    /// `cluster.seeds`.
    pub(crate) seeds: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            size: 5,
            base: "60s",
            quorum: "member_grace: 60s",
            seeds: "10.0.0.1:7946, 10.0.0.2:7946, 10.0.0.3:7946",
        }
    }
}

/// A running fleet.
pub(crate) struct Town {
    pub(crate) wires: Wires,
    pub(crate) a: Upstream,
    pub(crate) b: Upstream,
    nodes: Vec<Option<Gateway>>,
    plan: Plan,
    directory: tempfile::TempDir,
}

impl Town {
    /// Starts a fleet and waits until every node knows all of it and may decide.
    pub(crate) async fn start(plan: Plan) -> Self {
        let town = Self::serve(plan).await;
        town.forms(Duration::from_secs(25)).await;
        for (number, node) in town.living() {
            let decides = async || node.look("/admin/v1/cluster").await["observing_ms"] == 0;
            within(TEN_SECONDS, &format!("node {number} may decide"), decides).await;
        }
        town
    }

    /// Starts a fleet and waits until every node serves.
    pub(crate) async fn serve(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names: Vec<String> = (1..=plan.size).map(|number| format!("gw-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        gossip::certs::throw_away(directory.path(), &names).unwrap();
        let wires = Wires::lay(plan.size);
        let (a, b) = (Upstream::start(PORT_A).await, Upstream::start(PORT_B).await);
        let size = plan.size;
        let nodes = (0..size).map(|_| None).collect();
        let mut town = Self { wires, a, b, nodes, plan, directory };
        for number in 1..=size {
            town.begin(number, Machine(number).command(BINARY));
        }
        town
    }

    /// Starts a node by a command that becomes the binary on its machine.
    pub(crate) fn begin(&mut self, number: u8, by: Command) {
        let name = format!("gw-{number}");
        let yaml = configuration(self.directory.path(), number, &self.plan);
        let node = Gateway::serve_by(by, self.directory.path(), &name, &yaml);
        self.nodes[usize::from(number) - 1] = Some(node);
    }

    /// Where the fleet's files are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A node that runs.
    pub(crate) fn node(&self, number: u8) -> &Gateway {
        self.nodes[usize::from(number) - 1].as_ref().unwrap()
    }

    /// The nodes that run, with their numbers.
    pub(crate) fn living(&self) -> impl Iterator<Item = (u8, &Gateway)> {
        (1..).zip(&self.nodes).filter_map(|(number, node)| Some((number, node.as_ref()?)))
    }

    /// Ends a node as a crash would.
    pub(crate) fn kill(&mut self, number: u8) {
        self.nodes[usize::from(number) - 1].take().unwrap().kill();
    }

    /// Sends a node a signal by its name.
    pub(crate) fn signal(&self, number: u8, signal: &str) {
        let id = self.node(number).id().to_string();
        run(Command::new("kill").args(["-s", signal, &id]), "");
    }

    /// How many members are live in a node's eyes.
    pub(crate) async fn live(&self, number: u8) -> Value {
        self.node(number).look("/admin/v1/cluster").await["live"].clone()
    }

    /// Waits until each living node sees all living nodes and no other.
    pub(crate) async fn forms(&self, limit: Duration) -> Duration {
        let count = self.living().count();
        within(limit, "the fleet forms", async || {
            for (number, _) in self.living() {
                if self.live(number).await != count {
                    return false;
                }
            }
            true
        })
        .await
    }

    /// What the fleet holds of `b` in a node's eyes: `open` or `closed`.
    pub(crate) async fn verdict(&self, number: u8) -> String {
        let view = self.node(number).explain(B).await;
        view["cluster"]["state"].as_str().unwrap().to_owned()
    }

    /// Whether the fleet has `b` out, in the eyes of each of these nodes.
    pub(crate) async fn is_out_on(&self, numbers: &[u8]) -> bool {
        for number in numbers {
            if self.verdict(*number).await != "open" {
                return false;
            }
        }
        true
    }

    /// The state of a node's own breaker of `b`.
    pub(crate) async fn own(&self, number: u8) -> String {
        let view = self.node(number).explain(B).await;
        view["local"]["state"].as_str().unwrap().to_owned()
    }

    /// Waits until the own breakers of these nodes have opened.
    pub(crate) async fn own_open(&self, limit: Duration, numbers: &[u8]) -> Duration {
        within(limit, "their own breakers open", async || {
            for number in numbers {
                if self.own(*number).await != "open" {
                    return false;
                }
            }
            true
        })
        .await
    }

    /// Waits until all living nodes hold the same of `b`: the verdict, the incident, the votes.
    pub(crate) async fn agree(&self, limit: Duration) -> Duration {
        within(limit, "the views agree", async || {
            let mut views = Vec::new();
            for (_, node) in self.living() {
                let cluster = node.explain(B).await["cluster"].clone();
                views.push(
                    ["state", "incident", "votes_counted", "electorate", "steward"]
                        .map(|key| cluster[key].clone()),
                );
            }
            views.windows(2).all(|pair| pair[0] == pair[1])
        })
        .await
    }

    /// How often a node has taken something out by the fleet's verdict.
    pub(crate) fn flips(&self, number: u8) -> usize {
        let log = self.node(number).log();
        log.iter().filter(|line| line.contains("the fleet takes it out")).count()
    }

    /// How often a node has seen a member come, go, or begin anew.
    pub(crate) fn member_changes(&self, number: u8) -> usize {
        let log = self.node(number).log();
        log.iter().filter(|line| line.contains("a member changed")).count()
    }

    /// When a node noted something of `b` that begins so, in milliseconds since 1970.
    pub(crate) async fn noted(&self, number: u8, scope: &str, what: &str) -> Vec<u64> {
        let view = self.node(number).explain(B).await;
        let history = view["history"].as_array().unwrap().iter();
        let such = history.filter(|entry| {
            entry["scope"] == scope && entry["what"].as_str().unwrap().starts_with(what)
        });
        such.map(|entry| entry["unix_ms"].as_u64().unwrap()).collect()
    }

    /// What `observer` knows of a member: its row.
    pub(crate) async fn row(&self, observer: u8, member: u8) -> Value {
        let name = format!("gw-{member}");
        let members = self.node(observer).look("/admin/v1/members").await;
        let rows = members["members"].as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["id"] == name.as_str());
        let row = rows.next().cloned().unwrap_or_default();
        assert!(rows.next().is_none(), "{name} is there twice: {members}");
        row
    }

    /// Who votes against `b` for what it saw itself, in a node's eyes, in the order of their names. A
    /// seconded vote is left out: it weighs no longer than the witnesses' windows last.
    pub(crate) async fn voters(&self, number: u8) -> Vec<String> {
        let view = self.node(number).explain(B).await;
        let votes = view["votes"].as_array().unwrap().iter();
        let counted =
            votes.filter(|vote| vote["weight"] == "counts" && vote["basis"] == "first_hand");
        let voters = counted.map(|vote| vote["voter"].as_str().unwrap().to_owned());
        let mut voters: Vec<String> = voters.collect();
        // A node lists itself first.
        voters.sort_unstable();
        voters
    }

    /// Whom a node's metrics call suspect, in the order of their names.
    pub(crate) async fn suspects(&self, number: u8) -> Vec<String> {
        let operators = self.node(number).operators;
        let (_, text) = call(operators, Method::GET, "/metrics", &[], "").await.unwrap();
        let named = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("quorumgate_node_suspect{node=\"")?;
            rest.strip_suffix("\"} 1").map(str::to_owned)
        });
        let mut named: Vec<String> = named.collect();
        named.sort_unstable();
        named
    }

    /// Asserts that none of these nodes has ever taken anything out by the fleet's verdict.
    pub(crate) fn none_has_flipped(&self, numbers: &[u8]) {
        for number in numbers {
            assert_eq!(self.flips(*number), 0, "node {number} has flipped");
        }
    }

    /// Clients' requests to these nodes, until it is stopped.
    pub(crate) fn load(&self, numbers: &[u8]) -> crate::load::Load {
        crate::load::Load::on(numbers.iter().map(|number| self.node(*number).clients))
    }
}

/// A mock endpoint in a process on the upstream's machine.
pub(crate) struct Upstream {
    child: Child,
    address: SocketAddr,
}

impl Upstream {
    async fn start(port: u16) -> Self {
        let address = SocketAddr::new(UPSTREAM.address(), port);
        let mut command = UPSTREAM.command(BINARY);
        command.args(["mock", "--listen", &address.to_string()]);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let upstream = Self { child, address };
        until("the mock serves", async || {
            call(address, Method::GET, "/__admin/state", &[], "").await.is_ok()
        })
        .await;
        upstream
    }

    /// Changes its behaviour.
    pub(crate) async fn set(&self, change: Value) {
        self.order("set", &change.to_string()).await;
    }

    /// Answers every request by an error.
    pub(crate) async fn falls_ill(&self) {
        self.set(json!({ "status": 500 })).await;
    }

    /// Makes it healthy.
    pub(crate) async fn recovers(&self) {
        self.order("reset", "").await;
    }

    /// What it has counted.
    pub(crate) async fn counts(&self) -> Value {
        let answer = call(self.address, Method::GET, "/__admin/counts", &[], "").await;
        serde_json::from_str(&answer.unwrap().1).unwrap()
    }

    /// How many requests came.
    pub(crate) async fn requests(&self) -> u64 {
        self.counts().await["requests"].as_u64().unwrap()
    }

    async fn order(&self, what: &str, body: &str) {
        let path = format!("/__admin/{what}");
        let (status, said) = call(self.address, Method::POST, &path, &[], body).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{said}");
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `done` holds, no longer than `limit`; how long it took.
pub(crate) async fn within(
    limit: Duration,
    what: &str,
    mut done: impl AsyncFnMut() -> bool,
) -> Duration {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(GLANCE).await;
    }
    began.elapsed()
}

/// Looks for so long whether `held` holds all the while.
pub(crate) async fn throughout(period: Duration, what: &str, mut held: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while began.elapsed() < period {
        assert!(held().await, "no longer after {:?}: {what}", began.elapsed());
        tokio::time::sleep(GLANCE).await;
    }
}

fn configuration(directory: &Path, number: u8, plan: &Plan) -> String {
    let Plan { base, quorum, seeds, .. } = plan;
    let (node, own) = (format!("gw-{number}"), Machine(number).address());
    let (up, directory) = (UPSTREAM.address(), directory.display());
    format!(
        "server: {{ listen: \"{own}:8080\", workers: 1, drain_delay: 100ms }}
admin: {{ listen: \"{own}:9090\", token: {TOKEN} }}
log: {{ format: json, level: info }}
state: {{ file: {directory}/{node}.state, every: 1s }}
cluster:
  id: test
  node_id: {node}
  listen: \"{own}:7946\"
  seeds: [{seeds}]
  tls: {{ ca: {directory}/ca.crt, cert: {directory}/{node}.crt, key: {directory}/{node}.key }}
  gossip_interval: 1s
  quorum: {{ {quorum}, observe: 1s }}
timeouts: {{ connect: 300ms, first_byte: 2s, idle: 2s, total: 5s }}
circuit_breaker:
  failure_threshold: 3
  slow: {{ total: 4s, first_token: off }}
  open: {{ base: {base}, max: 60s }}
  probe: {{ first_token: 2s }}
models:
  - name: m
    endpoints:
      - {{ name: a, address: \"http://{up}:{PORT_A}\" }}
      - {{ name: b, address: \"http://{up}:{PORT_B}\" }}
  - name: k
    endpoints:
      - {{ name: c, address: \"http://{up}:{PORT_A}\" }}
      - {{ name: d, address: \"http://{up}:{PORT_B}\" }}
"
    )
}
