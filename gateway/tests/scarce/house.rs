//! A gateway in a process of its own, with what can be read off it from outside.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{BINARY, Gateway, endpoint_rows, until};

/// A running gateway.
pub(crate) struct House {
    pub(crate) gateway: Gateway,
    pub(crate) _directory: TempDir,
}

impl House {
    /// Serves the model `demo` from there, with more keys of `server` and more lines at the top.
    pub(crate) fn start(upstream: SocketAddr, server: &str, top: &str) -> Self {
        Self::start_by(Command::new(BINARY), upstream, server, top)
    }

    /// The same by a command that becomes the binary.
    pub(crate) fn start_by(by: Command, upstream: SocketAddr, server: &str, top: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let yaml = yaml(upstream, server, top);
        let gateway = Gateway::serve_by(by, directory.path(), "gateway", &yaml);
        Self { gateway, _directory: directory }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.clients
    }

    /// A number on the page of metrics; 0 where it is not there.
    pub(crate) async fn counted(&self, metric: &str) -> u64 {
        let page = self.gateway.text("/metrics").await;
        let wanted = format!("quorumgate_{metric} ");
        let number = page.lines().find_map(|line| line.strip_prefix(&wanted));
        number.map_or(0, |number| number.parse::<f64>().unwrap() as u64)
    }

    /// Waits until a number on the page is this.
    pub(crate) async fn counts(&self, metric: &str, wanted: u64) {
        until(metric, async || self.counted(metric).await == wanted).await;
    }

    /// A line of `/proc/…/status` in KiB.
    pub(crate) fn status_kib(&self, line: &str) -> u64 {
        let status = format!("/proc/{}/status", self.gateway.id());
        let status = std::fs::read_to_string(status).unwrap();
        let found = status.lines().find_map(|one| one.strip_prefix(line)).unwrap();
        found.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What it has spent on processors.
    pub(crate) fn spent(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.gateway.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: Vec<u64> = fields.skip(11).take(2).map(|one| one.parse().unwrap()).collect();
        let each = 1_000 / rustix::param::clock_ticks_per_second();
        Duration::from_millis((ticks[0] + ticks[1]) * each)
    }
}

/// The configuration of a gateway that serves the model `demo` from there.
pub(crate) fn yaml(upstream: SocketAddr, server: &str, top: &str) -> String {
    format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1, {server} }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: \"info,access=off\" }}
{top}
models:
  - name: demo
    endpoints:
{}",
        endpoint_rows(&[("a", upstream)])
    )
}
