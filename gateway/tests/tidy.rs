//! The house rules that a machine can check, over every source file of the repository.

#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file below the repository with this ending, build output and hidden folders left out.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} below {:?}", root());
    found
}

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn no_file_swallows_its_room() {
    let all = [".rs", ".js", ".css"].into_iter().flat_map(files);
    let long = all.filter(|(_, text)| text.lines().count() > FILE_LINES_MAX);
    let lines = |(path, text): (PathBuf, String)| {
        format!("{}: {} lines", path.display(), text.lines().count())
    };
    complain(&long.map(lines).collect::<Vec<_>>());
}

#[test]
fn no_function_is_longer_than_a_page() {
    let mut complaints = Vec::new();
    for (path, text) in files(".rs") {
        let mut open: Option<(usize, usize, String)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            if let Some((start, at, name)) = &open
                && indent == *at
                && line.trim_start().starts_with('}')
            {
                if number - start + 1 > FUNCTION_LINES_MAX {
                    complaints.push(format!("{}:{}: {name}", path.display(), start + 1));
                }
                open = None;
            }
            let modifiers = line.trim_start().split("fn ").next().unwrap();
            let is_function = line.contains("fn ")
                && modifiers
                    .split_whitespace()
                    .all(|word| word.starts_with("pub") || ["async", "const"].contains(&word));
            if is_function && open.is_none() && !line.trim_end().ends_with('}') {
                open = Some((number, indent, line.trim().to_owned()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    let silent = files(".rs").into_iter().filter(|(_, text)| !text.starts_with("//! "));
    complain(&silent.map(|(path, _)| path.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_over() {
    // Written apart, so that this file does not complain of itself.
    let left_over =
        [["TO", "DO"], ["FIX", "ME"], ["unimplemen", "ted!"], ["#[ign", "ore"], ["dbg", "!("]];
    let mut complaints = Vec::new();
    for (path, text) in files(".rs") {
        for word in left_over.map(|parts| parts.concat()) {
            if text.contains(&word) {
                complaints.push(format!("{}: {word}", path.display()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn the_two_rules_depend_on_nothing() {
    for manifest in ["gateway/breaker/Cargo.toml", "gossip/quorum/Cargo.toml"] {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        assert!(!text.contains("dependencies"), "{manifest}");
    }
}

#[test]
fn only_the_clock_reads_the_clock_and_the_rules_read_none() {
    let mut complaints = Vec::new();
    for (path, text) in files(".rs") {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let is_rule =
            name.starts_with("gateway/breaker/src") || name.starts_with("gossip/quorum/src");
        let is_gateway = name.starts_with("gateway/src") && !name.starts_with("gateway/src/mock");
        let reads = text.contains("Instant::now") || text.contains("SystemTime");
        if reads && (is_rule || is_gateway) && name != "gateway/src/clock.rs" {
            complaints.push(name);
        }
    }
    complain(&complaints);
}

#[test]
fn the_fleet_knows_neither_the_runtime_nor_http() {
    let mut complaints = Vec::new();
    for (path, text) in files(".rs") {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if name.starts_with("gateway/src/fleet")
            && (text.contains("tokio") || text.contains("hyper"))
        {
            complaints.push(name);
        }
    }
    complain(&complaints);
}

/// Where configurations of the gateway are; other programs' files have checks of their own.
const CONFIGURATIONS: [&str; 4] =
    ["deploy/quorumgate.yaml", "deploy/local/", "deploy/compose/gateway/", "chaos/"];

#[test]
fn every_shipped_configuration_is_accepted() {
    let mut complaints = Vec::new();
    for (path, text) in files(".yaml") {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if !CONFIGURATIONS.iter().any(|place| name.starts_with(place)) {
            continue;
        }
        let environment = |name: &str| Some(format!("value-of-{}", name.to_lowercase()));
        if let Err(error) = gateway::config::parse(&text, &path.display().to_string(), &environment)
        {
            complaints.push(error.to_string());
        }
    }
    complain(&complaints);
}
