//! A fleet of gateway processes over mock endpoints, with thresholds low enough for a test.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway::mock::{Behaviour, Mock};
use hyper::Method;
use tokio::net::{TcpListener, TcpStream};

use crate::process::{self, Gateway, until};

/// How a test fleet is made.
pub(crate) struct Plan<'a> {
    /// What each node believes to be endpoint `a`'s address.
    pub(crate) a_for: &'a dyn Fn(usize, SocketAddr) -> SocketAddr,
    /// What each node believes to be endpoint `b`'s address.
    pub(crate) b_for: &'a dyn Fn(usize, SocketAddr) -> SocketAddr,
    /// The first cool-down.
    pub(crate) base: &'a str,
    /// More of `circuit_breaker`, as a line of its own.
    pub(crate) breaker: &'a str,
    /// All of `circuit_breaker.probe`, inside its braces.
    pub(crate) probe: &'a str,
    /// More of `cluster.quorum`, inside its braces.
    pub(crate) quorum: &'a str,
    /// All of `redis`, inside its braces; empty: the fleet decides by gossip.
    pub(crate) redis: &'a str,
    /// More of model `m`, as a line of its own.
    pub(crate) model: &'a str,
    /// Whether there is a second model `n`, served by `c`, which is `a` under another name.
    pub(crate) has_second_pool: bool,
}

impl<'a> Plan<'a> {
    /// All nodes see the endpoints where they are.
    pub(crate) fn new(base: &'a str) -> Self {
        Self {
            a_for: &|_, address| address,
            b_for: &|_, address| address,
            base,
            breaker: "",
            probe: "first_token: 2s",
            quorum: "",
            redis: "",
            model: "",
            has_second_pool: false,
        }
    }
}

/// Three gateways in processes of their own, and two mock endpoints, `a` and `b`.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Gateway>,
    pub(crate) a: Mock,
    pub(crate) b: Mock,
    yamls: Vec<String>,
    directory: tempfile::TempDir,
}

pub(crate) const B: &str = "m/b";

impl Fleet {
    /// Starts a fleet and waits until every node knows all three and may decide.
    pub(crate) async fn start(plan: Plan<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names = ["gw-1", "gw-2", "gw-3"];
        gossip::certs::throw_away(directory.path(), &names).unwrap();
        let (a_address, a) = process::mock("a").await;
        let (b_address, b) = process::mock("b").await;
        let (mut nodes, mut yamls): (Vec<Gateway>, Vec<String>) = (Vec::new(), Vec::new());
        for (index, name) in names.into_iter().enumerate() {
            let seed = nodes.first().and_then(|node| node.gossip);
            let seen = [(plan.a_for)(index, a_address), (plan.b_for)(index, b_address)];
            let yaml = configuration(directory.path(), name, seed, &seen, &plan);
            nodes.push(Gateway::serve(directory.path(), name, &yaml));
            yamls.push(yaml);
        }
        let fleet = Self { nodes, a, b, yamls, directory };
        fleet.form().await;
        fleet
    }

    async fn form(&self) {
        for node in &self.nodes {
            until("the fleet forms", async || {
                let cluster = node.look("/admin/v1/cluster").await;
                cluster["live"] == self.nodes.len() && cluster["observing_ms"] == 0
            })
            .await;
        }
    }

    /// Makes `b` slow and lets `by` send until the fleet has it out on each of them.
    pub(crate) async fn convict(&self, by: &[usize]) {
        self.b.set(Behaviour { latency_ms: Some(2_000), ..Behaviour::default() });
        let callers: Vec<&Gateway> = by.iter().map(|index| &self.nodes[*index]).collect();
        let is_out = async || {
            for node in &callers {
                if !is_out(node).await {
                    return false;
                }
            }
            true
        };
        let traffic = async {
            loop {
                let calls = callers.iter().flat_map(|node| (0..4).map(|_| node.chat()));
                join_all(calls).await;
            }
        };
        tokio::select! {
            () = until("the fleet takes b out", is_out) => {}
            () = traffic => {}
        }
    }

