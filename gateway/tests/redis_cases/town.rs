//! Three gateway processes that decide through a Redis, with as many models and endpoints as wanted.
//!
//! Endpoint `e<k>` of every model is the same mock server: one that falls ill is out of every model.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use gateway::mock::{Behaviour, Mock};
use serde_json::Value;
use tempfile::TempDir;

use crate::load::Load;
use crate::process::{self, Gateway, preferred, until};

/// Longer than what a request or a probe may take.
const ILL_MS: u64 = 1_200;

/// How a town is made.
pub(crate) struct Plan<'a> {
    /// All of `redis`, inside its braces.
    pub(crate) redis: &'a str,
    /// Models, `m0` and so on.
    pub(crate) models: usize,
    /// Endpoints of each, `e0` and so on.
    pub(crate) endpoints: usize,
    /// The first cool-down.
    pub(crate) base: &'a str,
}

/// The processes and what they serve.
pub(crate) struct Town {
    /// The gateways.
    pub(crate) nodes: Vec<Gateway>,
    /// The endpoints.
    pub(crate) mocks: Vec<Mock>,
    models: usize,
    _directory: TempDir,
}

impl Town {
    /// Starts it, and waits until every node knows all three and decides through Redis.
    pub(crate) async fn start(plan: Plan<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names = ["gw-1", "gw-2", "gw-3"];
        gossip::certs::throw_away(directory.path(), &names).unwrap();
        let (mut addresses, mut mocks) = (Vec::new(), Vec::new());
        for number in 0..plan.endpoints {
            let (address, mock) = process::mock(&format!("e{number}")).await;
            addresses.push(address);
            mocks.push(mock);
        }
        let mut nodes: Vec<Gateway> = Vec::new();
        for name in names {
            let seed = nodes.first().and_then(|node| node.gossip);
            let yaml = configuration(directory.path(), name, seed, &addresses, &plan);
            nodes.push(Gateway::serve_by(preferred(), directory.path(), name, &yaml));
        }
        let town = Self { nodes, mocks, models: plan.models, _directory: directory };
        town.forms().await;
        town
    }

    async fn forms(&self) {
        for node in &self.nodes {
            until("the fleet forms", async || {
                let cluster = node.look("/admin/v1/cluster").await;
                cluster["live"] == self.nodes.len() && cluster["observing_ms"] == 0
            })
            .await;
        }
        self.all_are("up").await;
    }

    /// Waits until Redis is so for every node.
    pub(crate) async fn all_are(&self, state: &str) {
        for node in &self.nodes {
            until(&format!("Redis is {state} for {}", node.name), async || {
                redis_of(node).await["state"] == state
            })
            .await;
        }
    }

    /// Lets these mocks fall ill, or get well.
    pub(crate) fn ill(&self, mocks: std::ops::Range<usize>, is_ill: bool) {
        for mock in &self.mocks[mocks] {
            mock.set(Behaviour { latency_ms: is_ill.then_some(ILL_MS), ..Behaviour::default() });
        }
    }

    /// Waits until every node sees so many endpoints out for the fleet; how long that took.
    pub(crate) async fn all_see_out(&self, count: usize) -> Duration {
        let began = Instant::now();
        for node in &self.nodes {
            until(&format!("{count} endpoints are out on {}", node.name), async || {
                out_on(node).await == count
            })
            .await;
        }
        began.elapsed()
    }

    /// Clients at all nodes, for all models in turn, one question each `pace`.
    pub(crate) fn load(&self, pace: Duration) -> Load {
        let models: Vec<String> = (0..self.models).map(|number| format!("m{number}")).collect();
        let models: Vec<&str> = models.iter().map(String::as_str).collect();
        Load::on(self.nodes.iter().map(|node| node.clients).collect(), &models, pace)
    }

    /// Whether anything that was logged, or counted as an error of Redis, has one of these words.
    pub(crate) async fn complaints(&self, words: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for node in &self.nodes {
            let page = node.text("/metrics").await;
            let errors = page.lines().filter(|line| {
                line.starts_with("quorumgate_redis_errors_total{") && !line.ends_with(" 0")
            });
            let lines = node.log().into_iter().chain(errors.map(str::to_owned));
            let has = |line: &String| words.iter().any(|word| line.contains(word));
            found.extend(lines.filter(has).map(|line| format!("{}: {line}", node.name)));
        }
        found
    }
}

/// How a node stands with its Redis.
pub(crate) async fn redis_of(node: &Gateway) -> Value {
    node.look("/admin/v1/cluster").await["redis"].clone()
}

/// How many endpoints a node has out for the fleet.
pub(crate) async fn out_on(node: &Gateway) -> usize {
    let told = node.look("/admin/v1/endpoints?limit=1").await;
    told["counts"]["out_for_fleet"].as_u64().unwrap() as usize
}

/// A whole figure of the page of metrics.
pub(crate) async fn figure(node: &Gateway, series: &str) -> u64 {
    let page = node.text("/metrics").await;
    let begin = format!("quorumgate_{series} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&begin));
    value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
}

fn configuration(
    directory: &Path,
    node: &str,
    seed: Option<SocketAddr>,
    addresses: &[SocketAddr],
    plan: &Plan<'_>,
) -> String {
    let head = process::member_head(directory, node, seed);
    let names: Vec<String> = (0..addresses.len()).map(|number| format!("e{number}")).collect();
    let rows: Vec<_> = names.iter().map(String::as_str).zip(addresses.iter().copied()).collect();
    let rows = process::endpoint_rows(&rows);
    let model = |number| format!("  - name: m{number}\n    endpoints:\n{rows}");
    let models: String = (0..plan.models).map(model).collect();
    let Plan { redis, base, .. } = plan;
    format!(
        "{head}  gossip_interval: 1s
  backend: redis
  quorum: {{ expected_members: 3, observe: 1s }}
redis: {{ {redis} }}
circuit_breaker:
  slow: {{ total: 400ms, first_token: off, dedup: 200ms, confirmations: 2 }}
  open: {{ base: {base}, max: 60s }}
  probe: {{ first_token: 1s }}
models:
{models}"
    )
}
