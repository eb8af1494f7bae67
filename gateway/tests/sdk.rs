//! The official OpenAI client for Python against a real gateway process.
//!
//! The client is installed, at its pinned version, into a throw-away environment below the target
//! directory: `python3` with `venv` and a package index are needed.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Gateway;

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/requirements.txt");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/client.py");

fn run(what: &str, command: &mut Command) -> String {
    let output = command.output();
    let Ok(output) = output else { panic!("{what}: {output:?}; install python3 with venv") };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}:\n{out}\n{err}");
    out.into_owned()
}

/// A Python with the pinned client.
fn python() -> PathBuf {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openai-client");
    let python = environment.join("bin/python");
    if !python.exists() {
        run("venv", Command::new("python3").args(["-m", "venv"]).arg(&environment));
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run("pip install", Command::new(&python).args(install).arg(REQUIREMENTS));
    python
}

#[tokio::test]
async fn the_official_python_client_is_served_and_every_failure_raises_its_own_error() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _mock) = process::mock("a").await;
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
circuit_breaker: {{ failure_threshold: 16 }}
models:
  - name: m
    aliases: [alias-of-m]
    endpoints: [ {{ name: a, address: \"http://{upstream}\" }} ]
"
    );
    let gateway = Gateway::serve(directory.path(), "sdk", &yaml);
    let (clients, upstream) = (gateway.clients.to_string(), upstream.to_string());
    let told = tokio::task::spawn_blocking(move || {
        run("client", Command::new(python()).arg(CLIENT).args([clients, upstream]))
    });
    assert!(told.await.unwrap().contains("as promised"));
}
