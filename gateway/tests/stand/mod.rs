//! A gateway process whose configuration file is written again while it runs.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::process::{self, BINARY, Gateway, TOKEN};

/// A gateway and its file.
pub(crate) struct Stand {
    pub(crate) gateway: Gateway,
    pub(crate) directory: tempfile::TempDir,
}

/// What all configurations begin with: one worker, and no fleet.
pub(crate) const HEAD: &str = "server: { listen: 127.0.0.1:0, workers: 1, drain_delay: 100ms }
admin: { listen: 127.0.0.1:0 }
log: { format: json, level: info }
";

/// A configuration of one model, `m`, with these endpoints; `more` stands before it.
pub(crate) fn yaml(more: &str, endpoints: &[(&str, SocketAddr)]) -> String {
    let rows = process::endpoint_rows(endpoints);
    format!("{HEAD}{more}models:\n  - name: m\n    endpoints:\n{rows}")
}

impl Stand {
    /// Starts a gateway with this configuration.
    pub(crate) fn start(yaml: &str) -> Self {
        Self::start_by(Command::new(BINARY), yaml)
    }

    /// The same by a command of the test's.
    pub(crate) fn start_by(by: Command, yaml: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gateway = Gateway::serve_by(by, directory.path(), "gw", yaml);
        Self { gateway, directory }
    }

    /// Where the configuration lies.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("gw.yaml")
    }

    /// Writes another configuration in one go.
    pub(crate) fn write(&self, yaml: &str) {
        replace(&self.file(), yaml);
    }

    /// Writes another configuration and has it taken on.
    pub(crate) async fn take(&self, yaml: &str) -> Value {
        self.write(yaml);
        let (status, answer) = self.reload().await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// Asks for a reload.
    pub(crate) async fn reload(&self) -> (StatusCode, Value) {
        self.act("config/reload", "").await
    }

    /// `POST` on the operators' listener.
    pub(crate) async fn act(&self, path: &str, body: &str) -> (StatusCode, Value) {
        let (path, bearer) = (format!("/admin/v1/{path}"), format!("Bearer {TOKEN}"));
        let headers = [("authorization", bearer.as_str())];
        let address = self.gateway.operators;
        let (status, body) =
            process::call(address, Method::POST, &path, &headers, body).await.unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    /// What operators see of the configuration.
    pub(crate) async fn config(&self) -> Value {
        self.gateway.look("/admin/v1/config").await
    }

    /// A number on the page of metrics.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let page = self.gateway.text("/metrics").await;
        let line =
            page.lines().find_map(|line| line.strip_prefix(&format!("quorumgate_{series} ")));
        line.map(|number| number.parse().unwrap())
    }

    /// What the process holds in memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

/// Puts a file in place of another, so that nobody sees half of it.
pub(crate) fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
}