    /// Has every node take on its configuration as `edit` makes it, one after the other.
    pub(crate) async fn take(&self, edit: impl Fn(&str) -> String) {
        for (node, yaml) in self.nodes.iter().zip(&self.yamls) {
            let file = self.directory.path().join(format!("{}.yaml", node.name));
            std::fs::write(file, edit(yaml)).unwrap();
            let path = "/admin/v1/config/reload";
            let answer = process::call(node.operators, Method::POST, path, &[], "").await;
            let (status, body) = answer.unwrap();
            assert!(status.is_success(), "{}: {status} {body}", node.name);
        }
    }

    /// Starts the third node again, as it was.
    pub(crate) fn restart_third(&self) -> Gateway {
        Gateway::serve(self.directory.path(), "gw-3", &self.yamls[2])
    }

    /// When the third node last wrote its state file.
    pub(crate) fn third_wrote(&self) -> Option<std::time::SystemTime> {
        std::fs::metadata(self.directory.path().join("gw-3.state")).ok()?.modified().ok()
    }

    /// The node that leads the recovery of `b`, by its own and everybody's account.
    pub(crate) async fn steward(&self) -> usize {
        let view = self.nodes[0].explain(B).await;
        let name = view["cluster"]["steward"].as_str().unwrap().to_owned();
        self.nodes.iter().position(|node| node.name == name).unwrap()
    }
}

/// Whether the node has `b` out by the fleet's verdict.
pub(crate) async fn is_out(node: &Gateway) -> bool {
    node.explain(B).await["cluster"]["state"] == "open"
}

/// Whether the node has `b` in, in every respect.
pub(crate) async fn is_in(node: &Gateway) -> bool {
    let view = node.explain(B).await;
    view["cluster"]["state"] == "closed"
        && view["weight_percent"] != 0
        && view["local"]["held"] == false
}

pub(crate) async fn join_all(calls: impl Iterator<Item = impl Future>) {
    // All are polled together; the slowest ends the round.
    let mut calls: Vec<_> = calls.map(|call| Box::pin(async { drop(call.await) })).collect();
    std::future::poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

fn configuration(
    directory: &Path,
    node: &str,
    seed: Option<SocketAddr>,
    endpoints: &[SocketAddr; 2],
    plan: &Plan<'_>,
) -> String {
    let head = process::member_head(directory, node, seed);
    let [a, b] = endpoints;
    let directory = directory.display();
    let Plan { base, breaker, probe, quorum, redis, model, .. } = plan;
    let comma = if quorum.is_empty() { "" } else { ", " };
    let (backend, redis) = match *redis {
        "" => ("gossip", String::new()),
        keys => ("redis", format!("redis: {{ {keys} }}\n")),
    };
    let second = if plan.has_second_pool {
        format!("  - name: n\n    endpoints: [ {{ name: c, address: \"http://{a}\" }} ]\n")
    } else {
        String::new()
    };
    format!(
        "{head}  gossip_interval: 1s
  backend: {backend}
  quorum: {{ expected_members: 3, observe: 1s{comma}{quorum} }}
{redis}circuit_breaker:
  slow: {{ total: 400ms, first_token: off, dedup: 200ms, confirmations: 2 }}
  open: {{ base: {base}, max: 60s }}
  probe: {{ {probe} }}
  {breaker}
state: {{ file: {directory}/{node}.state, every: 1s }}
models:
  - name: m
    {model}
    endpoints:
      - {{ name: a, address: \"http://{a}\" }}
      - {{ name: b, address: \"http://{b}\" }}
{second}"
    )
}

/// A link to an address that can be broken: while broken, connections are closed as they come.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    broken: Arc<AtomicBool>,
}

impl Link {
    /// A whole link to `target`.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let broken = Arc::new(AtomicBool::new(false));
        let is_broken = Arc::clone(&broken);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if is_broken.load(Ordering::Relaxed) {
                    continue;
                }
                let is_broken = Arc::clone(&is_broken);
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = cut(&is_broken) => {}
                    }
                });
            }
        });
        Self { address, broken }
    }

    /// Breaks the link, connections that stand included.
    pub(crate) fn cut(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

async fn cut(is_broken: &AtomicBool) {
    while !is_broken.load(Ordering::Relaxed) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
