//! One schema for all configurations: the shipped files, those within other programs' files, those of
//! the documents, and the demo's own.

use std::fs;

use crate::blocks::{self, files, root};
use crate::complain;

/// The smallest model, for fragments.
const MODEL: &str = "models:
  - { name: m, endpoints: [ { name: a, address: \"http://127.0.0.1:9\" } ] }
";

/// What is wrong with a configuration: by the check that a start makes.
fn wrong(text: &str, place: &str) -> Option<String> {
    let environment =
        |name: &str| Some(format!("value-of-{}", name.to_lowercase().replace('_', "-")));
    gateway::config::parse(text, place, &environment).err().map(|error| format!("{place}: {error}"))
}

#[test]
fn every_configuration_in_a_document_is_accepted() {
    let mut complaints = Vec::new();
    for block in blocks::all().into_iter().filter(|block| block.info == "yaml") {
        let is_whole = block.text.lines().any(|line| line.starts_with("models:"));
        let rest = if is_whole { "" } else { MODEL };
        complaints.extend(wrong(&format!("{}{rest}", block.text), &block.place()));
    }
    complain(&complaints);
}

/// Other programs' files below `deploy` and `chaos`: by a word that only they have, at the beginning of
/// a line. Whatever else is YAML there is ours.
const OTHERS: [&str; 6] =
    ["apiVersion:", "services:", "groups:", "rule_files:", "kind:", "scrape_configs:"];

/// The text below a key of ours in another program's file, for example in a ConfigMap: what is indented
/// below `NAME.yaml: |`.
fn embedded(text: &str) -> Vec<(usize, String)> {
    let (mut found, lines) = (Vec::new(), text.lines().collect::<Vec<_>>());
    for (number, line) in lines.iter().enumerate() {
        let key = line.trim().trim_end_matches(['|', '-', '+', ' ']);
        let is_block = line.trim_end().ends_with(['|', '-', '+']) && line.contains('|');
        if !(is_block && (key.ends_with("quorumgate.yaml:") || key.ends_with("gw.yaml:"))) {
            continue;
        }
        let depth = line.len() - line.trim_start().len();
        let is_below =
            |line: &&&str| line.trim().is_empty() || line.len() - line.trim_start().len() > depth;
        let below: Vec<&&str> = lines[number + 1..].iter().take_while(is_below).collect();
        let indents = below.iter().filter(|line| !line.trim().is_empty());
        let indent = indents.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
        let text = below.iter().map(|line| line.get(indent..).unwrap_or_default());
        found.push((number + 1, text.map(|line| format!("{line}\n")).collect()));
    }
    found
}

#[test]
fn every_shipped_configuration_is_of_the_one_schema() {
    let (mut complaints, mut own, mut within) = (Vec::new(), 0, 0);
    for path in ["deploy", "chaos"].into_iter().flat_map(|folder| files(folder, &[".yaml", ".yml"]))
    {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        // A chart's templates become YAML only when they are rendered; what is rendered is beside them.
        let is_template = text.contains("{{ ") && name.contains("/templates/");
        let is_other = |line: &str| OTHERS.iter().any(|word| line.starts_with(word));
        let is_chart =
            ["values", "Chart"].iter().any(|word| name.contains(word)) && name.contains("helm");
        let is_rules = name.starts_with("deploy/prometheus/");
        for (line, text) in embedded(&text).into_iter().filter(|_| !is_template) {
            within += 1;
            complaints.extend(wrong(&text, &format!("{name}:{line}")));
        }
        if !(is_template || is_chart || is_rules || text.lines().any(is_other)) {
            own += 1;
            complaints.extend(wrong(&text, &name));
        }
    }
    eprintln!("{own} files of ours, {within} within others'");
    assert!(own >= 4, "the configurations are not found");
    complain(&complaints);
}

#[test]
fn what_is_embedded_is_found() {
    let text = "data:\n  quorumgate.yaml: |\n    server:\n      workers: 1\n\n    admin: {}\nkind: ConfigMap\n";
    assert_eq!(embedded(text), [(2, "server:\n  workers: 1\n\nadmin: {}\n".to_owned())]);
    assert!(embedded("data:\n  other.yaml: |\n    a: 1\n").is_empty());
}
