//! The reference configuration against the code that it speaks for: it has every key, a value that it shows
//! is the default unless it is listed here as an example, and a bound that it names is the one that holds.
//!
//! What is left out by default stands there as a comment in the form of the key, and is read as well.

use std::collections::{BTreeMap, BTreeSet};

use gateway::config;
use serde_json::Value;

use crate::document;

const TEXT: &str = include_str!("../../../deploy/quorumgate.yaml");

/// Shown with a value that one might have and not with the default, or without any default.
const EXAMPLES: [&str; 30] = [
    "admin/token",
    "cluster/id",
    "cluster/node_id",
    "cluster/listen",
    "cluster/advertise",
    "cluster/seeds",
    "cluster/tls/ca",
    "cluster/tls/cert",
    "cluster/tls/key",
    "fail_closed/allowed_paths",
    "fail_closed/max_input_tokens",
    "fail_closed/max_messages",
    "fail_closed/require_header",
    "models/0/name",
    "models/0/aliases",
    "models/0/endpoints/0/address",
    "models/0/endpoints/0/api_key",
    "models/0/endpoints/0/name",
    "models/0/endpoints/0/upstream_model",
    "models/0/endpoints/0/weight",
    "models/0/endpoints/1/address",
    "models/0/endpoints/1/circuit_breaker/slow/total",
    "models/0/endpoints/1/health_path",
    "models/0/endpoints/1/name",
    "models/0/endpoints/1/upstream_model",
    "redis/password",
    "redis/urls",
    "redis/username",
    "state/file",
    "cluster/backend",
];

/// Keys that stand in a comment within a line, or exclude another one that is shown.
const TOLD_IN_WORDS: [(&str, &str); 1] = [("ClusterTlsSection", "insecure")];

/// Bounds that are told in other words: a part of a rule, or the upper one alone.
const BOUNDS_IN_WORDS: [(&str, &str); 2] =
    [("CircuitSection", "min_requests"), ("ServerSection", "workers")];

/// The bounds of a time that names none, as the line of `window` says; and those of a wait, which may
/// be none.
const USUAL: [&str; 2] = ["1ms to 24h", "0s to 24h"];

/// What is said about a key stands from this column on, or behind the key.
const WORDS: usize = 24;

