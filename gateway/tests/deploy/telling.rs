//! What the documents and the notes tell of the deployment: nothing else than what is so.

use std::fs;

use crate::chart::{CHART, Manifests, rendered};
use crate::repository;

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// The keys that a running process cannot take on, as its own list has them.
fn held_keys() -> Vec<String> {
    let ours = read("gateway/src/reload/restart.rs");
    let ours = ours.split("#[cfg(test)]").next().unwrap();
    let keys: Vec<String> = ours.lines().flat_map(|line| apart(line, '"')).collect();
    assert!(keys.len() > 20, "{keys:?}");
    keys
}

/// What stands between two of `mark`.
fn apart(text: &str, mark: char) -> Vec<String> {
    text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
}

/// Asserts that `listed` has each of the keys, or the section that it is in, and nothing else.
fn assert_covers(listed: &[String], keys: &[String], place: &str) {
    let covers = |path: &String, key: &String| key == path || key.starts_with(&format!("{path}."));
    for key in keys {
        // Where its members decide is all of a fleet's.
        assert!(listed.iter().any(|path| covers(path, key)), "{place} lacks {key}");
    }
    for path in listed {
        assert!(keys.iter().any(|key| covers(path, key)), "{place}: {path} can be taken on");
    }
}

#[test]
fn every_key_that_asks_for_a_restart_is_in_the_digest() {
    let chart = read(&format!("{CHART}/templates/_config.tpl"));
    let listed = chart.lines().find(|line| line.contains("$path := list")).unwrap();
    // Whether there is TLS at all is said beside the list.
    let keys: Vec<String> = held_keys().into_iter().filter(|key| key != "server.tls").collect();
    assert_covers(&apart(listed, '"'), &keys, "_config.tpl");
}

#[test]
fn every_key_that_asks_for_a_restart_is_told_of() {
    for place in ["deploy/guide/upgrade.md", "CHANGELOG.md"] {
        let text = read(place).split_whitespace().collect::<Vec<_>>().join(" ");
        // The sentence that begins with the first of them.
        let begin = text.find("`server.listen`, `server.workers`").unwrap();
        let sentence = text[begin..].split("restart").next().unwrap();
        assert_covers(&apart(sentence, '`'), &held_keys(), place);
    }
}

#[test]
fn the_links_of_the_alerts_lead_where_the_values_say() {
    let rules = Manifests::of("monitored").one("PrometheusRule").to_string();
    let links = rules.matches("\"runbook_url\":").count();
    let base = "\"runbook_url\":\"https://git.example/q/deploy/guide/runbook.md#quorumgate";
    assert!(links > 20 && rules.matches(base).count() == links, "{rules}");
}

#[test]
fn the_notes_make_each_secret_once() {
    for set in ["default", "monitored", "redis"] {
        let notes = rendered()[set]["notes"][0].as_str().unwrap();
        let made = "create secret generic ";
        let mut names: Vec<&str> =
            notes.split(made).skip(1).filter_map(|rest| rest.split(' ').next()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(all > 0 && names.len() == all, "{set}: {notes}");
    }
    let notes = rendered()["monitored"]["notes"][0].as_str().unwrap();
    let both = "quorumgate-admin --from-literal=read=… --from-literal=token=…";
    let either = "quorumgate-admin --from-literal=token=… --from-literal=read=…";
    assert!(notes.contains(both) || notes.contains(either), "{notes}");
}

#[test]
fn the_authority_of_the_chart_keeps_its_key() {
    let manifests = Manifests::of("cert-manager");
    let mut authorities = manifests.all("Certificate").filter(|one| one["spec"]["isCA"] == true);
    let authority = authorities.next().unwrap();
    assert_eq!(authority["spec"]["privateKey"]["rotationPolicy"], "Never");
}
