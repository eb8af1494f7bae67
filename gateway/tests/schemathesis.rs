//! The admin API of a real gateway process under schemathesis, by the document that the gateway gives.
//!
//! schemathesis makes requests of what the document allows and of what it does not, and holds every
//! answer against it: no failure of ours (5xx), no status that is not documented, no body, header or
//! refusal that is not as it says. It does so as an operator, with the token that may only look, and
//! without any, against a gateway of its own each time. It is installed at its pinned version into an
//! environment below the target directory, which is kept until the pins change: python3 with venv and
//! its package index are needed.
//!
//! `SCHEMATHESIS_SEED` asks for other requests; what is left out, and why, stands at [`LEFT_OUT`].

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;
#[path = "python/mod.rs"]
mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::Method;
use tempfile::TempDir;

use crate::process::{Gateway, TOKEN};

const READ_TOKEN: &str = "who-may-only-look-at-the-test-fleet";
const PINS: &str = include_str!("schemathesis/requirements.txt");
const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis/schemathesis.toml");
/// Generated requests for each operation, beside those that cover each rule of the document.
const EXAMPLES: &str = "10";
/// The seed, unless one is given: the same sources ask the same.
const SEED: &str = "535282";
/// Seconds after which a run is given up; it takes about ten on a quiet machine.
const SECONDS_MAX: &str = "240";

/// Checks that are left out. No schema says which pools exist, which text is a configuration, or that 999
/// hours are too long, so that what fits a schema may be refused. That wrong tokens are turned away is
/// claimed in `tests/admin`, where each comes from an address of its own: here they would be made to wait.
const LEFT_OUT: &str = "positive_data_acceptance,ignored_auth,missing_required_header";

/// A gateway that asks for tokens, and its document in a file.
async fn stage(name: &str) -> (Gateway, TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1, drain_delay: 0s }}
admin: {{ listen: 127.0.0.1:0, token: {TOKEN}, read_token: {READ_TOKEN} }}
log: {{ format: json, level: info }}
models:
  - {{ name: org/demo, endpoints: [ {{ name: a, address: \"http://127.0.0.1:9\" }} ] }}
  - {{ name: other, endpoints: [ {{ name: a, address: \"http://127.0.0.1:9\" }} ] }}
"
    );
    let gateway = Gateway::serve(directory.path(), name, &yaml);
    let headers = [("authorization", format!("Bearer {TOKEN}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let path = "/admin/v1/openapi.json";
    let answer = process::call(gateway.operators, Method::GET, path, &headers, "").await;
    let file = directory.path().join("openapi.json");
    fs::write(&file, answer.unwrap().1).unwrap();
    (gateway, directory, file)
}

/// Lets schemathesis loose on a gateway of its own.
async fn holds(name: &str, token: Option<&str>, phases: &str) {
    let directory = environment_once();
    let (mut gateway, _directory, document) = stage(name).await;
    let seed = std::env::var("SCHEMATHESIS_SEED").unwrap_or_else(|_| SEED.to_owned());
    eprintln!("SCHEMATHESIS_SEED={seed}");
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).arg(directory.join("bin/schemathesis"));
    command.args(["--config-file", SETTINGS, "run"]).arg(&document);
    command.args(["--url", &format!("http://{}", gateway.operators), "--phases", phases]);
    // What it says of events never ends.
    command.args(["--exclude-operation-id", "events", "--exclude-checks", LEFT_OUT]);
    command.args(["--seed", &seed, "-n", EXAMPLES, "--request-timeout", "10", "--no-color"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off"]);
    command.args(token.map(|token| format!("--header=Authorization: Bearer {token}")));
    command.current_dir(document.parent().unwrap());
    tokio::task::spawn_blocking(move || python::run("schemathesis", &mut command)).await.unwrap();
    assert!(gateway.is_running(), "it has ended");
    for line in gateway.log() {
        assert!(!line.contains("\"level\":\"ERROR\"") && !line.contains("panicked"), "{line}");
    }
}

fn environment_once() -> &'static Path {
    static ENVIRONMENT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ENVIRONMENT.get_or_init(|| python::environment("schemathesis", PINS))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_holds_for_an_operator() {
    holds("full", Some(TOKEN), "examples,coverage,fuzzing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_holds_for_who_may_only_look() {
    holds("read", Some(READ_TOKEN), "examples,coverage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_holds_for_who_shows_no_token() {
    holds("none", None, "examples,coverage").await;
}
