//! The dashboard and the alerts: each asks only for what a fleet that has lived through something tells,
//! and the alerts fire when they should and not else.
//!
//! promtool is needed; it is in the package of Prometheus.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "process/mod.rs"]
mod process;
#[path = "../../redis-lua/tests/servers/mod.rs"]
mod servers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gateway::mock::Behaviour;
use serde_json::Value;

use crate::fleet::{Fleet, Plan};
use crate::process::until;

const PROMTOOL_CURE: &str = "install promtool (on Debian it is in the package prometheus)";
/// How the names begin that a gateway answers for; what else is asked for, the scraper adds itself.
const OURS: [&str; 3] = ["quorumgate_", "gen_ai_", "process_"];

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

/// The names of metrics in a text of any kind.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
    let ours = words.filter(|word| OURS.iter().any(|begin| word.starts_with(begin)));
    ours.map(str::to_owned).collect()
}

/// Every query of the dashboard.
fn queries(dashboard: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panels = list(&dashboard["panels"]);
    let targets = panels.iter().flat_map(|panel| list(&panel["targets"]));
    let queries = targets.map(|target| target["expr"].clone());
    let notes =
        list(&dashboard["annotations"]["list"]).into_iter().map(|note| note["expr"].clone());
    let variables = list(&dashboard["templating"]["list"]);
    let variables = variables.into_iter().map(|variable| variable["definition"].clone());
    let all = queries.chain(notes).chain(variables);
    all.filter_map(|query| query.as_str().map(str::to_owned)).collect()
}

/// The names on the pages of a fleet in which everything has happened that can be asked for.
async fn told() -> BTreeSet<String> {
    // Nobody takes the spans: they are lost, and counted.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let telemetry =
        format!("telemetry: {{ otlp: {{ endpoint: \"http://{nobody}\", sample: 1 }} }}");
    let breaker = format!("mode: enforce\n{telemetry}");
    let mut plan = Plan::new("300ms");
    plan.breaker = &breaker;
    plan.probe = "first_token: 500ms";
    let redis = servers::Standalone::start();
    let urls = format!("urls: [\"{}\"]", redis.url());
    plan.redis = &urls;
    let fleet = Fleet::start(plan).await;
    fleet.convict(&[0, 1]).await;
    fleet.a.set(Behaviour { status: Some(500), ..Behaviour::default() });
    fleet.nodes[0].chat().await;
    let pages = async || {
        let mut all = String::new();
        for node in &fleet.nodes {
            all.push_str(&node.text("/metrics").await);
        }
        all
    };
    let has_probed = |page: &str| {
        let mut probes = page.lines().filter(|line| line.starts_with("quorumgate_probes_total{"));
        probes.any(|line| !line.ends_with(" 0"))
    };
    until("the steward has probed", async || has_probed(&pages().await)).await;
    let pages = pages().await;
    let series = pages.lines().filter(|line| !line.starts_with('#'));
    series.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn everything_that_is_asked_for_is_told_by_a_fleet() {
    let dashboard: Value = serde_json::from_str(&read("grafana/quorumgate.json")).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 60, "{}", queries.len());
    let rules = read("prometheus/rules.yaml");
    let asked: BTreeSet<String> =
        queries.iter().chain([&rules]).flat_map(|text| names(text)).collect();
    let told = told().await;
    assert_eq!(asked.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard: Value = serde_json::from_str(&read("grafana/quorumgate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]);
    }
    // Whoever brings it in chooses whose figures it shows.
    for place in panels.iter().filter_map(|panel| panel.get("datasource")) {
        assert_eq!(place["uid"], "${datasource}");
    }
}

fn promtool(arguments: &[&str], file: &str) {
    let output = Command::new("promtool").args(arguments).arg(deploy(file)).output();
    let Ok(output) = output else { panic!("{output:?}: {PROMTOOL_CURE}") };
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&told));
}

#[test]
fn the_alerts_fire_when_they_should_and_not_else() {
    promtool(&["check", "rules"], "prometheus/rules.yaml");
    promtool(&["test", "rules"], "prometheus/rules_test.yaml");
}

#[test]
fn every_alert_says_what_to_do_and_is_tried() {
    let (rules, tests) = (read("prometheus/rules.yaml"), read("prometheus/rules_test.yaml"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 15, "{alerts:?}");
    for part in ["summary: ", "description: ", "runbook: ", "severity: "] {
        assert_eq!(rules.matches(part).count(), alerts.len(), "{part}");
    }
    for alert in alerts {
        assert!(tests.contains(alert), "{alert} is not tried");
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let (rules, runbook) = (read("prometheus/rules.yaml"), read("guide/runbook.md"));
    let of =
        |begin: &'static str| rules.lines().filter_map(move |line| line.trim().strip_prefix(begin));
    let alerts: Vec<&str> = of("- alert: ").collect();
    let places: Vec<&str> = of("runbook_url: ").collect();
    let place = |alert: &&str| format!("\"deploy/guide/runbook.md#{}\"", alert.to_lowercase());
    assert_eq!(places, alerts.iter().map(place).collect::<Vec<_>>());
    let sections: Vec<(&str, &str)> =
        runbook.split("\n### ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let (told, asked): (BTreeSet<&str>, BTreeSet<&str>) =
        (sections.iter().map(|(name, _)| *name).collect(), alerts.iter().copied().collect());
    assert_eq!(told, asked);
    for (name, text) in sections {
        for part in ["\nLook: ", "\nCause, cure: ", "\nWake: "] {
            assert!(text.contains(part), "{name} lacks {part:?}");
        }
    }
}

/// Every query of the dashboard is one that Prometheus can read: each is put into a rule.
#[test]
fn every_query_of_the_dashboard_can_be_read() {
    let dashboard: Value = serde_json::from_str(&read("grafana/quorumgate.json")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    let queries = queries(&dashboard);
    for (number, query) in
        queries.iter().filter(|query| !query.starts_with("label_values")).enumerate()
    {
        let query = query.replace("$__rate_interval", "5m").replace("$instance", ".*");
        let query = query.replace("$model", ".*").replace("$endpoint", ".*");
        let query = Value::String(query);
        rules.push_str(&format!("      - {{ record: \"q:{number}\", expr: {query} }}\n"));
    }
    let file = directory.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", "--lint=none"], file.to_str().unwrap());
}
