//! A fleet of gateway processes that are stopped and started one after the other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use gateway::mock::{Behaviour, Mock};
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::process::{self, BINARY, Gateway, TOKEN, call, member_head, until};

/// Tokens of an answer, and the pause between two: a stream takes a second.
const TOKENS: u32 = 25;
const INTERVAL_MS: u64 = 40;

/// Gateways in processes of their own before two endpoints.
pub(crate) struct Town {
    pub(crate) nodes: Vec<Gateway>,
    pub(crate) mocks: [Mock; 2],
    endpoints: [SocketAddr; 2],
    delay: &'static str,
    /// What a node that is started next runs.
    pub(crate) binary: PathBuf,
    /// Further sections of each node's configuration.
    sections: &'static str,
    pub(crate) directory: tempfile::TempDir,
}

impl Town {
    /// Starts `count` gateways whose new connections are served for `delay` in a drain, and waits until
    /// each knows all.
    pub(crate) async fn start(count: usize, delay: &'static str) -> Self {
        Self::start_of(count, delay, Path::new(BINARY), "").await
    }

    /// The same of another binary, with further sections in each configuration.
    pub(crate) async fn start_of(
        count: usize,
        delay: &'static str,
        binary: &Path,
        sections: &'static str,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names: Vec<String> = (1..=9).map(|number| format!("gw-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        gossip::certs::throw_away(directory.path(), &names).unwrap();
        let (a_address, a) = process::mock("a").await;
        let (b_address, b) = process::mock("b").await;
        let pace = Some(INTERVAL_MS);
        for mock in [&a, &b] {
            mock.set(Behaviour { tokens: TOKENS, interval_ms: pace, ..Behaviour::default() });
        }
        let endpoints = [a_address, b_address];
        let (nodes, mocks, binary) = (Vec::new(), [a, b], binary.to_owned());
        let mut town = Self { nodes, mocks, endpoints, delay, binary, sections, directory };
        for number in 1..=count {
            let seed = town.nodes.first().and_then(|node| node.gossip);
            let node = town.raise(number, seed);
            town.nodes.push(node);
        }
        town.is_whole(count).await;
        town
    }

    /// Starts the gateway of this number.
    pub(crate) fn raise(&self, number: usize, seed: Option<SocketAddr>) -> Gateway {
        let name = format!("gw-{number}");
        let head = member_head(self.directory.path(), &name, seed);
        let head = head.replace("drain_delay: 100ms", &format!("drain_delay: {}", self.delay));
        let [a, b] = self.endpoints;
        let rows = process::endpoint_rows(&[("a", a), ("b", b)]);
        let sections =
            self.sections.replace("NODE", &self.directory.path().join(&name).display().to_string());
        let yaml = format!(
            "{head}  gossip_interval: 200ms
  quorum: {{ observe: 1s }}
{sections}models:
  - name: m
    endpoints:
{rows}"
        );
        Gateway::serve_by(Command::new(&self.binary), self.directory.path(), &name, &yaml)
    }

    /// Waits until each node counts `count` members, all of them live.
    pub(crate) async fn is_whole(&self, count: usize) {
        for node in &self.nodes {
            until("the fleet is whole", async || {
                let cluster = node.look("/admin/v1/cluster").await;
                cluster["live"] == count && cluster["electorate"] == count
            })
            .await;
        }
    }

    /// The electorate as this node counts it.
    pub(crate) async fn electorate(&self, index: usize) -> u64 {
        self.nodes[index].look("/admin/v1/cluster").await["electorate"].as_u64().unwrap()
    }
}

/// `POST` on the operators' listener of a node.
pub(crate) async fn order(node: &Gateway, path: &str, body: &str) -> (StatusCode, Value) {
    let bearer = format!("Bearer {TOKEN}");
    let path = format!("/admin/v1/{path}");
    let headers = [("authorization", bearer.as_str())];
    let (status, body) = call(node.operators, Method::POST, &path, &headers, body).await.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

/// How the node at `operators` sees member `name`: its state and generation; `None` if it is not listed.
pub(crate) async fn seen(operators: SocketAddr, name: &str) -> Option<(String, u64)> {
    let path = "/admin/v1/members";
    let (_, body) = call(operators, Method::GET, path, &[], "").await.ok()?;
    let view: Value = serde_json::from_str(&body).unwrap();
    let rows = view["members"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == name)?;
    Some((row["state"].as_str().unwrap().to_owned(), row["generation"].as_u64().unwrap()))
}

/// What became of members since the event of this id, in the eyes of the node at `operators`: name and
/// state of each change; and the id of the last event.
pub(crate) async fn news(operators: SocketAddr, since: &str) -> (Vec<(String, String)>, String) {
    let path = format!("/admin/v1/events?since={since}&until=now");
    let (status, text) = call(operators, Method::GET, &path, &[], "").await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
    let (mut changes, mut last) = (Vec::new(), since.to_owned());
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(line).unwrap();
        last = event["id"].as_str().unwrap().to_owned();
        if event["kind"] == "member"
            && let Some(state) = event["detail"]["state"].as_str()
        {
            changes.push((event["node"].as_str().unwrap().to_owned(), state.to_owned()));
        }
    }
    (changes, last)
}