/// The text with its commented keys made keys.
fn whole() -> String {
    let lines = TEXT.lines().map(|line| {
        let indent = line.len() - line.trim_start().len();
        let told = line.trim_start().strip_prefix("# ").or(line.trim_start().strip_prefix("#"));
        match told {
            Some(rest) if indent < WORDS && key_of(rest.trim_start()).is_some() => {
                format!("{}{rest}", &line[..indent])
            }
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The key with which a line begins, the dash of a list apart.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.strip_prefix("- ").unwrap_or(line).split_once(':')?;
    let is_key =
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let is_value = rest.is_empty() || rest.starts_with(' ');
    (is_key && is_value && !key.is_empty()).then_some(key)
}

/// The section that a property leads to.
fn section_of<'a>(schema: &'a Value, section: &str, key: &str) -> Option<&'a str> {
    let property = &schema["$defs"][section]["properties"][key];
    let target = property["$ref"].as_str().or(property["items"]["$ref"].as_str());
    target.and_then(|target| target.strip_prefix("#/$defs/"))
}

fn note(schema: &Value, section: &str, value: &Value, seen: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Array(entries) => entries.iter().for_each(|one| note(schema, section, one, seen)),
        Value::Object(entries) => {
            for (key, value) in entries {
                seen.insert((section.to_owned(), key.clone()));
                if let Some(inner) = section_of(schema, section, key) {
                    note(schema, inner, value, seen);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_reference_has_every_key() {
    let schema = config::schema();
    let mut seen = BTreeSet::new();
    note(&schema, "File", &document(&whole()), &mut seen);
    seen.extend(TOLD_IN_WORDS.map(|(section, key)| (section.to_owned(), key.to_owned())));
    let sections = schema["$defs"].as_object().unwrap();
    let known = sections.iter().filter_map(|(name, section)| {
        let keys = section["properties"].as_object()?.keys();
        Some(keys.map(|key| (name.clone(), key.clone())).collect::<Vec<_>>())
    });
    let known: BTreeSet<_> = known.flatten().collect();
    assert!(known.len() > 150, "{}", known.len());
    assert_eq!(known.symmetric_difference(&seen).collect::<Vec<_>>(), Vec::<&(_, _)>::new());
}

fn effective(document: &Value) -> Option<String> {
    let environment = |name: &str| Some(format!("value-of-{}", name.to_lowercase()));
    let read = config::parse(&document.to_string(), "reference", &environment).ok()?;
    Some(read.effective_yaml())
}

/// Every key with a scalar or a list of scalars, by its path.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries.iter().map(|(key, one)| (key.clone(), one)).collect(),
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            entries.iter().enumerate().map(|(index, one)| (index.to_string(), one)).collect()
        }
        _ => return found.push(path.trim_start_matches('/').to_owned()),
    };
    for (key, one) in inner {
        leaves(one, &format!("{path}/{key}"), found);
    }
}

#[test]
fn a_value_that_is_shown_is_the_default_or_a_listed_example() {
    let mut shown = document(TEXT);
    let mut with_redis = shown.clone();
    with_redis["cluster"]["backend"] = "redis".into();
    with_redis["redis"] = document(&whole())["redis"].clone();
    let redis = with_redis["redis"].as_object_mut().unwrap();
    // They belong to another mode, and to an address that is shown without TLS.
    for key in ["master", "sentinel_password", "tls"] {
        redis.remove(key);
    }
    let mut others = BTreeSet::new();
    let mut tried = 0;
    let mut wrong = Vec::new();
    for document in [&mut shown, &mut with_redis] {
        let whole = effective(document).unwrap();
        let mut paths = Vec::new();
        leaves(document, "", &mut paths);
        for path in paths {
            let mut without = document.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let entries = without.pointer_mut(&format!("/{parent}")).unwrap();
            entries.as_object_mut().unwrap().remove(key);
            let is_default = effective(&without).is_some_and(|text| text == whole);
            tried += 1;
            match EXAMPLES.iter().find(|example| **example == path) {
                Some(example) => drop(others.insert(example)),
                None if is_default => {}
                None => wrong.push(path),
            }
        }
    }
    assert!(tried > 150, "{tried}");
    assert!(wrong.is_empty(), "shown with what is not their default: {wrong:?}");
    let left: Vec<_> = EXAMPLES.iter().filter(|example| !others.contains(*example)).collect();
    assert!(left.is_empty(), "no such keys: {left:?}");
}

/// What the lines of each key say about it, by section and key.
fn comments(schema: &Value) -> BTreeMap<(String, String), String> {
    let mut told: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut stack: Vec<(usize, Option<String>)> = Vec::new();
    let mut last = None;
    for line in whole().lines() {
        let begin = line.len() - line.trim_start().len();
        let comment = line.split_once(" #").map_or("", |(_, comment)| comment);
        if let Some(key) = key_of(line.trim_start()) {
            let indent = begin + if line.trim_start().starts_with("- ") { 2 } else { 0 };
            stack.retain(|(at, _)| *at < indent);
            let section = match stack.last() {
                None => Some("File".to_owned()),
                Some((_, section)) => section.clone(),
            };
            let inner = section.as_deref().and_then(|one| section_of(schema, one, key));
            stack.push((indent, inner.map(str::to_owned)));
            last = section.map(|section| (section, key.to_owned()));
        }
        if let Some(place) = &last {
            told.entry(place.clone()).or_default().push_str(&format!(" {}", comment.trim()));
        }
    }
    told
}

/// The bounds in a text, such as `1s to 1h`: two words with figures around `to`.
fn bounds(text: &str) -> Option<String> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches([',', ';', ':', '.'])).collect();
    let is_figure = |word: &str| {
        word.starts_with(|one: char| one.is_ascii_digit()) && !word.contains(['/', '^'])
    };
    let found = words
        .windows(3)
        .find(|three| three[1] == "to" && is_figure(three[0]) && is_figure(three[2]));
    found.map(|three| three.join(" "))
}

#[test]
fn a_bound_that_is_named_is_the_one_that_holds() {
    let schema = config::schema();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for ((section, key), comment) in comments(&schema) {
        let property = &schema["$defs"][section.as_str()]["properties"][key.as_str()];
        let Some(holds) = property["description"].as_str().and_then(bounds) else { continue };
        compared += 1;
        let told = bounds(&comment);
        let is_usual = told.is_none() && USUAL.contains(&holds.as_str());
        let is_in_words = BOUNDS_IN_WORDS.contains(&(section.as_str(), key.as_str()));
        if !is_usual && !is_in_words && told.as_ref() != Some(&holds) {
            wrong.push(format!("{section}.{key}: {holds}, not {comment}"));
        }
    }
    assert!(compared > 55, "{compared}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
