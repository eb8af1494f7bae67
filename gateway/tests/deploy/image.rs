//! The image: its recipe in the eyes of others, and its file tree run without an engine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use gateway::mock::{Behaviour, Mock};
use hyper::{Method, StatusCode};

use crate::apart::apart;
use crate::container::{Container, USER, assemble, readable, volume};
use crate::process::{self, CHAT, Gateway, TOKEN, call, chat_body, until};
use crate::wires::run;
use crate::{checker, python, repository};

fn recipe() -> String {
    fs::read_to_string(repository("deploy/image/Dockerfile")).unwrap()
}

/// What stands behind an instruction of the recipe, the last time it is there.
fn instruction(name: &str) -> String {
    let recipe = recipe();
    let mut lines = recipe.lines().rev();
    let found = lines.find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    found.unwrap_or_else(|| panic!("no {name} in the Dockerfile")).to_owned()
}

/// The words of the recipe's commands: of the check, and of what is run.
fn commands() -> [Vec<String>; 2] {
    let recipe = recipe();
    let lines = recipe.lines().filter_map(|line| line.trim().strip_prefix("CMD "));
    let found: Vec<Vec<String>> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    found.try_into().unwrap()
}

#[test]
fn the_recipe_is_clean_in_the_eyes_of_hadolint() {
    let mut hadolint = checker("hadolint");
    hadolint.args(["--failure-threshold", "style"]).arg(repository("deploy/image/Dockerfile"));
    python::run("hadolint", &mut hadolint);
}

#[test]
fn the_recipe_builds_this_version_with_the_oldest_rust_that_will_do() {
    let manifest = fs::read_to_string(repository("Cargo.toml")).unwrap();
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let wanted = format!("rust:{}.0-", rust.unwrap().trim_matches('"'));
    assert!(instruction("ARG BUILDER=").starts_with(&wanted));
    assert_eq!(instruction("ARG VERSION="), env!("CARGO_PKG_VERSION"));
    assert_eq!(instruction("USER"), format!("{USER}:{USER}"));
    assert_eq!(instruction("STOPSIGNAL"), "SIGTERM");
}

