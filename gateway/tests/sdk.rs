//! The official OpenAI and Anthropic clients for Python and JavaScript against a real gateway process.
//!
//! What a caller's program sees is what these clients make of an answer: which class they raise, and
//! how often they ask again by themselves. The claims stand in `tests/sdk/`; here they get a gateway
//! and two mocks of their own each, so that all four run at once. The clients are installed at their
//! pinned versions into environments below the target directory, which are kept until a pin changes:
//! python3 with venv, node from version 20 on with npm, and their package indexes are needed.

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
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gateway::mock::Behaviour;
use hyper::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::process::{Gateway, TOKEN};

const CLAIMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk");
/// The oldest node that has all that the clients use.
const NODE_MIN: u32 = 20;
/// Seconds after which a client's claims are given up; they take about ten.
const CLAIMS_SECONDS_MAX: &str = "90";

/// The caller's key that is good for all models, and the one that is good for `m` only.
const KEY: &str = "sk-of-the-caller";
const KEY_OF_M: &str = "sk-of-a-narrow-caller";

const NODE_CURE: &str = "install node from version 20 on, with npm";

fn run(what: &str, cure: &str, command: &mut Command) -> String {
    let output = command.output();
    let Ok(output) = output else { panic!("{what}: {output:?}; {cure}") };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// An environment below the target directory, made anew unless it was made of the same before.
fn environment(name: &str, made_of: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let stamp = directory.join("made-of");
    if fs::read_to_string(&stamp).is_ok_and(|known| known == made_of) {
        return directory;
    }
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    make(&directory);
    fs::write(stamp, made_of).unwrap();
    directory
}

/// A Python with the pinned clients.
fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let pins = include_str!("sdk/python/requirements.txt");
        python::environment("sdk-python", pins).join("bin/python")
    })
}

/// A directory in which node finds the pinned clients, and the claims of both.
fn javascript() -> &'static Path {
    static JAVASCRIPT: OnceLock<PathBuf> = OnceLock::new();
    JAVASCRIPT.get_or_init(|| {
        let version = run("node", NODE_CURE, Command::new("node").arg("--version"));
        let major = version.trim().trim_start_matches('v').split('.').next().unwrap();
        let is_enough = major.parse::<u32>().is_ok_and(|major| major >= NODE_MIN);
        assert!(is_enough, "node {version}: {NODE_CURE}");
        let pins = ["package.json", "package-lock.json"];
        let read = |name: &str| fs::read_to_string(format!("{CLAIMS}/js/{name}")).unwrap();
        let made_of = format!("{version}{}", pins.map(read).concat());
        let directory = environment("sdk-javascript", &made_of, |directory| {
            for name in pins {
                fs::write(directory.join(name), read(name)).unwrap();
            }
            let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
            let mut npm = Command::new("npm");
            run("npm ci", NODE_CURE, npm.args(install).current_dir(directory));
        });
        // A module finds packages beside itself only.
        for name in ["common.mjs", "openai_client.mjs", "anthropic_client.mjs"] {
            fs::write(directory.join(name), read(name)).unwrap();
        }
        directory
    })
}

/// A gateway with its mocks.
struct Stage {
    gateway: Gateway,
    openai: SocketAddr,
    anthropic: SocketAddr,
    _directory: TempDir,
}

impl Stage {
    async fn set() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (openai, _) = process::mock("openai").await;
        let (anthropic, _) = process::mock("anthropic").await;
        let (locked, lock) = process::mock("locked").await;
        let require_key = Some("sk-of-somebody-else".to_owned());
        lock.set(Behaviour { require_key, ..Behaviour::default() });
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let yaml = configuration(openai, anthropic, locked, nobody);
        let gateway = Gateway::serve(directory.path(), "sdk", &yaml);
        let order = json!({
            "state": "force_open", "for": "1h", "reason": "for a claim", "confirm": true,
        });
        let bearer = format!("Bearer {TOKEN}");
        let path = "/admin/v1/endpoints/open/a/override";
        let headers = [("authorization", bearer.as_str())];
        let order = order.to_string();
        let ordered = process::call(gateway.operators, Method::POST, path, &headers, &order).await;
        assert!(ordered.unwrap().0.is_success());
        Self { gateway, openai, anthropic, _directory: directory }
    }

    /// What the claims have to know.
    fn place(&self) -> Value {
        json!({
            "gateway": self.gateway.clients,
            "openai": self.openai,
            "anthropic": self.anthropic,
            "key": KEY,
            "key_of_m": KEY_OF_M,
        })
    }
}

