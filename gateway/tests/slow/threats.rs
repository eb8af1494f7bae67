//! The page about threats against the program: no default and no bound in it is another one.

use std::path::Path;

use gateway::config;
use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The rows below a heading, by what stands in backticks in each cell; a cell without is empty.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.split('`').nth(1).unwrap_or_default().to_owned()).collect()
    };
    lines.map(cells).collect()
}

/// The value at a path like `models[0].timeouts.idle`, as it is written.
fn at(document: &Value, path: &str) -> String {
    let place = path.replace('[', ".").replace(']', "").replace('.', "/");
    let value = document.pointer(&format!("/{place}"));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => panic!("{path} is no key with a default"),
    }
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_configuration() {
    let smallest = "models: [{ name: m, endpoints: [{ name: a, address: 'http://a:1' }] }]";
    let effective = config::parse(smallest, "test", &|_| None).unwrap().effective_yaml();
    let mut options = serde_saphyr::Options::default();
    options.strict_booleans = true;
    let document: Value = serde_saphyr::from_str_with_options(&effective, options).unwrap();
    let rows = rows(&read("deploy/guide/threats.md"), "Defaults of the configuration");
    assert!(rows.len() > 12, "{rows:?}");
    for row in rows {
        assert_eq!(at(&document, &row[0]), row[1], "{}", row[0]);
    }
}

/// What an expression of the source amounts to: a count, or milliseconds.
fn amount(expression: &str) -> u64 {
    let scale = if expression.contains("from_secs") { 1_000 } else { 1 };
    let inner = expression.split('(').nth(1).unwrap_or(expression).trim_end_matches(')');
    let factors = inner.split('*').map(|factor| factor.trim().replace('_', ""));
    scale * factors.map(|factor| factor.parse::<u64>().unwrap()).product::<u64>()
}

/// What a cell of the page amounts to.
fn told(cell: &str) -> u64 {
    let units = [("KiB", 1024), ("MiB", 1024 * 1024), ("ms", 1), ("s", 1_000), ("", 1)];
    let split = |(unit, scale): (&str, u64)| {
        cell.strip_suffix(unit)?.parse::<u64>().ok().map(|number| number * scale)
    };
    units.into_iter().find_map(split).unwrap()
}

/// The line that declares a constant in a file.
fn declared(name: &str, path: &str) -> Option<String> {
    let start = format!("const {name}: ");
    read(path).lines().find(|line| line.contains(&start)).map(str::to_owned)
}

#[test]
fn the_bounds_on_the_page_are_those_of_the_program() {
    let rows = rows(&read("deploy/guide/threats.md"), "Bounds that are not configured");
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        let Some(line) = declared(&row[0], &row[1]) else {
            panic!("{} is not in {}", row[0], row[1])
        };
        let expression = line.split_once(" = ").unwrap().1.trim_end_matches(';');
        assert_eq!(amount(expression), told(&row[2]), "{}: {line}", row[0]);
    }
}