#[test]
fn the_tree_holds_the_binary_what_it_is_linked_against_and_no_shell() {
    let directory = tempfile::tempdir().unwrap();
    let tree = assemble(directory.path());
    let (mut programs, mut folders) = (Vec::new(), vec![tree.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let path = entry.path();
            assert!(!found.is_symlink(), "{} leads elsewhere", path.display());
            assert_eq!(found.permissions().mode() & 0o6000, 0, "{}", path.display());
            if found.is_dir() {
                folders.push(path);
            } else if found.permissions().mode() & 0o111 != 0 {
                programs.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let is_library = |name: &str| name.contains(".so");
    let (libraries, programs): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|name| is_library(name));
    assert_eq!(programs, ["quorumgate"]);
    // The loader, and what every Rust program needs; a new one is to be seen here.
    assert!(libraries.iter().any(|name| name.starts_with("libc.so")), "{libraries:?}");
    assert!(libraries.len() <= 4, "{libraries:?}");
    assert!(fs::metadata(tree.join("etc/ssl/certs/ca-certificates.crt")).unwrap().len() > 50_000);
    let mut again = Command::new("sh");
    again.arg(repository("deploy/image/assemble.sh")).arg(&tree).arg(process::BINARY);
    let ended = again.output().unwrap().status;
    assert_eq!(ended.code(), Some(64), "it lays nothing over what is there");
}

const CONFIGURATION: &str =
    "server: { listen: 0.0.0.0:8080, workers: 1, drain_delay: 200ms, drain_timeout: 20s }
admin: { listen: 127.0.0.1:9090, token: \"${QUORUMGATE_TOKEN}\" }
log: { format: json, level: info }
state: { file: /var/lib/quorumgate/state.bin, every: 1s }
models:
  - { name: m, endpoints: [ { name: a, address: \"http://upstream.test:UPSTREAM\" } ] }
";

/// Every mount that the process sees, and whether it may be written to.
fn mounts(id: u32) -> Vec<(String, bool)> {
    let text = fs::read_to_string(format!("/proc/{id}/mountinfo")).unwrap();
    let mut found: Vec<(String, bool)> = text
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            (fields[4].to_owned(), fields[5].split(',').any(|flag| flag == "rw"))
        })
        .collect();
    found.sort();
    found
}

/// Asserts that the process is the image's user in the kernel's eyes, and can do nothing else.
fn has_no_rights(id: u32) {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let field = |name: &str| {
        let lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(str::trim).next().unwrap_or_default().to_owned()
    };
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("NoNewPrivs:"), "1");
    // Whoever has no second user maps the number inside.
    let inside = fs::read_to_string(format!("/proc/{id}/uid_map")).unwrap();
    let is_mapped = inside.split_whitespace().next() == Some("65532");
    let uid = field("Uid:").split('\t').map(str::to_owned).collect::<Vec<_>>();
    assert!(is_mapped || uid == [USER.to_string().as_str(); 4], "{uid:?} {inside}");
}

/// Puts a configuration in place as a cluster does with a mounted ConfigMap: by the swap of a link.
fn publish(directory: &Path, version: &str, text: &str) {
    readable(directory, version, &[("quorumgate.yaml", text)]);
    symlink(version, directory.join("..new")).unwrap();
    fs::rename(directory.join("..new"), directory.join("..data")).unwrap();
}

#[test]
fn the_image_serves_as_nobody_from_a_read_only_root_reloads_and_drains() {
    apart(async || {
        run(Command::new("ip").args(["link", "set", "lo", "up"]), "");
        let directory = tempfile::tempdir().unwrap();
        let tree = assemble(directory.path());
        let (upstream, mock) = process::mock("a").await;
        let yaml = CONFIGURATION.replace("UPSTREAM", &upstream.port().to_string());
        let configuration = readable(directory.path(), "configuration", &[]);
        publish(&configuration, "..v1", &yaml);
        symlink("..data/quorumgate.yaml", configuration.join("quorumgate.yaml")).unwrap();
        let hosts = "127.0.0.1 localhost\n127.0.0.1 upstream.test\n";
        let names = readable(directory.path(), "names", &[("hosts", hosts)]);
        let state = volume(directory.path(), "state");
        let token = format!("{TOKEN}\n");
        let secrets = readable(directory.path(), "secrets", &[("QUORUMGATE_TOKEN", &token)]);
        let environment = instruction("ENV");
        let (variable, value) = environment.split_once('=').unwrap();
        let container = Container::new(&tree)
            .mount(&configuration, "/etc/quorumgate", false)
            .mount(&names.join("hosts"), "/etc/hosts", false)
            .mount(&state, "/var/lib/quorumgate", true)
            .mount(&secrets, "/run/secrets", false)
            .variable(variable, value);
        let inside = |arguments: &[&str]| container.command(Command::new("unshare"), arguments);

        assert_eq!(instruction("ENTRYPOINT"), "[\"/usr/bin/quorumgate\"]");
        let [check, serve] = commands();
        let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
        let mut gateway = Gateway::serve_whole(inside(&serve), "gw");
        assert_eq!(gateway.chat().await, StatusCode::OK, "by a name that the tree resolves");
        has_no_rights(gateway.id());
        let wanted = [
            ("/", false),
            ("/etc/hosts", false),
            ("/etc/quorumgate", false),
            ("/run/secrets", false),
            ("/var/lib/quorumgate", true),
        ];
        let found = mounts(gateway.id());
        assert_eq!(found, wanted.map(|(place, rw)| (place.to_owned(), rw)));
        until("the state is kept", async || state.join("state.bin").exists()).await;

        assert_eq!(check, ["/usr/bin/quorumgate", "health"]);
        let is_well = |arguments: &[&str]| inside(arguments).output().unwrap().status.code();
        assert_eq!([is_well(&["health"]), is_well(&["health", "--ready"])], [Some(0); 2]);
        swap_is_taken_on(&gateway, &configuration, &yaml).await;
        stream_is_finished(&mut gateway, &mock).await;
        assert_eq!(is_well(&["health"]), Some(69), "it is gone");
    });
}

async fn swap_is_taken_on(gateway: &Gateway, configuration: &Path, yaml: &str) {
    assert_eq!(gateway.chat_for("n").await, StatusCode::NOT_FOUND);
    let second = yaml.lines().last().unwrap().replace("name: m,", "name: n,");
    publish(configuration, "..v2", &format!("{yaml}{second}\n"));
    gateway.signal("HUP");
    until("the other link is followed", async || gateway.chat_for("n").await == StatusCode::OK)
        .await;
}

/// Ends the gateway while a stream flows: the stream is whole, and the end is a good one.
async fn stream_is_finished(gateway: &mut Gateway, mock: &Mock) {
    mock.set(Behaviour { interval_ms: Some(100), tokens: 10, ..Behaviour::default() });
    let (clients, before) = (gateway.clients, mock.counts().requests);
    let stream = tokio::spawn(async move {
        call(clients, Method::POST, CHAT, &[], &chat_body(true)).await.unwrap()
    });
    until("the stream has begun", async || mock.counts().requests > before).await;
    gateway.signal("TERM");
    let (status, text) = stream.await.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    assert_eq!(gateway.wait(), Some(0));
}