/// A gateway that can fail in each way that has a code of its own: `limited`, `narrow`, `open`,
/// `nobody`, `hasty` and `locked` are named by how; `dull` fails after a stream's head had to be sent.
/// `paced` and `resting` are for endpoints that ask
/// for a pause, which then are no use to other claims.
fn configuration(
    openai: SocketAddr,
    anthropic: SocketAddr,
    locked: SocketAddr,
    nobody: SocketAddr,
) -> String {
    let digest = |key: &str| -> String {
        let digest: [u8; 32] = Sha256::digest(key).into();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let (all, narrow) = (digest(KEY), digest(KEY_OF_M));
    let plain = format!("endpoints: [ {{ name: a, address: \"http://{openai}\" }} ]");
    format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1, max_body: 256KiB, heartbeat: 1s }}
admin: {{ listen: 127.0.0.1:0, token: {TOKEN} }}
log: {{ format: json, level: info }}
fail_closed: {{ require_header: x-agent-id, max_messages: 4, max_input_tokens: 20000 }}
circuit_breaker: {{ failure_threshold: 10000, min_requests: 10000 }}
timeouts: {{ idle: 2s }}
api_keys:
  - {{ name: all, sha256: {all} }}
  - {{ name: narrow, sha256: {narrow}, models: [m] }}
models:
  - name: m
    aliases: [alias-of-m]
    endpoints: [ {{ name: a, address: \"http://{openai}\", api_key: sk-of-the-gateway }} ]
  - name: claude
    aliases: [alias-of-claude]
    endpoints:
      - {{ name: a, address: \"http://{anthropic}\", kind: anthropic, api_key: sk-of-the-gateway }}
  - name: pair
    endpoints:
      - {{ name: a, address: \"http://{openai}\" }}
      - {{ name: b, address: \"http://{anthropic}\" }}
  - {{ name: limited, limits: {{ rpm: 1 }}, {plain} }}
  - name: narrow
    endpoints: [ {{ name: a, address: \"http://{openai}\", limits: {{ concurrency: 1 }} }} ]
  - {{ name: open, on_all_open: reject, {plain} }}
  - name: nobody
    endpoints: [ {{ name: a, address: \"http://{nobody}\" }} ]
  - {{ name: hasty, timeouts: {{ first_byte: 300ms }}, {plain} }}
  - {{ name: dull, timeouts: {{ first_byte: 2500ms }}, {plain} }}
  - name: locked
    endpoints: [ {{ name: a, address: \"http://{locked}\", api_key: sk-of-the-gateway }} ]
  - {{ name: paced, {plain} }}
  - {{ name: resting, {plain} }}
"
    )
}

/// Runs a client's claims; they are told in one line, whether or not the test's output is shown.
async fn claims_hold(claims: impl FnOnce() -> Command + Send + 'static) {
    let stage = Stage::set().await;
    let place = stage.place().to_string();
    let told = tokio::task::spawn_blocking(move || {
        let claims = claims();
        let mut bounded = Command::new("timeout");
        bounded.arg(CLAIMS_SECONDS_MAX).arg(claims.get_program()).args(claims.get_args());
        run("the claims", "", bounded.arg(place))
    });
    let told = told.await.unwrap();
    assert!(told.trim_end().ends_with("claims hold"), "{told}");
    // Not by a macro, whose output the harness keeps to itself.
    let _ = std::io::stderr().write_all(told.as_bytes());
}

fn python_claims(of: &str) -> Command {
    let mut command = Command::new(interpreter());
    command.arg("-B").arg(format!("{CLAIMS}/python/{of}_client.py"));
    command
}

fn javascript_claims(of: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(javascript().join(format!("{of}_client.mjs")));
    command
}

#[tokio::test]
async fn openai_for_python_is_served_and_raises_what_it_should() {
    claims_hold(|| python_claims("openai")).await;
}

#[tokio::test]
async fn anthropic_for_python_is_served_and_raises_what_it_should() {
    claims_hold(|| python_claims("anthropic")).await;
}

#[tokio::test]
async fn openai_for_javascript_is_served_and_raises_what_it_should() {
    claims_hold(|| javascript_claims("openai")).await;
}

#[tokio::test]
async fn anthropic_for_javascript_is_served_and_raises_what_it_should() {
    claims_hold(|| javascript_claims("anthropic")).await;
}
