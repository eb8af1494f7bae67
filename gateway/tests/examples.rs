//! Every example of the documentation is run: configurations are checked, commands do what they say.
//!
//! The documents are README.md, CHANGELOG.md, those of chaos and redis-lua, and all below `deploy/`. What
//! stands behind the fence of a block says what it is:
//!
//! - `yaml`: a configuration, which passes the check as it stands. Without `models:` it is a fragment, and
//!   its sections are laid beside a smallest model. Each `${NAME}` has a value.
//! - `yaml other`: another program's, which need not be ours.
//! - `json`: parses.
//! - `sh`: commands, run as one shell in a network and a directory of their own, where `gw.yaml`,
//!   `access.log` and `config.yaml` lie; each must succeed, or fail as its comment `# exits N` says.
//! - `sh fleet`: the same beside a fleet of three, see `examples/stage.sh` for its places and names.
//! - `sh repository`: the same in a copy of `deploy` and `chaos`.
//! - `sh no-run`: not run. Each command is one of those in [`NOT_RUN`], or one of ours whose
//!   subcommand and options are there.
//! - `console`, `console fleet`: a line with `$ ` before it is a command, and what follows is what it
//!   prints, where `…` stands for anything.
//! - `text`, `lua`, and nothing at all: nothing to run.
//!
//! `cargo run -- X` means `quorumgate X`. `cargo build` and the test command itself are passed over. A
//! command of ours that does not end by itself is well if it still runs after a second.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "examples/blocks.rs"]
mod blocks;
#[path = "examples/configurations.rs"]
mod configurations;
#[path = "examples/script.rs"]
mod script;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::blocks::Block;
use crate::script::{Play, Scene};

/// What may begin a command that is not run: programs of a cluster, of a machine's administration, of
/// the shell.
const NOT_RUN: [&str; 41] = [
    "kubectl",
    "helm",
    "docker",
    "podman",
    "systemctl",
    "journalctl",
    "apt-get",
    "useradd",
    "install",
    "git",
    "bash",
    "cargo",
    "promtool",
    "ssh",
    "scp",
    "sudo",
    "export",
    "for",
    "do",
    "done",
    "if",
    "fi",
    "cd",
    "cp",
    "mkdir",
    "chown",
    "chmod",
    "curl",
    "sleep",
    "kill",
    "redis-cli",
    "tar",
    "cosign",
    "ln",
    "ulimit",
    "sysctl",
    "kind",
    "envsubst",
    "systemd-analyze",
    "groupadd",
    "(umask",
];

/// All that may stand behind a fence.
const INFOS: [&str; 14] = [
    "",
    "text",
    "lua",
    "json",
    "yaml",
    "yaml other",
    "sh",
    "sh fleet",
    "sh repository",
    "sh no-run",
    "console",
    "console fleet",
    "promql",
    "ini",
];

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_block_says_what_it_is() {
    let strange = blocks::all().into_iter().filter(|block| !INFOS.contains(&block.info.as_str()));
    let complaints = strange.map(|block| format!("{}: what is `{}`?", block.place(), block.info));
    complain(&complaints.collect::<Vec<_>>());
}

#[test]
fn every_json_in_a_document_parses() {
    let mut complaints = Vec::new();
    for block in blocks::all().into_iter().filter(|block| block.info == "json") {
        if let Err(error) = serde_json::from_str::<serde_json::Value>(&block.text) {
            complaints.push(format!("{}: {error}", block.place()));
        }
    }
    complain(&complaints);
}

/// Whether bash takes the text for a script.
fn is_shell(text: &str) -> bool {
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    bash.wait().unwrap().success()
}

/// What is wrong with a command of ours that is not run: `quorumgate` and what follows.
fn misspelt(words: &[&str]) -> Option<String> {
    let path: Vec<&str> = words[1..]
        .iter()
        .take_while(|word| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'))
        .take_while(|word| !word.starts_with('-'))
        .copied()
        .collect();
    // Names of members and files look like subcommands; the first word is one for certain.
    let help = path.iter().take(1).copied().chain(["--help"]);
    let output = Command::new(script::BINARY).args(help).output().unwrap();
    if !output.status.success() {
        return Some(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut help = String::from_utf8_lossy(&output.stdout).into_owned();
    if let [first, second, ..] = path[..] {
        let output = Command::new(script::BINARY).args([first, second, "--help"]).output().unwrap();
        help.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    let options = words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut options = options.map(|word| word.split('=').next().unwrap());
    options.find(|option| !help.contains(*option)).map(|option| format!("no option {option}"))
}

#[test]
fn what_is_not_run_is_none_of_ours_or_spelt_well() {
    let (mut complaints, mut seen) = (Vec::new(), BTreeSet::new());
    for block in blocks::all().into_iter().filter(|block| block.info == "sh no-run") {
        if !is_shell(&block.text) {
            complaints.push(format!("{}: bash does not read it", block.place()));
        }
        for line in block.commands() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_name = |word: &&&str| !word.contains('=') || word.starts_with('-');
            let first = words.iter().find(is_name).copied().unwrap_or_default();
            seen.insert(first.to_owned());
            let wrong = match first {
                "quorumgate" => misspelt(&words),
                known if NOT_RUN.contains(&known) => None,
                other => Some(format!("`{other}` is none of the commands that are not run")),
            };
            complaints.extend(wrong.map(|wrong| format!("{}: {line}: {wrong}", block.place())));
        }
    }
    eprintln!("not run: {seen:?}");
    complain(&complaints);
}

/// What a block is run in, if it is run.
fn scene(block: &Block) -> Option<Scene> {
    match block.info.as_str() {
        "sh" | "console" => Some(Scene::Bare),
        "sh fleet" | "console fleet" => Some(Scene::Fleet),
        "sh repository" => Some(Scene::Repository),
        _ => None,
    }
}

#[test]
fn every_command_of_a_document_does_what_it_says() {
    let mut plays: Vec<Play> = Vec::new();
    for block in blocks::all() {
        let Some(scene) = scene(&block) else { continue };
        let is_same = |play: &&mut Play| play.scene == scene && play.document() == block.document;
        match plays.iter_mut().find(is_same) {
            Some(play) => play.blocks.push(block),
            None => plays.push(Play { scene, blocks: vec![block] }),
        }
    }
    assert!(!plays.is_empty(), "no document has an example");
    let count: usize = plays.iter().map(|play| play.blocks.len()).sum();
    eprintln!("{count} blocks of {} plays", plays.len());
    complain(&script::perform(plays));
}
